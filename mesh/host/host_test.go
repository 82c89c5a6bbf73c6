package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/core/feed"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/mesh/envoy"
	"corbel.dev/corbel/mesh/leaf"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// servers are what a host follows: values of subjects, made as a server makes them.
type servers struct {
	t         *testing.T
	mu        sync.Mutex
	follows   map[string]int // ever, by subject
	open      map[string][]*following
	instances map[string][]mesh.Endpoint
	denied    map[string]bool // subjects that nobody may follow
	held      map[string]bool // subjects that nothing is said of yet
	exposes   bool            // config entries have the checks of services go through their proxies
	leaves    int
	index     uint64
}

type following struct {
	failed  func(error)
	subject string
	set     func(feed.Value)
	stopped bool
}

func newServers(t *testing.T) *servers {
	return &servers{t: t, follows: map[string]int{}, open: map[string][]*following{},
		instances: map[string][]mesh.Endpoint{},
		denied:    map[string]bool{}, held: map[string]bool{}}
}

func (s *servers) value(subject string) feed.Value {
	m := &mesh.Maker{Datacenter: "dc1", TrustDomain: "td.consul", Get: func(_, _ string) entry.Entry { return nil },
		DefaultAllow: true}
	parsed, err := mesh.ParseSubject(subject)
	if err != nil {
		s.t.Error(err)
	}
	s.index++
	v := feed.Value{Index: s.index, At: time.Now()}
	switch parsed.Kind {
	case mesh.SubjectRoots:
		v.Body, err = (&mesh.Roots{TrustDomain: "td.consul", ActiveID: "a",
			List: []mesh.Root{{ID: "a", PEM: "pem", Active: true}}}).Encode()
	case mesh.SubjectUpstream:
		v.Body, err = m.Upstream(parsed).Encode()
	case mesh.SubjectService:
		service := m.Service(parsed.Service)
		service.Expose.Checks = s.exposes
		v.Body, err = service.Encode()
	case mesh.SubjectRules:
		var rules *mesh.RulesValue
		if rules, err = envoy.Authorization(m.Rules(parsed.Service)); err == nil {
			v.Body, v.Tail = rules.Encode()
		}
	case mesh.SubjectEndpoints:
		var r *mesh.Resource
		if r, err = envoy.Endpoints(&mesh.Endpoints{Cluster: m.Cluster(parsed), List: s.instances[subject]}); err == nil {
			v.Body = r.Body
		}
	}
	if err != nil {
		s.t.Error(err)
	}
	return v
}

// Follow implements feed.Follower: the first value comes before it returns.
func (s *servers) Follow(subject, _ string, set func(feed.Value), failed func(error)) func() {
	s.mu.Lock()
	s.follows[subject]++
	f := &following{subject: subject, set: set, failed: failed}
	s.open[subject] = append(s.open[subject], f)
	denied, held := s.denied[subject], s.held[subject]
	v := s.value(subject)
	s.mu.Unlock()
	switch {
	case denied:
		failed(errkind.Errorf(errkind.Denied, "lacks permission for %s", subject))
	case !held:
		set(v)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if f.stopped {
			s.t.Errorf("%s is stopped twice", subject)
		}
		f.stopped = true
	}
}

// FollowSubject implements Leaves.
func (s *servers) FollowSubject(what leaf.Subject, _ string, set func(leaf.Leaf), _ func(error)) func() {
	s.mu.Lock()
	s.leaves++
	n := s.leaves
	s.mu.Unlock()
	set(leaf.Leaf{CertPEM: fmt.Sprintf("cert %s %d", what.Name, n), PrivateKeyPEM: "key"})
	return func() {}
}

// refuse takes the right to a subject from all who follow it.
func (s *servers) refuse(subject string) {
	s.mu.Lock()
	list := slices.Clone(s.open[subject])
	s.mu.Unlock()
	for _, f := range list {
		f.failed(errkind.Errorf(errkind.Denied, "lacks permission for %s", subject))
	}
}

