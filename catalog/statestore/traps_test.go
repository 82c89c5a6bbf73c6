package statestore

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/pack"
)

// world applies commands one by one.
type world struct {
	t testing.TB
	s *State
}

func newWorld(t testing.TB) *world { return &world{t, Empty()} }

func (w *world) do(c catalog.Command) (catalog.Result, catalog.Changes) {
	next, results, changes := w.s.Apply([]catalog.Command{c})
	w.s = next
	return results[0], changes
}

func (w *world) ok(c catalog.Command) catalog.Changes {
	w.t.Helper()
	r, changes := w.do(c)
	if !r.OK {
		w.t.Fatalf("%T %+v: %v %v", c, c, r.Err, r.TxnErrors)
	}
	return changes
}

func (w *world) refused(c catalog.Command, text string) {
	w.t.Helper()
	before := w.s
	r, _ := w.do(c)
	if r.Err == nil || !strings.Contains(r.Err.Error(), text) {
		w.t.Fatalf("%T: %v, want %q", c, r.Err, text)
	}
	if w.s != before {
		w.t.Fatal("a refused command changed the state")
	}
}

func node(name, id string) catalog.Node {
	return catalog.Node{Name: name, ID: id, Address: "10.0.0.1", Datacenter: "dc1"}
}

func serf(status catalog.Health) *catalog.Check {
	return &catalog.Check{ID: catalog.SerfHealthID, Name: catalog.SerfHealthName, Status: status}
}

func set(key, value string) *catalog.KV {
	return &catalog.KV{Verb: catalog.KVSet, Pair: catalog.KVPair{Key: key, Value: []byte(value)}}
}

func TestNodeNamesAreProtected(t *testing.T) {
	w := newWorld(t)
	w.ok(&catalog.Register{Node: node("a", "id-a"), Checks: []*catalog.Check{serf(catalog.Passing)}})
	w.refused(&catalog.Register{Node: node("b", "id-a")}, "Node name b is reserved by node id-a with name a (10.0.0.1)")
	w.refused(&catalog.Register{Node: node("A", "id-other")}, "Node name A is reserved by node id-a")
	w.refused(&catalog.Register{}, "Must provide node")
	w.ok(&catalog.Register{Node: node("a", ""), Checks: []*catalog.Check{serf(catalog.Critical)}})
	if w.s.Node("a").ID != "id-a" {
		t.Fatal("a registration by name alone lost the ID")
	}
	w.ok(&catalog.Register{Node: node("b", "id-a")})
	if w.s.Node("a") != nil || w.s.NodeByID("ID-A").Name != "b" {
		t.Fatal("the dead node must make way for the renamed one")
	}
}

func TestSameServiceIDWithAnotherNameReplaces(t *testing.T) {
	w := newWorld(t)
	w.ok(&catalog.Register{Node: node("a", ""), Service: &catalog.Service{ID: "x", Name: "web", Tags: []string{"v1"}},
		Checks: []*catalog.Check{{ID: "c", ServiceID: "x", Status: catalog.Passing}}})
	w.ok(&catalog.Register{Node: node("a", ""), Service: &catalog.Service{ID: "x", Name: "api", Tags: []string{"v2"}}})
	if len(slices.Collect(w.s.Instances("web"))) != 0 || len(slices.Collect(w.s.Instances("api"))) != 1 {
		t.Fatal("the old name is still there")
	}
	if c := w.s.Check("a", "c"); c.ServiceName != "api" || !slices.Equal(c.ServiceTags, []string{"v2"}) {
		t.Fatalf("check still says %s %v", c.ServiceName, c.ServiceTags)
	}
	w.refused(&catalog.Register{Node: node("a", ""), Checks: []*catalog.Check{{ID: "d", ServiceID: "none"}}},
		"Missing service registration")
}

