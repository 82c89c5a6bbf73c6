package statestore

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"corbel.dev/corbel/catalog"
)

// view is one thing that a client can watch: its content and its index.
type view struct {
	name string
	text func(*State) string
	at   func(*State) uint64
	// here tells that the index is the object's own: it must not grow without a change of the content.
	here func(*State) bool
}

func listText[T any](seq func(func(*T) bool), text func(*T) string) string {
	var out []string
	for v := range seq {
		out = append(out, text(v))
	}
	return strings.Join(out, "\n")
}

func entryText(s *State) func(*catalog.Service) string {
	return func(v *catalog.Service) string {
		return fmt.Sprintf("%s on %+v: %s / %s", serviceText(v), *s.Node(v.Node),
			listText(s.NodeChecks(v.Node), checkText), listText(s.InstanceChecks(v.Node, v.ID), checkText))
	}
}

func views() []view {
	never := func(*State) bool { return false }
	list := []view{
		{"nodes", func(s *State) string {
			return listText(s.Nodes(), func(n *catalog.Node) string { return fmt.Sprintf("%+v", *n) })
		}, (*State).NodesIndex, never},
		{"services", func(s *State) string {
			return listText(s.ServiceNames(), func(v *ServiceSummary) string { return fmt.Sprintf("%+v", *v) })
		}, (*State).ServicesIndex, never},
		{"checks", func(s *State) string { return listText(s.Checks(), checkText) }, (*State).ChecksIndex, never},
		{"sessions", func(s *State) string { return listText(s.Sessions(), sessionText) }, (*State).SessionsIndex, never},
	}
	for _, name := range []string{"web", "api", "db"} {
		list = append(list,
			view{"service " + name, func(s *State) string { return listText(s.Instances(name), entryText(s)) },
				func(s *State) uint64 { return s.ServiceIndex(strings.ToUpper(name)) },
				func(s *State) bool { return listText(s.Instances(name), serviceText) != "" }},
			view{"connect " + name, func(s *State) string { return listText(s.ConnectInstances(name), entryText(s)) },
				func(s *State) uint64 { return s.ConnectIndex(name) },
				func(s *State) bool { return listText(s.ConnectInstances(name), serviceText) != "" }},
			view{"checks of " + name, func(s *State) string { return listText(s.ChecksOfService(name), checkText) },
				func(s *State) uint64 { return s.ServiceChecksIndex(name) }, never})
	}
	for _, name := range []string{"n1", "n2", "n3"} {
		here := func(s *State) bool { return s.Node(name) != nil }
		list = append(list,
			view{"node " + name, func(s *State) string {
				if s.Node(name) == nil {
					return ""
				}
				return fmt.Sprintf("%+v", *s.Node(name)) + listText(s.ServicesOfNode(name), serviceText) +
					listText(s.ChecksOfNode(name), checkText)
			}, func(s *State) uint64 { return s.NodeIndex(name) }, here},
			view{"checks on " + name, func(s *State) string { return listText(s.ChecksOfNode(name), checkText) },
				func(s *State) uint64 { return s.NodeChecksIndex(name) }, never})
	}
	for _, key := range append([]string{"", "a/b/", "b/", "b/x/y/", "zzz", "zzz/"}, someKeys...) {
		list = append(list,
			view{"prefix " + key, func(s *State) string {
				return listText(s.KVPrefix(key), func(p *catalog.KVPair) string { return fmt.Sprintf("%+v", *p) })
			},
				func(s *State) uint64 { return s.KVPrefixIndex(key) },
				func(s *State) bool {
					return listText(s.KVPrefix(key), func(p *catalog.KVPair) string { return p.Key }) != ""
				}},
			view{"key " + key, func(s *State) string {
				if s.KV(key) == nil {
					return ""
				}
				return fmt.Sprintf("%+v", *s.KV(key))
			}, func(s *State) uint64 { return s.KVKeyIndex(key) }, func(s *State) bool { return s.KV(key) != nil }})
	}
	return list
}

