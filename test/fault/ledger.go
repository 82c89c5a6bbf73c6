package faultrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/fault/history"
	"corbel.dev/corbel/kit/spawn"
)

// Absent is the state of a thing that does not exist.
const Absent = ""

// Ledger is what clients were told: for each thing its last acknowledged state and
// the states that a write of unknown outcome may have given it. A thing has one
// writer, which never writes to it again after an unknown outcome: so what may be
// found later is exactly one of these.
type Ledger struct {
	mu      sync.Mutex // guards the rest
	entries map[string]*ledgerEntry
	Acked   int
	Unknown int
}

type ledgerEntry struct {
	acked string
	maybe []string
}

func NewLedger() *Ledger { return &Ledger{entries: map[string]*ledgerEntry{}} }

// Note records what became of the write of state to the things; true when they may be written to again.
func (l *Ledger) Note(outcome history.Outcome, state string, things ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, thing := range things {
		e := l.entries[thing]
		if e == nil {
			e = &ledgerEntry{}
			l.entries[thing] = e
		}
		switch outcome {
		case history.OK:
			e.acked = state
		case history.Unknown:
			e.maybe = append(e.maybe, state)
		}
	}
	switch outcome {
	case history.OK:
		l.Acked++
	case history.Unknown:
		l.Unknown++
	}
	return outcome != history.Unknown
}

// Judge compares what was found with what was told.
func (l *Ledger) Judge(found map[string]string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, thing := range slices.Sorted(maps.Keys(l.entries)) {
		e := l.entries[thing]
		if state := found[thing]; state != e.acked && !slices.Contains(e.maybe, state) {
			what := "an acknowledged write is lost"
			if e.acked == Absent {
				what = "an acknowledged deletion is undone"
			}
			errs = append(errs, fmt.Errorf("%s: %s is %q, acknowledged was %q, possible %q", what, thing, state,
				e.acked, e.maybe))
		}
	}
	for _, thing := range slices.Sorted(maps.Keys(found)) {
		if l.entries[thing] == nil {
			errs = append(errs, fmt.Errorf("%s is %q, and nobody ever wrote it", thing, found[thing]))
		}
	}
	if len(errs) > 8 {
		errs = append(slices.Clip(errs[:8]), fmt.Errorf("and %d more", len(errs)-8))
	}
	return errors.Join(errs...)
}

// The prefixes of things: KV pairs, services and sessions.
const (
	kvThing      = "kv "
	serviceThing = "service "
	sessionThing = "session "
)

// found reads every thing that ledger clients write, in the given consistency.
func (c *Client) found(ctx context.Context, mode string) (map[string]string, error) {
	state := map[string]string{}
	var pairs []Pair
	if err := c.List(ctx, "/v1/kv/ledger/?recurse&"+mode, &pairs); err != nil {
		return nil, err
	}
	for _, p := range pairs {
		state[kvThing+p.Key] = p.Text()
	}
	var sessions []struct{ ID, Name string }
	if err := c.List(ctx, "/v1/session/list?"+mode, &sessions); err != nil {
		return nil, err
	}
	for _, s := range sessions {
		if strings.HasPrefix(s.Name, "ledger") {
			state[sessionThing+s.Name] = "open"
		}
	}
	var services []struct {
		ServiceID   string
		ServiceMeta map[string]string
	}
	if err := c.List(ctx, "/v1/catalog/service/ledger?"+mode, &services); err != nil {
		return nil, err
	}
	for _, s := range services {
		state[serviceThing+s.ServiceID] = s.ServiceMeta["state"]
	}
	return state, nil
}

// List decodes an answer into v; 404 is an empty list.
func (c *Client) List(ctx context.Context, path string, v any) error {
	r := c.Do(ctx, "GET", path, nil)
	switch {
	case r.Status == http.StatusNotFound:
		return nil
	case r.Status != http.StatusOK:
		return fmt.Errorf("%s: %s", path, r)
	}
	return json.Unmarshal(r.Body, v)
}

// Audit reads everything consistently through every running member and judges it.
func (c *Cluster) Audit(ctx context.Context, l *Ledger) error {
	for _, s := range c.Servers {
		if !s.Running() {
			continue
		}
		var state map[string]string
		err := spawn.Until(ctx, 20*time.Second, "a consistent read of everything through "+s.Name, func() (err error) {
			state, err = c.Admin.At(s.HTTP).found(ctx, "consistent")
			return err
		})
		if err != nil {
			return err
		}
		if err := l.Judge(state); err != nil {
			return fmt.Errorf("through %s: %w", s.Name, err)
		}
	}
	return nil
}
