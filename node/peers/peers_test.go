package peers

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/peered"
	"corbel.dev/corbel/catalog/peering"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// cluster is a catalog that all its servers share, as if each command reached them at once.
type cluster struct {
	t       *testing.T
	name    string
	memory  *wire.Memory
	mu      sync.Mutex // guards all below
	st      *statestore.State
	changed chan struct{}
	leader  int
	led     chan struct{} // closed when another server leads
	servers []*server
	root    sync.Once
	rootPEM string
}

// server is one of them.
type server struct {
	*Manager
	of   *cluster
	n    int
	stop context.CancelFunc
	done sync.WaitGroup
}

func (c *cluster) State() *statestore.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.st
}

func (c *cluster) apply(cmd catalog.Command) catalog.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	next, results, _ := c.st.Apply([]catalog.Command{cmd})
	c.st = next
	close(c.changed)
	c.changed = make(chan struct{})
	return results[0]
}

func (c *cluster) SetRecords(_ context.Context, ops ...catalog.RecordOp) (catalog.Result, bool, error) {
	r := c.apply(&catalog.Records{Ops: ops})
	return r, r.OK && r.Err == nil, r.Err
}

func (c *cluster) Await(ctx context.Context, _ registry.Subject, least uint64, wait time.Duration,
	indexOf func(*statestore.State) uint64) *statestore.State {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		c.mu.Lock()
		st, changed := c.st, c.changed
		c.mu.Unlock()
		if indexOf(st) > least || ctx.Err() != nil {
			return st
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

func (s *server) IsLeader() bool {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	return s.of.leader == s.n
}

func (s *server) LeaderChanges() <-chan struct{} {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	return s.of.led
}

func (c *cluster) lead(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leader = n
	close(c.led)
	c.led = make(chan struct{})
}

// ownMesh is the mesh of a cluster, with a root of the cluster's own.
type ownMesh struct{ c *cluster }

func (m ownMesh) Domain(*statestore.State) string { return m.c.name + ".consul" }

func (m ownMesh) Gateways(*statestore.State) ([]string, bool) { return nil, false }

func (m ownMesh) Trust(_ *statestore.State, peer string) *peered.Trust {
	return &peered.Trust{Domain: m.Domain(nil), Datacenter: m.c.name, As: peer, Roots: m.c.roots()}
}

func (c *cluster) roots() []string {
	c.root.Do(func() {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			c.t.Error(err)
			return
		}
		cert := &x509.Certificate{SerialNumber: big.NewInt(1)}
		der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
		if err != nil {
			c.t.Error(err)
		}
		c.rootPEM = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	})
	return []string{c.rootPEM}
}

// trusts is what a cluster knows of a peer's mesh, as its trust domain and how the peer calls it.
func (c *cluster) trusts(peer string) string {
	t := peered.Of(c.State(), peer)
	if t == nil {
		return ""
	}
	return t.Domain + " as " + t.As
}

func (c *cluster) addr(n int) string { return fmt.Sprintf("%s%d:8300", c.name, n) }

// newCluster starts n servers, of which the first leads.
func newCluster(t *testing.T, memory *wire.Memory, name string, n int) *cluster {
	t.Helper()
	c := &cluster{t: t, name: name, memory: memory, st: statestore.Empty(), changed: make(chan struct{}),
		led: make(chan struct{})}
	for i := range n {
		c.servers = append(c.servers, c.start(i))
	}
	return c
}

func (c *cluster) start(n int) *server {
	host := c.memory.Host(fmt.Sprintf("%s%d", c.name, n))
	l, err := host.Listen(c.addr(n))
	if err != nil {
		c.t.Fatal(err)
	}
	w, err := wire.New(wire.Config{Listener: l, Dialer: host})
	if err != nil {
		c.t.Fatal(err)
	}
	s := &server{of: c, n: n}
	client := rpc.NewClient(rpc.ClientConfig{Dial: func(ctx context.Context, addr string) (net.Conn, error) {
		return w.Dial(ctx, addr, wire.ProtoRPC, 0)
	}})
	s.Manager = New(Config{Catalog: c, Leader: s, Wire: w, Mesh: ownMesh{c}, Datacenter: c.name,
		ServerName: "server." + c.name + ".consul",
		Roots:      func() ([]string, error) { return nil, nil },
		Addresses: func() (list []string) {
			for i := range c.servers {
				list = append(list, c.addr(i))
			}
			return list
		},
		CallLeader: func(ctx context.Context, method string, req []byte) ([]byte, error) {
			c.mu.Lock()
			to := c.addr(c.leader)
			c.mu.Unlock()
			return client.Call(ctx, to, method, req)
		}})
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	inner := rpc.NewServer(rpc.ServerConfig{})
	s.Register(inner)
	own, strangers := w.Listen(wire.ProtoRPC, 0, wire.Federation), w.Listen(wire.ProtoPeering, 0, wire.Anyone)
	outer := s.Strangers()
	for _, run := range []func(context.Context) error{w.Run, s.Run,
		func(ctx context.Context) error { return inner.Run(ctx, own) },
		func(ctx context.Context) error { return outer.Run(ctx, strangers) }} {
		s.done.Go(func() {
			if err := run(ctx); err != nil {
				c.t.Error(err)
			}
		})
	}
	c.t.Cleanup(func() { s.end(); _ = client.Close() })
	return s
}

func (s *server) end() {
	s.stop()
	s.done.Wait()
}

func (c *cluster) register(node, service string, status catalog.Health) {
	c.t.Helper()
	if r := c.apply(&catalog.Register{Node: catalog.Node{Name: node, Address: "10.0.0.1"},
		Service: &catalog.Service{Node: node, ID: service, Name: service, Port: 80},
		Checks: []*catalog.Check{{Node: node, ID: "c", Name: "c", Status: status, ServiceID: service,
			ServiceName: service}}}); r.Err != nil {
		c.t.Fatal(r.Err)
	}
}

func (c *cluster) export(services string) {
	c.t.Helper()
	r := c.apply(&catalog.Records{Ops: []catalog.RecordOp{{Verb: catalog.RecordSet, Record: catalog.Record{
		Kind: catalog.RecordConfigEntry, Key: "exported-services/default",
		Value: []byte(`{"Kind":"exported-services","Name":"default","Services":` + services + `}`)}}}})
	if r.Err != nil {
		c.t.Fatal(r.Err)
	}
}

// state is how a peering stands at the leader, "" when it is not there.
func (c *cluster) state(name string) peering.State {
	p, err := peering.Named(c.State(), name)
	if err != nil || p == nil {
		return ""
	}
	c.mu.Lock()
	s := c.servers[c.leader]
	c.mu.Unlock()
	state, _ := s.Stands(p)
	return state
}

// health is how an imported service stands, "" when it is not there.
func (c *cluster) health(peer, service string) string {
	st := peering.Imported(c.State(), peer, service)
	var out []string
	for s := range st.Instances(service) {
		for check := range st.InstanceChecks(s.Node, s.ID) {
			out = append(out, s.Node+" "+check.Status.String())
		}
	}
	return strings.Join(out, ",")
}

func (c *cluster) await(peer, service, want string) {
	c.t.Helper()
	polltest.Until(c.t, func() bool { return c.health(peer, service) == want }, "%s of %s at %s to be %q", service, peer,
		c.name, want)
}

// pair peers two clusters: dc1 made the token, and dc2 used it.
func pair(t *testing.T, servers int) (memory *wire.Memory, a, b *cluster, token string) {
	t.Helper()
	memory = wire.NewMemory()
	a, b = newCluster(t, memory, "dc1", servers), newCluster(t, memory, "dc2", 1)
	token, err := a.servers[0].GenerateToken(t.Context(), peering.TokenRequest{PeerName: "two"})
	if err != nil {
		t.Fatal(err)
	}
	if got := a.state("two"); got != peering.Pending {
		t.Errorf("with a token: %s", got)
	}
	in := peering.EstablishRequest{PeerName: "one", PeeringToken: token}
	if err := b.servers[0].Establish(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]*cluster{"two": a, "one": b} {
		polltest.Until(t, func() bool { return c.state(name) == peering.Active }, "%s to be active", name)
	}
	return memory, a, b, token
}

// TestServicesGoBothWays is the whole of it: what is exported arrives in both directions and follows, also when another
// server leads, and ends with the peering.
func TestServicesGoBothWays(t *testing.T) {
	t.Parallel()
	_, a, b, token := pair(t, 3)
	a.register("n1", "web", catalog.Passing)
	a.register("n1", "private", catalog.Passing)
	a.export(`[{"Name":"web","Consumers":[{"Peer":"two"}]}]`)
	b.register("m1", "db", catalog.Warning)
	b.export(`[{"Name":"*","Consumers":[{"Peer":"one"}]}]`)
	b.await("one", "web", "n1 passing")
	a.await("two", "db", "m1 warning")
	polltest.Until(t, func() bool {
		return a.trusts("two") == "dc2.consul as one" && b.trusts("one") == "dc1.consul as two"
	}, "both to know the mesh of the other")
	if got := peering.Names(b.State(), "one"); !slices.Equal(got, []string{"web"}) {
		t.Errorf("dc2 has %v", got)
	}
	for name, to := range map[string]*cluster{"three": b, "self": a} {
		err := to.servers[0].Establish(t.Context(), peering.EstablishRequest{PeerName: name, PeeringToken: token})
		if !errkind.Is(err, errkind.Invalid) {
			t.Errorf("the token once more (%s): %v", name, err)
		}
	}

	// The leader is gone, and with it the server that is connected to.
	a.servers[0].end()
	a.lead(2)
	a.register("n1", "web", catalog.Critical)
	b.await("one", "web", "n1 critical")
	b.register("m1", "db", catalog.Passing)
	a.await("two", "db", "m1 passing")

	a.export(`[]`)
	b.await("one", "web", "")
	if err := b.servers[0].Delete(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, func() bool { return b.state("one") == "" }, "the peering to be gone where it was deleted")
	polltest.Until(t, func() bool {
		return a.state("two") == peering.Terminated && a.health("two", "db") == "" &&
			a.trusts("two") == "" && b.trusts("one") == ""
	},
		"the other side to be told")
	if err := a.servers[2].Delete(t.Context(), "two"); err != nil || a.state("two") != "" {
		t.Errorf("deleted: %q, %v", a.state("two"), err)
	}
}

// TestAcceptorDeletes: the side that made the token has no connection of its own, and tells the peer all the same.
func TestAcceptorDeletes(t *testing.T) {
	t.Parallel()
	_, a, b, _ := pair(t, 1)
	a.register("n1", "web", catalog.Passing)
	a.export(`[{"Name":"web","Consumers":[{"Peer":"two"}]}]`)
	b.await("one", "web", "n1 passing")
	if err := a.servers[0].Delete(t.Context(), "two"); err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, func() bool { return a.state("two") == "" }, "the peering to be gone where it was deleted")
	polltest.Until(t, func() bool { return b.state("one") == peering.Terminated }, "the other side to be told")
	b.await("one", "web", "")
}

