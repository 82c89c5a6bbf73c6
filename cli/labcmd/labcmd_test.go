package labcmd

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"corbel.dev/corbel/lab"
)

// TestSummary: of several runs the diagnosed are counted and timed, and what came instead is said.
func TestSummary(t *testing.T) {
	all := summarize([]lab.Outcome{{Name: "slow-disk", Diagnosed: true, Seconds: 4},
		{Name: "slow-disk", Diagnosed: true, Seconds: 9}, {Name: "slow-disk", Diagnosed: true, Seconds: 5},
		{Name: "slow-disk", Lacks: "the first finding is cpu-throttled"}, {Name: "clock-skew", Diagnosed: true, Seconds: 3}})
	if s := all[0]; len(all) != 2 || s.Runs != 4 || s.Diagnosed != 3 || s.MeanSeconds != 6 || s.MedianSeconds != 5 ||
		s.MaxSeconds != 9 {
		t.Errorf("%+v", s)
	}
	var out bytes.Buffer
	if err := table(&out, all); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "3 of 4") || !strings.Contains(text, "cpu-throttled") ||
		!strings.Contains(text, "1 of 1") {
		t.Errorf("it says %s", text)
	}
}

// TestSideBySide: every job is done once, some at a time; after an error none is begun.
func TestSideBySide(t *testing.T) {
	var done [50]atomic.Int32
	jobs := make([]int, len(done))
	for i := range jobs {
		jobs[i] = i
	}
	if err := sideBySide(4, jobs, func(i int) error { done[i].Add(1); return nil }); err != nil {
		t.Fatal(err)
	}
	for i := range done {
		if n := done[i].Load(); n != 1 {
			t.Errorf("job %d was done %d times", i, n)
		}
	}
	failed := errors.New("no")
	var begun atomic.Int32
	err := sideBySide(2, jobs, func(int) error { begun.Add(1); return failed })
	if !errors.Is(err, failed) || begun.Load() > 2 {
		t.Errorf("%v after %d jobs", err, begun.Load())
	}
	if err := sideBySide(0, []int{}, func(int) error { return failed }); err != nil {
		t.Error(err)
	}
}

// TestFaultsOfTheMachineAreAlone: what shows in what every process reads, or takes the machine, has it for itself.
func TestFaultsOfTheMachineAreAlone(t *testing.T) {
	alone := []string{"proxy-throttled", "storage-sink-blocks", "revocation-storm", "noisy-tenant",
		"proxy-and-terminating", "goroutines-grow", "usage-story"}
	for i := range lab.Scenarios {
		s := &lab.Scenarios[i]
		if want := s.Code != "" && !slices.Contains(alone, s.Name); s.Shares() != want {
			t.Errorf("%s shares the machine: %v", s.Name, s.Shares())
		}
	}
}