func (s *servers) tell(subject string) {
	s.mu.Lock()
	v := s.value(subject)
	var sets []func(feed.Value)
	for _, f := range s.open[subject] {
		if !f.stopped {
			sets = append(sets, f.set)
		}
	}
	s.mu.Unlock()
	for _, set := range sets {
		set(v)
	}
}

func (s *servers) following() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, list := range s.open {
		for _, f := range list {
			if !f.stopped {
				n++
			}
		}
	}
	return n
}

// directory holds the registrations.
type directory struct {
	mu      sync.Mutex
	all     map[string]*catalog.Service
	version uint64
	changed chan struct{}
}

func newDirectory(list ...*catalog.Service) *directory {
	d := &directory{all: map[string]*catalog.Service{}, version: 1, changed: make(chan struct{})}
	for _, s := range list {
		d.all[s.ID] = s
	}
	return d
}

func (d *directory) put(id string, s *catalog.Service) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all[id] = s; s == nil {
		delete(d.all, id)
	}
	d.version++
	close(d.changed)
	d.changed = make(chan struct{})
}

func (d *directory) Find(node, id string) *catalog.Service {
	d.mu.Lock()
	defer d.mu.Unlock()
	if node != "n1" {
		return nil
	}
	return d.all[id]
}

func (d *directory) List() []*catalog.Service {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []*catalog.Service
	for _, s := range d.all {
		list = append(list, s)
	}
	return list
}

func (d *directory) Await(ctx context.Context, since uint64) uint64 {
	for {
		d.mu.Lock()
		version, changed := d.version, d.changed
		d.mu.Unlock()
		if version != since {
			return version
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return since
		}
	}
}

func sidecar(id, service string, port int, upstreams ...string) *catalog.Service {
	var list []string
	for i, u := range upstreams {
		list = append(list, fmt.Sprintf(`{"DestinationName":%q,"LocalBindPort":%d}`, u, 9000+i))
	}
	return &catalog.Service{Node: "n1", Kind: catalog.KindConnectProxy, ID: id, Name: id, Address: "127.0.0.1", Port: port,
		Connect: catalog.Connect{ProxyDestination: service,
			Proxy: fmt.Appendf(nil, `{"DestinationServiceName":%q,"LocalServicePort":8080,"Upstreams":[%s]}`, service,
				strings.Join(list, ","))}}
}

type rig struct {
	*testing.T
	host *Host
	srv  *servers
	dir  *directory
}

func newRig(t *testing.T, change func(*Config), list ...*catalog.Service) *rig {
	t.Helper()
	r := &rig{T: t, srv: newServers(t), dir: newDirectory(list...)}
	cfg := Config{Node: "n1", Follower: r.srv, Leaves: r.srv, Directory: r.dir, Recheck: 20 * time.Millisecond}
	if change != nil {
		change(&cfg)
	}
	var err error
	if r.host, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.host.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		if n := r.srv.following(); n != 0 {
			t.Errorf("%d subjects are followed after the end", n)
		}
	})
	return r
}

func (r *rig) open(id, token string) (*Stream, error) {
	ctx, cancel := context.WithTimeout(r.Context(), 30*time.Second)
	defer cancel()
	return r.host.Open(ctx, Claim{ID: id, Version: "1.40.0"}, token)
}

// stream is an opened proxy that notes its wakes.
type stream struct {
	*Stream
	wakes  chan mesh.Types
	unbind func()
}

// Wake implements mesh.Waker.
func (s *stream) Wake(t mesh.Types) { s.wakes <- t }

func (r *rig) bound(id, token string) *stream {
	r.Helper()
	s, err := r.open(id, token)
	if err != nil {
		r.Fatal(err)
	}
	out := &stream{Stream: s, wakes: make(chan mesh.Types, 100)}
	out.unbind = s.Bind(out)
	return out
}

const apiEndpoints = "endpoints/dc1/api/"

