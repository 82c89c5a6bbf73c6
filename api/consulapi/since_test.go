package consulapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
)

// changes is an answer of a read of changes.
type changes struct {
	Index        uint64
	Reset        bool
	Set, Deleted []json.RawMessage
}

func (r *rig) since(target string) changes {
	r.Helper()
	a := r.do("GET", target, "")
	var c changes
	if err := json.Unmarshal([]byte(a.body), &c); err != nil || a.status != 200 {
		r.Fatalf("%s: %d %s (%v)", target, a.status, a.body, err)
	}
	if at := a.header.Get("X-Consul-Index"); at != strconv.FormatUint(c.Index, 10) {
		r.Fatalf("%s: header %s, body %d", target, at, c.Index)
	}
	return c
}

// mirror follows one list by its changes; key names a row, or a deletion.
type mirror struct {
	full, since string
	key         func(json.RawMessage) string
	at          uint64
	held        map[string]string
}

func field(path ...string) func(json.RawMessage) string {
	return func(b json.RawMessage) string {
		if b[0] == '"' {
			var s string
			_ = json.Unmarshal(b, &s) // a name
			return s + "/"
		}
		key := ""
		for _, p := range path {
			v := map[string]any{}
			_ = json.Unmarshal(b, &v) // every row is an object
			if sub, ok := v["Service"].(map[string]any); ok && p != "Node" {
				v = sub
			} else if sub, ok := v["Node"].(map[string]any); ok && p == "Node" {
				v = sub
			}
			if p == "ServiceID" && v[p] == nil {
				p = "ID"
			}
			key += fmt.Sprint(v[p], "/")
		}
		return key
	}
}

func (m *mirror) sync(r *rig) {
	r.Helper()
	// One instant's wait: an answer without changes is an answer too.
	c := r.since(m.since + "since=" + strconv.FormatUint(m.at, 10) + "&wait=1ms")
	if m.held == nil || c.Reset {
		m.held = map[string]string{}
	}
	for _, b := range c.Deleted {
		delete(m.held, m.key(b))
	}
	for _, b := range c.Set {
		m.held[m.key(b)] = string(b)
	}
	if c.Index < m.at && !c.Reset {
		r.Fatalf("%s: index %d after %d", m.since, c.Index, m.at)
	}
	m.at = c.Index
	want := map[string]string{}
	var rows []json.RawMessage
	a := r.do("GET", m.full, "")
	if a.status != 404 {
		if err := json.Unmarshal([]byte(a.body), &rows); err != nil { // the list of services is an object
			tags := map[string][]string{}
			if err := json.Unmarshal([]byte(a.body), &tags); err != nil {
				r.Fatal(err)
			}
			for name, list := range tags {
				b, _ := json.Marshal(struct{ Name, Tags any }{name, list}) // strings marshal
				rows = append(rows, b)
			}
		}
	}
	for _, b := range rows {
		want[m.key(b)] = string(b)
	}
	if !maps.Equal(m.held, want) {
		r.Fatalf("%s at %d:\nheld %v\nwant %v", m.since, m.at, m.held, want)
	}
}

func mirrors() []*mirror {
	entry := field("Node", "ServiceID")
	return []*mirror{
		{full: "/v1/kv/a?recurse", since: "/v1/kv/a?recurse&", key: field("Key")},
		{full: "/v1/kv/?recurse", since: "/v1/kv/?recurse&", key: field("Key")},
		{full: "/v1/catalog/nodes", since: "/v1/catalog/nodes?", key: field("Node")},
		{full: "/v1/catalog/services", since: "/v1/catalog/services?", key: field("Name")},
		{full: "/v1/health/service/web", since: "/v1/health/service/web?", key: entry},
		{full: "/v1/health/service/web?passing", since: "/v1/health/service/web?passing&", key: entry},
		{full: "/v1/health/service/web?tag=x", since: "/v1/health/service/web?tag=x&", key: entry},
	}
}

