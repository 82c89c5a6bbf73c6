package auth

import (
	"testing"
	"time"
)

// What the rules say is what happens: how many failures, for how long, when they are forgotten, and never.
func TestLockoutRules(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	off, on := true, false
	below := LockoutRules{After: 7, For: time.Hour, Reset: time.Minute, Off: &off}
	if got := (LockoutRules{}).Over(below); got != below {
		t.Errorf("nothing over %+v is %+v", below, got)
	}
	if got := (LockoutRules{After: 2, Off: &on}).Over(below); got.After != 2 || got.For != time.Hour || *got.Off {
		t.Errorf("two failures over %+v is %+v", below, got)
	}
	for _, c := range []struct {
		what     string
		rules    LockoutRules
		failures []time.Duration // since the begin
		asked    time.Duration
		locked   bool
	}{
		{"the last failure locks", LockoutRules{After: 3, For: time.Minute, Reset: time.Hour}, []time.Duration{0, 1, 2},
			time.Second, true},
		{"one too few", LockoutRules{After: 3, For: time.Minute, Reset: time.Hour}, []time.Duration{0, 1},
			time.Second, false},
		{"its time is over", LockoutRules{After: 3, For: time.Minute, Reset: time.Hour}, []time.Duration{0, 1, 2},
			time.Minute + 2, false},
		{"and the count begins anew", LockoutRules{After: 3, For: time.Minute, Reset: time.Hour},
			[]time.Duration{0, 1, 2, 2 * time.Minute}, 2 * time.Minute, false},
		{"failures far apart", LockoutRules{After: 2, For: time.Hour, Reset: time.Minute}, []time.Duration{0, time.Minute},
			time.Minute, false},
		{"failures not so far apart", LockoutRules{After: 2, For: time.Hour, Reset: time.Minute},
			[]time.Duration{0, time.Minute - 1}, 59 * time.Minute, true},
		{"never", LockoutRules{After: 1, For: time.Hour, Reset: time.Hour, Off: &off}, []time.Duration{0, 1, 2, 3}, 4, false},
	} {
		var l Lockout
		for _, at := range c.failures {
			if !l.Tell(&c.rules, "m\x00ann", begin.Add(at), false) {
				t.Errorf("%s: locked before the failure at %v", c.what, at)
			}
		}
		if got := l.Locked(&c.rules, "m\x00ann", begin.Add(c.asked)); got != c.locked ||
			(len(l.Names(&c.rules, "m", begin.Add(c.asked))) == 1) != c.locked {
			t.Errorf("%s: locked is %t", c.what, got)
		}
	}
}
