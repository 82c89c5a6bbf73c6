package snapcache

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/core/feed"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/mesh/envoy"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// store is the catalog without a log.
type store struct {
	mu    sync.Mutex // one Apply at a time
	st    atomic.Pointer[statestore.State]
	hooks []func(*statestore.State, *catalog.Changes)
}

const clusterID = "11111111-2222-3333-4444-555555555555"

func newStore() *store {
	s := &store{}
	s.st.Store(statestore.Empty())
	if err := s.apply(record(catalog.RecordSystem, catalog.ClusterIDKey, clusterID)); err != nil {
		panic(err)
	}
	return s
}

func (s *store) State() *statestore.State                            { return s.st.Load() }
func (s *store) OnApply(f func(*statestore.State, *catalog.Changes)) { s.hooks = append(s.hooks, f) }
func (s *store) tell(next *statestore.State, changes *catalog.Changes) { // as the registry does
	s.st.Store(next)
	for _, f := range s.hooks {
		f(next, changes)
	}
}

func (s *store) apply(commands ...catalog.Command) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.State()
	next, results, changes := was.Apply(commands)
	if next != was {
		s.tell(next, &changes)
	}
	for _, r := range results {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}

// restore puts another State in place.
func (s *store) restore(st *statestore.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell(st, nil)
}

func record(kind catalog.RecordKind, key, value string) catalog.Command {
	return &catalog.Records{Ops: []catalog.RecordOp{{Verb: catalog.RecordSet, Record: catalog.Record{Kind: kind, Key: key,
		Value: []byte(value)}}}}
}

func dropRecord(kind catalog.RecordKind, key string) catalog.Command {
	return &catalog.Records{Ops: []catalog.RecordOp{{Verb: catalog.RecordDelete,
		Record: catalog.Record{Kind: kind, Key: key}}}}
}

func configEntry(t testing.TB, raw string) catalog.Command {
	t.Helper()
	e, err := entry.Decode([]byte(raw))
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	value, err := entry.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	return record(catalog.RecordConfigEntry, entry.Key(e.Base().Kind, e.Base().Name), string(value))
}

// proxy registers a sidecar of the service on a node.
func proxy(node, service string, port int, checks ...*catalog.Check) *catalog.Register {
	id := service + "-sidecar-proxy"
	for _, c := range checks {
		c.Node, c.ServiceID, c.ServiceName = node, id, id
	}
	return &catalog.Register{Node: catalog.Node{Name: node, Address: fmt.Sprintf("10.%d.%d.%d", len(node),
		node[len(node)-1], port%250+1)},
		Service: &catalog.Service{Node: node, ID: id, Name: id, Kind: catalog.KindConnectProxy, Connect: catalog.Connect{
			ProxyDestination: service,
		},
			Port: port, Weights: catalog.Weights{Passing: 1, Warning: 1}}, Checks: checks}
}

// harness is a running cache over a store.
type harness struct {
	testing.TB
	*store
	*Cache
	stop func()
}

func newHarness(t testing.TB, cfg Config) *harness {
	t.Helper()
	h := &harness{TB: t, store: newStore()}
	cfg.Catalog = h.store
	b, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h.Cache = b
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.Run(ctx)
	}()
	h.stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(h.stop)
	return h
}

func (h *harness) do(commands ...catalog.Command) {
	h.Helper()
	if err := h.apply(commands...); err != nil {
		h.Fatal(err)
	}
}

// settle waits until all that was applied is told.
func (h *harness) settle() {
	h.Helper()
	polltest.Until(h, func() bool {
		_, index := h.Newest()
		return index >= h.State().Index()
	}, "the cache to tell what was applied")
}

// seen is what one follower was told.
type seen struct {
	t       testing.TB
	subject string
	mu      sync.Mutex
	values  []feed.Value
	denied  []error
	stopped bool
	leave   func()
}

func (h *harness) follow(subject, token string) *seen {
	h.Helper()
	s := &seen{t: h, subject: subject}
	leave, err := h.Follow(feed.Identity{Node: "n", Token: token}, subject, s.set, s.end)
	if err != nil {
		h.Fatal(err)
	}
	s.leave = leave
	if s.count() == 0 {
		h.Fatalf("%s: no value at once", subject)
	}
	return s
}

func (s *seen) set(v feed.Value) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || len(s.denied) > 0 {
		s.t.Errorf("%s: told after its end", s.subject)
	}
	if n := len(s.values); n > 0 && s.values[n-1].Generation == v.Generation && s.values[n-1].Index >= v.Index {
		s.t.Errorf("%s: index %d comes after %d", s.subject, v.Index, s.values[n-1].Index)
	}
	if n := len(s.values); n > 0 && v.Since > 0 && v.Since == s.values[n-1].Index { // what it knows, as of now
		if !saysTheSame(&v, &s.values[n-1]) {
			s.t.Errorf("%s: index %d does not say the same as %d", s.subject, v.Index, v.Since)
		}
		s.values[n-1].Index, s.values[n-1].Body, s.values[n-1].Tail = v.Index, v.Body, v.Tail
		return
	}
	if n := len(s.values); n > 0 && v.At.IsZero() {
		s.t.Errorf("%s: a change without its time", s.subject)
	}
	s.values = append(s.values, v)
}

func (s *seen) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied = append(s.denied, err)
}

func (s *seen) stop() {
	s.leave()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
}

func (s *seen) last() feed.Value {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.values[len(s.values)-1]
}

func (s *seen) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.values)
}

func (s *seen) refusals() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.denied)
}

// scratch makes a subject's value of a State by itself.
func scratch(t testing.TB, st *statestore.State, text string) []byte {
	t.Helper()
	s, err := mesh.ParseSubject(text)
	if err != nil {
		t.Fatal(err)
	}
	m := mesh.Maker{State: st, Datacenter: "dc1", TrustDomain: clusterID + ".consul"}
	var b []byte
	switch s.Kind {
	case mesh.SubjectEndpoints:
		v := m.Endpoints(s)
		if v == nil {
			return nil // no such subset
		}
		r, err := envoy.Endpoints(v)
		if err != nil {
			t.Fatal(err)
		}
		b = r.Body
	case mesh.SubjectService:
		b, err = m.Service(s.Service).Encode()
	case mesh.SubjectRules:
		var owners mesh.Owners
		if s.Service == "" {
			owners = m.Owners()
		}
		b, _, err = rules(m.Rules(s.Service), owners)
	case mesh.SubjectUpstream:
		b, err = m.Upstream(s).Encode()
	case mesh.SubjectRoots:
		b, err = roots(st, m.TrustDomain)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// isNow checks that the follower knows what the State of now makes of its subject.
func (s *seen) isNow(st *statestore.State) {
	s.t.Helper()
	v := s.last()
	if want := scratch(s.t, st, s.subject); !bytes.Equal(v.Body, want) {
		s.t.Errorf("%s at %d:\n%q, want\n%q", s.subject, v.Index, v.Body, want)
	}
	if v.Index > st.Index() {
		s.t.Errorf("%s: index %d of a State at %d", s.subject, v.Index, st.Index())
	}
}