func TestIdempotentWritesTakeNoIndex(t *testing.T) {
	w := newWorld(t)
	register := &catalog.Register{Node: node("a", "id"),
		Service: &catalog.Service{ID: "x", Name: "web", Meta: map[string]string{"k": "v"}},
		Checks:  []*catalog.Check{serf(catalog.Passing), {ID: "c", ServiceID: "x"}}}
	w.ok(register)
	w.ok(set("k", "v"))
	before := w.s
	again, err := catalog.DecodeCommand(catalog.EncodeCommand(nil, register))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []catalog.Command{again, set("k", "v"), &catalog.KV{Verb: catalog.KVDelete,
		Pair: catalog.KVPair{Key: "none"}},
		&catalog.SessionDestroy{ID: "none"},
		&catalog.Deregister{Node: "none"}, &catalog.Deregister{Node: "a", ServiceID: "none"},
		&catalog.ReapTombstones{Index: 99},
		&catalog.RegisterBatch{Registrations: []*catalog.Register{register, register}}} {
		if changes := w.ok(c); w.s != before || !changes.Empty() || len(changes.Names) > 0 {
			t.Fatalf("%T made a new state", c)
		}
	}
}

func TestSessions(t *testing.T) {
	w := newWorld(t)
	session := func(id, behavior string, checks ...string) *catalog.SessionCreate {
		return &catalog.SessionCreate{Session: catalog.Session{ID: id, Node: "a", Behavior: behavior, LockDelay: time.Second,
			NodeChecks: checks}}
	}
	lock := func(key, id string) *catalog.KV {
		return &catalog.KV{Verb: catalog.KVLock, Pair: catalog.KVPair{Key: key, Session: id}}
	}
	w.refused(session("s", catalog.BehaviorRelease), "Missing node registration")
	w.ok(&catalog.Register{Node: node("a", ""), Checks: []*catalog.Check{{ID: "bad", Status: catalog.Critical}}})
	w.refused(session("s", catalog.BehaviorRelease, catalog.SerfHealthID), "Missing check 'serfHealth' registration")
	w.refused(session("s", catalog.BehaviorRelease, "bad"), "Check 'bad' is in critical state")
	w.refused(lock("k", "s"), `invalid session "s"`)
	w.ok(session("none", catalog.BehaviorRelease)) // no checks: fine on a node without serfHealth

	w.ok(&catalog.Register{Node: node("a", ""), Checks: []*catalog.Check{serf(catalog.Passing)}})
	w.ok(session("keep", catalog.BehaviorRelease, catalog.SerfHealthID))
	w.ok(session("drop", catalog.BehaviorDelete, catalog.SerfHealthID))
	for _, c := range []*catalog.KV{lock("k1", "keep"), lock("k1", "keep"), lock("k2", "drop"), lock("k3", "keep")} {
		w.ok(c)
	}
	if r, _ := w.do(lock("k1", "drop")); r.OK || r.Err != nil {
		t.Fatal("a held lock was acquired", r)
	}
	if w.s.KV("k1").LockIndex != 1 {
		t.Fatal("acquiring one's own lock again is not a fresh acquire")
	}
	w.ok(set("k1", "new"))
	if p := w.s.KV("k1"); p.Session != "keep" || p.LockIndex != 1 {
		t.Fatal("a plain write over a lock must keep it", p)
	}
	w.ok(&catalog.KV{Verb: catalog.KVUnlock, Pair: catalog.KVPair{Key: "k3", Session: "keep"}})
	changes := w.ok(&catalog.Register{Node: node("a", ""), Checks: []*catalog.Check{serf(catalog.Critical)}})
	if w.s.Session("keep") != nil || w.s.Session("drop") != nil || w.s.Session("none") == nil {
		t.Fatal("the wrong sessions ended")
	}
	if p := w.s.KV("k1"); p.Session != "" || p.ModifyIndex != w.s.Index() || p.LockIndex != 1 || string(p.Value) != "new" {
		t.Fatal("release", p)
	}
	if w.s.KV("k2") != nil {
		t.Fatal("delete")
	}
	slices.SortFunc(changes.LockDelays, func(a, b catalog.LockDelay) int { return strings.Compare(a.Key, b.Key) })
	if want := []catalog.LockDelay{{Key: "k1", Delay: time.Second}, {Key: "k2",
		Delay: time.Second}}; !slices.Equal(changes.LockDelays, want) {
		t.Fatal("the key that was released by hand must have no delay:", changes.LockDelays)
	}
}

