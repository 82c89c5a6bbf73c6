package roundrobin

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/ws"
	"corbel.dev/corbel/monitor/hub"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// fleet is servers whose calls go through memory, and agents that are connected to them.
type fleet struct {
	t       *testing.T
	servers []*server

	mu      sync.Mutex
	rng     *rand.Rand
	loss    float64         // of requests and of answers
	cut     map[string]bool // who reaches nobody and is reached by nobody
	leaders map[string]bool // who believes to lead
	leader  string          // whom all others believe
	changes chan struct{}
	got     map[string][]string // by tick: the agents that got it
}

var wanted = map[Ring]struct{}{{"default", "linux"}: {}, {"default", "web"}: {}}

type server struct {
	*RoundRobin
	id   string
	hub  *hub.Hub
	stop context.CancelFunc
	done chan struct{}
}

type mute struct{}

func (mute) Send(ws.Message) error { return nil }

func newFleet(t *testing.T, n int, seed uint64) *fleet {
	f := &fleet{t: t, rng: rand.New(rand.NewPCG(seed, 7)), cut: map[string]bool{}, leaders: map[string]bool{},
		changes: make(chan struct{}), got: map[string][]string{}}
	for i := range n {
		f.servers = append(f.servers, f.start(fmt.Sprint("s", i)))
	}
	t.Cleanup(func() {
		for _, s := range f.servers {
			s.stop()
			<-s.done
		}
	})
	return f
}

func (f *fleet) start(id string) *server {
	s := &server{id: id, hub: hub.NewHub(), done: make(chan struct{})}
	s.RoundRobin = New(Config{
		Self: id, Hub: s.hub, Log: slog.New(slog.DiscardHandler),
		Servers: f.list,
		Leads:   func() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.leaders[id] },
		Leader: func() (string, string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.leaders[id] {
				return id, id
			}
			return f.leader, f.leader
		},
		Changes: func() <-chan struct{} { f.mu.Lock(); defer f.mu.Unlock(); return f.changes },
		Call: func(ctx context.Context, addr, method string, req []byte) ([]byte, error) {
			return f.call(ctx, id, addr, method, req)
		},
		Deliver: func(h Hand) (refused []string) { return f.deliver(s, h) },
	})
	s.SetRings(wanted)
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go func() {
		defer close(s.done)
		if err := s.Run(ctx); err != nil {
			f.t.Error(err)
		}
	}()
	return s
}

func (f *fleet) list() (out []Server) {
	for i := range 3 {
		out = append(out, Server{fmt.Sprint("s", i), fmt.Sprint("s", i), true})
	}
	return out[:max(len(f.servers), 1)]
}

func (f *fleet) chance(p float64) bool { f.mu.Lock(); defer f.mu.Unlock(); return f.rng.Float64() < p }

func (f *fleet) loses() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.rng.Float64() < f.loss }

func (f *fleet) delay(most time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Duration(f.rng.Int64N(int64(most)))
}

// call is a network that delays, and loses requests and answers.
func (f *fleet) call(ctx context.Context, from, to, method string, req []byte) ([]byte, error) {
	apart := func() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.cut[from] || f.cut[to] }
	wait := func(d time.Duration) error {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return nil
		case <-ctx.Done():
			return errkind.E(errkind.Unknown, method, ctx.Err())
		}
	}
	if err := wait(f.delay(20 * time.Millisecond)); err != nil {
		return nil, err
	}
	if apart() || f.loses() {
		if f.chance(0.5) {
			return nil, errkind.New(errkind.Unavailable, "refused")
		}
		<-ctx.Done()
		return nil, errkind.E(errkind.Unknown, method, ctx.Err())
	}
	i := slices.IndexFunc(f.servers, func(s *server) bool { return s.id == to })
	reply, err := f.servers[i].Methods()[method](context.Background(), slices.Clone(req))
	if apart() || f.loses() {
		<-ctx.Done()
		return nil, errkind.E(errkind.Unknown, method, ctx.Err())
	}
	if err := wait(f.delay(20 * time.Millisecond)); err != nil {
		return nil, err
	}
	return reply, err
}

