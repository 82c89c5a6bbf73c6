package statestore

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"corbel.dev/corbel/catalog"
)

// replica is what somebody holds who reads one list in full once and then follows it
// by what changed since.
type replica struct {
	name string
	at   uint64 // 0: knows nothing
	held map[string]string
	// full is the whole list; since is what changed: nil pointers are rows that went.
	full  func(*State) map[string]string
	since func(*State, uint64) (set map[string]string, gone []string)
}

func (r *replica) sync(t interface{ Fatalf(string, ...any) }, s *State) {
	if r.at == 0 || r.at < s.Horizon() {
		r.held = r.full(s)
	} else {
		set, gone := r.since(s, r.at)
		for _, k := range gone {
			if _, both := set[k]; both {
				t.Fatalf("%s: %q is told as set and as gone", r.name, k)
			}
			delete(r.held, k)
		}
		maps.Copy(r.held, set)
	}
	r.at = s.Index()
	if want := r.full(s); !maps.Equal(r.held, want) {
		t.Fatalf("%s at %d:\nheld %v\nwant %v", r.name, r.at, r.held, want)
	}
}

func kvRow(p *catalog.KVPair) string { return fmt.Sprintf("%+v", *p) }

func kvReplica(prefix string) *replica {
	return &replica{name: "kv " + prefix, full: func(s *State) map[string]string {
		m := map[string]string{}
		for p := range s.KVPrefix(prefix) {
			m[p.Key] = kvRow(p)
		}
		return m
	}, since: func(s *State, since uint64) (map[string]string, []string) {
		m := map[string]string{}
		set, gone := s.KVSince(prefix, since)
		for _, p := range set {
			m[p.Key] = kvRow(p)
		}
		return m, gone
	}}
}

func instanceReplica(name string) *replica {
	row := func(s *State, v *catalog.Service) string { return entryText(s)(v) }
	return &replica{name: "instances " + name, full: func(s *State) map[string]string {
		m := map[string]string{}
		for v := range s.Instances(name) {
			m[v.Node+"/"+v.ID] = row(s, v)
		}
		return m
	}, since: func(s *State, since uint64) (map[string]string, []string) {
		m, keys := map[string]string{}, []string{}
		set, gone := s.InstancesSince(name, since)
		for _, v := range set {
			m[v.Node+"/"+v.ID] = row(s, v)
		}
		for _, g := range gone {
			keys = append(keys, g.Node+"/"+g.ID)
		}
		return m, keys
	}}
}

func replicas() []*replica {
	list := []*replica{
		{name: "nodes", full: func(s *State) map[string]string {
			m := map[string]string{}
			for n := range s.Nodes() {
				m[n.Name] = fmt.Sprintf("%+v", *n)
			}
			return m
		}, since: func(s *State, since uint64) (map[string]string, []string) {
			m := map[string]string{}
			set, gone := s.NodesSince(since)
			for _, n := range set {
				m[n.Name] = fmt.Sprintf("%+v", *n)
			}
			return m, gone
		}},
		{name: "services", full: func(s *State) map[string]string {
			m := map[string]string{}
			for sum := range s.ServiceNames() {
				m[sum.Name] = strings.Join(sum.Tags, ",")
			}
			return m
		}, since: func(s *State, since uint64) (map[string]string, []string) {
			m := map[string]string{}
			set, gone := s.ServicesSince(since)
			for _, sum := range set {
				m[sum.Name] = strings.Join(sum.Tags, ",")
			}
			return m, gone
		}},
	}
	for _, prefix := range []string{"", "a", "a/", "a/b", "b/x/", "zz"} {
		list = append(list, kvReplica(prefix))
	}
	for _, name := range someServices {
		list = append(list, instanceReplica(name))
	}
	return list
}

// Whoever takes over what changed since holds the full list, whatever happens in
// between: also reaped tombstones, snapshots, and a raised horizon.
func TestSinceKeepsReplicas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, m, s, all := drawer{t}, newModel(), Empty(), replicas()
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 15).Draw(t, "event") {
			case 0:
				s, _, _ = s.Apply([]catalog.Command{&catalog.ReapTombstones{Index: d.index(s.Index())}})
			case 1:
				s = reload(t, s)
			case 2:
				s, _, _ = s.Apply([]catalog.Command{&catalog.Horizon{Index: d.index(s.Index() + 3)}})
			default:
				c := d.command(m)
				m.apply(c)
				s, _, _ = s.Apply([]catalog.Command{c})
			}
			for _, r := range all {
				if rapid.IntRange(0, 3).Draw(t, "reads") == 0 {
					r.sync(t, s)
				}
			}
		}
		for _, r := range all {
			r.sync(t, s)
		}
	})
}

