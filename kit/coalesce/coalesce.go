// Package coalesce merges changes on the leading edge: the first change after a
// quiet time acts at once, those that follow within the window are merged into
// one action at its end. A quiet system sees no added delay.
//
// Edge is the decision alone: pure, time comes in as an argument, one goroutine.
// Trigger is an Edge with a loop around it, for those who have no loop of their own.
package coalesce

import (
	"context"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/clock"
)

// Edge decides when to act. Invariant: two actions are at least Window apart, and
// each change is followed by an action at most Window later.
type Edge struct {
	// Window is the least time between two actions; zero acts on each change.
	Window time.Duration

	acted   bool
	last    time.Time // of the newest action
	pending bool
	merged  uint64
}

// Change notes a change at now and reports whether to act at once. When false, Due says when.
func (e *Edge) Change(now time.Time) bool {
	if !e.acted || now.Sub(e.last) >= e.Window || now.Before(e.last) {
		e.act(now)
		return true
	}
	if e.pending {
		e.merged++
	}
	e.pending = true
	return false
}

func (e *Edge) act(now time.Time) { e.acted, e.last, e.pending = true, now, false }

// Due returns when the merged changes are to be acted on; false when there are none.
func (e *Edge) Due() (time.Time, bool) { return e.last.Add(e.Window), e.pending }

// Fire reports whether merged changes are due at now, and if so takes them as acted on.
func (e *Edge) Fire(now time.Time) bool {
	if !e.pending || (now.Sub(e.last) < e.Window && !now.Before(e.last)) {
		return false
	}
	e.act(now)
	return true
}

// Merged counts the changes that caused no action of their own.
func (e *Edge) Merged() uint64 { return e.merged }

// Trigger calls a function on the leading edge of pokes.
type Trigger struct {
	clk    clock.Clock
	window time.Duration
	poke   chan struct{}
	merged atomic.Uint64
}

// NewTrigger makes a trigger; a nil clock means the machine's.
func NewTrigger(window time.Duration, clk clock.Clock) *Trigger {
	if clk == nil {
		clk = clock.Real{}
	}
	return &Trigger{clk: clk, window: window, poke: make(chan struct{}, 1)}
}

// Poke notes a change. It never waits; any goroutine may call it, also before Run.
func (t *Trigger) Poke() {
	select {
	case t.poke <- struct{}{}:
	default:
		t.merged.Add(1)
	}
}

// Merged counts the pokes that caused no call of their own.
func (t *Trigger) Merged() uint64 { return t.merged.Load() }

// Run calls act in its own goroutine until ctx ends. A poke during act is seen after it.
func (t *Trigger) Run(ctx context.Context, act func(context.Context)) {
	edge := Edge{Window: t.window}
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.poke:
		}
		if !edge.Change(t.clk.Now()) && !t.wait(ctx, &edge) {
			return
		}
		act(ctx)
	}
}

// wait returns true when the window has ended, taking the pokes that come meanwhile.
func (t *Trigger) wait(ctx context.Context, edge *Edge) bool {
	for {
		now := t.clk.Now()
		if edge.Fire(now) {
			return true
		}
		due, _ := edge.Due()
		timer := t.clk.NewTimer(due.Sub(now))
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		case <-t.poke:
			timer.Stop()
			t.merged.Add(1)
		}
	}
}