// TestOneFollowServesAll: what proxies share is followed once and decoded once, and wakes each of them.
func TestOneFollowServesAll(t *testing.T) {
	r := newRig(t, nil, sidecar("web-1", "web", 21000, "api"), sidecar("web-2", "web", 21001, "api"),
		sidecar("shop", "shop", 21002, "api"))
	list := []*stream{r.bound("web-1", ""), r.bound("web-2", ""), r.bound("shop", "")}
	for subject, n := range r.srv.follows {
		if n != 1 {
			t.Errorf("%s was followed %d times", subject, n)
		}
	}
	if r.srv.leaves != 2 {
		t.Errorf("%d certificates for two services", r.srv.leaves)
	}
	before := list[0].Set(mesh.TypeEndpoints).All()[0]
	r.srv.mu.Lock()
	r.srv.instances[apiEndpoints] = []mesh.Endpoint{{Address: "10.0.0.1", Port: 1, Weight: 1}}
	r.srv.mu.Unlock()
	r.srv.tell(apiEndpoints)
	shared := list[0].Set(mesh.TypeEndpoints).All()[0]
	for i, s := range list {
		if got := polltest.Get(t, s.wakes, "the wake of stream %d", i); got != mesh.Types(0).With(mesh.TypeEndpoints) {
			t.Errorf("stream %d was woken for %b", i, got)
		}
		if now := s.Set(mesh.TypeEndpoints).All()[0]; now == before || now != shared {
			t.Errorf("stream %d has %p, the first has %p", i, now, shared)
		}
	}
	r.srv.tell(apiEndpoints) // the same again is no news
	select {
	case got := <-list[0].wakes:
		t.Errorf("woken for %b though nothing changed", got)
	default:
	}
	for _, s := range list {
		s.unbind()
	}
}

// TestRegistrationIsFollowed: another registration is taken over in place, its end ends the proxy.
func TestRegistrationIsFollowed(t *testing.T) {
	r := newRig(t, nil, sidecar("web", "web", 21000, "api"))
	s := r.bound("web", "")
	r.dir.put("web", sidecar("web", "web", 21000, "api", "db"))
	polltest.Until(t, func() bool { return s.Set(mesh.TypeCluster).Len() == 3 }, "the second upstream")
	select {
	case <-s.Done():
		t.Fatal("the proxy ended with another upstream")
	default:
	}
	r.dir.put("web", sidecar("web", "web", 21000, "db"))
	polltest.Until(t, func() bool { return s.Set(mesh.TypeCluster).Len() == 2 }, "the upstream to go")
	r.dir.put("web", nil)
	polltest.Get(t, s.Done(), "the end of a deregistered proxy")
	polltest.Until(t, func() bool { return r.srv.following() == 0 }, "the subjects to be left")
	s.unbind()
	if _, err := r.open("web", ""); errkind.Of(err) != errkind.NotFound {
		t.Errorf("a proxy that is gone opens: %v", err)
	}
	r.dir.put("web", sidecar("web", "web", 21000))
	s = r.bound("web", "")
	r.dir.put("web", sidecar("web", "other", 21000))
	polltest.Get(t, s.Done(), "the end of a proxy that now stands for another service")
	s.unbind()
}

// TestGrace: a proxy without a stream is forgotten after a while, not at once.
func TestGrace(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Grace = 50 * time.Millisecond }, sidecar("web", "web", 21000))
	s := r.bound("web", "")
	s.unbind()
	if r.srv.following() == 0 {
		t.Error("forgotten at once")
	}
	polltest.Until(t, func() bool { return r.srv.following() == 0 }, "the proxy to be forgotten")
}

