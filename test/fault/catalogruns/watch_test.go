package catalogruns

import (
	"testing"
	"time"

	faultrun "corbel.dev/corbel/test/fault"
)

// TestWatch is A3 in short.
func TestWatch(t *testing.T) {
	t.Parallel()
	faults := []faultrun.FaultKind{faultrun.FaultKill, faultrun.FaultTransfer, faultrun.FaultFreeze,
		faultrun.FaultPartition, faultrun.FaultKillAll}
	report, err := RunWatch(t.Context(), lab, Watch{Duration: 12 * time.Second, Faults: faults, Watchers: 2}, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d answers to watchers of %d writes, faults %v; all settled %s after the last write", report.Answers,
		report.Writes, report.Faults, report.Settled)
}

// TestWatchAcrossCut: a watcher's connection to a former leader may stay silent for ever.
func TestWatchAcrossCut(t *testing.T) {
	t.Parallel()
	took, err := RunPartitionedWatch(t.Context(), lab, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("all woken %s after the last write, while the former leader is cut off", took)
}

// TestVanishingWatchers: two thousand clients go without a word.
func TestVanishingWatchers(t *testing.T) {
	t.Parallel()
	base, peak, end, err := RunVanishing(t.Context(), lab, 2000)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("goroutines: %d before, %d with 2000 watchers parked, %d after", base, peak, end)
}
