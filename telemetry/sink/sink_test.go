package sink

import (
	"context"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/telemetry"
)

// heard listens on a UDP port and tells which lines arrived.
type heard struct {
	address string
	mu      sync.Mutex
	text    strings.Builder
}

func listen(t *testing.T) *heard {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &heard{address: conn.LocalAddr().String()}
	var wg sync.WaitGroup
	wg.Go(func() {
		buffer := make([]byte, 2048)
		for {
			n, _, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			h.mu.Lock()
			h.text.Write(append(buffer[:n], '\n'))
			h.mu.Unlock()
		}
	})
	t.Cleanup(func() { _ = conn.Close(); wg.Wait() })
	return h
}

func (h *heard) has(part string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Contains(h.text.String(), part)
}

func TestReloadAddsChangesAndRemovesSinksWhileTheyRun(t *testing.T) {
	a, b, dog := listen(t), listen(t), listen(t)
	r := telemetry.New(telemetry.Config{Host: "h"})
	set, err := New(Config{Registry: r, Settings: telemetry.Settings{StatsdAddress: a.address}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = set.Run(ctx) })
	defer wg.Wait()
	defer cancel()

	r.Counter("one").Add(1)
	polltest.Until(t, func() bool { return a.has("consul.one:1|c") }, "%s", "the first sink")
	kept := set.sinks["statsd"]

	// A wrong address among good ones: nothing changes.
	for _, bad := range []telemetry.Settings{
		{StatsdAddress: b.address, DogstatsdAddr: "no port"},
		{StatsdAddress: b.address, OTLPEndpoint: "collector:4318"},
		{StatsdAddress: b.address, OTLPTracesEndpoint: "collector:4318"},
		{StatsdAddress: b.address, PrefixFilter: []string{"consul"}},
	} {
		err := set.Reload(bad)
		if err == nil || !(strings.Contains(err.Error(), "dogstatsd_addr") ||
			strings.Contains(err.Error(), "otlp_endpoint") || strings.Contains(err.Error(), "otlp_traces_endpoint") ||
			strings.Contains(err.Error(), "prefix_filter")) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if set.sinks["statsd"] != kept || len(set.sinks) != 1 {
		t.Error("a refused reload changed the sinks")
	}

	// Adding one leaves the other running.
	if err := set.Reload(telemetry.Settings{StatsdAddress: a.address, DogstatsdAddr: dog.address,
		DogstatsdTags: []string{"dc:x"}}); err != nil {
		t.Fatal(err)
	}
	if set.sinks["statsd"] != kept {
		t.Error("a sink that was not changed was replaced")
	}
	r.Counter("two").Add(1)
	polltest.Until(t, func() bool { return a.has("consul.two:1|c") && dog.has("consul.two:1|c|#dc:x") }, "%s",
		"both sinks")
	if dog.has("consul.one") {
		t.Error("a sink that came later sent what was before it")
	}

	// Traces go somewhere while there is where to.
	if err := set.Reload(telemetry.Settings{StatsdAddress: a.address,
		OTLPTracesEndpoint: "http://127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, r.Traces().On, "%s", "traces to be exported")

	// Moving statsd and changing the prefix.
	if err := set.Reload(telemetry.Settings{StatsdAddress: b.address, MetricsPrefix: "fleet"}); err != nil {
		t.Fatal(err)
	}
	if r.Traces().On() {
		t.Error("spans are made for a sink that was removed")
	}
	r.Counter("three").Add(1)
	polltest.Until(t, func() bool { return b.has("fleet.three:1|c") }, "%s", "the new address")
	if a.has("three") || dog.has("three") {
		t.Error("a removed sink still sends")
	}
}

func TestStartDoesNotNeedTheSinks(t *testing.T) {
	r := telemetry.New(telemetry.Config{})
	set, err := New(Config{Registry: r, Settings: telemetry.Settings{
		StatsdAddress: "nobody.invalid:8125", StatsiteAddress: "127.0.0.1:1",
		DogstatsdAddr: "unix:///nowhere/at/all", OTLPEndpoint: "http://127.0.0.1:1", OTLPTracesEndpoint: "http://127.0.0.1:1",
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = set.Run(ctx) }()
	r.Counter("c").Add(1)
	for _, name := range []string{"statsite", "dogstatsd"} {
		polltest.Until(t, func() bool {
			return r.Counter("telemetry.sink.dropped", "sink", name).Value() > 0
		}, "%s", name+" to count what it drops")
	}
	cancel()
	polltest.Until(t, func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	}, "%s", "Run to end")
}

// B1 from end to end: the sink's peer accepts and never reads. Everything that is observed
// is counted, at once, and what the sink cannot deliver is dropped and counted too.
func TestAPeerThatNeverReadsIsNotNoticedByObservers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dsd")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	r := telemetry.New(telemetry.Config{MaxSeriesPerName: 2000})
	set, err := New(Config{Registry: r, Settings: telemetry.Settings{DogstatsdAddr: "unixstream://" + path}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = set.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	const series = 1500
	var counters []*telemetry.Counter
	for i := range series {
		counters = append(counters, r.Counter("storm", "n", strconv.Itoa(i), "pad", strings.Repeat("x", 100)))
	}
	timing := r.Timing("took")
	rounds := uint64(0)
	polltest.Until(t, func() bool {
		for _, c := range counters {
			c.Add(1)
			timing.Observe(time.Millisecond)
		}
		rounds++
		return r.Counter("telemetry.sink.dropped", "sink", "dogstatsd").Value() > 0
	}, "drops to be counted")
	for i, c := range counters {
		if c.Value() != rounds {
			t.Fatalf("counter %d holds %d of %d", i, c.Value(), rounds)
		}
	}
	if timing.Count() != rounds*series {
		t.Errorf("%d of %d durations were counted", timing.Count(), rounds*series)
	}
}

func TestMain(m *testing.M) { leaktest.Main(m) }
