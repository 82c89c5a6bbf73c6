package jobsruns

import (
	"os"
	"testing"
	"time"

	faultrun "corbel.dev/corbel/test/fault"
)

var lab *faultrun.Lab

func TestMain(m *testing.M) { os.Exit(faultrun.Main(m, &lab)) }

// TestCrash: after kills of one server or of all, exactly what was acknowledged runs, and nothing moved.
func TestCrash(t *testing.T) {
	r, err := RunCrash(t.Context(), lab, Crash{Servers: 3, Nodes: 10, Cycles: 2, Load: 500 * time.Millisecond}, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
}

// TestFaults: a leader that dies while it places, a tenth of the nodes dead at once, and half of them cut off for a
// moment: nothing runs twice, nothing is forgotten.
func TestFaults(t *testing.T) {
	r, err := RunFaults(t.Context(), lab, Faults{Nodes: 12}, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
}

// TestBeside: placements go on beside sinks that stall, and beside tasks whose tokens take their time; each such task
// logs in once.
func TestBeside(t *testing.T) {
	r, err := RunBeside(t.Context(), lab, Beside{Nodes: 20, Allocations: 100}, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
}
