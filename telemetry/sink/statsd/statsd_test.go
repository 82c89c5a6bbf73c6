package statsd

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/DataDog/datadog-go/v5/statsd"
	"pgregory.net/rapid"

	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/telemetry"
	"corbel.dev/corbel/telemetry/sink/outlet"
)

// start runs a sink towards a target and stops it when the test ends.
func start(t *testing.T, r *telemetry.Registry, d Dialect, target outlet.Target, tags ...string) {
	t.Helper()
	s := New(Config{Dialect: d, Tags: tags, Registry: r, Flush: 5 * time.Millisecond,
		Outlet: outlet.Config{Sink: "test", Target: target, Registry: r}})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// receiver collects the lines that arrive at a datagram socket.
type receiver struct {
	conn    net.PacketConn
	mu      sync.Mutex
	lines   []string
	largest int
}

func receive(t *testing.T, network, address string) *receiver {
	t.Helper()
	conn, err := net.ListenPacket(network, address)
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{conn: conn}
	var wg sync.WaitGroup
	wg.Go(func() {
		buffer := make([]byte, 65536)
		for {
			n, _, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			r.mu.Lock()
			r.largest = max(r.largest, n)
			r.lines = append(r.lines, strings.Split(strings.TrimSuffix(string(buffer[:n]), "\n"), "\n")...)
			r.mu.Unlock()
		}
	})
	t.Cleanup(func() { _ = conn.Close(); wg.Wait() })
	return r
}

// with returns the lines that hold part, as they stand now.
func (r *receiver) with(part string) (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lines {
		if strings.Contains(l, part) {
			out = append(out, l)
		}
	}
	return out
}

func udp(r *receiver) outlet.Target {
	return outlet.Target{Network: "udp", Address: r.conn.LocalAddr().String()}
}

func TestPlainStatsdLines(t *testing.T) {
	in := receive(t, "udp", "127.0.0.1:0")
	r := telemetry.New(telemetry.Config{Host: "host1"})
	r.Counter("before").Add(3) // counted before the sink was made: not its news
	start(t, r, Plain, udp(in))
	r.Timing("raft.commitTime").Observe(7100 * time.Microsecond)
	r.Counter("raft.apply").Add(2)
	r.Counter("api.http", "method", "GET", "path", "v1 kv:|@x").Add(1)
	r.Gauge("raft.last_index").Set(12)
	r.Gauge("delta").Set(-2.5)
	for _, want := range []string{
		"consul.raft.commitTime:7.1|ms", "consul.raft.apply:2|c", "consul.api.http.GET.v1_kv___x:1|c",
		"consul.host1.raft.last_index:12|g", "consul.host1.delta:0|g", "consul.host1.delta:-2.5|g",
	} {
		polltest.Until(t, func() bool { return slices.Contains(in.with(""), want) }, "%s", want)
	}
	if got := in.with("before"); got != nil {
		t.Errorf("old counts were sent: %v", got)
	}
}

// datadog's own client, fed with the same values, must write the same lines.
func TestDogstatsdLinesAreThoseOfTheDatadogClient(t *testing.T) {
	theirs, ours := receive(t, "udp", "127.0.0.1:0"), receive(t, "udp", "127.0.0.1:0")
	client, err := statsd.New(theirs.conn.LocalAddr().String(), statsd.WithNamespace("consul."), statsd.WithoutTelemetry(),
		statsd.WithoutClientSideAggregation(), statsd.WithTags([]string{"dc:one", "rack"}), statsd.WithoutOriginDetection())
	if err != nil {
		t.Fatal(err)
	}
	off := telemetry.Settings{DisableHostname: true, PrefixFilter: []string{"-consul.telemetry"}}
	r := telemetry.New(telemetry.Config{Settings: off})
	start(t, r, Dogstatsd, udp(ours), "dc:one", "rack")

	tags := []string{"method:GET", "path:v1_kv_"}
	_ = client.Count("api.hits", 3, tags, 1)
	_ = client.Gauge("load", 0.25, nil, 1)
	_ = client.Gauge("below", -3, nil, 1)
	_ = client.Count("plain", 1, nil, 1)
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	r.Counter("api.hits", "method", "GET", "path", "v1_kv_").Add(3)
	r.Gauge("load").Set(0.25)
	r.Gauge("below").Set(-3)
	r.Counter("plain").Add(1)
	sortTags := func(lines []string) []string {
		var out []string
		for _, l := range lines {
			if head, list, ok := strings.Cut(l, "|#"); ok {
				parts := strings.Split(list, ",")
				slices.Sort(parts)
				l = head + "|#" + strings.Join(parts, ",")
			}
			if !slices.Contains(out, l) { // a gauge may come again
				out = append(out, l)
			}
		}
		slices.Sort(out)
		return out
	}
	polltest.Until(t, func() bool {
		return len(sortTags(theirs.with("consul."))) == 4 && len(sortTags(ours.with("consul."))) == 4
	}, "%s", "four lines on both sides")
	if a, b := sortTags(theirs.with("consul.")), sortTags(ours.with("consul.")); !slices.Equal(a, b) {
		t.Errorf("theirs\n%s\nours\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
	}
}

func TestPacketsStayBelowTheLimitAndHoldEveryLine(t *testing.T) {
	in := receive(t, "udp", "127.0.0.1:0")
	_ = in.conn.(*net.UDPConn).SetReadBuffer(4 << 20)
	r := telemetry.New(telemetry.Config{Host: "h"})
	start(t, r, Plain, udp(in))
	const count = 300
	for i := range count {
		r.Counter("bulk", "n", strconv.Itoa(i), "pad", strings.Repeat("p", 50)).Add(1)
	}
	r.Counter("long", "v", strings.Repeat("x", 2000)).Add(1)
	polltest.Until(t, func() bool { return len(in.with("consul.bulk.")) == count }, "%s", "every line")
	in.mu.Lock()
	if in.largest > PacketBytes {
		t.Errorf("a packet of %d bytes", in.largest)
	}
	in.mu.Unlock()
	polltest.Until(t, func() bool {
		return r.Counter("telemetry.sink.dropped", "sink", "test").Value() == 1
	}, "%s", "the line that fits no packet to be counted")
}

func TestUnixSockets(t *testing.T) {
	dir := t.TempDir()
	in := receive(t, "unixgram", filepath.Join(dir, "gram"))
	for _, network := range []string{"unix", "unixgram"} {
		r := telemetry.New(telemetry.Config{})
		start(t, r, Dogstatsd, outlet.Target{Network: network, Address: filepath.Join(dir, "gram")})
		r.Counter("over."+network, "k", "v").Add(1)
		polltest.Until(t, func() bool { return len(in.with("consul.over."+network+":1|c|#k:v")) == 1 }, "%s",
			"a datagram over "+network)
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "stream"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for _, network := range []string{"unix", "unixstream"} {
		r := telemetry.New(telemetry.Config{Settings: telemetry.Settings{PrefixFilter: []string{"-consul.telemetry"}}})
		start(t, r, Dogstatsd, outlet.Target{Network: network, Address: filepath.Join(dir, "stream")})
		r.Counter("c").Add(1)
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		var size [4]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			t.Fatal(err)
		}
		frame := make([]byte, binary.LittleEndian.Uint32(size[:]))
		if _, err := io.ReadFull(conn, frame); err != nil || string(frame) != "consul.c:1|c\n" {
			t.Errorf("%s: frame %q, %v", network, frame, err)
		}
		_ = conn.Close()
	}
}

func TestStatsiteIsAStreamOfLines(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	r := telemetry.New(telemetry.Config{Settings: telemetry.Settings{PrefixFilter: []string{"-consul.telemetry"}}})
	start(t, r, Statsite, outlet.Target{Network: "tcp", Address: listener.Addr().String()})
	r.Counter("first").Add(1)
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	buffer := make([]byte, 16)
	if _, err := io.ReadFull(conn, buffer); err != nil || string(buffer) != "consul.first:1|c" {
		t.Fatalf("%q, %v", buffer, err)
	}
	r.Counter("next").Add(1)
	if _, err := io.ReadFull(conn, buffer); err != nil || string(buffer) != "\nconsul.next:1|c" {
		t.Fatalf("%q, %v", buffer, err)
	}
}

// A timing's samples stand for all observations: their number, scaled by the rate,
// and their sum are those of the registry.
func TestSamplesStandForAllObservations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := telemetry.New(telemetry.Config{})
		timing, cursor := r.Timing("t"), r.NewCursor()
		cursor.Skip()
		millis := rapid.SliceOfN(rapid.IntRange(1, 10000), 1, 200).Draw(t, "ms")
		sum, low, high := 0.0, 1e9, 0.0
		for _, ms := range millis {
			timing.Observe(time.Duration(ms) * time.Millisecond)
			sum, low, high = sum+float64(ms), min(low, float64(ms)), max(high, float64(ms))
		}
		cursor.Each(func(reading *telemetry.Reading) {
			values, rate := samples(reading, nil)
			if want := min(len(millis), sampleLimit); len(values) != want {
				t.Fatalf("%d samples, want %d", len(values), want)
			}
			if n := float64(len(values)) / rate; n < float64(len(millis))-0.5 || n > float64(len(millis))+0.5 {
				t.Fatalf("the samples stand for %f observations, want %d", n, len(millis))
			}
			got := 0.0
			for _, v := range values {
				got += v
				if v < low*(1-1.0/16) || v > high*(1+1.0/16) {
					t.Fatalf("sample %f is outside [%f, %f]", v, low, high)
				}
			}
			if len(millis) <= sampleLimit && (got < sum*0.99 || got > sum*1.01) {
				t.Fatalf("the samples add up to %f, want %f", got, sum)
			}
			if len(millis) == 1 && math.Abs(values[0]-sum) > 1e-9 {
				t.Fatalf("a value that came alone reads %f, want %f", values[0], sum)
			}
		})
	})
}

