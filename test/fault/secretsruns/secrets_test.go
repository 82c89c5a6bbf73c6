package secretsruns

import (
	"corbel.dev/corbel/test/fault/catalogruns"

	"testing"
	"time"

	"corbel.dev/corbel/kit/loud"
	"corbel.dev/corbel/secrets/storage/pgstore/pgtest"
	faultrun "corbel.dev/corbel/test/fault"
)

// TestSecretsCrash is A4 of the secrets plane in short: kill -9 at random instants, of servers and of PostgreSQL, and
// an active server that sleeps through the term of another and wakes up.
func TestSecretsCrash(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Secrets{
		"one":                      {Servers: 1, Cycles: 3},
		"three":                    {Servers: 3, Cycles: 2},
		"three, stopped":           {Servers: 3, Cycles: 1, Freeze: true},
		"file":                     {Storage: "file", Servers: 1, Cycles: 3},
		"PostgreSQL":               {Storage: "postgresql", Servers: 1, Cycles: 2},
		"PostgreSQL, two, stopped": {Storage: "postgresql", Servers: 2, Cycles: 1, Freeze: true},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := pgtest.Bin(); err != nil && cfg.Storage == "postgresql" {
				loud.Skip(t, "%v", err)
			}
			report, err := RunSecrets(t.Context(), lab, cfg, 1)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d cycles, %d power losses, %d acknowledged, %d unknown, %d tokens revoked, %d logins, %d renewed, %d "+
				"unwrapped, %d uses, %d roles, %d fenced, %d reads of standbys; until everything was read p50 %s, worst %s",
				report.Cycles, report.Powerless, report.Acked, report.Unknown, report.Revoked, report.Logins, report.Renewed,
				report.Unwrapped, report.Limited, report.Roles, report.Fenced, report.StandbyReads,
				catalogruns.Quantile(report.Starts, 0.5), catalogruns.Quantile(report.Starts, 1))
		})
	}
}

// TestSecretsOutage: PostgreSQL goes away for some seconds, or hangs, under load; answers stay short and clear, and
// all goes on by itself when it is back.
func TestSecretsOutage(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Outage{
		"gone": {Servers: 1, For: 3 * time.Second},
		"hung": {Servers: 1, Hung: true, For: 12 * time.Second},
		// Servers that start meanwhile come up, and find their storage when it is back.
		"gone, two started without": {Servers: 2, Restart: true, For: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := pgtest.Bin(); err != nil {
				loud.Skip(t, "%v", err)
			}
			report, err := RunOutage(t.Context(), lab, cfg, 1)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("before %v, meanwhile %v, slowest %s, refused within %s, recovered after %s, grew %d bytes", report.Before,
				report.Meanwhile, report.Slowest,
				report.Refused, report.Recovered, report.GrewBytes)
		})
	}
}

// TestSecretsRoll rolls three servers under writes: whoever tries again fails nowhere and loses nothing.
func TestSecretsRoll(t *testing.T) {
	t.Parallel()
	report, err := RunSecretsRoll(t.Context(), lab, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d writes, %d retries, longest write %s, at a step-down %s", report.Writes, report.Retried, report.Longest,
		report.StepDown)
}

// TestSecretsLinear is A1 for the secrets plane in short.
func TestSecretsLinear(t *testing.T) {
	t.Parallel()
	report, err := RunSecretsLinear(t.Context(), lab,
		faultrun.Linear{Duration: 10 * time.Second, Faults: []faultrun.FaultKind{faultrun.FaultFreeze, faultrun.FaultKill,
			faultrun.FaultPartition, faultrun.FaultClock}}, 1)
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d operations (%d unknown, %d failed), faults %v", report.Operations, report.Unknown, report.Failed,
		report.Faults)
}
