package registry

import (
	"context"
	"errors"
	"iter"
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/core/topic"
	"corbel.dev/corbel/kit/errkind"
)

func lock(key, session string) *catalog.KV {
	return &catalog.KV{Verb: catalog.KVLock, Pair: catalog.KVPair{Key: key, Session: session}}
}

func useDirectLog(r *Registry) {
	log := newDirectLog(true)
	log.r = r
	r.SetProposer(log)
}

func instanceOf(node, id, name string, status catalog.Health) *catalog.Register {
	return &catalog.Register{
		Node:    catalog.Node{Name: node, Address: "10.0.0.9"},
		Service: &catalog.Service{ID: id, Name: name},
		Checks:  []*catalog.Check{{ID: "check-" + id, ServiceID: id, Status: status}},
	}
}

// Every subject whose index grows must be woken: drawn commands, all subjects watched.
func TestEveryChangeWakes(t *testing.T) {
	subjects := map[Subject]func(*statestore.State) uint64{
		{TopicServices, ""}: (*statestore.State).ServicesIndex, {TopicNodes, ""}: (*statestore.State).NodesIndex,
		{TopicChecks, ""}: (*statestore.State).ChecksIndex, {TopicSessions, ""}: (*statestore.State).SessionsIndex,
	}
	// The index that stands in for something that is not there (0 here) is not its own: it may grow unseen.
	own := func(there bool, index uint64) uint64 {
		if there {
			return index
		}
		return 0
	}
	for _, name := range []string{"web", "api"} {
		some := func(list iter.Seq[*catalog.Service]) bool {
			for range list {
				return true
			}
			return false
		}
		subjects[Subject{TopicService, name}] = func(s *statestore.State) uint64 {
			return own(some(s.Instances(name)), s.ServiceIndex(name))<<32 + own(some(s.ConnectInstances(name)),
				s.ConnectIndex(name))
		}
		subjects[Subject{TopicServiceChecks, name}] = func(s *statestore.State) uint64 {
			return own(some(s.Instances(name)), s.ServiceChecksIndex(name))
		}
		subjects[Subject{TopicNode, name}] = func(s *statestore.State) uint64 {
			return own(s.Node(name) != nil, s.NodeIndex(name))
		}
		subjects[Subject{TopicNodeChecks, name}] = func(s *statestore.State) uint64 {
			return own(s.Node(name) != nil, s.NodeChecksIndex(name))
		}
		subjects[Subject{TopicKV, name}] = func(s *statestore.State) uint64 {
			return own(s.KV(name) != nil,
				s.KVKeyIndex(name))
		}
		subjects[Subject{TopicKVPrefix, name[:1]}] = func(s *statestore.State) uint64 {
			for range s.KVPrefix(name[:1]) {
				return s.KVPrefixIndex(name[:1])
			}
			return 0
		}
	}
	subjects[Subject{TopicCatalog, ""}] = func(s *statestore.State) uint64 {
		return s.RecordsIndex(catalog.RecordConfigEntry)<<40 + subjects[Subject{TopicService, "web"}](s) +
			subjects[Subject{TopicService, "api"}](s)
	}
	rapid.Check(t, func(t *rapid.T) {
		r, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		useDirectLog(r)
		name := func(label string) string { return rapid.SampledFrom([]string{"web", "WEB", "api"}).Draw(t, label) }
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			var c catalog.Command
			switch rapid.IntRange(0, 7).Draw(t, "command") {
			case 0:
				reg := instanceOf(name("node"), name("id"), name("service"), catalog.Health(rapid.IntRange(0, 2).Draw(t, "health")))
				reg.Service.Native = rapid.Bool().Draw(t, "native")
				c = reg
			case 1:
				c = &catalog.Register{Node: catalog.Node{Name: name("node"), Address: name("address")},
					Checks: []*catalog.Check{{ID: "n", Status: catalog.Health(rapid.IntRange(0, 2).Draw(t, "health"))}}}
			case 2:
				c = &catalog.Deregister{Node: name("node"), ServiceID: rapid.SampledFrom([]string{"", "web", "api"}).Draw(t, "id")}
			case 3:
				c = set(name("key"), name("value"))
			case 4:
				c = &catalog.KV{Verb: catalog.KVDelete, Pair: catalog.KVPair{Key: name("key")}}
			case 5:
				c = &catalog.SessionCreate{Session: catalog.Session{ID: name("session"), Node: name("node"),
					NodeChecks: []string{"n"}}}
			case 6:
				c = lock(name("key"), name("session"))
			case 7:
				c = &catalog.Records{Ops: []catalog.RecordOp{{Verb: catalog.RecordSet,
					Record: catalog.Record{Kind: catalog.RecordConfigEntry, Key: name("entry"), Value: []byte(name("value"))}}}}
			}
			before := r.State()
			holds := map[Subject]*topic.Watch[Subject]{}
			for s := range subjects {
				if s.Topic == TopicKVPrefix {
					r.watched.prefixes.Add(len(s.Key))
				}
				hold := r.watched.waiters.Watch(s)
				holds[s] = &hold
			}
			if _, err := r.Apply(context.Background(), c); err != nil {
				t.Fatal(err)
			}
			for s, index := range subjects {
				if index(r.State()) != index(before) {
					select {
					case <-holds[s].Woken():
					default:
						t.Fatalf("%v went from %d to %d by %T and nobody was woken", s, index(before), index(r.State()), c)
					}
				}
				holds[s].Stop()
				if s.Topic == TopicKVPrefix {
					r.watched.prefixes.Remove(len(s.Key))
				}
			}
			if n := r.watched.waiters.Len(); n != 0 {
				t.Fatalf("%d entries left", n)
			}
		}
	})
}