// While the outlet takes nothing, no line is written: what happened is counted as dropped,
// and what comes after the outage is told as it is.
func TestAnOutageCostsNoLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := telemetry.New(telemetry.Config{Settings: telemetry.Settings{PrefixFilter: []string{"-consul.telemetry"}}})
		var mu sync.Mutex
		broken, got := true, ""
		dial := func(context.Context, string, string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			if broken {
				return nil, errors.New("nobody is there")
			}
			near, far := net.Pipe()
			go func() {
				b, _ := io.ReadAll(far)
				mu.Lock()
				defer mu.Unlock()
				got += string(b)
			}()
			return near, nil
		}
		s := New(Config{Dialect: Statsite, Registry: r, Outlet: outlet.Config{Sink: "test", Registry: r,
			Target: outlet.Target{Network: "tcp", Address: "127.0.0.1:1"}, Dial: dial}})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = s.Run(ctx) })
		counter, gauge, timing := r.Counter("c"), r.Gauge("g"), r.Timing("t")
		gauge.Set(7)
		for range 600 { // a minute
			counter.Add(1)
			timing.Observe(time.Millisecond)
			time.Sleep(100 * time.Millisecond)
		}
		dropped := r.Counter("telemetry.sink.dropped", "sink", "test").Value()
		if dropped < 300 || dropped > 1300 { // one a second of the counter, each of the timing
			t.Errorf("%d lines were counted as dropped", dropped)
		}
		mu.Lock()
		broken = false
		mu.Unlock()
		time.Sleep(15 * time.Second) // past the longest pause between attempts
		synctest.Wait()
		counter.Add(5)
		time.Sleep(2 * time.Second)
		cancel()
		wg.Wait()
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if !strings.Contains(got, "consul.c:5|c\n") || !strings.Contains(got, ".g:7|g\n") {
			t.Errorf("after the outage came %q", got)
		}
	})
}

func FuzzLinesHoldTheirShape(f *testing.F) {
	f.Add("raft.apply", "peer", "a:b|c#d,e\nf")
	f.Add("a b", "k:k", "")
	f.Add("\x00\xff", "", "|@0.1|#x:y")
	f.Fuzz(func(t *testing.T, name, label, value string) {
		r := telemetry.New(telemetry.Config{})
		r.Counter(name, label, value).Add(1)
		for _, d := range []Dialect{Plain, Dogstatsd} {
			r.NewCursor().Each(func(reading *telemetry.Reading) {
				l := string(newLine(d, "", r.Naming(), reading).appendCounter(nil, 1))
				want := 1 // "|c"
				if d == Dogstatsd {
					want = 2 // and "|#"
				}
				if strings.ContainsAny(l, "\n\r\x00") || strings.Count(l, "|") != want {
					t.Fatalf("line %q", l)
				}
				if head, _, _ := strings.Cut(l, "|"); strings.Count(head, ":") != 1 {
					t.Fatalf("line %q has a second value", l)
				}
			})
		}
	})
}

func TestMain(m *testing.M) { leaktest.Main(m) }