// step changes something.
func sinceStep(rng *rand.Rand, s *store, t testing.TB) {
	key := []string{"a/x", "a/y", "ab", "b/x"}[rng.IntN(4)]
	node := fmt.Sprintf("n%d", rng.IntN(4))
	var c catalog.Command
	switch rng.IntN(8) {
	case 0, 1:
		c = &catalog.KV{Verb: catalog.KVSet, Pair: catalog.KVPair{Key: key, Value: []byte(fmt.Sprint(rng.IntN(3)))}}
	case 2:
		c = &catalog.KV{Verb: catalog.KVDelete, Pair: catalog.KVPair{Key: key}}
	case 3, 4, 5:
		c = &catalog.Register{Node: catalog.Node{Name: node, Address: fmt.Sprintf("10.0.0.%d", rng.IntN(2))},
			Service: &catalog.Service{ID: fmt.Sprintf("w%d", rng.IntN(2)), Name: []string{"web", "db"}[rng.IntN(2)],
				Tags: [][]string{nil, {"x"}}[rng.IntN(2)]},
			Checks: []*catalog.Check{{ID: "c", Status: catalog.Health(rng.IntN(3))}}}
	case 6:
		c = &catalog.Deregister{Node: node, ServiceID: []string{"", "w0", "w1"}[rng.IntN(3)]}
	case 7:
		if rng.IntN(4) > 0 {
			return
		}
		c = &catalog.ReapTombstones{Index: s.State().Index() - uint64(rng.IntN(int(s.State().Index())))}
	}
	put(t, s, c)
}

// Lists kept by their changes equal the full lists, whatever happens in between.
func TestSinceMirrors(t *testing.T) {
	for seed := range uint64(15) {
		r := newRig(t, nil)
		rng, all := rand.New(rand.NewPCG(seed, 1)), mirrors()
		for range 150 {
			sinceStep(rng, r.store, t)
			if rng.IntN(3) == 0 {
				all[rng.IntN(len(all))].sync(r)
			}
		}
		for _, m := range all {
			m.sync(r)
		}
	}
}

// The same through servers that are forwarded to, with the leader changing between
// two that hold the same state, and the index passing a restored snapshot.
func TestSinceAcrossServersAndRestores(t *testing.T) {
	one := newRig(t, nil)
	other := newRig(t, func(c *Config) { c.Registry = one.store })
	leader := []*rig{one, other}
	turn := 0
	agent := newRig(t, func(c *Config) {
		c.Registry, c.Operator.Group = nil, nil
		c.Forward = forwardTo(func() http.Handler { turn++; return leader[turn%2].api })
	})
	rng, all := rand.New(rand.NewPCG(7, 7)), mirrors()
	for i := range 200 {
		sinceStep(rng, one.store, t)
		if i == 100 { // an older snapshot comes back: then the leader raises the horizon
			old := statestore.Empty()
			old, _, _ = old.Apply([]catalog.Command{&catalog.KV{Verb: catalog.KVSet, Pair: catalog.KVPair{Key: "a/old"}}})
			was := one.store.State().Index()
			one.store.restore(old)
			all[0].sync(agent) // before the horizon is raised: an index of another history
			put(t, one.store, &catalog.Horizon{Index: was})
		}
		if rng.IntN(3) == 0 {
			all[rng.IntN(len(all))].sync(agent)
		}
	}
	for _, m := range all {
		m.sync(agent)
	}
}

type forwardTo func() http.Handler

func (f forwardTo) Forward(w http.ResponseWriter, r *http.Request, _ bool) error {
	f().ServeHTTP(w, r)
	return nil
}

func (f forwardTo) ForwardStream(w http.ResponseWriter, r *http.Request, toLeader bool) error {
	return f.Forward(w, r, toLeader)
}

func TestSinceBlocks(t *testing.T) {
	r := newRig(t, nil)
	r.want("PUT", "/v1/kv/a/x", "1", 200, "true")
	at := r.since("/v1/kv/a/?recurse&since=0")
	if !at.Reset || len(at.Set) != 1 {
		t.Fatalf("the first answer: %+v", at)
	}
	got := make(chan changes, 1)
	go func() { got <- r.since(fmt.Sprintf("/v1/kv/a/?recurse&since=%d&wait=60s", at.Index)) }()
	polltest.Until(t, func() bool { return r.api.Blocking() == 1 }, "the read to be parked")
	r.want("PUT", "/v1/kv/b/x", "1", 200, "true") // elsewhere: wakes nobody
	r.want("DELETE", "/v1/kv/a/x", "", 200, "true")
	c := polltest.Get(t, got, "the change")
	if c.Reset || len(c.Set) != 0 || len(c.Deleted) != 1 || string(c.Deleted[0]) != `"a/x"` {
		t.Fatalf("%+v", c)
	}
}