// TestChecksAreToldAnew: config entries that changed while a proxy was away count for its checks when it is back.
func TestChecksAreToldAnew(t *testing.T) {
	told := make(chan bool, 10)
	r := newRig(t, func(c *Config) {
		c.Grace, c.ExposeChecks = 50*time.Millisecond, func(_ string, on bool) { told <- on }
	}, sidecar("web", "web", 21000))
	for _, want := range []bool{true, false} {
		r.srv.mu.Lock()
		r.srv.exposes = want
		r.srv.mu.Unlock()
		s := r.bound("web", "")
		if on := polltest.Get(t, told, "what is wanted of the checks"); on != want {
			t.Errorf("the agent is told %v, want %v", on, want)
		}
		s.unbind()
		polltest.Until(t, func() bool { return r.srv.following() == 0 }, "the proxy to be forgotten")
	}
}

// TestRightEndsWithItsSubjects: a token that is taken away ends its streams as soon as the servers refuse it
// something, long before the next look by the clock, however old the agent's own knowledge of it is; a refusal of
// another kind ends nothing.
func TestRightEndsWithItsSubjects(t *testing.T) {
	stale := &tokens{by: map[string]*acl.Grant{"web": rules(`service "web" { policy = "write" }`)}}
	now := &tokens{by: map[string]*acl.Grant{"web": rules(`service "web" { policy = "write" }`)}}
	r := newRig(t, func(c *Config) { c.Grant, c.Ask, c.Recheck = stale.Grant, now.Grant, time.Hour },
		sidecar("web", "web", 21000, "db"))
	s := r.bound("web", "web")
	var upstream string
	r.srv.mu.Lock()
	for subject := range r.srv.open {
		if strings.Contains(subject, "db") {
			upstream = subject
		}
	}
	r.srv.mu.Unlock()
	r.srv.refuse(upstream)
	select {
	case <-s.Done():
		t.Fatal("a proxy ended since one of its upstreams is refused")
	case <-time.After(100 * time.Millisecond):
	}
	now.set("web", nil)
	r.srv.refuse(upstream)
	polltest.Get(t, s.Done(), "the end of a proxy whose token is gone")
	s.unbind()
}

// TestRefused: tokens without the right, unknown ids and what is no proxy are told so.
func TestRefused(t *testing.T) {
	grants := &tokens{by: map[string]*acl.Grant{"web": rules(`service "web" { policy = "write" }`),
		"read": rules(`service_prefix "" { policy = "read" }`)}}
	r := newRig(t, func(c *Config) { c.Grant = grants.Grant; c.MaxProxies = 1 }, sidecar("web", "web", 21000),
		sidecar("api", "api", 21001),
		&catalog.Service{Node: "n1", ID: "plain", Name: "plain"})
	for _, c := range []struct {
		id, token string
		kind      errkind.Kind
		noToken   bool
	}{
		{"web", "", errkind.Denied, true}, {"web", "unknown", errkind.Denied, true}, {"web", "read", errkind.Denied, false},
		{"api", "web", errkind.Denied, false}, {"none", "web", errkind.NotFound, false},
		{"plain", "web", errkind.Invalid, false}, {"", "web", errkind.Invalid, false},
	} {
		if _, err := r.open(c.id, c.token); errkind.Of(err) != c.kind || errors.Is(err, ErrNoToken) != c.noToken {
			t.Errorf("%s with %q: %v", c.id, c.token, err)
		}
	}
	s := r.bound("web", "web")
	grants.set("web", rules(`service "web" { policy = "read" }`))
	polltest.Get(t, s.Done(), "the end of a proxy whose token lost its right")
	s.unbind()
}

// TestDeniedByServers: what a proxy needs for itself and may not have is told to who opens it; an upstream that it
// may not have is left out.
func TestDeniedByServers(t *testing.T) {
	r := newRig(t, nil, sidecar("web", "web", 21000, "api"), sidecar("shop", "shop", 21001))
	r.srv.denied["service/web"] = true
	if _, err := r.open("web", ""); errkind.Of(err) != errkind.Denied {
		t.Errorf("opened: %v", err)
	}
	r.srv.mu.Lock()
	delete(r.srv.denied, "service/web")
	r.srv.denied["upstream/dc1/api///"] = true
	r.srv.mu.Unlock()
	s := r.bound("web", "")
	if n := s.Set(mesh.TypeCluster).Len(); n != 1 {
		t.Errorf("%d clusters with a denied upstream", n)
	}
	if got, _ := r.host.Proxy("", "web"); len(got.Problems) != 1 || !strings.Contains(got.Problems[0], "api") {
		t.Errorf("problems: %v", got.Problems)
	}
	s.unbind()
}