// TestAuthors: a key knows who wrote it last, over a lost lock and a snapshot; what an older release wrote has nobody.
func TestAuthors(t *testing.T) {
	w := newWorld(t)
	author := func(b byte, at int64) catalog.Author { return catalog.Author{Accessor: [16]byte{b}, At: at} }
	put := func(verb catalog.KVVerb, key, value string, by catalog.Author) *catalog.KV {
		return &catalog.KV{Verb: verb, Pair: catalog.KVPair{Key: key, Value: []byte(value), Session: "s", By: by}}
	}
	w.ok(&catalog.Register{Node: node("a", "")})
	w.ok(&catalog.SessionCreate{Session: catalog.Session{ID: "s", Node: "a", Behavior: catalog.BehaviorRelease}})
	w.ok(put(catalog.KVSet, "plain", "1", author(1, 10)))
	w.ok(put(catalog.KVSet, "plain", "1", author(2, 20))) // the same again is no change
	w.ok(put(catalog.KVLock, "held", "1", author(3, 30)))
	w.ok(&catalog.SessionDestroy{ID: "s"})
	w.ok(&catalog.Txn{Ops: []catalog.TxnOp{{KV: put(catalog.KVSet, "many", "1", author(4, 40))}}})
	w.ok(put(catalog.KVSet, "open", "1", catalog.Author{At: 50}))
	old := pack.AppendRecord(nil, func(c *pack.Coder) {
		key, value, session, zero := "old", []byte("1"), "", uint64(0)
		c.String(&key)
		c.Copy(&value)
		pack.Unsigned(c, &zero)
		c.String(&session)
		pack.Unsigned(c, &zero, &zero, &zero)
	})
	w.ok(&catalog.KV{Verb: catalog.KVSet, Pair: *catalog.ReadKVPair(pack.Read(old))})
	var b bytes.Buffer
	if _, err := w.s.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	restored, err := ReadState(&b)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]catalog.Author{"plain": author(1, 10), "held": author(3, 30), "many": author(4, 40),
		"open": {At: 50}, "old": {}} {
		if got := restored.KV(key).By; got != want {
			t.Errorf("%s was written by %v, want %v", key, got, want)
		}
	}
}

