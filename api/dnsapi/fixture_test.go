package dnsapi

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/telemetry"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// world is a catalog that tests change by commands.
type world struct {
	state atomic.Pointer[statestore.State]
	lag   atomic.Int64
}

func (w *world) State() *statestore.State { return w.state.Load() }
func (w *world) Lag() time.Duration       { return time.Duration(w.lag.Load()) }

func newWorld(t testing.TB, cmds ...catalog.Command) *world {
	t.Helper()
	w := &world{}
	w.state.Store(statestore.Empty())
	w.apply(t, cmds...)
	return w
}

func (w *world) apply(t testing.TB, cmds ...catalog.Command) {
	t.Helper()
	next, results, _ := w.state.Load().Apply(cmds)
	for i, r := range results {
		if r.Err != nil {
			t.Fatalf("command %d: %v", i, r.Err)
		}
	}
	w.state.Store(next)
}

func node(name, address string) *catalog.Register {
	return &catalog.Register{Node: catalog.Node{Name: name, Address: address}}
}

// instance registers service id "<name>-<node>" on a node, with a check of that status.
func instance(nodeName, nodeAddress string, s catalog.Service, status catalog.Health) *catalog.Register {
	s.Node, s.ID = nodeName, s.Name+"-"+nodeName
	r := node(nodeName, nodeAddress)
	r.Service = &s
	r.Checks = []*catalog.Check{{Node: nodeName, ID: "c-" + s.ID, Name: "c", Status: status, ServiceID: s.ID}}
	return r
}

// sample is a catalog with one of everything that answers differ by.
func sample(t testing.TB) *world {
	cmds := []catalog.Command{
		&catalog.Register{Node: catalog.Node{Name: "Db-1", Address: "10.0.0.1",
			Meta: map[string]string{"rack": "r 7", "rfc1035-note": "plain", "a=b": "`"}}},
		node("six", "fd00::6"), node("named", "host.example.com"), node("dotted.name", "10.0.0.9"),
		instance("n1", "10.1.0.1", catalog.Service{Name: "web", Port: 80, Tags: []string{"v1", "canary.eu"},
			Weights: catalog.Weights{Passing: 5, Warning: 2}}, catalog.Passing),
		instance("n2", "10.1.0.2", catalog.Service{Name: "web", Port: 81, Weights: catalog.Weights{Passing: 5, Warning: 2}},
			catalog.Warning),
		instance("n3", "10.1.0.3", catalog.Service{Name: "web", Port: 82}, catalog.Critical),
		instance("n4", "10.1.0.4", catalog.Service{Name: "addressed", Address: "10.9.9.9", Port: 1}, catalog.Passing),
		instance("n4", "10.1.0.4", catalog.Service{Name: "outside", Address: "web.example.com", Port: 2}, catalog.Passing),
		instance("n4", "10.1.0.4", catalog.Service{Name: "inside", Address: "db-1.node.consul", Port: 2}, catalog.Passing),
		instance("n4", "10.1.0.4", catalog.Service{Name: "down", Port: 3}, catalog.Critical),
		instance("n4", "10.1.0.4", catalog.Service{Name: "web-proxy", Kind: catalog.KindConnectProxy,
			Connect: catalog.Connect{ProxyDestination: "web"},
			Port:    21000}, catalog.Passing),
		instance("six", "fd00::6", catalog.Service{Name: "mixed", Port: 4}, catalog.Passing),
		instance("n1", "10.1.0.1", catalog.Service{Name: "mixed", Port: 5}, catalog.Passing),
		instance("s1", "10.2.0.1", catalog.Service{Name: "consul", Port: 8300}, catalog.Passing),
	}
	for i := range 10 {
		cmds = append(cmds, instance(fmt.Sprintf("ten-%d", i), fmt.Sprintf("10.10.0.%d", i),
			catalog.Service{Name: "ten", Port: 1000 + i}, catalog.Passing))
	}
	for i := range 200 {
		cmds = append(cmds, instance(fmt.Sprintf("big-%d", i), fmt.Sprintf("10.20.0.%d", i),
			catalog.Service{Name: "big", Port: 1000 + i}, catalog.Passing))
	}
	return newWorld(t, cmds...)
}

func newServer(t testing.TB, w *world, settings Settings) *Server {
	t.Helper()
	s, err := New(Config{Addresses: []string{"127.0.0.1:0"}, Source: w, Settings: settings,
		Metrics: telemetry.New(telemetry.Config{})})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// serve runs a server until the test ends.
func serve(t testing.TB, s *Server) string {
	t.Helper()
	if err := s.Bind(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return s.Addr().String()
}

func query(name string, qtype uint16) *dns.Msg {
	m := new(dns.Msg)
	m.SetQuestion(name, qtype)
	return m
}

// ask puts a question to the slow path and, as a client would, twice to the whole, the second
// time being answered from the cache when it can be; it returns the last.
func ask(t testing.TB, s *Server, m *dns.Msg, tcp bool) *dns.Msg {
	t.Helper()
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	var reply *dns.Msg
	for range 2 {
		raw := s.Resolve(context.Background(), Asked{Query: b, TCP: tcp})
		reply = new(dns.Msg)
		if err := reply.Unpack(raw); err != nil {
			t.Fatalf("%v: reply %x: %v", m.Question, raw, err)
		}
	}
	return reply
}

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, seed)) }