// Apply does what the naive model does, and every index grows exactly when what it stands for changed.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, m, s, all := drawer{t}, newModel(), Empty(), views()
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			c := d.command(m)
			want := m.apply(c)
			next, results, changes := s.Apply([]catalog.Command{c})
			r := results[0]
			if r.OK != want {
				t.Fatalf("%s %+v: OK %v, want %v (%v %v)", stepText(c), c, r.OK, want, r.Err, r.TxnErrors)
			}
			if got, want := stateText(next), m.text(); got != want {
				t.Fatalf("after %s:\ngot\n%s\nwant\n%s", stepText(c), got, want)
			}
			if _, txn := c.(*catalog.Txn); txn && next.Index() == m.index+1 {
				m.index++ // it made something and took it away: the model sees nothing, watchers may
			}
			if next.Index() != m.index || r.Index != m.index {
				t.Fatalf("after %s: index %d (result %d), want %d", stepText(c), next.Index(), r.Index, m.index)
			}
			if (next == s) != (next.Index() == s.Index()) || changes.Empty() != (next == s) {
				t.Fatalf("after %s: same state %v, changes empty %v, index %d after %d", stepText(c), next == s, changes.Empty(),
					next.Index(), s.Index())
			}
			for _, v := range all {
				checkView(t, v, s, next, c)
			}
			checkSummaries(t, next)
			s = next
		}
	})
}

func stepText(c catalog.Command) string { return fmt.Sprintf("%T", c) }

func checkView(t *rapid.T, v view, s, next *State, c catalog.Command) {
	old, now := v.at(s), v.at(next)
	changed := v.text(s) != v.text(next)
	switch {
	case now == 0 || now < old:
		t.Fatalf("%s: index %d after %d, by %s", v.name, now, old, stepText(c))
	case changed && now == old:
		t.Fatalf("%s changed and its index %d did not, by %s", v.name, now, stepText(c))
	case !changed && now != old && v.here(s) && v.here(next):
		switch c.(type) {
		case *catalog.Txn, *catalog.RegisterBatch, *catalog.Register: // may do a thing and its opposite
		default:
			t.Fatalf("%s did not change and its index went from %d to %d, by %s", v.name, old, now, stepText(c))
		}
	}
}

func checkSummaries(t *rapid.T, s *State) {
	for sum := range s.ServiceNames() {
		tags, count := map[string]bool{}, 0
		for v := range s.Instances(sum.Name) {
			count++
			for _, tag := range v.Tags {
				tags[tag] = true
			}
		}
		if count != sum.Instances || len(tags) != len(sum.Tags) || !slices.IsSorted(sum.Tags) {
			t.Fatalf("summary %+v of %d instances with tags %v", *sum, count, tags)
		}
	}
}

// The same commands in any batches, through the encoding, and through a
// snapshot on the way, give the same State.
func TestDeterminism(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, m := drawer{t}, newModel()
		var commands []catalog.Command
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			c := d.command(m)
			m.apply(c)
			commands = append(commands, c)
		}
		one, batched, decoded := Empty(), Empty(), Empty()
		for i, c := range commands {
			one, _, _ = one.Apply([]catalog.Command{c})
			raw := catalog.EncodeCommand(nil, c)
			again, err := catalog.DecodeCommand(raw)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(catalog.EncodeCommand(nil, again), raw) {
				t.Fatalf("encoding of %s does not come back", stepText(c))
			}
			decoded, _, _ = decoded.Apply([]catalog.Command{again})
			if i == len(commands)/2 {
				decoded = reload(t, decoded)
			}
		}
		for rest := commands; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "batch")
			batched, _, _ = batched.Apply(rest[:n])
			rest = rest[n:]
		}
		if one.Hash() != batched.Hash() {
			t.Fatal("batches give another state")
		}
		if one.Hash() != decoded.Hash() || stateText(one) != stateText(decoded) {
			t.Fatal("a snapshot on the way gives another state")
		}
		for _, v := range views() {
			if v.at(one) != v.at(decoded) || v.text(one) != v.text(decoded) {
				t.Fatalf("%s: %d and after a snapshot %d", v.name, v.at(one), v.at(decoded))
			}
		}
	})
}

func reload(t interface{ Fatal(...any) }, s *State) *State {
	var b bytes.Buffer
	n, err := s.WriteTo(&b)
	if err != nil || n != int64(b.Len()) {
		t.Fatal(n, b.Len(), err)
	}
	next, err := ReadState(&b)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// An old State stays as it was whatever is applied to it.
func TestOldStatesStay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, m, s := drawer{t}, newModel(), Empty()
		var states []*State
		var texts []string
		var hashes []uint64
		for range rapid.IntRange(1, 15).Draw(t, "batches") {
			var batch []catalog.Command
			for range rapid.IntRange(1, 5).Draw(t, "size") {
				c := d.command(m)
				m.apply(c)
				batch = append(batch, c)
			}
			s, _, _ = s.Apply(batch)
			states, texts, hashes = append(states, s), append(texts, stateText(s)), append(hashes, s.Hash())
		}
		for i := range states {
			if stateText(states[i]) != texts[i] || states[i].Hash() != hashes[i] {
				t.Fatalf("state %d changed", i)
			}
		}
	})
}
