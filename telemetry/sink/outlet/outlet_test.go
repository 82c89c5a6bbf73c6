package outlet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/telemetry"
)

func run(t *testing.T, o *Outlet) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = o.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// B1, by counted work: towards a peer that takes nothing, the producer finishes all its
// offers without ever waiting, and every line is either sent or counted as dropped.
func TestAPeerThatTakesNothingHoldsUpNobody(t *testing.T) {
	dir := t.TempDir()
	stream, err := net.Listen("unix", filepath.Join(dir, "stream")) // accepts in the kernel, never reads
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	tcp, err := net.Listen("tcp", "127.0.0.1:0") // accepts and stalls
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	gram, err := net.ListenPacket("unixgram", filepath.Join(dir, "gram"))
	if err != nil {
		t.Fatal(err)
	}
	defer gram.Close()
	for name, target := range map[string]Target{
		"unixstream never read":  {"unixstream", filepath.Join(dir, "stream")},
		"unixgram never read":    {"unixgram", filepath.Join(dir, "gram")},
		"tcp accepts and stalls": {"tcp", tcp.Addr().String()},
		"no such socket":         {"unix", filepath.Join(dir, "missing")},
		"name that is not known": {"udp", "nobody.invalid:8125"},
		"blackholed UDP":         {"udp", "192.0.2.1:8125"},
		"nobody listens on TCP":  {"tcp", "127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := telemetry.New(telemetry.Config{})
			resolver := resolverFunc(func(ctx context.Context, _ string) ([]netip.Addr, error) {
				<-ctx.Done() // a name server that does not answer
				return nil, ctx.Err()
			})
			o := New(Config{Sink: "s", Target: target, Registry: r, Resolver: resolver, QueueCount: 8})
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			wg.Go(func() { _ = o.Run(ctx) })
			const offers = 20000 // far more than all socket buffers on the way hold
			packet := make([]byte, 1400)
			accepted := 0
			for range offers {
				if o.Offer(packet, 10) {
					accepted++
				}
			}
			cancel()
			wg.Wait()
			sent := r.Counter("telemetry.sink.sent", "sink", "s").Value()
			dropped := r.Counter("telemetry.sink.dropped", "sink", "s").Value()
			if sent+dropped != 10*offers {
				t.Errorf("%d lines sent and %d dropped of %d", sent, dropped, 10*offers)
			}
			if accepted == offers && target.Network != "udp" {
				t.Error("nothing was refused: the queue has no bound")
			}
		})
	}
}

type resolverFunc func(ctx context.Context, host string) ([]netip.Addr, error)

func (f resolverFunc) LookupNetIP(ctx context.Context, _, host string) ([]netip.Addr, error) {
	return f(ctx, host)
}

// sinkConn is a connection that counts what is written to it.
type sinkConn struct {
	net.Conn
	onWrite func() error
}

func (c *sinkConn) Write(b []byte) (int, error)      { return len(b), c.onWrite() }
func (c *sinkConn) SetWriteDeadline(time.Time) error { return nil }
func (c *sinkConn) Close() error                     { return nil }

func TestAChangedAddressIsTakenUpWithinAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		address, broken := "10.0.0.1", true
		var dialled []string
		o := New(Config{
			Sink: "s", Target: Target{"udp", "metrics.example:8125"}, Registry: telemetry.New(telemetry.Config{}),
			Resolver: resolverFunc(func(context.Context, string) ([]netip.Addr, error) {
				mu.Lock()
				defer mu.Unlock()
				if broken {
					return nil, errors.New("no such host")
				}
				return []netip.Addr{netip.MustParseAddr(address)}, nil
			}),
			Dial: func(_ context.Context, _, to string) (net.Conn, error) {
				mu.Lock()
				defer mu.Unlock()
				dialled = append(dialled, to)
				return &sinkConn{onWrite: func() error { return nil }}, nil
			},
		})
		run(t, o)
		last := func() string {
			mu.Lock()
			defer mu.Unlock()
			if len(dialled) == 0 {
				return ""
			}
			return dialled[len(dialled)-1]
		}
		send := func(seconds int) {
			for range seconds {
				o.Offer([]byte("x:1|c"), 1)
				time.Sleep(time.Second) // synctest's clock
			}
		}
		send(120)
		if last() != "" {
			t.Errorf("dialled %s while the name did not resolve", last())
		}
		mu.Lock()
		broken = false
		mu.Unlock()
		send(60)
		if last() != "10.0.0.1:8125" {
			t.Errorf("a minute after the name came to be, the outlet sends to %q", last())
		}
		mu.Lock()
		address = "10.0.0.2"
		mu.Unlock()
		send(59)
		if last() != "10.0.0.2:8125" {
			t.Errorf("a minute after the change the outlet sends to %q", last())
		}
		mu.Lock()
		broken = true // the name server dies: the address in use stays
		mu.Unlock()
		before := o.sent.Value()
		send(60)
		if o.sent.Value() != before+60 {
			t.Error("a dead name server silenced a sink that works")
		}
	})
}

