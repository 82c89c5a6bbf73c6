package wan

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/telemetry"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var discard = slog.New(slog.DiscardHandler)

func server(name, dc, addr, port string) member.Member {
	return member.Member{Name: name + "." + dc, Addr: addr, Status: member.Alive,
		Tags: map[string]string{"dc": dc, "port": port, "role": roleServer}}
}

// network answers pings by address: after a while, or not at all.
type network struct {
	mu  sync.Mutex
	rtt map[string]time.Duration
	cut map[string]bool
}

func (n *network) ping(ctx context.Context, addr string) error {
	n.mu.Lock()
	rtt, cut := n.rtt[addr], n.cut[addr]
	n.mu.Unlock()
	if cut {
		<-ctx.Done()
		return ctx.Err()
	}
	select {
	case <-time.After(rtt):
	case <-ctx.Done():
	}
	return ctx.Err()
}

func (n *network) set(addr string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[addr] = cut
}

func TestPathsSortBreakAndHeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{rtt: map[string]time.Duration{"10.0.0.1:8300": 80 * time.Millisecond,
			"10.0.0.2:8300": 20 * time.Millisecond}, cut: map[string]bool{"10.0.0.3:8300": true}}
		p := NewPaths(nil, discard, nil)
		p.ping = n.ping
		all := []member.Member{server("a", "far", "10.0.0.1", "8300"), server("b", "near", "10.0.0.2", "8300"),
			server("c", "gone", "10.0.0.3", "8300")}
		p.Follow(t.Context(), all)
		if got := p.to("gone", 3); len(got) != 1 {
			t.Fatalf("a server nobody judged yet is worth a try, got %v", got)
		}
		time.Sleep(30 * time.Second)
		if got, want := p.datacenters("own"), []string{"own", "near", "far", "gone"}; !slices.Equal(got, want) {
			t.Errorf("datacenters %v, want %v", got, want)
		}
		if got := p.to("gone", 3); len(got) != 0 {
			t.Errorf("a path that never answered is offered: %v", got)
		}
		if !p.Knows("gone") || p.Knows("nowhere") {
			t.Error("a datacenter is known by its servers, reachable or not")
		}
		near := p.to("near", 3)[0]
		broken := near.Broken()
		n.set("10.0.0.2:8300", true)
		time.Sleep(pathMisses*(pingTimeout+pingInterval) + time.Second)
		if broken.Err() == nil || len(p.to("near", 3)) != 0 {
			t.Error("a cut path still counts as good, or its calls go on")
		}
		n.set("10.0.0.2:8300", false)
		time.Sleep(2*pingInterval + pingTimeout)
		if got := p.to("near", 3); len(got) != 1 || got[0].Broken().Err() != nil {
			t.Error("a healed path is not used again")
		}
		p.Follow(t.Context(), all[:1])
		if got, want := p.datacenters("own"), []string{"own", "far"}; !slices.Equal(got, want) {
			t.Errorf("datacenters %v after two left, want %v", got, want)
		}
		p.Stop()
	})
}

// far answers "do" on loopback as a server of another datacenter.
func far(t *testing.T, do rpc.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := rpc.NewServer(rpc.ServerConfig{Drain: time.Second})
	srv.Handle(wire.Anyone, "do", do)
	srv.Handle(wire.Anyone, MethodPing, AnswerPing)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Run(ctx, l)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return l.Addr().String()
}

// judged are paths to dc2 that were judged by hand.
func judged(t *testing.T, addrs ...string) *Paths {
	t.Helper()
	client := rpc.NewClient(rpc.ClientConfig{Dial: func(ctx context.Context, addr string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}})
	t.Cleanup(func() { _ = client.Close() })
	p := NewPaths(client, discard, telemetry.New(telemetry.Config{}))
	for _, addr := range addrs {
		one := &Path{name: "s.dc2", dc: "dc2", Addr: addr, notify: make(chan struct{}, 1), alive: true}
		one.life, one.end = context.WithCancel(context.Background())
		t.Cleanup(one.end)
		p.all[addr] = one
	}
	return p
}

// TestAskGoesToAnotherServer: where one certainly did nothing another one is asked, and what was asked is done once.
func TestAskGoesToAnotherServer(t *testing.T) {
	var done atomic.Int32
	good := far(t, func(context.Context, []byte) ([]byte, error) {
		done.Add(1)
		return []byte("well"), nil
	})
	p := judged(t, "127.0.0.1:1", good)
	for range 8 { // whichever comes first
		if answer, err := p.Ask(t.Context(), "dc2", "do", nil, false, false); err != nil || string(answer) != "well" {
			t.Fatalf("%q, %v", answer, err)
		}
		if path, err := p.Reach(t.Context(), "dc2"); err != nil || path.Addr != good {
			t.Fatalf("reached %v, %v", path, err)
		}
	}
	if done.Load() != 8 {
		t.Errorf("8 writes were done %d times", done.Load())
	}
	for dc, p := range map[string]*Paths{"dc3": p, "dc2": judged(t, "127.0.0.1:1")} {
		if _, err := p.Ask(t.Context(), dc, "do", nil, true, false); !errors.Is(err, ErrNoPath) {
			t.Errorf("nobody is in %s: %v", dc, err)
		}
		if _, err := p.Reach(t.Context(), dc); !errors.Is(err, ErrNoPath) {
			t.Errorf("nobody is in %s: %v", dc, err)
		}
	}
}

// TestParkedCallsEnd: a path that breaks ends the calls on it; a client that leaves ends its call at the other end.
func TestParkedCallsEnd(t *testing.T) {
	parked := make(chan context.Context, 2)
	addr := far(t, func(ctx context.Context, _ []byte) ([]byte, error) {
		parked <- ctx
		<-ctx.Done()
		return nil, ctx.Err()
	})
	p := judged(t, addr)
	ask := func(ctx context.Context) chan error {
		out := make(chan error, 1)
		go func() {
			_, err := p.Ask(ctx, "dc2", "do", nil, false, true)
			out <- err
		}()
		return out
	}
	ctx, leave := context.WithCancel(t.Context())
	result := ask(ctx)
	there := <-parked
	leave()
	<-there.Done()
	if err := <-result; err == nil {
		t.Error("a client that left got an answer")
	}
	result = ask(t.Context())
	there = <-parked
	p.all[addr].judge(errors.New("silence"), 0)
	p.all[addr].judge(errors.New("silence"), 0)
	if err := <-result; errkind.Text(err) != "No path to datacenter" || !errkind.Is(err, errkind.Unknown) {
		t.Errorf("a parked call on a broken path: %v", err)
	}
	<-there.Done()
}
