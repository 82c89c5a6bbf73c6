package coalesce

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestEdgeProperties replays random changes: actions keep their distance, and no change waits longer than the window.
func TestEdgeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const window = 50 * time.Millisecond
		e := Edge{Window: window}
		now := time.Unix(1000, 0)
		var last, oldest time.Time // of the last action, of the oldest change not acted on
		quiet := true
		act := func() {
			if !last.IsZero() && now.Sub(last) < window {
				t.Fatalf("two actions within %s", now.Sub(last))
			}
			if !oldest.IsZero() && now.Sub(oldest) > window {
				t.Fatalf("a change waited %s", now.Sub(oldest))
			}
			last, oldest, quiet = now, time.Time{}, false
		}
		for range rapid.IntRange(1, 60).Draw(t, "changes") {
			target := now.Add(time.Duration(rapid.IntRange(0, 120).Draw(t, "ms")) * time.Millisecond)
			if due, ok := e.Due(); ok && !due.After(target) {
				now = due
				if !e.Fire(now) {
					t.Fatal("does not fire when due")
				}
				act()
			}
			now = target
			atOnce := e.Change(now)
			if (quiet || now.Sub(last) >= window) && !atOnce {
				t.Fatal("a change after a quiet time is delayed")
			}
			if atOnce {
				act()
			} else if oldest.IsZero() {
				oldest = now
			}
			if e.Fire(now) {
				t.Fatal("fires before it is due")
			}
		}
	})
}
