// Package coalesce merges changes on the leading edge: the first change after a
// quiet time acts at once, those that follow within the window are merged into
// one action at its end. A quiet system sees no added delay.
//
// Edge is the decision alone: pure, time comes in as an argument, one goroutine.
package coalesce

import "time"

// Edge decides when to act. Invariant: two actions are at least Window apart, and
// each change is followed by an action at most Window later.
type Edge struct {
	// Window is the least time between two actions; zero acts on each change.
	Window time.Duration

	acted   bool
	last    time.Time // of the newest action
	pending bool
}

// Change notes a change at now and reports whether to act at once. When false, Due says when.
func (e *Edge) Change(now time.Time) bool {
	if !e.acted || now.Sub(e.last) >= e.Window || now.Before(e.last) {
		e.act(now)
		return true
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
