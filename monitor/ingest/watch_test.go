package ingest

import (
	"testing"
	"time"

	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/telemetry"
)

// meter is told of steps.
type meter func(receive, step time.Duration)

func (m meter) Stepped(receive, step time.Duration) { m(receive, step) }

func (meter) Stored(_, _ time.Duration) {}

// TestStepsAreTimed: of many results a sixteenth is told, with times that are possible; a result that is refused is
// not.
func TestStepsAreTimed(t *testing.T) {
	told, sum := 0, time.Duration(0)
	w := start(t, vfs.NewMem(), func(c *Config) {
		c.Meter = meter(func(receive, step time.Duration) {
			if receive < 0 || step < 0 {
				t.Errorf("it took %s and %s", receive, step)
			}
			told, sum = told+1, sum+receive+step // one goroutine sends
		})
	})
	defer w.stop()
	began := time.Now()
	const many = 8000
	frame := tagproto.Append(nil, event("web-1", "disk", 0, 1_700_000_000))
	for range many {
		if err := w.Frame(t.Context(), "default", frame); err != nil {
			t.Fatal(err)
		}
		if err := w.Frame(t.Context(), "elsewhere", frame[:10]); err == nil {
			t.Fatal("a piece of an event was taken")
		}
	}
	if took := time.Since(began); sum <= 0 || sum > took {
		t.Errorf("%s of %s were told", sum, took)
	}
	if told < many/watchEvery/2 || told > many/watchEvery*2 {
		t.Errorf("%d of %d were told", told, many)
	}
}

// BenchmarkWatch is what timing adds to each result, with its account: some 25 ns of several thousand, and no
// allocation.
func BenchmarkWatch(b *testing.B) {
	costs := telemetry.New(telemetry.Config{}).Stages("monitor", "result")
	in := &Ingest{cfg: Config{Meter: meter(func(receive, step time.Duration) {
		var spent telemetry.Spent
		spent[telemetry.StageReceive], spent[telemetry.StageStep] = receive, step
		costs.Done(b.Context(), 0, receive+step, &spent)
	})}}
	b.ReportAllocs()
	for b.Loop() {
		w := intake{in}.sampled()
		w.begins()
		w.ends(in)
	}
}
