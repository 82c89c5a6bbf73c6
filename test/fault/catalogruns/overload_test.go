package catalogruns

import (
	"testing"
	"time"
)

// TestSinks is B1 in counted work: no sink holds up start or writes, and drops are counted.
func TestSinks(t *testing.T) {
	t.Parallel()
	for _, kind := range Sinks[1:] {
		t.Run(kind, func(t *testing.T) {
			t.Parallel() // each waits mostly for the sink's own period
			report, err := RunSink(t.Context(), lab, kind, 200)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d writes, slowest %s; %g dropped", report.Writes, report.Slowest, report.Dropped)
		})
	}
}

// TestOverload is B7 in short; goodput is judged loosely here, as the clients share the machine with the server.
func TestOverload(t *testing.T) {
	report, err := RunOverload(t.Context(), lab, 8, 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", report)
	if report.During < report.Before/3 {
		t.Errorf("goodput fell from %.0f to %.0f writes/s", report.Before, report.During)
	}
	if report.RSSBefore > 0 && report.RSSDuring > 2*report.RSSBefore+64<<20 {
		t.Errorf("resident size grew from %d to %d bytes", report.RSSBefore, report.RSSDuring)
	}
}