// A follower that starts from a State and applies the events holds what the State holds.
func TestFollowerConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		useDirectLog(r)
		sub, err := r.Subscribe(Subject{TopicService, "Web"}, r.State().Index())
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		view := map[string]string{}
		text := func(n *catalog.Node, s *catalog.Service, checks []*catalog.Check) string {
			var b []byte
			for _, c := range checks {
				b = catalog.AppendCheck(b, c)
			}
			return string(catalog.AppendService(catalog.AppendNode(b, n), s))
		}
		for range rapid.IntRange(1, 20).Draw(t, "batches") {
			var raw [][]byte
			for range rapid.IntRange(1, 3).Draw(t, "size") {
				node := rapid.SampledFrom([]string{"n1", "N2"}).Draw(t, "node")
				c := catalog.Command(instanceOf(node, rapid.SampledFrom([]string{"i", "j"}).Draw(t, "id"),
					rapid.SampledFrom([]string{"web", "api"}).Draw(t, "name"), catalog.Health(rapid.IntRange(0, 2).Draw(t, "health"))))
				switch rapid.IntRange(0, 4).Draw(t, "command") {
				case 0:
					c = &catalog.Deregister{Node: node, ServiceID: rapid.SampledFrom([]string{"", "i", "j"}).Draw(t, "gone")}
				case 1:
					c = &catalog.Register{Node: catalog.Node{Name: node, Address: "10.0.0.9"},
						Checks: []*catalog.Check{{ID: "n", Status: catalog.Health(rapid.IntRange(0, 2).Draw(t, "health"))}}}
				case 2:
					s := c.(*catalog.Register).Service
					s.Kind, s.ProxyDestination, s.Name = catalog.KindConnectProxy, "WEB", "proxy"
				}
				raw = append(raw, catalog.EncodeCommand(nil, c))
			}
			before := r.State().Index()
			r.ApplyBatch(raw)
			if r.State().Index() == before {
				continue
			}
			ctx, cancel := context.WithCancel(context.Background())
			cancel() // what is there is there already
			for {
				e, err := sub.Next(ctx)
				if errors.Is(err, context.Canceled) {
					break
				}
				if err != nil || e.Index != r.State().Index() {
					t.Fatal(e.Index, err)
				}
				items, err := DecodeEvent(e.Bytes)
				if err != nil {
					t.Fatal(err)
				}
				for _, item := range items {
					key := strings.ToLower(item.Service.Node) + "/" + item.Service.ID
					if item.Gone {
						delete(view, key)
						continue
					}
					view[key] = text(item.Node, item.Service, item.Checks)
				}
			}
			want := map[string]string{}
			for s := range r.State().Instances("web") {
				want[strings.ToLower(s.Node)+"/"+s.ID] = rowText(r.State(), s, text)
			}
			for s := range r.State().ConnectInstances("web") {
				want[strings.ToLower(s.Node)+"/"+s.ID] = rowText(r.State(), s, text)
			}
			if !maps.Equal(view, want) {
				t.Fatalf("view %q, want %q", view, want)
			}
		}
	})
}

