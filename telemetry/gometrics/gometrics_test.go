package gometrics

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metrics "github.com/hashicorp/go-metrics"

	"corbel.dev/corbel/telemetry"
)

func TestWhatLibrariesEmitIsCounted(t *testing.T) {
	r := telemetry.New(telemetry.Config{Host: "h"})
	if err := Install(r, nil); err != nil {
		t.Fatal(err)
	}
	labels := []metrics.Label{{Name: "peer_id", Value: "a"}}
	metrics.IncrCounter([]string{"raft", "apply"}, 2)
	metrics.IncrCounterWithLabels([]string{"raft", "replication", "appendEntries", "logs"}, 3, labels)
	metrics.SetGauge([]string{"raft", "commitNumLogs"}, 7)
	metrics.AddSample([]string{"memberlist", "queue", "broadcasts"}, 5)
	metrics.MeasureSince([]string{"raft", "commitTime"}, time.Now().Add(-time.Second))
	metrics.IncrCounter([]string{"raft", "apply"}, -1) // nonsense is ignored
	if r.Counter("raft.apply").Value() != 2 || r.Gauge("raft.commitNumLogs").Value() != 7 ||
		r.Counter("raft.replication.appendEntries.logs", "peer_id", "a").Value() != 3 {
		t.Error("counters or gauges are missing")
	}
	if got := r.Timing("memberlist.queue.broadcasts").Sum(); got != 5*time.Millisecond { // shown as 5
		t.Errorf("the sample is %s", got)
	}
	if got := r.Timing("raft.commitTime").Sum(); got < time.Second || got > time.Minute {
		t.Errorf("the time is %s", got)
	}
}

func TestReceivingDoesNotAllocateOnceANameIsKnown(t *testing.T) {
	s := New(telemetry.New(telemetry.Config{}))
	key, labels := []string{"raft", "replication", "appendEntries", "rpc"}, []metrics.Label{{Name: "peer_id", Value: "a"}}
	for name, f := range map[string]func(){
		"counter": func() { s.IncrCounterWithLabels(key, 1, labels) },
		"gauge":   func() { s.SetGauge(key[:2], 1) },
		"sample":  func() { s.AddSampleWithLabels(key[:3], 1, labels) },
	} {
		f()
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func TestTheTableOfNamesIsBounded(t *testing.T) {
	s := New(telemetry.New(telemetry.Config{MaxSeries: 100}))
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range nameLimit {
				s.IncrCounter([]string{"runaway", strconv.Itoa(w), strconv.Itoa(i)}, 1)
			}
		})
	}
	wg.Wait()
	if len(s.counters.known) != nameLimit || len(s.registry.Series()) > 200 {
		t.Errorf("%d names known, %d series", len(s.counters.known), len(s.registry.Series()))
	}
}

// The same work through go-metrics' own in-memory sink, for comparison.
func BenchmarkInmemSink(b *testing.B) {
	sink := metrics.NewInmemSink(10*time.Second, time.Minute)
	m, err := metrics.New(metrics.DefaultConfig(""), sink)
	if err != nil {
		b.Fatal(err)
	}
	benchmark(b, m)
}

func BenchmarkOurSink(b *testing.B) {
	cfg := metrics.DefaultConfig("")
	cfg.EnableHostname, cfg.EnableRuntimeMetrics = false, false
	m, err := metrics.New(cfg, New(telemetry.New(telemetry.Config{})))
	if err != nil {
		b.Fatal(err)
	}
	benchmark(b, m)
}

func benchmark(b *testing.B, m *metrics.Metrics) {
	defer m.Shutdown()
	key := []string{"raft", "commitTime"}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m.AddSample(key, 7.1)
		}
	})
}

type slowSink struct{ lines []string }

func (s *slowSink) Name() string { return "statsd" }

func (s *slowSink) Write(line []byte) {
	s.lines = append(s.lines, string(line))
	for began := time.Now(); time.Since(began) < 2*time.Millisecond; {
	}
}

// TestInline: a sink in line gets every metric, and the time that callers lose in it is counted.
func TestInline(t *testing.T) {
	r := telemetry.New(telemetry.Config{})
	slow := &slowSink{}
	s := New(r)
	s.inline = slow
	s.AddSample([]string{"raft", "commitTime"}, 7.5)
	s.IncrCounter([]string{"raft", "apply"}, 1)
	s.SetGauge([]string{"raft", "last_index"}, 9)
	if got := strings.Join(slow.lines, ""); got != "raft.commitTime:7.5|ms\nraft.apply:1|ms\nraft.last_index:9|ms\n" {
		t.Errorf("it got %q", got)
	}
	tap := r.Timing("telemetry.tap", "sink", "statsd")
	if tap.Count() != 3 || tap.Sum() < 6*time.Millisecond {
		t.Errorf("counted %d calls of %s", tap.Count(), tap.Sum())
	}
}