func TestAnOutageIsToldOnceAndItsEndToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := telemetry.New(telemetry.Config{})
		var mu sync.Mutex
		down := true
		o := New(Config{
			Sink: "s", Target: Target{"unixgram", "/x"}, Registry: r,
			Dial: func(context.Context, string, string) (net.Conn, error) {
				mu.Lock()
				defer mu.Unlock()
				if down {
					return nil, errors.New("refused")
				}
				return &sinkConn{onWrite: func() error { return nil }}, nil
			},
		})
		run(t, o)
		for range 100 {
			o.Offer([]byte("x"), 1)
			time.Sleep(100 * time.Millisecond) // synctest's clock
		}
		tries := o.failures.Value()
		if tries < 3 || tries > 10 {
			t.Errorf("%d tries in ten seconds: not a back-off", tries)
		}
		mu.Lock()
		down = false
		mu.Unlock()
		if o.deaf.Value() != 1 {
			t.Error("nothing tells that the sink takes nothing")
		}
		for range 710 {
			o.Offer([]byte("x"), 1)
			time.Sleep(100 * time.Millisecond) // synctest's clock
		}
		if o.deaf.Value() != 0 {
			t.Error("the end of the outage is not told")
		}
		var names []string
		for facts := r.Facts(); ; {
			rec, ok := facts.TryNext()
			if !ok {
				break
			}
			names = append(names, rec.Fact.FactName())
		}
		if len(names) != 2 || names[0] != "telemetry.sink_failing" || names[1] != "telemetry.sink_recovered" {
			t.Errorf("facts are %v", names)
		}
		if o.sent.Value() == 0 || o.sent.Value()+o.dropped.Value() != 810 {
			t.Errorf("%d sent, %d dropped of 810", o.sent.Value(), o.dropped.Value())
		}
	})
}

// Over UDP without a listener each second write fails: the kernel tells of the one before. That is one outage, told
// once.
func TestUDPWithoutAListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := telemetry.New(telemetry.Config{})
		writes := 0
		o := New(Config{Sink: "s", Target: Target{"udp", "127.0.0.1:8125"}, Registry: r,
			Dial: func(context.Context, string, string) (net.Conn, error) {
				return &sinkConn{onWrite: func() error {
					if writes++; writes%2 == 0 {
						return syscall.ECONNREFUSED
					}
					return nil
				}}, nil
			}})
		run(t, o)
		for range 60 {
			o.Offer([]byte("x"), 1)
			time.Sleep(10 * time.Second) // synctest's clock
		}
		facts := 0
		for list := r.Facts(); ; facts++ {
			if _, ok := list.TryNext(); !ok {
				break
			}
		}
		if facts != 1 || o.deaf.Value() != 1 {
			t.Errorf("ten minutes without a listener were told %d times; deaf is %v", facts, o.deaf.Value())
		}
	})
}

func TestParseTarget(t *testing.T) {
	for in, want := range map[string]Target{
		"localhost:8125":      {"udp", "localhost:8125"},
		":8125":               {"udp", "127.0.0.1:8125"},
		"udp://h:1":           {"udp", "h:1"},
		"tcp://[::1]:9":       {"tcp", "[::1]:9"},
		"unix:///var/run/dsd": {"unix", "/var/run/dsd"},
		"unixstream:///s":     {"unixstream", "/s"},
		"unixgram://relative": {"unixgram", "relative"},
		"localhost":           {},
		"h:notaport":          {},
		"unix://":             {},
		"gopher://h:1":        {},
		"":                    {},
	} {
		got, err := ParseTarget("udp", in)
		if (want == Target{}) != (err != nil) || (err == nil && got != want) {
			t.Errorf("%q: %+v, %v; want %+v", in, got, err, want)
		}
	}
}

func TestMain(m *testing.M) { leaktest.Main(m) }