// Nothing is told of what did not change.
func TestSinceTellsOnlyTheChange(t *testing.T) {
	s := fleet(t, 50, 4, 1)
	at := s.Index()
	s, _, _ = s.Apply([]catalog.Command{
		&catalog.Register{Node: catalog.Node{Name: "node-00007.example.internal"}, SkipNodeUpdate: true,
			Checks: []*catalog.Check{{ID: "disk", Status: catalog.Warning}}},
		set("a/1", "x"),
	})
	var told int
	for sum := range s.ServiceNames() {
		set, gone := s.InstancesSince(sum.Name, at)
		for _, v := range set {
			if !strings.EqualFold(v.Node, "node-00007.example.internal") {
				t.Errorf("told of %s on %s", v.ID, v.Node)
			}
			told++
		}
		if len(gone) > 0 {
			t.Errorf("%s: gone %v", sum.Name, gone)
		}
	}
	if want := len(slices.Collect(s.ServicesOfNode("node-00007.example.internal"))); told != want {
		t.Errorf("told of %d instances, the node has %d", told, want)
	}
}

// manyKeys holds n keys under big/ in folders of 100, and as many elsewhere.
func manyKeys(n int) *State {
	s := Empty()
	batch := make([]catalog.Command, 0, n)
	for i := range n {
		batch = append(batch, set(fmt.Sprintf("big/%04d/%05d", i/100, i), "v"), set(fmt.Sprintf("other/%05d", i), "v"))
	}
	s, _, _ = s.Apply(batch)
	return s
}

// Both ways to find changes give the same, and a busy neighbour does not cost more than the prefix.
func TestSinceTwoWays(t *testing.T) {
	s := manyKeys(2000)
	at := s.Index()
	for i := range 3000 {
		s, _, _ = s.Apply([]catalog.Command{set(fmt.Sprintf("other/%05d", i%2000), fmt.Sprint(i))})
	}
	s, _, _ = s.Apply([]catalog.Command{set("big/0003/00300", "new"), &catalog.KV{Verb: catalog.KVDelete,
		Pair: catalog.KVPair{Key: "big/0003/00301"}}})
	changed, gone := s.KVSince("big/", at)
	if len(changed) != 1 || changed[0].Key != "big/0003/00300" || !slices.Equal(gone, []string{"big/0003/00301"}) {
		t.Fatalf("set %v gone %v", changed, gone)
	}
}

// A tombstone comes and goes with what it stands for, and there are never too many.
func TestGoneIsBounded(t *testing.T) {
	w := newWorld(t)
	w.ok(&catalog.Register{Node: node("n", ""), Service: &catalog.Service{ID: "web", Name: "web"}})
	w.ok(&catalog.Deregister{Node: "n"})
	if n := w.s.tables.gone.all.Len(); n != 3 { // the node, the name, the instance
		t.Fatalf("%d tombstones", n)
	}
	w.ok(&catalog.Register{Node: node("n", ""), Service: &catalog.Service{ID: "web", Name: "web"}})
	if n := w.s.tables.gone.all.Len() + w.s.tables.gone.byAge.Len(); n != 0 {
		t.Fatalf("%d tombstones of what is there", n)
	}
	d := w.s.draft()
	for i := range maxGone + 5 {
		d.begin()
		d.touch()
		d.t.gone.leave(goneEntry{kind: goneNode, name: fmt.Sprint(i)})
		d.end()
	}
	if d.t.gone.all.Len() != maxGone || d.t.gone.byAge.Len() != maxGone || d.ix.horizon == 0 {
		t.Fatalf("%d tombstones, horizon %d", d.t.gone.all.Len(), d.ix.horizon)
	}
}

// BenchmarkSince10000 is one change under a prefix of 10,000 keys: finding it, and the whole list for comparison.
func BenchmarkSince10000(b *testing.B) {
	s := manyKeys(10_000)
	at := s.Index()
	s, _, _ = s.Apply([]catalog.Command{set("big/0003/00300", "new")})
	b.Run("since", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.KVSince("big/", at)
		}
	})
	b.Run("full", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for range s.KVPrefix("big/") {
			}
		}
	})
}
