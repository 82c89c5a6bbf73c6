package faultrun

import (
	"testing"
	"time"
)

// TestWatch is A3 in short.
func TestWatch(t *testing.T) {
	t.Parallel()
	faults := []FaultKind{FaultKill, FaultTransfer, FaultFreeze, FaultPartition, FaultKillAll}
	report, err := lab.RunWatch(t.Context(), Watch{Duration: 12 * time.Second, Faults: faults}, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d answers to watchers of %d writes, faults %v; all settled %s after the last write", report.Answers,
		report.Writes, report.Faults, report.Settled)
}

// TestWatchAcrossCut: a watcher's connection to a former leader may stay silent for ever.
func TestWatchAcrossCut(t *testing.T) {
	t.Parallel()
	took, err := lab.RunPartitionedWatch(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("all woken %s after the last write, while the former leader is cut off", took)
}

// TestVanishingWatchers: two thousand clients go without a word.
func TestVanishingWatchers(t *testing.T) {
	t.Parallel()
	base, peak, end, err := lab.RunVanishing(t.Context(), 2000)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("goroutines: %d before, %d with 2000 watchers parked, %d after", base, peak, end)
}