// TestWaiting: an open ends with its context while values lack, and says which.
func TestWaiting(t *testing.T) {
	r := newRig(t, nil, sidecar("web", "web", 21000))
	r.srv.held["roots"] = true
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := r.host.Open(ctx, Claim{ID: "web"}, ""); errkind.Of(err) != errkind.Unavailable ||
		!strings.Contains(err.Error(), "roots") {
		t.Errorf("opened: %v", err)
	}
	if got, _ := r.host.Proxy("", "web"); got.State != StateWaiting || len(got.Missing) != 1 {
		t.Errorf("%+v", got)
	}
	r.srv.tell("roots")
	r.bound("web", "").unbind()
}

// TestStatus: what was acknowledged, what is outstanding and what was refused.
func TestStatus(t *testing.T) {
	r := newRig(t, nil, sidecar("web", "web", 21000, "api"), sidecar("idle", "idle", 21001),
		&catalog.Service{Node: "n1", ID: "plain", Name: "plain"})
	s := r.bound("web", "")
	state := func(want string) Status {
		t.Helper()
		got, ok := r.host.Proxy("n1", "web")
		if !ok || got.State != want {
			t.Fatalf("%t %+v, want %s", ok, got, want)
		}
		return got
	}
	state(StatePending)
	for _, kind := range mesh.Every {
		s.Applied(Report{Type: kind, Resources: s.Set(kind).All(), Sent: time.Now(), Answered: time.Now()})
	}
	if got := state(StateSynced); got.Envoy != "1.40.0" || got.Pending != 0 || got.Resources == 0 ||
		len(got.Details) != got.Resources || len(got.Upstreams) != 1 {
		t.Errorf("%+v", got)
	}
	r.srv.mu.Lock()
	r.srv.instances[apiEndpoints] = []mesh.Endpoint{{Address: "10.0.0.1", Port: 1, Weight: 1}}
	r.srv.mu.Unlock()
	r.srv.tell(apiEndpoints)
	if got := state(StatePending); got.Pending != 1 {
		t.Errorf("%+v", got)
	}
	s.Applied(Report{Type: mesh.TypeEndpoints, Resources: s.Set(mesh.TypeEndpoints).All(), Refused: "no such thing",
		Sent: time.Now(), Answered: time.Now()})
	if got := state(StateRefused); got.Refused != 1 || got.Refusal.Words != "no such thing" ||
		len(got.Refusal.Resources) != 1 {
		t.Errorf("%+v", got)
	}
	list := r.host.Status()
	if len(list) != 2 || list[0].ID != "idle" || list[0].State != StateDisconnected || list[1].ID != "web" ||
		list[1].Details != nil {
		t.Errorf("%+v", list)
	}
	if _, ok := r.host.Proxy("", "plain"); ok {
		t.Error("what is no proxy has a status")
	}
	s.unbind()
	state(StateDisconnected)
}

type tokens struct {
	mu sync.Mutex
	by map[string]*acl.Grant
}

func (t *tokens) set(secret string, g *acl.Grant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.by[secret] = g
}

func (t *tokens) Grant(_ context.Context, secret string) (*acl.Grant, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.by[secret]; g != nil {
		return g, nil
	}
	return nil, errkind.New(errkind.Denied, "ACL not found")
}

func rules(text string) *acl.Grant {
	parsed, err := acl.Parse(text)
	if err != nil {
		panic(err)
	}
	return &acl.Grant{Authorizer: acl.Compile(acl.Deny, parsed)}
}
