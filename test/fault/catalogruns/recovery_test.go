package catalogruns

import (
	"testing"
	"time"
)

// The bounds here are generous: figures against the targets stand in docs/reliability.md.

func TestFailover(t *testing.T) {
	report, err := RunFailover(t.Context(), lab, 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("leader killed to first acknowledged write: p50 %s, worst of %d %s", Quantile(report.Pauses, 0.5),
		len(report.Pauses), Quantile(report.Pauses, 1))
	if worst := Quantile(report.Pauses, 1); worst > 10*time.Second {
		t.Errorf("writes paused for %s", worst)
	}
}

func TestTransfer(t *testing.T) {
	report, err := RunTransfer(t.Context(), lab, 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d writes, %d retried; longest gaps around a planned transfer: %v", report.Writes, report.Retried,
		report.Pauses)
}

func TestRollingRestart(t *testing.T) {
	report, err := RunRolling(t.Context(), lab)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d reads, %d retried, longest gap %s", report.Reads, report.Retried, report.Longest)
}
