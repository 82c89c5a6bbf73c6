package hostplane_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/api/xds/session"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/core/feed"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/mesh/ca"
	"corbel.dev/corbel/mesh/envoy"
	"corbel.dev/corbel/mesh/host"
	"corbel.dev/corbel/mesh/leaf"
	"corbel.dev/corbel/mesh/proxy"
	"corbel.dev/corbel/mesh/snapcache"
)

const clusterID = "11111111-2222-3333-4444-555555555555"

// journal is what all servers apply, each when its turn comes, and the State after each command.
type journal struct {
	commands []catalog.Command
	states   []*statestore.State
}

func (j *journal) add(c catalog.Command) {
	last := statestore.Empty()
	if n := len(j.states); n > 0 {
		last = j.states[n-1]
	}
	next, _, _ := last.Apply([]catalog.Command{c})
	j.commands, j.states = append(j.commands, c), append(j.states, next)
}

// rules is the version of the rules that a service's proxies have by a State.
func rules(t *testing.T, st *statestore.State, service string) string {
	m := &mesh.Maker{State: st, Datacenter: "dc1", TrustDomain: ca.TrustDomain(clusterID)}
	v, err := envoy.Authorization(m.Rules(m.Service(service).RulesSubject().Service))
	if err != nil {
		t.Fatal(err)
	}
	return v.Network.Version
}

// replica is one server's catalog.
type replica struct {
	of      *journal
	applied int
	st      atomic.Pointer[statestore.State]
	hooks   []func(*statestore.State, *catalog.Changes)
}

func (r *replica) State() *statestore.State                            { return r.st.Load() }
func (r *replica) OnApply(f func(*statestore.State, *catalog.Changes)) { r.hooks = append(r.hooks, f) }

// advance applies the next n commands as one batch.
func (r *replica) advance(n int) {
	n = min(n, len(r.of.commands)-r.applied)
	if n <= 0 {
		return
	}
	was := r.State()
	next, _, changes := was.Apply(r.of.commands[r.applied : r.applied+n])
	r.applied += n
	if next == was {
		return
	}
	r.st.Store(next)
	for _, f := range r.hooks {
		f(next, &changes)
	}
}

// source is a replica's cache, with an authority that never changes.
type source struct {
	*snapcache.Cache
	roots []byte
}

func (s source) Follow(who feed.Identity, subject string, set func(feed.Value), denied func(error)) (func(), error) {
	if subject == "roots" {
		generation, _ := s.Newest()
		set(feed.Value{Index: 1, Generation: generation, Body: s.roots})
		return func() {}, nil
	}
	return s.Cache.Follow(who, subject, set, denied)
}

// certificate is an authority that gives everybody the same.
type certificate struct{}

// FollowSubject implements host.Leaves.
func (certificate) FollowSubject(_ leaf.Subject, _ string, set func(leaf.Leaf), _ func(error)) func() {
	set(leaf.Leaf{CertPEM: "cert", PrivateKeyPEM: "key"})
	return func() {}
}

// directory knows a proxy of each service.
type directory struct{ list []*catalog.Service }

func (d directory) Find(_, id string) *catalog.Service {
	for _, s := range d.list {
		if s.ID == id {
			return s
		}
	}
	return nil
}
func (d directory) List() []*catalog.Service { return d.list }
func (d directory) Await(ctx context.Context, since uint64) uint64 {
	if since == 0 {
		return 1
	}
	<-ctx.Done()
	return since
}

// sidecar is a proxy that takes its time to acknowledge, and opens its stream anew now and then.
type sidecar struct {
	t       *testing.T
	agent   string
	service string
	host    *host.Host
	rng     *rand.Rand
	wake    chan struct{}
	news    atomic.Uint32

	mu  sync.Mutex
	had []string // the versions of its rules, in order
}

