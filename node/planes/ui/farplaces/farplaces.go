// Package farplaces asks places that may be slow or gone, such as other datacenters, and keeps what each said last.
// Whoever looks gets what is there: a place that does not answer holds up neither them nor the others. Each place is
// asked by one goroutine at a time, for Time at most. Places is safe for concurrent use; its Run owns the goroutines.
package farplaces

import (
	"context"
	"fmt"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// Places are those that were looked at lately. The zero value is ready.
type Places struct {
	mu     sync.Mutex
	ctx    context.Context // of Run; nil before and after
	asking sync.WaitGroup
	kept   map[string]*Heard
}

// Heard is what is known of a place.
type Heard struct {
	Value  any           // nil until there was an answer, and once the person may no longer have it
	at     time.Time     // of the answer
	took   time.Duration // until it came
	err    error         // why the newest attempt failed
	began  time.Time     // of the attempt under way; zero is none
	tried  time.Time     // the end of the newest attempt
	used   time.Time
	answer chan struct{} // closed at the end of the attempt under way
}

const (
	Every     = 2 * time.Second        // the least time between two questions to a place
	Time      = 3 * time.Second        // that a place has for an answer
	slowAfter = time.Second            // beyond which a place counts as slow
	firstLook = 500 * time.Millisecond // that who looks for the first time waits for all places together
	share     = 10                     // a place is asked again after this many times what its answer took
	most      = 1024                   // places, each for one person, that are kept
)

// Run lets places be asked until ctx ends, and waits for the questions that are under way.
func (p *Places) Run(ctx context.Context) {
	p.mu.Lock()
	p.ctx = ctx
	p.mu.Unlock()
	<-ctx.Done()
	p.mu.Lock()
	p.ctx = nil // nobody is asked any more
	p.mu.Unlock()
	p.asking.Wait()
}

// Look is what is known of a place under a key, which tells persons apart; it has the place asked where that is old.
func (p *Places) Look(key string, ask func(context.Context) (any, error)) (now Heard) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.kept[key]
	if h == nil {
		p.makeRoomLocked()
		h = &Heard{}
		p.kept[key] = h
	}
	h.used = time.Now()
	if ctx := p.ctx; ctx != nil && h.began.IsZero() && time.Since(h.tried) >= max(Every, share*h.took) {
		h.began, h.answer = h.used, make(chan struct{})
		p.asking.Go(func() { p.ask(ctx, h, ask) })
	}
	return *h
}

// makeRoomLocked lets go of what was looked at the longest ago.
func (p *Places) makeRoomLocked() {
	if p.kept == nil {
		p.kept = map[string]*Heard{}
	}
	for len(p.kept) >= most {
		oldest := ""
		for key, h := range p.kept {
			if oldest == "" || h.used.Before(p.kept[oldest].used) {
				oldest = key
			}
		}
		delete(p.kept, oldest)
	}
}

func (p *Places) ask(ctx context.Context, h *Heard, ask func(context.Context) (any, error)) {
	ctx, cancel := context.WithTimeout(ctx, Time)
	defer cancel()
	value, err := ask(ctx)
	if err != nil && ctx.Err() != nil {
		err = errkind.Errorf(errkind.Unavailable, "no answer within %v", Time)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	h.tried = time.Now()
	switch {
	case err == nil:
		h.Value, h.at, h.took = value, h.tried, h.tried.Sub(h.began)
	case errkind.Is(err, errkind.Denied):
		h.Value = nil // rights end when they are taken
	}
	h.err, h.began = err, time.Time{}
	close(h.answer)
}

// Settle waits for places that were never Heard of, until the first time to look is over.
func Settle(ctx context.Context, places []Heard) {
	timer := time.NewTimer(firstLook)
	defer timer.Stop()
	for i := range places {
		if !places[i].tried.IsZero() || places[i].answer == nil {
			continue
		}
		select {
		case <-places[i].answer:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Row is how a place does, in a line.
type Row struct {
	Name  string `json:"name"`
	Here  bool   `json:"here"`
	State string `json:"state"` // passing, warning (slow), critical (unreachable), unknown
	Words string `json:"words"`
	At    int64  `json:"at"` // of what is shown, ms since 1970; 0 is nothing
}

// Row tells how a place does. Times are rounded, so that what does not change is not told again.
func (h *Heard) Row(name string, here bool) Row {
	row := Row{Name: name, Here: here, State: "passing", Words: "answers"}
	if h.Value != nil {
		row.At = h.at.UnixMilli()
	}
	waits := time.Duration(0)
	if !h.began.IsZero() {
		waits = time.Since(h.began)
	}
	switch {
	case errkind.Is(h.err, errkind.Denied):
		row.State, row.Words = "unknown", "this login is not known there: "+h.err.Error()
	case h.err != nil:
		row.State, row.Words = "critical", "unreachable: "+h.err.Error()
	case waits > slowAfter:
		row.State, row.Words = "warning", fmt.Sprintf("slow: no answer for %v", waits.Round(time.Second))
	case h.tried.IsZero():
		row.State, row.Words = "unknown", "asked, no answer yet"
	case h.took > slowAfter:
		row.State, row.Words = "warning", fmt.Sprintf("slow: answers in %v", h.took.Round(100*time.Millisecond))
	}
	if row.State == "passing" {
		row.At = 0 // it is as new as the page
	}
	return row
}