func TestTxnReasons(t *testing.T) {
	w := newWorld(t)
	w.ok(&catalog.Register{Node: node("a", "")})
	w.ok(&catalog.SessionCreate{Session: catalog.Session{ID: "s", Node: "a"}})
	w.ok(&catalog.KV{Verb: catalog.KVLock, Pair: catalog.KVPair{Key: "held", Session: "s"}})
	w.ok(&catalog.SessionCreate{Session: catalog.Session{ID: "s2", Node: "a"}})
	kv := func(verb catalog.KVVerb, key, session string, index uint64) catalog.TxnOp {
		return catalog.TxnOp{KV: &catalog.KV{Verb: verb, Pair: catalog.KVPair{Key: key, Session: session,
			ModifyIndex: index, Value: []byte("v")}}}
	}
	before := w.s
	r, changes := w.do(&catalog.Txn{Ops: []catalog.TxnOp{
		kv(catalog.KVSet, "new", "", 0), kv(catalog.KVCAS, "held", "", 1), kv(catalog.KVGet, "none", "", 0),
		kv(catalog.KVLock, "held", "s2", 0),
		kv(catalog.KVUnlock, "new", "s2", 0), kv(catalog.KVLock, "x", "unknown", 0), kv(catalog.KVDeleteCAS, "held", "", 1),
		kv(catalog.KVCheckNotExists, "held", "", 0),
	}})
	want := []catalog.TxnError{
		{OpIndex: 1, What: `failed to set key "held", index is stale`}, {OpIndex: 2, What: `key "none" doesn't exist`},
		{OpIndex: 3, What: `failed to lock key "held", lock is already held`},
		{OpIndex: 4, What: `failed to unlock key "new", lock isn't held, or is held by another session`}, {OpIndex: 5, What: `invalid session "unknown"`},
		{OpIndex: 6, What: `failed to delete key "held", index is stale`}, {OpIndex: 7, What: `key "held" exists`},
	}
	if r.OK || !slices.Equal(r.TxnErrors, want) || r.Txn != nil || w.s != before || !changes.Empty() {
		t.Fatalf("%+v", r)
	}
	r, _ = w.do(&catalog.Txn{Ops: []catalog.TxnOp{kv(catalog.KVSet, "p/1", "", 0), kv(catalog.KVSet, "p/2", "", 0),
		kv(catalog.KVGetTree, "p/", "", 0),
		kv(catalog.KVGetOrEmpty, "none", "", 0),
		kv(catalog.KVDelete, "p/1", "", 0), {Verb: catalog.TxnSet, Service: &catalog.Service{Node: "a", ID: "x",
			Name: "web"}}}})
	if !r.OK || len(r.Txn) != 6 || r.Txn[0].KV.Value != nil || string(r.Txn[2].KV.Value) != "v" ||
		r.Txn[4].KV.Value != nil {
		t.Fatalf("%+v", r)
	}
	if s := w.s.Service("a", "x"); s.Weights != (catalog.Weights{}) || s.ModifyIndex != w.s.KV("p/2").ModifyIndex {
		t.Fatal("weights are stored as given, under the transaction's one index", s)
	}
	read := &catalog.Txn{Ops: []catalog.TxnOp{kv(catalog.KVGet, "p/2", "", 0), {Verb: catalog.TxnGet,
		Node: &catalog.Node{Name: "a"}}}}
	if r := w.s.Query(read); !read.ReadOnly() || !r.OK || len(r.Txn) != 2 || r.Index != w.s.Index() {
		t.Fatalf("%+v", r)
	}
}

func TestTombstones(t *testing.T) {
	w := newWorld(t)
	w.ok(set("a/b/c", "1"))
	w.ok(set("z", "1"))
	w.ok(&catalog.KV{Verb: catalog.KVDelete, Pair: catalog.KVPair{Key: "a/b/c"}})
	deleted := w.s.Index()
	w.ok(set("z", "2"))
	for _, prefix := range []string{"a", "a/", "a/b", "a/b/", "a/b/c"} {
		if got := w.s.KVPrefixIndex(prefix); got != deleted {
			t.Fatalf("prefix %q: %d, want the deletion's %d", prefix, got, deleted)
		}
	}
	w.ok(&catalog.ReapTombstones{Index: deleted - 1})
	if w.s.Counts().Tombstones != 1 || w.s.OldestTombstone() != deleted {
		t.Fatal("reaped too early")
	}
	w.ok(&catalog.ReapTombstones{Index: deleted})
	if w.s.Counts().Tombstones != 0 || w.s.KVPrefixIndex("a/") != w.s.KVIndex() || w.s.FolderCount() != 0 {
		t.Fatal("the reaped folder must be as if it had never been")
	}
}