// Wake implements mesh.Waker.
func (s *sidecar) Wake(types mesh.Types) {
	s.news.Or(uint32(types))
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *sidecar) run(ctx context.Context) {
	for ctx.Err() == nil {
		stream, err := s.host.Open(ctx, host.Claim{ID: s.service + "-sidecar-proxy"}, "")
		if err != nil {
			continue // ctx ended
		}
		s.serve(ctx, stream, 1+s.rng.IntN(40))
	}
}

// serve is one stream, for so many wake-ups.
func (s *sidecar) serve(ctx context.Context, stream *host.Stream, turns int) {
	defer stream.Bind(s)()
	x := session.New(false)
	ask := &session.Request{Type: mesh.TypeExtension, Known: true, Subscribe: []string{mesh.NetworkRules}}
	var answer session.Answer
	var out session.Response
	for first := true; turns > 0; turns-- {
		x.Changed(mesh.Types(s.news.Swap(0)))
		if first {
			x.Changed(mesh.AllTypes)
			if _, err := x.Request(ask, &answer); err != nil {
				s.t.Error(err)
			}
			first = false
		}
		for x.Next(stream, time.Now(), &out) {
			for _, r := range out.Resources {
				s.mu.Lock()
				s.had = append(s.had, r.Version)
				s.mu.Unlock()
			}
			pause(s.rng.IntN(30))
			if _, err := x.Request(&session.Request{Type: out.Type, Known: true, Nonce: out.Nonce}, &answer); err != nil {
				s.t.Error(err)
			}
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return
		}
	}
}

// pause lets the bubble's time pass.
func pause(ms int) { <-time.After(time.Duration(ms) * time.Millisecond) }

// fleet is servers and agents with a proxy of each service.
type fleet struct {
	t        *testing.T
	journal  journal
	memory   *wire.Memory
	replicas []*replica
	held     int // the place of the one that applies nothing for a while
	sources  []source
	stops    []func()
	services []string
	named    int // how many of them intentions have named, where each has its first one
	agents   int
	sidecars []*sidecar
	ctx      context.Context
	running  sync.WaitGroup
}

func (f *fleet) run(part func(context.Context) error) {
	f.running.Go(func() {
		if err := part(f.ctx); err != nil {
			f.t.Error(err)
		}
	})
}

func (f *fleet) serve(i int) {
	name := fmt.Sprint("s", i)
	l, err := f.memory.Host(name).Listen(name + ":1")
	if err != nil {
		f.t.Fatal(err)
	}
	server, err := feed.NewServer(feed.ServerConfig{Source: f.sources[i]})
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(f.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Run(ctx, l)
	}()
	f.stops[i] = func() { cancel(); <-done }
}

func (f *fleet) addServer(roots []byte) {
	r := &replica{of: &f.journal}
	r.st.Store(statestore.Empty())
	r.advance(len(f.journal.commands))
	cache, err := snapcache.New(snapcache.Config{Catalog: r})
	if err != nil {
		f.t.Fatal(err)
	}
	f.replicas, f.sources = append(f.replicas, r), append(f.sources, source{cache, roots})
	f.stops = append(f.stops, nil)
	f.run(cache.Run)
	f.serve(len(f.replicas) - 1)
}

func (f *fleet) addAgent(rng *rand.Rand, hedge bool) {
	name := fmt.Sprint("a", f.agents)
	f.agents++
	var registered directory
	for _, service := range f.services {
		own, err := json.Marshal(proxy.Registration{DestinationServiceName: service, DestinationServiceID: service,
			LocalServiceAddress: "127.0.0.1", LocalServicePort: 80})
		if err != nil {
			f.t.Fatal(err)
		}
		id := service + "-sidecar-proxy"
		registered.list = append(registered.list, &catalog.Service{Node: name, Kind: catalog.KindConnectProxy, ID: id,
			Name: id, Port: 21000, Connect: catalog.Connect{Proxy: own, ProxyDestination: service}})
	}
	client, err := feed.NewClient(feed.ClientConfig{Node: name, Hedge: hedge,
		Servers: func() (list []string) {
			for i := range f.replicas {
				list = append(list, fmt.Sprint("s", i, ":1"))
			}
			return list
		},
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return f.memory.Host(name).DialContext(ctx, "tcp", addr)
		}})
	if err != nil {
		f.t.Fatal(err)
	}
	h, err := host.New(host.Config{Node: name, Follower: client, Leaves: certificate{}, Directory: registered})
	if err != nil {
		f.t.Fatal(err)
	}
	f.run(client.Run)
	f.run(h.Run)
	for _, service := range f.services {
		s := &sidecar{t: f.t, agent: name, service: service, host: h, rng: rand.New(rand.NewPCG(rng.Uint64(), 1)),
			wake: make(chan struct{}, 1)}
		f.sidecars = append(f.sidecars, s)
		f.run(func(ctx context.Context) error { s.run(ctx); return nil })
	}
}

