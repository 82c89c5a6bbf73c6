package usageruns

import (
	"os"
	"testing"
	"time"

	faultrun "corbel.dev/corbel/test/fault"
)

var lab *faultrun.Lab

func TestMain(m *testing.M) { os.Exit(faultrun.Main(m, &lab)) }

// TestUsage: after kills of one server or of all, every estimate is what an exact model says.
func TestUsage(t *testing.T) {
	r, err := Run(t.Context(), lab, Usage{Servers: 3, Cycles: 2, Load: 500 * time.Millisecond}, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
}

// TestWarm: a server that has lost what it counted begins from copies in S3 while the others take events, and every
// estimate is what an exact model says.
func TestWarm(t *testing.T) {
	r, err := RunWarm(t.Context(), lab, Warm{Cycles: 1}, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
}

// TestFaults: servers are cut off, and their disks are full, while events come, and every estimate is what an exact
// model says.
func TestFaults(t *testing.T) {
	r, err := RunFaults(t.Context(), lab, Faults{Duration: 8 * time.Second, Kinds: []faultrun.FaultKind{
		faultrun.FaultPartition, faultrun.FaultFullDisk}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
}
