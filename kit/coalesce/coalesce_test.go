package coalesce

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
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

func TestTrigger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		tr := NewTrigger(100*time.Millisecond, nil)
		begin := time.Now()
		var at []time.Duration
		done := make(chan struct{})
		go func() {
			defer close(done)
			tr.Run(ctx, func(context.Context) { at = append(at, time.Since(begin)) })
		}()
		wait := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		wait(time.Second)
		for range 5 { // the first at once, the others together 100 ms later
			tr.Poke()
			wait(10 * time.Millisecond)
		}
		wait(time.Second)
		tr.Poke()
		wait(time.Second)
		tr.Poke()
		synctest.Wait()
		tr.Poke()
		synctest.Wait()
		cancel()
		<-done
		ms := time.Millisecond
		if want := []time.Duration{1000 * ms, 1100 * ms, 2050 * ms, 3050 * ms}; !slices.Equal(at, want) {
			t.Errorf("acted at %v, want %v", at, want)
		}
		if tr.Merged() != 3 {
			t.Errorf("merged %d, want 3", tr.Merged())
		}
	})
}