// intentions are the states between which the journal moves, to and fro: what it says again and again is what a server
// that applies much at once does not notice.
var intentions = []string{
	`{"Kind":"service-intentions","Name":"%s","Sources":[{"Name":"intruder","Action":"deny"}]}`,
	`{"Kind":"service-intentions","Name":"%s","Sources":[{"Name":"api","Action":"allow"}]}`,
	``,
}

func intention(t *testing.T, rng *rand.Rand, destination string) catalog.Command {
	return intentionOf(t, intentions[rng.IntN(len(intentions))], destination)
}

// intentionOf is the change to an entry with the destination's name in its text, or the end of it.
func intentionOf(t *testing.T, raw, destination string) catalog.Command {
	op := catalog.RecordOp{Verb: catalog.RecordDelete, Record: catalog.Record{Kind: catalog.RecordConfigEntry,
		Key: entry.Key(entry.ServiceIntentions, destination)}}
	if raw != "" {
		e, err := entry.Decode(fmt.Appendf(nil, raw, destination))
		if err != nil {
			t.Fatal(err)
		}
		if op.Record.Value, err = entry.Encode(e); err != nil {
			t.Fatal(err)
		}
		op.Verb = catalog.RecordSet
	}
	return &catalog.Records{Ops: []catalog.RecordOp{op}}
}

// TestRulesNeverGoBack: whatever servers apply early, late or at once, and whatever becomes of the connections, a proxy
// that has heard of a denial is not told what held before it, and ends with what holds.
func TestRulesNeverGoBack(t *testing.T) {
	// A client, or a proxy, without one of the rules went back.
	seeds := []uint64{76, 191, 279, 290}
	for seed := range uint64(24) {
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { orderRun(t, seed, []string{"web"}, (*fleet).intend) })
		})
	}
}

// TestFirstIntentions is the same for services that no intention names at first: each gets its first one with a change
// for every destination right before or behind it. What is for every destination is then not for that service any more,
// whichever of the two a server tells first.
func TestFirstIntentions(t *testing.T) {
	var services []string
	for i := range 12 {
		services = append(services, fmt.Sprint("web-", i))
	}
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { orderRun(t, seed, services, (*fleet).nameOne) })
		})
	}
}

func orderRun(t *testing.T, seed uint64, services []string, intend func(*fleet, *rand.Rand)) {
	rng := rand.New(rand.NewPCG(seed, 14))
	ctx, cancel := context.WithCancel(t.Context())
	f := &fleet{t: t, memory: wire.NewMemory(), ctx: ctx, services: services}
	defer f.running.Wait()
	defer cancel()
	f.journal.add(&catalog.Records{Ops: []catalog.RecordOp{{Verb: catalog.RecordSet, Record: catalog.Record{
		Kind: catalog.RecordSystem, Key: catalog.ClusterIDKey, Value: []byte(clusterID)}}}})
	roots, err := (&mesh.Roots{TrustDomain: ca.TrustDomain(clusterID), ActiveID: "a",
		List: []mesh.Root{{ID: "a", PEM: "pem", Active: true}}}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		f.addServer(roots)
	}
	for i := range 4 {
		f.addAgent(rng, i%2 == 0)
	}
	pause(3000)
	var lengths []int // of the journal, by step
	for range 300 {
		f.step(rng, intend)
		pause(rng.IntN(300))
		if lengths = append(lengths, len(f.journal.commands)); len(lengths) > mostBehind {
			for _, r := range f.replicas {
				r.advance(lengths[len(lengths)-1-mostBehind] - r.applied)
			}
		}
	}
	f.memory.HealAll()
	for _, r := range f.replicas {
		r.advance(len(f.journal.commands))
	}
	pause(60_000)
	for _, service := range services {
		versions := make([]string, len(f.journal.states))
		for i, st := range f.journal.states {
			versions[i] = rules(t, st, service)
		}
		for _, s := range f.sidecars {
			if s.service == service {
				s.mu.Lock()
				f.judge(s, versions)
				s.mu.Unlock()
			}
		}
	}
}

