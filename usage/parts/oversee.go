package parts

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/neterr"
	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/telemetry"
	"corbel.dev/corbel/usage/definitions"
)

// pingEvery is how often the leader asks all servers for a sign of life.
func pingEvery(failover time.Duration) time.Duration { return min(time.Second, failover/8) }

// heard is what the leader of the plane knows of a server.
type heard struct {
	first, last time.Time // of the signs of life without a pause
	refused     time.Time // since when nobody has listened at its address; zero where that is not so
}

// fleet is what the leader knows of all.
type fleet struct {
	now      time.Time
	began    time.Time // when it began to listen
	failover time.Duration
	heard    map[string]heard
}

// silent says whether a server has given no sign of life for so long that others take over. Where its host refuses
// connections, its process has ended, and a third of the time is enough: a restart takes less.
func (f *fleet) silent(server string) bool {
	if f.now.Sub(f.began) < 2*pingEvery(f.failover) {
		return false // it has been asked once at most
	}
	if since := f.heard[server].refused; !since.IsZero() && f.now.Sub(since) >= f.failover/3 {
		return true
	}
	return f.now.Sub(f.last(server)) >= f.failover
}

// last is when a server gave its last sign of life, as far as this one can know.
func (f *fleet) last(server string) time.Time {
	if last := f.heard[server].last; !last.IsZero() {
		return last
	}
	return f.began
}

// steady says whether a server has answered all the time, for as long.
func (f *fleet) steady(server string) bool {
	h := f.heard[server]
	return f.fresh(server) && f.now.Sub(h.first) >= f.failover
}

// fresh says whether a server answered just now.
func (f *fleet) fresh(server string) bool {
	return f.now.Sub(f.heard[server].last) < 3*pingEvery(f.failover)
}

// decide is what is to be done about a part; false is nothing.
func (f *fleet) decide(view *definitions.View, name string, voters map[string]bool) (next definitions.Part, ok bool) {
	now := view.Part(name)
	switch {
	case now.Copy == "":
	case f.silent(now.Lead) && f.fresh(now.Copy):
		return definitions.Part{Lead: now.Copy}, true
	case !f.steady(now.Lead) || !f.steady(now.Copy) || f.cold(view, name):
	case now.Copy == name:
		return definitions.Part{Lead: now.Copy, Copy: now.Lead}, true
	case now.Lead != name && !voters[name] && led(view, now.Lead)-led(view, now.Copy) >= 2:
		return definitions.Part{Lead: now.Copy, Copy: now.Lead}, true
	}
	return next, false
}

// cold says whether another part is about to change: its copy is being made, or one of the two is gone. By plan, a part
// moves when all others are whole, so that one at a time is cold. A part that nobody has is waited for by nobody.
func (f *fleet) cold(view *definitions.View, but string) bool {
	for _, name := range view.Owners {
		now := view.Part(name)
		if name != but && f.fresh(now.Lead) != (now.Copy != "" && f.fresh(now.Copy)) {
			return true
		}
	}
	return false
}

// maxUnplaced bounds the parts that are told of at once.
const maxUnplaced = 10

// unplaced are the parts that nobody can lead now: for how long their lead has been silent.
func (f *fleet) unplaced(view *definitions.View) (list []telemetry.Point) {
	for _, name := range view.Owners {
		now := view.Part(name)
		if !f.silent(now.Lead) || now.Copy != "" && f.fresh(now.Copy) || len(list) >= maxUnplaced {
			continue
		}
		list = append(list, telemetry.Point{Labels: []string{"part", name, "lead", now.Lead, "copy", now.Copy},
			Value: millis(f.now.Sub(f.last(now.Lead)))})
	}
	return list
}

// led is how many parts a server leads.
func led(view *definitions.View, server string) (n int) {
	for _, name := range view.Owners {
		if view.Part(name).Lead == server {
			n++
		}
	}
	return n
}

