package catalogruns

import (
	"fmt"
	"testing"
	"time"

	faultrun "corbel.dev/corbel/test/fault"
)

// TestLinear is A1 and A2 in short: every kind of fault comes in one of the histories.
func TestLinear(t *testing.T) {
	t.Parallel()
	mixes := [][]faultrun.FaultKind{
		{faultrun.FaultKill, faultrun.FaultPartition, faultrun.FaultSlowDisk, faultrun.FaultTransfer},
		{faultrun.FaultMember, faultrun.FaultKill, faultrun.FaultTransfer},
		{faultrun.FaultFreeze, faultrun.FaultOneWay, faultrun.FaultFullDisk, faultrun.FaultClock},
		{faultrun.FaultKillAll, faultrun.FaultStallDisk, faultrun.FaultBadDisk, faultrun.FaultSkew},
	}
	for i, faults := range mixes {
		seed := uint64(i + 1)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			report, err := lab.RunLinear(t.Context(), faultrun.Linear{Clients: 5,
				Duration: 12 * time.Second, Faults: faults}, seed)
			if err != nil {
				t.Errorf("faults %v: %v", faults, err)
			}
			t.Logf("%d operations (%d unknown, %d failed), %d of locks, faults %v", report.Operations, report.Unknown,
				report.Failed, report.LockOperations, report.Faults)
			b := report.Bounds
			t.Logf("default reads %d, oldest %s; stale reads %d (%d without a leader), oldest %s, at most %s older than "+
				"stated; %d of unknown writes",
				b.DefaultReads, b.DefaultMax, b.StaleReads, b.StaleWithoutLeader, b.StaleMax, b.StaleOver, b.Unjudged)
		})
	}
}
