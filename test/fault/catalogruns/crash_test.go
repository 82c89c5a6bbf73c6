package catalogruns

import "testing"

// TestCrash is A4 and A9 in short: kill -9 at random instants, one server and three. How long a start takes is logged
// here, and measured by the deep row: beside other work it says more of the machine.
func TestCrash(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Crash{
		"one":              {Servers: 1, Cycles: 5},
		"three":            {Servers: 3, Cycles: 3},
		"three, compacted": {Servers: 3, Cycles: 2, Snapshots: true},
	} {
		t.Run(name, func(t *testing.T) {
			report, err := RunCrash(t.Context(), lab, cfg, 1)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d cycles, %d power losses, %d acknowledged, %d unknown; start to first consistent read p50 %s, worst %s",
				report.Cycles, report.Powerless, report.Acked, report.Unknown, Quantile(report.Starts, 0.5),
				Quantile(report.Starts, 1))
		})
	}
}