func (f *fleet) deliver(s *server, h Hand) (refused []string) {
	for _, share := range h.Shares {
		if s.hub.Get(h.Namespace, share.Agent) == nil {
			refused = append(refused, share.Agent)
			continue
		}
		f.mu.Lock()
		for _, p := range append(share.Proxies, Proxy{})[:max(len(share.Proxies), 1)] {
			key := fmt.Sprint(h.Check, "/", h.Due, "/", share.Subscription, "/", p.Name)
			f.got[key] = append(f.got[key], share.Agent)
		}
		f.mu.Unlock()
	}
	return refused
}

// elect makes a server lead; others that believe to do so go on until deposed.
func (f *fleet) elect(id string, alone bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if alone {
		clear(f.leaders)
	}
	if id != "" {
		f.leaders[id] = true
	}
	f.leader = id
	close(f.changes)
	f.changes = make(chan struct{})
}

func (f *fleet) join(server int, name string, subs ...string) *hub.Session {
	s := &hub.Session{Namespace: "default", Agent: name, Link: mute{}}
	f.servers[server].hub.Join(s, subs)
	return s
}

func (f *fleet) tick(check string, n int, proxies ...string) int64 {
	due := time.Now().UnixNano()
	for _, s := range f.servers {
		s.Deal(Tick{Namespace: "default", Check: check, Due: due, Turn: uint64(n), Period: 10 * time.Second,
			Subscriptions: []string{"linux"}, Proxies: proxies})
	}
	return due
}

func (f *fleet) reset() { f.mu.Lock(); defer f.mu.Unlock(); clear(f.got) }

func (f *fleet) counts() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]int{}
	for _, agents := range f.got {
		for _, a := range agents {
			out[a]++
		}
	}
	return out
}

// once fails the test when a tick went to two agents, and returns how many ticks went to one.
func (f *fleet) once() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, agents := range f.got {
		if len(agents) > 1 {
			f.t.Fatalf("%s went to %v", key, agents)
		}
	}
	return len(f.got)
}

func TestRoundRobinDealEvenlyOverServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3, 1)
		f.elect("s1", true)
		for i := range 6 {
			f.join(i%3, fmt.Sprint("a", i), "linux")
		}
		time.Sleep(2 * time.Second)
		for n := range 60 {
			f.tick("cpu", n)
			time.Sleep(10 * time.Second)
		}
		if n := f.once(); n != 60 {
			t.Errorf("%d of 60 ticks went out", n)
		}
		for i := range 6 {
			if n := f.counts()[fmt.Sprint("a", i)]; n != 10 {
				t.Errorf("a%d got %d of 60 ticks", i, n)
			}
		}
		// One that leaves has no turn any more, and the others share its.
		f.servers[0].hub.Leave(f.servers[0].hub.Get("default", "a0"))
		f.join(2, "a6", "linux", "web")
		f.reset()
		time.Sleep(time.Second)
		for n := range 60 {
			f.tick("cpu", n)
			time.Sleep(10 * time.Second)
		}
		if got, want := f.counts(), map[string]int{"a1": 10, "a2": 10, "a3": 10, "a4": 10, "a5": 10,
			"a6": 10}; !reflect.DeepEqual(got, want) {
			t.Error(got)
		}
		// Proxies are dealt out one after the other.
		f.reset()
		for n := range 6 {
			f.tick("ping", n, "p0", "p1", "p2", "p3")
			time.Sleep(10 * time.Second)
		}
		if got, want := f.counts(), map[string]int{"a1": 4, "a2": 4, "a3": 4, "a4": 4, "a5": 4, "a6": 4}; f.once() != 24 ||
			!reflect.DeepEqual(got, want) {
			t.Error(got)
		}
	})
}

// A leader that dies, or is cut off and does not know it: no tick goes to two, and each after its successor began
// goes to one.
func TestRoundRobinFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3, 2)
		f.elect("s0", true)
		for i := range 9 {
			f.join(i%3, fmt.Sprint("a", i), "linux")
		}
		time.Sleep(2 * time.Second)
		f.tick("cpu", 1)
		time.Sleep(time.Second)
		if f.once() != 1 {
			t.Fatal("the first tick went to nobody")
		}
		f.mu.Lock()
		f.cut["s0"] = true
		f.mu.Unlock()
		f.tick("cpu", 2) // nobody that can have it noted leads
		time.Sleep(time.Second)
		f.elect("s1", false) // s0 still believes
		time.Sleep(4 * time.Second)
		if n := f.once(); n != 2 {
			t.Fatalf("%d ticks were dealt, the second one should have been by the new leader", n)
		}
		f.reset()
		for n := range 30 {
			f.tick("cpu", n)
			time.Sleep(10 * time.Second)
		}
		if n := f.once(); n != 30 {
			t.Errorf("%d of 30 ticks went out", n)
		}
		for _, a := range []string{"a0", "a3", "a6"} {
			if f.counts()[a] > 0 {
				t.Errorf("%s is on the server that is cut off, and got a tick", a)
			}
		}
	})
}

