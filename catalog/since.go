package catalog

import (
	"iter"
	"slices"
	"strings"

	"corbel.dev/corbel/core/table"
)

// The queries in this file tell what changed after an index: what is there and is
// new or different, and what is there no more. Whoever knew the state of index N and
// takes over what they tell for N has the State they were asked of. They know nothing
// of before the Horizon: ask them for no older index.
//
// What left and came back is told as set; what never was known to the asker may be
// told as gone. Both lists are in the order of the keys.

// Horizon is the oldest index whose changes since then are known in full.
func (s *State) Horizon() uint64 { return s.indexes.horizon }

// sinceBudget is how many steps each way of finding changes gets in the first round.
const sinceBudget = 1024

// KVSince tells the pairs under prefix that were set after an index, and the keys that were deleted.
//
// There are two ways to find them: through all changes of the store in the order of
// their age, and through the prefix, where folders that did not change are passed
// over. Which is shorter depends on how busy the rest of the store is, so they take
// turns with growing budgets: the cost is within a small factor of the shorter one.
func (s *State) KVSince(prefix string, since uint64) (set []*KVPair, gone []string) {
	if prefix != "" && s.KVPrefixIndex(prefix) <= since {
		return nil, nil
	}
	t := &s.tables
	for budget := sinceBudget; ; budget *= 4 {
		steps := budget
		if set, ok := collect(t.kvAges.From(&KVPair{ModifyIndex: since + 1}), &steps, func(p *KVPair) (*KVPair, bool) {
			return p, strings.HasPrefix(p.Key, prefix)
		}); ok {
			slices.SortFunc(set, func(a, b *KVPair) int { return strings.Compare(a.Key, b.Key) })
			return set, s.kvGoneSince(prefix, since)
		}
		w := walk[*KVPair]{table: t.kv, dirs: t.dirs, since: since, steps: budget,
			of: func(p *KVPair) (string, uint64) { return p.Key, p.ModifyIndex }}
		if w.under(prefix) {
			return w.found, s.kvGoneSince(prefix, since)
		}
	}
}

func (s *State) kvGoneSince(prefix string, since uint64) (gone []string) {
	t := &s.tables
	for budget := sinceBudget; ; budget *= 4 {
		steps := budget
		if gone, ok := collect(t.tombstoneAges.From(&tombstone{index: since + 1}), &steps, func(g *tombstone) (string, bool) {
			return g.key, strings.HasPrefix(g.key, prefix)
		}); ok {
			slices.Sort(gone)
			return gone
		}
		w := walk[*tombstone]{table: t.tombstones, dirs: t.dirs, since: since, steps: budget,
			of: func(g *tombstone) (string, uint64) { return g.key, g.index }}
		if w.under(prefix) {
			for _, g := range w.found {
				gone = append(gone, g.key)
			}
			return gone
		}
	}
}

// collect takes what pick wants; false when it did not get to the end within the steps.
func collect[T, R any](from iter.Seq[T], steps *int, pick func(T) (R, bool)) (list []R, ok bool) {
	ok = true
	from(func(item T) bool {
		if *steps--; *steps < 0 {
			ok = false
			return false
		}
		if r, wanted := pick(item); wanted {
			list = append(list, r)
		}
		return true
	})
	return list, ok
}

// walk finds the keys that changed after an index, and passes over folders that did not.
type walk[V any] struct {
	table table.Table[V]
	dirs  table.Table[*dirEntry]
	since uint64
	steps int
	of    func(V) (key string, index uint64)
	found []V
}