// TestFrozenPeer: a network that says nothing more leaves what is known and makes the peering fail.
func TestFrozenPeer(t *testing.T) {
	t.Parallel()
	memory, a, b, _ := pair(t, 1)
	a.register("n1", "web", catalog.Passing)
	a.export(`[{"Name":"web","Consumers":[{"Peer":"two"}]}]`)
	b.await("one", "web", "n1 passing")
	memory.Stall("dc10", "dc20")
	memory.Stall("dc20", "dc10")
	for name, c := range map[string]*cluster{"two": a, "one": b} {
		polltest.Until(t, func() bool { return c.state(name) == peering.Failing }, "%s to fail", name)
		side := map[string]string{"two": "accepts", "one": "dials"}[name]
		polltest.Until(t, func() bool {
			list := failures(c.servers[0].Manager)
			return len(list) == 1 && list[0].Value > 15_000 && slices.Equal(list[0].Labels[:6],
				[]string{"peer", name, "state", "FAILING", "side", side}) && (side == "accepts" || list[0].Labels[7] != "")
		}, "the doctor to be told of %s", name)
	}
	b.await("one", "web", "n1 passing")
	a.register("n1", "web", catalog.Warning)
	memory.HealAll()
	b.await("one", "web", "n1 warning")
	polltest.Until(t, func() bool { return b.state("one") == peering.Active }, "the peering to work again")
	polltest.Until(t, func() bool { return len(failures(b.servers[0].Manager)) == 0 }, "the doctor to hear that it works")
}

