package feed

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
)

// TestManyAgents: of 500 agents on three servers one in a hundred hangs and one in a hundred is
// reset just before a change: all have it in time, and those without faults at once.
func TestManyAgents(t *testing.T) {
	for _, hedge := range []bool{false, true} {
		t.Run(fmt.Sprint("hedge ", hedge), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const agents = 500
				s, p := newSite(t), newPress()
				for i := range 3 {
					s.serve(fmt.Sprint("s", i), ServerConfig{Source: p})
				}
				p.publish("x", body(1, 300))
				clients, got := make([]*Client, agents), make([]seen, agents)
				for i := range clients {
					clients[i] = s.client(fmt.Sprint("a", i), ClientConfig{Hedge: hedge})
					clients[i].Follow("x", "", got[i].set, got[i].failed)
				}
				for i := range got {
					reaches(t, &got[i], 1)
				}
				pause(5000)
				for i := range agents / 100 {
					for _, addr := range clients[i].Connected()[:1] {
						s.memory.Stall(hostOf(addr), fmt.Sprint("a", i))
					}
					for _, addr := range clients[agents/100+i].Connected()[:1] {
						s.memory.Drop(hostOf(addr), fmt.Sprint("a", agents/100+i))
					}
				}
				began := time.Now()
				p.publish("x", body(2, 300))
				synctest.Wait()
				for i := agents / 50; i < agents; i++ {
					if got[i].last() != 2 {
						t.Fatalf("agent %d, without a fault, does not have it at once", i)
					}
				}
				limit := 3 * time.Second
				if hedge {
					limit = time.Second
				}
				for i := range got {
					reaches(t, &got[i], 2)
				}
				if took := time.Since(began); took > limit {
					t.Errorf("the last had it after %s", took)
				}
			})
		})
	}
}

// TestRebalance: agents move to a server that joins, as many as it has to carry, and miss nothing.
func TestRebalance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const agents = 120
		s, p := newSite(t), newPress()
		first := s.serve("s0", ServerConfig{Source: p})
		got := make([]seen, agents)
		var clients []*Client
		for i := range got {
			clients = append(clients, s.client(fmt.Sprint("a", i), ClientConfig{}))
			clients[i].Follow("x", "", got[i].set, got[i].failed)
		}
		p.publish("x", body(2, 0))
		polltest.Until(t, func() bool { return first.Stats().Conns == agents }, "all to connect")
		second := s.serve("s1", ServerConfig{Source: p})
		for range 40 {
			pause(1000)
			p.publish("x", body(p.newest+1, 0))
			synctest.Wait()
			for i := range got {
				if got[i].last() != p.newest {
					t.Fatalf("agent %d was without a value during its move", i)
				}
			}
		}
		if a, b := first.Stats().Conns, second.Stats().Conns; a+b != agents || b < agents/4 || b > agents*3/4 {
			t.Errorf("%d and %d connections", a, b)
		}
	})
}

// ponderous is a Source that takes its time to follow.
type ponderous struct{ *press }

func (p ponderous) Follow(who Identity, subject string, set func(Value), denied func(error)) (func(), error) {
	pause(2000)
	return p.press.Follow(who, subject, set, denied)
}

// TestPonderousSource: an agent waits for a server that has much to do, as long as that says that it lives.
func TestPonderousSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newSite(t), newPress()
		for i := range 2 {
			s.serve(fmt.Sprint("s", i), ServerConfig{Source: ponderous{p}})
		}
		c := s.client("a", ClientConfig{})
		var got [10]seen
		for i := range got {
			p.publish(fmt.Sprint(i), body(uint64(i+1), 0))
			c.Follow(fmt.Sprint(i), "", got[i].set, got[i].failed)
		}
		polltest.Until(t, func() bool { return c.Newest() == 10 }, "all to be answered")
		for i := range got {
			reaches(t, &got[i], uint64(i+1))
		}
		if p.follows != len(got) || c.meters.missed.Value() > 0 {
			t.Errorf("%d follows for %d subjects, %d connections left as silent", p.follows, len(got), c.meters.missed.Value())
		}
	})
}

