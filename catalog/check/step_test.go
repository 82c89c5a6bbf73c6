package check

import (
	"strings"
	"testing"

	"corbel.dev/corbel/catalog"
	"pgregory.net/rapid"
)

// TestStep plays results (p w c) against thresholds and reads the shown status after each.
func TestStep(t *testing.T) {
	tests := []struct {
		name          string
		limits        Thresholds
		start         catalog.Health
		results, want string
	}{
		{"no thresholds follow at once", Thresholds{}, catalog.Critical, "pcwcp", "pcwcp"},
		{"two successes before passing", Thresholds{SuccessBeforePassing: 2}, catalog.Critical, "ppcpwp", "cpccwp"},
		{"three failures before critical", Thresholds{FailuresBeforeCritical: 3}, catalog.Passing, "cccpcc", "ppcppp"},
		{"warn first", Thresholds{FailuresBeforeWarning: 1, FailuresBeforeCritical: 3}, catalog.Passing, "cccpc", "wwcpw"},
		{"warning after two", Thresholds{FailuresBeforeWarning: 2, FailuresBeforeCritical: 4}, catalog.Passing,
			"ccccc", "pwwcc"},
		{"a success resets the failures", Thresholds{FailuresBeforeCritical: 2}, catalog.Passing, "cpcpcc", "pppppc"},
	}
	letters := map[byte]catalog.Health{'p': catalog.Passing, 'w': catalog.Warning, 'c': catalog.Critical}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			flap := Flap{Status: tc.start}
			var got strings.Builder
			for i := range tc.results {
				flap, _ = Step(flap, letters[tc.results[i]], tc.limits)
				got.WriteByte(flap.Status.String()[0])
			}
			if got.String() != tc.want {
				t.Errorf("%s gave %s, want %s", tc.results, got.String(), tc.want)
			}
		})
	}
}

func TestStepHidesOutputBelowThreshold(t *testing.T) {
	next, show := Step(Flap{Status: catalog.Passing}, catalog.Critical, Thresholds{FailuresBeforeCritical: 2})
	if show || next.Status != catalog.Passing {
		t.Errorf("got %v show=%v", next, show)
	}
	if _, show = Step(next, catalog.Critical, Thresholds{FailuresBeforeCritical: 2}); !show {
		t.Error("the second failure must show")
	}
}

// TestStepProperties: counters exclude each other, and enough equal results always win.
func TestStepProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Thresholds{rapid.IntRange(0, 4).Draw(t, "success"), 0, rapid.IntRange(0, 5).Draw(t, "critical")}
		limits.FailuresBeforeWarning = rapid.IntRange(0, limits.FailuresBeforeCritical).Draw(t, "warning")
		flap := Flap{Status: catalog.Health(rapid.IntRange(0, 2).Draw(t, "start"))}
		for _, r := range rapid.SliceOf(rapid.IntRange(0, 2)).Draw(t, "results") {
			flap, _ = Step(flap, catalog.Health(r), limits)
			if flap.Successes > 0 && flap.Failures > 0 {
				t.Fatalf("both counters run: %+v", flap)
			}
		}
		last := catalog.Health(rapid.IntRange(0, 2).Draw(t, "last"))
		for range 6 {
			flap, _ = Step(flap, last, limits)
		}
		if flap.Status != last {
			t.Fatalf("six results %v end in %v", last, flap.Status)
		}
	})
}

func TestRingKeepsTail(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 20).Draw(t, "size")
		r := newRing(size)
		var all strings.Builder
		for _, part := range rapid.SliceOf(rapid.StringMatching(`[a-z]{0,30}`)).Draw(t, "parts") {
			all.WriteString(part)
			if n, err := r.Write([]byte(part)); n != len(part) || err != nil {
				t.Fatalf("wrote %d of %d: %v", n, len(part), err)
			}
		}
		if want := tail(all.String(), size); r.String() != want {
			t.Fatalf("kept %q, want %q", r.String(), want)
		}
	})
}