// Whatever the network does and whoever believes to lead, a tick goes to one agent at most; once all is well, each
// goes to one.
func TestRoundRobinAtMostOnce(t *testing.T) {
	total := 0
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 3, seed)
			rng := rand.New(rand.NewPCG(seed, 3))
			f.loss = rng.Float64() * 0.3
			for i := range 12 {
				f.join(rng.IntN(3), fmt.Sprint("a", i), "linux")
			}
			for n := range 60 {
				switch id := fmt.Sprint("s", rng.IntN(3)); rng.IntN(8) {
				case 0:
					f.elect(id, true)
				case 1, 2:
					f.elect(id, false)
				case 3:
					f.mu.Lock()
					f.cut[id] = !f.cut[id]
					f.mu.Unlock()
				case 4:
					name := fmt.Sprint("a", rng.IntN(12))
					for _, s := range f.servers { // its session may be on two servers for a while
						if at := s.hub.Get("default", name); at != nil && rng.IntN(3) > 0 {
							s.hub.Leave(at)
						}
					}
					f.join(rng.IntN(3), name, "linux")
				case 5: // configuration reaches servers one after the other
					f.servers[rng.IntN(3)].SetRings(map[Ring]struct{}{{"default", "web"}: {}})
				case 6:
					for _, s := range f.servers {
						s.SetRings(wanted)
					}
				}
				if n%3 == 0 {
					f.tick("cpu", n)
					f.tick("ping", n, "p0", "p1", "p2")
				}
				time.Sleep(time.Duration(rng.Int64N(int64(4 * time.Second))))
			}
			total += f.once()
			f.mu.Lock()
			f.loss, f.cut = 0, map[string]bool{}
			f.mu.Unlock()
			f.elect("s2", true)
			for _, s := range f.servers {
				s.SetRings(wanted)
			}
			time.Sleep(5 * time.Second)
			there := map[string]bool{}
			for _, s := range f.servers {
				for _, a := range s.hub.Members("default", "linux") {
					there[a] = true
				}
			}
			ring := f.servers[2].ring(Ring{"default", "linux"})
			if len(ring) != len(there) || slices.ContainsFunc(ring, func(m member) bool { return !there[m.agent] }) {
				t.Fatalf("seed %d: the leader knows of %v, connected are %v", seed, ring, there)
			}
			f.reset()
			for n := range 5 {
				f.tick("cpu", n)
				time.Sleep(5 * time.Second)
			}
			if n := f.once(); n != 5 {
				t.Fatalf("seed %d: %d of 5 ticks went out though all is well: %v %+v %+v %+v", seed, n, f.got, f.servers[0].Stats(),
					f.servers[1].Stats(), f.servers[2].Stats())
			}
		})
	}
	if total < 1000 {
		t.Errorf("only %d requests were dealt in all: the test says little", total)
	}
}

func BenchmarkDeal1000ProxiesOver10000Agents(b *testing.B) {
	t := newTable()
	in := &told{server: "s0", full: true}
	for i := range 10_000 {
		in.changes = append(in.changes, change{Ring{"default", "linux"}, fmt.Sprint("agent-", i), 1})
	}
	t.take(in, 1)
	tick := &Tick{Namespace: "default", Check: "ping", Subscriptions: []string{"linux"}}
	for i := range 1000 {
		tick.Proxies = append(tick.Proxies, fmt.Sprint("proxy-", i))
	}
	b.ReportAllocs()
	for b.Loop() {
		tick.Turn++
		d := newDealt(tick)
		if hands := d.deal(d.asks(), t.ring); len(hands["s0"].Shares) != 1000 {
			b.Fatal(hands)
		}
	}
}