func rowText(st *statestore.State, s *catalog.Service,
	text func(*catalog.Node, *catalog.Service, []*catalog.Check) string) string {
	var checks []*catalog.Check
	for c := range st.NodeChecks(s.Node) {
		checks = append(checks, c)
	}
	for c := range st.InstanceChecks(s.Node, s.ID) {
		checks = append(checks, c)
	}
	return text(st.Node(s.Node), s, checks)
}

func TestFollowKVAndNodes(t *testing.T) {
	r, _ := newRegistry(t, Config{}, true)
	follow := func(s Subject) *topic.Subscription {
		sub, err := r.Subscribe(s, r.State().Index())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(sub.Close)
		return sub
	}
	next := func(sub *topic.Subscription) []Item {
		e, err := sub.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		items, err := DecodeEvent(e.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		return items
	}
	prefix, key, nodes := follow(Subject{TopicKVPrefix, "a/"}), follow(Subject{TopicKV, "a/b"}),
		follow(Subject{Topic: TopicNodes})
	apply(t, r, set("other", "1"))
	apply(t, r, set("a/b", "1"))
	apply(t, r, &catalog.KV{Verb: catalog.KVDeleteTree, Pair: catalog.KVPair{Key: "a"}})
	for _, sub := range []*topic.Subscription{prefix, key} {
		if items := next(sub); len(items) != 1 || items[0].Gone || string(items[0].KV.Value) != "1" {
			t.Fatal(items)
		}
		if items := next(sub); len(items) != 1 || !items[0].Gone || items[0].KV.Key != "a/b" {
			t.Fatal(items)
		}
	}
	apply(t, r, &catalog.Register{Node: catalog.Node{Name: "n", Address: "10.0.0.1"}})
	apply(t, r, &catalog.Deregister{Node: "n"})
	if items := next(nodes); items[0].Gone || items[0].Node.Address != "10.0.0.1" {
		t.Fatal(items)
	}
	if items := next(nodes); !items[0].Gone || items[0].Node.Name != "n" {
		t.Fatal(items)
	}
	if _, err := r.Subscribe(Subject{Topic: TopicSessions}, 0); !errkind.Is(err, errkind.Invalid) {
		t.Fatal(err)
	}
}

func FuzzDecodeEvent(f *testing.F) {
	r, _ := newRegistry(f, Config{}, true)
	sub, err := r.Subscribe(Subject{TopicService, "web"}, r.State().Index())
	if err != nil {
		f.Fatal(err)
	}
	defer sub.Close()
	apply(f, r, instanceOf("n", "i", "web", catalog.Passing))
	apply(f, r, &catalog.Deregister{Node: "n"})
	for range 2 {
		e, err := sub.Next(f.Context())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(e.Bytes)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		items, err := DecodeEvent(b)
		if err != nil && !errkind.Is(err, errkind.Corrupt) {
			t.Fatal(err)
		}
		for _, item := range items {
			if item.Service == nil && item.Node == nil && item.KV == nil {
				t.Fatal("an item of nothing")
			}
		}
	})
}
