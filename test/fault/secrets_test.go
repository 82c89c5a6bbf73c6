package faultrun

import "testing"

// TestSecretsCrash is A4 of the secrets plane in short: kill -9 at random instants, one server and three, and an active
// server that sleeps through the reign of another and wakes up.
func TestSecretsCrash(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Secrets{
		"one":            {Servers: 1, Cycles: 10},
		"three":          {Servers: 3, Cycles: 6},
		"three, stopped": {Servers: 3, Cycles: 4, Freeze: true},
	} {
		t.Run(name, func(t *testing.T) {
			report, err := lab.RunSecrets(t.Context(), cfg, 1)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d cycles, %d acknowledged, %d unknown, %d tokens revoked; until everything was read p50 %s, worst %s",
				report.Cycles, report.Acked, report.Unknown, report.Revoked, Quantile(report.Starts, 0.5), Quantile(report.Starts, 1))
		})
	}
}
