package leases

import (
	"testing"
	"time"
)

// The pace follows what comes back: up while it is quick, down when it is slow, nothing for a while when all fails.
func TestPace(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var p pace
	step := func(n int, took time.Duration, failed bool) {
		for range n {
			p.begin()
			now = now.Add(took)
			p.end(now, took, failed)
		}
	}
	if p.most(now) != paceFirst {
		t.Errorf("begins with %d", p.most(now))
	}
	step(5000, time.Millisecond, false)
	if p.most(now) != paceMost {
		t.Errorf("quick: %d", p.most(now))
	}
	step(40, 20*time.Millisecond, false)
	if got := p.most(now); got > 16 {
		t.Errorf("slow: %d", got)
	}
	step(200, time.Second, false)
	if got := p.most(now); got < 1 {
		t.Errorf("always slow: %d", got)
	}
	step(breakerAfter, time.Millisecond, true)
	if p.most(now) != 0 || p.most(now.Add(breakerFirst-1)) != 0 || p.most(now.Add(breakerFirst)) != 1 {
		t.Error("all fail: the circuit is not open, or does not close")
	}
	now = now.Add(breakerFirst)
	p.begin()
	if p.most(now) != 0 {
		t.Error("two tries at once of a target that failed")
	}
	p.end(now, time.Millisecond, true)
	if p.most(now.Add(2*breakerFirst-1)) != 0 || p.most(now.Add(2*breakerFirst)) != 1 {
		t.Error("the second pause is not twice the first")
	}
	now = now.Add(2 * breakerFirst)
	step(1, time.Millisecond, false)
	if p.most(now) < 1 {
		t.Error("a success does not close the circuit")
	}
}
