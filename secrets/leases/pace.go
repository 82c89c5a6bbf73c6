package leases

import (
	"time"
)

// pace decides how many revocations of one target may be under way: more while its answers stay
// quick, fewer when they become slow or fail, none for a while when nothing but failures comes
// back. Time comes in as an argument. Not safe for concurrent use.
//
// Invariant: 1 <= limit <= paceMost.
type pace struct {
	limit     float64
	best      time.Duration // the least latency of late, smoothed; 0: none known
	latency   time.Duration // smoothed
	cut       time.Time     // when limit was last made smaller
	failures  int           // in a row
	openUntil time.Time     // no try before; zero: the circuit is closed
	wait      time.Duration // how long it was opened for
	probing   bool          // one try is under way to see whether it may be closed
}

const (
	paceFirst    = 4
	paceMost     = 64
	paceSlow     = 2.0 // times the best latency is slow
	pacePause    = 50 * time.Millisecond
	breakerAfter = 5 // failures in a row
	breakerFirst = 10 * time.Second
	breakerMost  = 5 * time.Minute
)

// most is how many may be under way now.
func (p *pace) most(now time.Time) int {
	if p.limit == 0 {
		p.limit = paceFirst
	}
	switch {
	case p.openUntil.IsZero():
		return int(p.limit)
	case now.Before(p.openUntil) || p.probing:
		return 0
	}
	return 1
}

// begin says that a try begins.
func (p *pace) begin() { p.probing = !p.openUntil.IsZero() }

// end takes a try's outcome.
func (p *pace) end(now time.Time, took time.Duration, failed bool) {
	p.probing = false
	if failed {
		p.failures++
		p.slower(now)
		if p.failures >= breakerAfter {
			p.wait = min(max(2*p.wait, breakerFirst), breakerMost)
			p.openUntil = now.Add(p.wait)
		}
		return
	}
	p.failures, p.openUntil, p.wait = 0, time.Time{}, 0
	took = max(took, time.Microsecond)
	if p.latency == 0 {
		p.latency, p.best = took, took
	}
	p.latency += (took - p.latency) / 8
	p.best = min(p.best+p.best/1024+1, p.latency) // what was best long ago is forgotten slowly
	if float64(p.latency) > paceSlow*float64(p.best) {
		p.slower(now)
		return
	}
	p.limit = min(p.limit+1/p.limit, paceMost)
}

// slower makes the limit smaller, once for what was under way together.
func (p *pace) slower(now time.Time) {
	if now.Sub(p.cut) < max(p.latency, pacePause) && !p.cut.IsZero() {
		return
	}
	p.limit, p.cut = max(p.limit*0.7, 1), now
}