// TestWhatIsRefusedFails: a peer that is heard, and takes nothing of what is sent, is failing with the reason until it
// has taken all.
func TestWhatIsRefusedFails(t *testing.T) {
	c := &cluster{t: t, name: "dc1", st: statestore.Empty(), changed: make(chan struct{}), led: make(chan struct{})}
	now := clock.NewFake(time.Unix(1000, 0))
	m := New(Config{Catalog: c, Leader: &server{of: c}, Clock: now})
	p := &peering.Peering{ID: "i", Name: "two", State: peering.Active, Dial: &peering.Dial{}}
	c.apply(&catalog.Records{Ops: []catalog.RecordOp{p.Put()}})
	m.since = now.Now()
	stands := func(state peering.State, reason string) {
		t.Helper()
		got, s := m.Stands(p)
		list := failures(m)
		if got != state || s.Trouble != reason || (len(list) > 0) != (state == peering.Failing) ||
			len(list) > 0 && list[0].Labels[7] != reason {
			t.Errorf("%s %q, the doctor is told %v; want %s %q", got, s.Trouble, list, state, reason)
		}
	}
	for range 8 { // heard all the time, and each try to send fails
		m.note(p.ID, heard)
		m.note(p.ID, refusedAt)
		m.trouble(p, errkind.New(errkind.Invalid, "too many services"))
		now.Advance(3 * time.Second)
	}
	stands(peering.Failing, "too many services")
	m.note(p.ID, heard)
	stands(peering.Failing, "too many services")
	m.note(p.ID, taken)
	stands(peering.Active, "")
	m.since = time.Time{} // another server leads
	now.Advance(time.Minute)
	stands(peering.Active, "")
}