// oversee has copies take over where leads are gone, while this server leads the plane.
func (p *Parts) oversee(ctx context.Context) {
	var f *fleet
	var under moves
	defer under.Wait()
	nobodys := p.cfg.Metrics.GaugeSet("usage.parts.unplaced_ms")
	for {
		t := p.cfg.Clock.NewTimer(pingEvery(p.cfg.Failover))
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		if !p.cfg.Leads() {
			nobodys.Replace(nil)
			f = nil
			continue
		}
		if f == nil {
			f = &fleet{began: p.cfg.Clock.Now(), failover: p.cfg.Failover, heard: map[string]heard{}}
			if former := p.pinged.Load(); former != nil && former.by != p.cfg.Self {
				// Who led before this one is silent since then: the others were heard by that one alone.
				f.heard[former.by] = heard{first: former.at, last: former.at}
			}
		}
		voters := p.listen(ctx, f)
		view := p.cfg.Definitions.View()
		nobodys.Replace(f.unplaced(view))
		if p.draining.Load() {
			continue // who leads the plane next decides
		}
		for _, name := range view.Owners {
			decide := f.decide
			if p.cfg.Shared {
				decide = f.shared
			} else if p.cfg.Copies < 2 {
				break
			}
			was := view.Part(name)
			next, ok := decide(view, name, voters)
			if ok && under.start(next.Copy == was.Lead, func() { p.move(ctx, name, was, next) }) {
				break // the next one by a newer table
			}
		}
	}
}

// moves are parts that move: one by plan, for which its lead is asked, and one whose lead is gone, which does not wait
// for that. Who oversees goes on listening.
type moves struct {
	sync.WaitGroup
	planned, other atomic.Bool
}

// start moves a part; false where another one moves.
func (m *moves) start(planned bool, move func()) bool {
	under := &m.other
	if planned {
		under = &m.planned
	}
	if under.Swap(true) {
		return false
	}
	m.Go(func() {
		defer under.Store(false)
		move()
	})
	return true
}

func (p *Parts) move(ctx context.Context, name string, was, next definitions.Part) {
	p.cfg.Log.Warn("usage: a part moves", "part", name, "from", was.Lead, "to", next.Lead)
	if next.Copy == was.Lead && askYield(ctx, p, name, was, next) == nil {
		return
	}
	within, cancel := context.WithTimeout(ctx, decideWithin)
	defer cancel()
	_, err := p.cfg.Definitions.Do(within, definitions.Command{At: p.cfg.Clock.Now(),
		Part: &definitions.PartPut{Name: name, Was: was.Epoch, Next: next}})
	if err != nil && ctx.Err() == nil {
		p.cfg.Log.Warn("usage: a part has not moved", "part", name, "error", err)
	}
}

// listen asks all servers for a sign of life.
func (p *Parts) listen(ctx context.Context, f *fleet) map[string]bool {
	voters := map[string]bool{}
	ctx, cancel := context.WithTimeout(ctx, pingEvery(f.failover))
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	answered := map[string]bool{p.cfg.Self: true}
	refused := map[string]bool{}
	for _, s := range p.cfg.Voters() {
		voters[s] = true
		if s == p.cfg.Self {
			continue
		}
		wg.Go(func() {
			_, err := p.cfg.Call(ctx, s, MethodPing, pack.String(nil, p.cfg.Self))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				answered[s] = true
			} else {
				refused[s] = neterr.Refused(err)
			}
		})
	}
	wg.Wait()
	f.now = p.cfg.Clock.Now()
	for s := range answered {
		h := f.heard[s]
		if h.first.IsZero() || f.now.Sub(h.last) > 3*pingEvery(f.failover) {
			h.first = f.now
		}
		h.last, h.refused = f.now, time.Time{}
		f.heard[s] = h
	}
	for s, is := range refused {
		h := f.heard[s]
		switch {
		case !is:
			h.refused = time.Time{}
		case h.refused.IsZero():
			h.refused = f.now
		}
		f.heard[s] = h
	}
	return voters
}
