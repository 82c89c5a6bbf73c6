package monitorruns

import (
	"slices"
	"testing"
	"time"

	"corbel.dev/corbel/kit/loud"
	"corbel.dev/corbel/secrets/storage/pgstore/pgtest"
	"corbel.dev/corbel/test/fault/catalogruns"
)

// TestMonitorCrash is A4 of the monitor plane in short, and no false alarm of living agents.
func TestMonitorCrash(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]MonitorCrash{
		"one":   {Servers: 1, Cycles: 1},
		"three": {Servers: 3, Cycles: 1},
	} {
		t.Run(name, func(t *testing.T) {
			report, err := RunMonitorCrash(t.Context(), lab, cfg, 1)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d cycles, %d power losses, %d results, %d lost that were read, %d of them over 50 ms before the kill "+
				"(worst %s); until all was read p50 %s, worst %s; agents back p50 %s, worst %s",
				report.Cycles, report.Powerless, report.Results, report.Lost, report.LostLate, report.WorstLost,
				catalogruns.Quantile(report.Starts, 0.5), catalogruns.Quantile(report.Starts, 1),
				catalogruns.Quantile(report.Back, 0.5), catalogruns.Quantile(report.Back, 1))
		})
	}
}

// TestMonitorFaults: nobody blocks anybody in the monitor plane, and who lives is not missed. Broken disks, herds and
// restarts are in the deep form alone.
func TestMonitorFaults(t *testing.T) {
	t.Parallel()
	report, err := RunMonitorFaults(t.Context(), lab,
		MonitorFaults{Steps: []string{"hostile", "handlers", "clock", "killed", "emptied"}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d steps, %d results; %d sessions regained, p50 %s, worst %s; %d bytes more under rubbish", report.Steps,
		report.Results, len(report.Back),
		catalogruns.Quantile(report.Back, 0.5), catalogruns.Quantile(report.Back, 1), report.GrewBytes)
}

// TestMonitorOutage: events flow and states are right while PostgreSQL is away, and it has everything once it is back.
func TestMonitorOutage(t *testing.T) {
	if _, err := pgtest.Bin(); err != nil {
		loud.Skip(t, "%v", err)
	}
	t.Parallel()
	report, err := RunMonitorOutage(t.Context(), lab, MonitorOutage{For: 3 * time.Second}, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d results, %d changes of status, %d lost in the history; all was there again after %s; %d bytes more "+
		"meanwhile",
		report.Results, report.Changes, report.Lost, report.Recovered, report.GrewBytes)
}

// What the judge of an outage asks the history for: changes between two runs that were both read.
func TestTurned(t *testing.T) {
	var sent []*sentRun
	for i, status := range []uint32{0, 0, 1, 2, 2, 0, 1} {
		sent = append(sent, &sentRun{number: int64(i), status: status, taken: time.Unix(1, 0)})
	}
	sent[5].taken = time.Time{} // nobody knows whether it counts, nor what the next one changed
	var got []int64
	for _, run := range changes(sent) {
		got = append(got, run.number)
	}
	if !slices.Equal(got, []int64{2, 3}) || changes(nil) != nil {
		t.Fatal(got)
	}
}

// BenchmarkBesideSlowEvents is what an event store that takes 200 ms for each operation costs the catalog's writes
// (B3), once for each of -benchtime 10x.
func BenchmarkBesideSlowEvents(b *testing.B) {
	var quiet, slow []time.Duration
	for b.Loop() {
		beside, err := RunBeside(b.Context(), lab, 300, 1)
		if err != nil {
			b.Fatal(err)
		}
		quiet, slow = append(quiet, beside.Quiet), append(slow, beside.Slow)
	}
	b.ReportMetric(float64(catalogruns.Quantile(quiet, 0.5).Microseconds()), "quiet-p99-us")
	b.ReportMetric(float64(catalogruns.Quantile(slow, 0.5).Microseconds()), "slow-p99-us")
}