// TestStrangersArePlayedNothing: who does not know the secret learns nothing, whatever else is right, and who knows it
// gets no further than what the peering is for.
func TestStrangersArePlayedNothing(t *testing.T) {
	t.Parallel()
	_, a, b, _ := pair(t, 1)
	a.register("n1", "web", catalog.Passing)
	a.export(`[{"Name":"web","Consumers":[{"Peer":"two"}]}]`)
	p, err := peering.Named(b.State(), "one")
	if err != nil {
		t.Fatal(err)
	}
	c, err := b.servers[0].client(p)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	call := func(method string, a *peering.Ask) (*peering.Reply, error) {
		return ask(t.Context(), c.Call, "dc10:8300", method, a)
	}
	for _, method := range []string{peering.MethodEstablish, peering.MethodPull, peering.MethodPush} {
		for name, a := range map[string]*peering.Ask{
			"nothing":          {},
			"a wrong secret":   {ID: p.PeerID, Secret: secret()},
			"no secret":        {ID: p.PeerID},
			"another's ID":     {ID: p.ID, Secret: p.Dial.Secret},
			"an unknown ID":    {ID: "x", Secret: p.Dial.Secret},
			"a secret as hash": {ID: p.PeerID, Secret: string(peering.Hash(p.Dial.Secret))},
		} {
			a.Terminated, a.From, a.Stream = true, "f", secret()
			if r, err := call(method, a); !refused(err) {
				t.Errorf("%s with %s: %+v, %v", method, name, r, err)
			}
		}
	}
	if _, err := c.Call(t.Context(), "dc10:8300", peering.MethodPull, []byte{0xff}); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("noise: %v", err)
	}
	own := func(change func(*peering.Ask)) *peering.Ask {
		a := &peering.Ask{ID: p.PeerID, Secret: p.Dial.Secret}
		change(a)
		return a
	}
	_, err = call(peering.MethodPush, own(func(a *peering.Ask) { a.Session = 7 }))
	if !errkind.Is(err, errkind.Conflict) {
		t.Errorf("a session that never was: %v", err)
	}
	if _, err := call(peering.MethodPush, own(func(a *peering.Ask) {
		a.Batch = peering.Batch{Snapshot: true, Done: true, Services: [][]byte{{1, 2, 3}}}
	})); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("noise as a service: %v", err)
	}
	if got := peering.Names(a.State(), "two"); len(got) != 0 {
		t.Errorf("kept of it: %v", got)
	}
	b.await("one", "web", "n1 passing") // and the honest connection goes on
}