// mostBehind is how many steps a server is behind the journal at most, some 150 ms each: after ten seconds a client
// takes what there is.
const mostBehind = 25

// intend changes who may reach web, or every service.
func (f *fleet) intend(rng *rand.Rand) {
	f.journal.add(intention(f.t, rng, destinations[rng.IntN(len(destinations))]))
}

// nameOne has the next service get its first intention at about the time of a change for every destination; in between
// intentions of those that have had one change, and go. Nobody is allowed twice, so that rules tell when they held.
func (f *fleet) nameOne(rng *rand.Rand) {
	allow := func(destination string) {
		f.journal.add(intentionOf(f.t, fmt.Sprintf(
			`{"Kind":"service-intentions","Name":"%%s","Sources":[{"Name":"caller-%d","Action":"allow"}]}`,
			len(f.journal.commands)), destination))
	}
	switch {
	case f.named < len(f.services) && rng.IntN(3) == 0:
		if rng.IntN(2) > 0 {
			allow("*")
		}
		allow(f.services[f.named])
		allow("*")
		f.named++
	case f.named == 0 || rng.IntN(2) > 0:
		allow("*")
	case rng.IntN(3) > 0:
		allow(f.services[rng.IntN(f.named)])
	default:
		f.journal.add(intentionOf(f.t, "", f.services[rng.IntN(f.named)]))
	}
}

func (f *fleet) step(rng *rand.Rand, intend func(*fleet, *rand.Rand)) {
	i := rng.IntN(len(f.replicas))
	server, agent := fmt.Sprint("s", i), fmt.Sprint("a", rng.IntN(f.agents))
	if rng.IntN(20) == 0 {
		f.held = rng.IntN(len(f.replicas) + 1)
	}
	switch rng.IntN(16) {
	case 0, 1, 2, 3, 4:
		intend(f, rng)
	case 5, 6, 7, 8, 9, 10:
		if i != f.held {
			f.replicas[i].advance(1 + rng.IntN(8)*rng.IntN(2))
		}
	case 11:
		f.memory.Drop(agent, server)
	case 12:
		f.memory.Stall(server, agent)
	case 13:
		f.memory.Delay(server, agent, time.Duration(rng.IntN(200))*time.Millisecond)
	case 14:
		f.memory.Heal(server, agent)
		f.memory.Heal(agent, server)
	case 15:
		f.stops[i]()
		f.serve(i)
	}
}

var destinations = []string{"*", "web"}

// judge finds the States, none before the last one, in which the proxy had each of its rules.
func (f *fleet) judge(who *sidecar, versions []string) {
	f.t.Helper()
	at, had := 0, who.had
	for i, v := range had {
		for at < len(versions) && versions[at] != v {
			at++
		}
		if at == len(versions) {
			f.t.Errorf("%s of agent %s: rules %d of %d are older than those before them, or were never in force", who.service,
				who.agent, i+1, len(had))
			return
		}
	}
	if want := versions[len(versions)-1]; len(had) == 0 || had[len(had)-1] != want {
		f.t.Errorf("%s of agent %s does not have the newest rules after a minute", who.service, who.agent)
	}
}
