package token

import (
	"testing"
	"testing/quick"
	"time"
)

// A renewal that is not stored promises what is stored, which is little less than what it asked for, and never more.
func TestCovered(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	law := func(stored, asked uint32, renewed bool) bool {
		have, want := now.Add(time.Duration(stored%1e5)*time.Second), now.Add(time.Duration(asked%1e5)*time.Second)
		var at time.Time
		if renewed {
			at = now.Add(-time.Second)
		}
		less := want.Sub(have)
		covered := renewed && less >= 0 && less <= time.Minute && less*20 <= want.Sub(now)
		return Covered(now, at, have, want) == covered
	}
	if err := quick.Check(law, &quick.Config{MaxCount: 20_000}); err != nil {
		t.Error(err)
	}
	for less, want := range map[time.Duration]bool{0: true, time.Minute: true, time.Minute + 1: false, -1: false} {
		end := now.Add(time.Hour)
		if got := Covered(now, now, end.Add(-less), end); got != want {
			t.Errorf("%v less: %v", less, got)
		}
	}
}
