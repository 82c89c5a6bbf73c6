package statestore

import (
	"iter"
	"slices"
	"strings"

	"corbel.dev/corbel/catalog"
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

// NodesSince tells the nodes that were set after an index, and the names of those that left.
func (s *State) NodesSince(since uint64) (set []*catalog.Node, gone []string) {
	for n := range s.tables.nodes.byAge.From(&catalog.Node{ModifyIndex: since + 1}) {
		set = append(set, n)
	}
	slices.SortFunc(set, func(a, b *catalog.Node) int { return strings.Compare(lower(a.Name), lower(b.Name)) })
	for g := range s.tables.gone.since(goneNode, "", since) {
		gone = append(gone, g.name)
	}
	return set, gone
}

// ServiceListIndex changes with what the list of services shows: its names and their tags.
func (s *State) ServiceListIndex() uint64 { return floor(s.indexes.list) }

// ServicesSince tells the rows of the list of services that changed after an index, and the names that left it.
func (s *State) ServicesSince(since uint64) (set []*ServiceSummary, gone []string) {
	for e := range s.tables.services.names.All() {
		if e.listIndex > since {
			set = append(set, &e.summary)
		}
	}
	for g := range s.tables.gone.since(goneName, "", since) {
		gone = append(gone, g.name)
	}
	return set, gone
}

// InstancesIndex is ServiceIndex for one that is there; of one that is not, it is
// when its own last instance left, as far as that is remembered.
func (s *State) InstancesIndex(name string) uint64 {
	if e := findName(s.tables.services.names, lower(name)); e != nil {
		return floor(e.index)
	}
	var newest uint64
	for g := range s.tables.gone.since(goneInstance, lower(name), 0) {
		newest = max(newest, g.index)
	}
	return floor(newest)
}

// GoneInstance is an instance that left its service.
type GoneInstance struct{ Node, ID string }

// InstancesSince tells the instances of a service that changed after an index, by
// themselves, their checks, their nodes or their nodes' checks, and those that left.
func (s *State) InstancesSince(name string, since uint64) (set []*catalog.Service, gone []GoneInstance) {
	name = lower(name)
	touched, stop := iter.Pull(s.tables.services.touchedSince(name, since))
	defer stop()
	next, more := touched() // in the order of the instances
	for e := range s.tables.services.named(name) {
		hit := more && next.node == e.nodeKey && next.id == e.ID
		if hit {
			next, more = touched()
		}
		if hit || e.ModifyIndex > since {
			set = append(set, &e.Service)
		}
	}
	for g := range s.tables.gone.since(goneInstance, name, since) {
		gone = append(gone, GoneInstance{g.node, g.id})
	}
	return set, gone
}

// touchedSince yields the entries of a service's instances that are newer than an index.
func (t *serviceTables) touchedSince(name string, since uint64) iter.Seq[*touchEntry] {
	return func(yield func(*touchEntry) bool) {
		for e := range t.touched.Seek(func(e *touchEntry) int {
			return compare3(name, e.name, "", e.node, "", e.id)
		}) {
			if e.name != name || e.index > since && !yield(e) {
				return
			}
		}
	}
}

// since yields the tombstones of a kind, and for instances of a name, that are newer than an index.
func (t *goneTables) since(kind goneKind, name string, since uint64) iter.Seq[*goneEntry] {
	return func(yield func(*goneEntry) bool) {
		for g := range t.all.From(&goneEntry{kind: kind, name: name}) {
			if g.kind != kind || kind == goneInstance && g.name != name {
				return
			}
			if g.index > since && !yield(g) {
				return
			}
		}
	}
}