// under is false when the steps did not suffice.
func (w *walk[V]) under(prefix string) bool {
	at := prefix
	for {
		folder := ""
		for item := range w.table.Seek(func(v V) int { key, _ := w.of(v); return strings.Compare(at, key) }) {
			if w.steps--; w.steps < 0 {
				return false
			}
			key, index := w.of(item)
			if !strings.HasPrefix(key, prefix) {
				return true
			}
			if slash := strings.IndexByte(key[len(prefix):], '/'); slash >= 0 {
				folder = key[:len(prefix)+slash+1]
				break
			}
			if index > w.since {
				w.found = append(w.found, item)
			}
		}
		if folder == "" {
			return true
		}
		if dir := findDir(w.dirs, folder); dir == nil || dir.index > w.since {
			if !w.under(folder) {
				return false
			}
		}
		at = folder[:len(folder)-1] + "0" // '0' is the byte after '/'
	}
}

// NodesSince tells the nodes that were set after an index, and the names of those that left.
func (s *State) NodesSince(since uint64) (set []*Node, gone []string) {
	for n := range s.tables.nodeAges.From(&Node{ModifyIndex: since + 1}) {
		set = append(set, n)
	}
	slices.SortFunc(set, func(a, b *Node) int { return strings.Compare(lower(a.Name), lower(b.Name)) })
	for g := range s.goneSince(goneNode, "", since) {
		gone = append(gone, g.name)
	}
	return set, gone
}

// ServiceListIndex changes with what the list of services shows: its names and their tags.
func (s *State) ServiceListIndex() uint64 { return floor(s.indexes.list) }

// ServicesSince tells the rows of the list of services that changed after an index, and the names that left it.
func (s *State) ServicesSince(since uint64) (set []*ServiceSummary, gone []string) {
	for e := range s.tables.names.All() {
		if e.listIndex > since {
			set = append(set, &e.summary)
		}
	}
	for g := range s.goneSince(goneName, "", since) {
		gone = append(gone, g.name)
	}
	return set, gone
}

// InstancesIndex is ServiceIndex for one that is there; of one that is not, it is
// when its own last instance left, as far as that is remembered.
func (s *State) InstancesIndex(name string) uint64 {
	if e := findName(s.tables.names, lower(name)); e != nil {
		return floor(e.index)
	}
	var newest uint64
	for g := range s.goneSince(goneInstance, lower(name), 0) {
		newest = max(newest, g.index)
	}
	return floor(newest)
}

// GoneInstance is an instance that left its service.
type GoneInstance struct{ Node, ID string }

// InstancesSince tells the instances of a service that changed after an index, by
// themselves, their checks, their nodes or their nodes' checks, and those that left.
func (s *State) InstancesSince(name string, since uint64) (set []*Service, gone []GoneInstance) {
	name = lower(name)
	touched, stop := iter.Pull(s.touchedSince(name, since))
	defer stop()
	next, more := touched() // in the order of the instances
	for e := range s.instances(name) {
		hit := more && next.node == e.nodeKey && next.id == e.ID
		if hit {
			next, more = touched()
		}
		if hit || e.ModifyIndex > since {
			set = append(set, &e.Service)
		}
	}
	for g := range s.goneSince(goneInstance, name, since) {
		gone = append(gone, GoneInstance{g.node, g.id})
	}
	return set, gone
}

// touchedSince yields the entries of a service's instances that are newer than an index.
func (s *State) touchedSince(name string, since uint64) iter.Seq[*touchEntry] {
	return func(yield func(*touchEntry) bool) {
		for e := range s.tables.touched.Seek(func(e *touchEntry) int {
			return compare3(name, e.name, "", e.node, "", e.id)
		}) {
			if e.name != name || e.index > since && !yield(e) {
				return
			}
		}
	}
}

// goneSince yields the tombstones of a kind, and for instances of a name, that are newer than an index.
func (s *State) goneSince(kind goneKind, name string, since uint64) iter.Seq[*goneEntry] {
	return func(yield func(*goneEntry) bool) {
		for g := range s.tables.gone.From(&goneEntry{kind: kind, name: name}) {
			if g.kind != kind || kind == goneInstance && g.name != name {
				return
			}
			if g.index > since && !yield(g) {
				return
			}
		}
	}
}