func TestSinceIsRefusedOrReset(t *testing.T) {
	r := newRig(t, nil)
	r.want("PUT", "/v1/kv/a", "1", 200, "true")
	r.run([]step{
		{"GET", "/v1/kv/a?since=1", "", 400, "since goes with recurse: /v1/kv/prefix?recurse&since=0"},
		{"GET", "/v1/kv/a?recurse&since=x", "", 400, `Invalid since "x": give the Index of the answer before, or 0`},
		{"GET", "/v1/kv/a?recurse&since=1&index=1", "", 400,
			"since and index exclude each other: since blocks as index does"},
		{"GET", "/v1/catalog/services?since=1&node-meta=a:b", "", 400,
			"since does not go with filter or node-meta here: they depend on more than the list of services"},
	})
	if c := r.since("/v1/kv/a?recurse&since=99"); !c.Reset || len(c.Set) != 1 {
		t.Errorf("an index of another history: %+v", c)
	}
	r.want("DELETE", "/v1/kv/a", "", 200, "true")
	put(t, r.store, &catalog.ReapTombstones{Index: r.store.State().Index()})
	if c := r.since("/v1/kv/a?recurse&since=2"); !c.Reset || len(c.Set) != 0 {
		t.Errorf("a forgotten deletion: %+v", c)
	}
	// A follower that is behind waits, and never sends a client back.
	r.store.set(registry.Contact{KnownLeader: true}, errkind.New(errkind.NotLeader, "not the leader"))
	if c := r.since("/v1/kv/a?recurse&since=99&stale&wait=1ms"); c.Reset || c.Index != 99 {
		t.Errorf("a follower that is behind: %+v", c)
	}
}

// What a token may not see is in neither list.
func TestSinceAsksForRights(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Authorizer, c.DefaultACLPolicy = readers(), "deny" })
	for _, node := range []string{"node03", "node04"} {
		put(t, r.store, &catalog.Register{Node: catalog.Node{Name: node}, Service: &catalog.Service{ID: "web", Name: "web"}})
	}
	at := r.store.State().Index()
	for _, node := range []string{"node03", "node04"} {
		put(t, r.store, &catalog.Deregister{Node: node})
	}
	for target, n := range map[string]int{"/v1/catalog/nodes?": 1, "/v1/health/service/web?": 1} {
		if c := r.since(fmt.Sprintf("%ssince=%d&token=reader", target, at)); len(c.Deleted) != n {
			t.Errorf("%s: %s", target, c.Deleted)
		}
		if c := r.since(fmt.Sprintf("%ssince=%d&token=reader", target, at-1)); len(c.Deleted) != n || len(c.Set) != 0 {
			t.Errorf("%s: %s", target, c.Deleted)
		}
	}
	if a := r.do("GET", "/v1/kv/?recurse&since=0&token=stranger", ""); a.status != 403 {
		t.Errorf("a stranger: %d %s", a.status, a.body)
	}
}

// BenchmarkSince is one change under a prefix of 10,000 keys of 100 bytes: the read of
// the change beside the whole list, as handled and encoded; bytes are the answer's.
func BenchmarkSince(b *testing.B) {
	a, s := bareAPI(b)
	ops := &catalog.Txn{}
	for i := range 10_000 {
		ops.Ops = append(ops.Ops, catalog.TxnOp{KV: &catalog.KV{Verb: catalog.KVSet,
			Pair: catalog.KVPair{Key: fmt.Sprintf("app/%03d/%05d", i/100, i), Value: slices.Repeat([]byte{'v'}, 100)}}})
	}
	put(b, s, ops)
	at := s.State().Index()
	put(b, s, &catalog.KV{Verb: catalog.KVSet, Pair: catalog.KVPair{Key: "app/007/00700", Value: []byte("new")}})
	for name, query := range map[string]string{"full": "?recurse", "since": fmt.Sprintf("?recurse&since=%d", at)} {
		b.Run(name, func(b *testing.B) {
			w := &sink{h: http.Header{}}
			req := httptest.NewRequest("GET", "/v1/kv/app/"+query, nil)
			for b.Loop() {
				a.Bodies.Clear()
				w.n = 0
				a.ServeHTTP(w, req)
			}
			b.ReportMetric(float64(w.n), "bytes/answer")
		})
	}
}