// TestServersThatAreTooSlow: agents do not come anew again and again when heartbeats are late everywhere.
func TestServersThatAreTooSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newSite(t), newPress()
		for i := range 3 {
			s.serve(fmt.Sprint("s", i), ServerConfig{Source: p, Heartbeat: 4 * time.Second})
		}
		c := s.client("a", ClientConfig{})
		pause(120_000)
		if n := c.meters.missed.Value(); n == 0 || n > 8 {
			t.Errorf("%d connections were left in two minutes", n)
		}
	})
}

// TestLocal: a server's own host follows without a network, to the same rules.
func TestLocal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPress()
		p.deny("bad")
		l := Local{Source: p, Node: "s0"}
		var good, bad seen
		stop := l.Follow("x", "good", good.set, good.failed)
		l.Follow("x", "bad", bad.set, bad.failed)
		p.publish("x", body(2, 0))
		p.publish("x", body(2, 0))
		reaches(t, &good, 2)
		if _, errs := bad.counts(); errs != 1 || !errkind.Is(bad.errs[0], errkind.Denied) {
			t.Errorf("refused with %v", bad.errs)
		}
		p.allow("bad")
		reaches(t, &bad, 2)
		p.deny("bad")
		polltest.Until(t, func() bool { _, errs := bad.counts(); return errs == 2 }, "the right to end")
		p.publish("x", body(3, 0))
		reaches(t, &good, 3)
		if bad.last() != 2 {
			t.Error("a value came after the right had ended")
		}
		stop()
		stop()
		// One that stops inside set, as a host does whose proxy is gone.
		var once seen
		var stopSelf func()
		var mu sync.Mutex
		mu.Lock()
		stopSelf = l.Follow("y", "good", func(v Value) {
			once.set(v)
			if v.Index > 1 {
				mu.Lock()
				defer mu.Unlock()
				stopSelf()
			}
		}, once.failed)
		mu.Unlock()
		p.publish("y", body(4, 0))
		p.publish("y", body(5, 0))
		reaches(t, &once, 4)
		p.allow("bad")
		reaches(t, &bad, 3)
	})
}

// TestOverSockets: over real sockets whose reads and writes are held and failed, followers
// end with the newest values.
func TestOverSockets(t *testing.T) {
	p := newPress()
	var addrs []string
	var held atomic.Value // the address on which everything hangs
	held.Store("")
	var broken atomic.Int64
	faults := func(op, peer string) (time.Duration, error) {
		if peer == held.Load() && op != wire.OpDial {
			return -1, nil
		}
		if op == wire.OpRead && broken.Add(-1) > 0 {
			return 0, fmt.Errorf("broken by the test")
		}
		return 0, nil
	}
	for range 3 {
		w, err := wire.New(wire.Config{Bind: "127.0.0.1:0"})
		if err != nil {
			t.Fatal(err)
		}
		run(t, w.Run)
		server, err := NewServer(ServerConfig{Source: p, Heartbeat: 100 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		l := w.Listen(wire.ProtoFeed, 0, wire.Members)
		run(t, func(ctx context.Context) error { return server.Run(ctx, l) })
		addrs = append(addrs, w.Addr().String())
	}
	out, err := wire.New(wire.Config{Bind: "127.0.0.1:0", Faults: faults})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	c, err := NewClient(ClientConfig{Node: "a", Hedge: true, Silence: time.Second,
		Servers: func() []string { return slices.Clone(addrs) },
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return out.Dial(ctx, addr, wire.ProtoFeed, 0)
		}})
	if err != nil {
		t.Fatal(err)
	}
	run(t, c.Run)
	var got [3]seen
	for i := range got {
		c.Follow(fmt.Sprint(i), "", got[i].set, got[i].failed)
	}
	for round := range 12 {
		switch round % 4 {
		case 1:
			held.Store(addrs[round%3])
		case 2:
			broken.Store(5)
		case 3:
			held.Store("")
		}
		for i := range got {
			index := p.publish(fmt.Sprint(i), body(p.newest+1, i*200_000))
			if index > 1 {
				reaches(t, &got[i], index)
			}
		}
	}
	polltest.Until(t, func() bool { return c.Newest() == p.newest }, "the client to know that it is complete")
}