func TestServiceListIgnoresCheckFlaps(t *testing.T) {
	w := newWorld(t)
	w.ok(&catalog.Register{Node: node("a", ""), Service: &catalog.Service{ID: "x", Name: "web"},
		Checks: []*catalog.Check{{ID: "c", ServiceID: "x"}}})
	before := w.s
	changes := w.ok(&catalog.Register{Node: node("a", ""), Checks: []*catalog.Check{{ID: "c", ServiceID: "x",
		Status: catalog.Critical}}})
	if w.s.ServicesIndex() != before.ServicesIndex() || changes.ServiceList ||
		w.s.ServiceIndex("WEB") == before.ServiceIndex("web") {
		t.Fatal("a flap is a change of the service, not of the list")
	}
	before = w.s
	w.ok(&catalog.Register{Node: node("b", ""), Service: &catalog.Service{ID: "x", Name: "other"}})
	if w.s.ServiceIndex("web") != before.ServiceIndex("web") || w.s.NodeIndex("a") != before.NodeIndex("a") {
		t.Fatal("a stranger's registration touched the service")
	}
	w.ok(&catalog.Deregister{Node: "a", ServiceID: "x"})
	if w.s.ServiceIndex("web") != w.s.Index() || w.s.Check("a", "c") != nil {
		t.Fatal("a service that is gone has the index of its end, and its checks go with it")
	}
}

// fleet registers nodes with services and checks as a real agent would.
func fleet(t testing.TB, nodes, services, checks int) *State {
	s := Empty()
	for i := range nodes {
		name := fmt.Sprintf("node-%05d.example.internal", i)
		addr := fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255)
		batch := []catalog.Command{&catalog.Register{Node: catalog.Node{
			ID: fmt.Sprintf("%08d-0000-0000-0000-000000000000", i), Name: name, Address: addr, Datacenter: "dc1",
			TaggedAddresses: map[string]string{"lan": addr, "lan_ipv4": addr, "wan": addr, "wan_ipv4": addr},
			Meta:            map[string]string{"consul-network-segment": "", "consul-version": "1.21.4"},
		}, Checks: []*catalog.Check{serf(catalog.Passing)}}}
		for j := range services {
			id := fmt.Sprintf("svc-%03d-%05d-%d", (i*services+j)%600, i, j)
			r := &catalog.Register{Node: catalog.Node{Name: name}, SkipNodeUpdate: true, Service: &catalog.Service{
				ID: id, Name: fmt.Sprintf("svc-%03d", (i*services+j)%600), Tags: []string{"http", "v1"}, Address: addr,
				Port: 20000 + j,
				Meta: map[string]string{"team": "core"}, Weights: catalog.Weights{Passing: 1, Warning: 1},
			}}
			if j < checks {
				r.Checks = []*catalog.Check{{ID: "service:" + id, Name: "Service check", ServiceID: id, Status: catalog.Passing,
					Type:     "http",
					Interval: "10s", Timeout: "1s",
					Output: "HTTP GET http://127.0.0.1/health: 200 OK Output: ok"}}
			}
			batch = append(batch, r)
		}
		raw := make([]catalog.Command, len(batch))
		for k, c := range batch { // through the encoding, as on a server
			var err error
			if raw[k], err = catalog.DecodeCommand(catalog.EncodeCommand(nil, c)); err != nil {
				t.Fatal(err)
			}
		}
		s, _, _ = s.Apply(raw)
	}
	return s
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// 10,000 hosts with 6 services and 4 checks each must fit a small server.
func TestMemoryPerObject(t *testing.T) {
	const nodes = 1000
	before := heap()
	s := fleet(t, nodes, 6, 3)
	perObject := (heap() - before) / uint64(s.Counts().Nodes+s.Counts().Instances+s.Counts().Checks)
	t.Logf("%d bytes an object", perObject)
	if perObject > 1100 {
		t.Errorf("%d bytes an object, budget 1100", perObject)
	}
	var b bytes.Buffer
	if _, err := s.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	runtime.KeepAlive(s)
}

func TestApplyAllocations(t *testing.T) {
	w := newWorld(t)
	batch := make([]catalog.Command, 100)
	for i := range batch {
		batch[i] = set(fmt.Sprintf("folder/%02d/key", i), "0")
	}
	s := w.s
	n := 0
	got := testing.AllocsPerRun(50, func() {
		n++
		for _, c := range batch {
			c.(*catalog.KV).Pair.Value = []byte{byte(n)}
		}
		s, _, _ = s.Apply(batch)
	})
	if perSet := got / 100; perSet > 8 {
		t.Errorf("%.1f allocations a set", perSet)
	}
}
