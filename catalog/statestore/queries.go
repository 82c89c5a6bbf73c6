package statestore

import (
	"iter"
	"slices"
	"strings"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/core/table"
)

// Every query is O(log n + result). The sequences are ordered, may be read
// several times, and yield shared objects that must not be changed.

func lower(name string) string { return strings.ToLower(name) }

// floor keeps an index from being 0, which clients take for "no index" and spin on.
func floor(index uint64) uint64 { return max(index, 1) }

// under yields the values of the items whose first key is a.
func under[V any](t table.Table[pair[V]], a string) iter.Seq[V] {
	return func(yield func(V) bool) {
		for item := range t.From(pair[V]{a: a}) {
			if item.a != a || !yield(item.v) {
				return
			}
		}
	}
}

// while yields the items from the front of seq for which in is true.
func while[T any](seq iter.Seq[T], in func(T) bool) iter.Seq[T] {
	return func(yield func(T) bool) {
		for item := range seq {
			if !in(item) || !yield(item) {
				return
			}
		}
	}
}

func servicesOf(t table.Table[*serviceEntry], node string) iter.Seq[*serviceEntry] {
	return while(t.Seek(func(e *serviceEntry) int { return compare2(node, e.nodeKey, "", e.ID) }),
		func(e *serviceEntry) bool { return e.nodeKey == node })
}

func checksOf(t table.Table[*checkEntry], node string) iter.Seq[*checkEntry] {
	return while(t.Seek(func(e *checkEntry) int { return compare2(node, e.nodeKey, "", e.ID) }),
		func(e *checkEntry) bool { return e.nodeKey == node })
}

// checksOwned reads the table that is ordered by owner.
func checksOwned(t table.Table[*checkEntry], node, service string) iter.Seq[*checkEntry] {
	return while(t.Seek(func(e *checkEntry) int { return compare3(node, e.nodeKey, service, e.ServiceID, "", e.ID) }),
		func(e *checkEntry) bool { return e.nodeKey == node && e.ServiceID == service })
}

// eachService and eachCheck yield what the entries hold.
func eachService(seq iter.Seq[*serviceEntry]) iter.Seq[*catalog.Service] {
	return func(yield func(*catalog.Service) bool) {
		for e := range seq {
			if !yield(&e.Service) {
				return
			}
		}
	}
}

func eachCheck(seq iter.Seq[*checkEntry]) iter.Seq[*catalog.Check] {
	return func(yield func(*catalog.Check) bool) {
		for e := range seq {
			if !yield(&e.Check) {
				return
			}
		}
	}
}

func (t *nodeTables) get(name string) *nodeEntry { return findNode(t.byName, lower(name)) }

// Node returns the node of that name, or nil.
func (s *State) Node(name string) *catalog.Node {
	if e := s.tables.nodes.get(name); e != nil {
		return e.node
	}
	return nil
}

// NodeByID returns the node with that UUID, or nil.
func (s *State) NodeByID(id string) *catalog.Node {
	if e := findNodeID(s.tables.nodes.byID, lower(id)); e != nil {
		return e.node
	}
	return nil
}

// Nodes yields every node by name.
func (s *State) Nodes() iter.Seq[*catalog.Node] {
	return func(yield func(*catalog.Node) bool) {
		for item := range s.tables.nodes.byName.All() {
			if !yield(item.node) {
				return
			}
		}
	}
}

// NodesWithIndex yields every node by name, with its NodeIndex.
func (s *State) NodesWithIndex() iter.Seq2[*catalog.Node, uint64] {
	return func(yield func(*catalog.Node, uint64) bool) {
		for item := range s.tables.nodes.byName.All() {
			if !yield(item.node, floor(item.index)) {
				return
			}
		}
	}
}

// NodesIndex changes with each node's own fields and with each node that goes.
func (s *State) NodesIndex() uint64 { return floor(s.indexes.nodes) }

// NodeIndex covers the node, its services and its checks; for a node that is
// not there it is the index at which one last went.
func (s *State) NodeIndex(name string) uint64 {
	if e := s.tables.nodes.get(name); e != nil {
		return floor(e.index)
	}
	return floor(s.indexes.nodeGone)
}

// Service returns one instance, or nil.
func (s *State) Service(node, id string) *catalog.Service {
	if e := findService(s.tables.services.byNode, lower(node), id); e != nil {
		return &e.Service
	}
	return nil
}

// ServicesOfNode yields a node's instances by id.
func (s *State) ServicesOfNode(node string) iter.Seq[*catalog.Service] {
	return eachService(servicesOf(s.tables.services.byNode, lower(node)))
}

// Instances yields the instances of a service by node and id.
func (s *State) Instances(name string) iter.Seq[*catalog.Service] {
	return eachService(s.tables.services.named(lower(name)))
}

func (t *serviceTables) named(name string) iter.Seq[*serviceEntry] {
	return while(t.byName.Seek(func(e *serviceEntry) int {
		return compare3(name, e.nameKey, "", e.nodeKey, "", e.ID)
	}),
		func(e *serviceEntry) bool { return e.nameKey == name })
}

// ConnectInstances yields what connects to the service: its proxies, and its
// instances that speak the mesh themselves; by node and id.
func (s *State) ConnectInstances(name string) iter.Seq[*catalog.Service] {
	name = lower(name)
	return eachService(while(s.tables.services.byDest.Seek(func(e *serviceEntry) int {
		return compare3(name, e.destKey, "", e.nodeKey, "", e.ID)
	}),
		func(e *serviceEntry) bool { return e.destKey == name }))
}

// ServiceNames yields a summary of each service by name.
func (s *State) ServiceNames() iter.Seq[*ServiceSummary] {
	return func(yield func(*ServiceSummary) bool) {
		for item := range s.tables.services.names.All() {
			if !yield(&item.summary) {
				return
			}
		}
	}
}

// ServicesIndex changes when an instance comes, goes, or changes its name or tags.
func (s *State) ServicesIndex() uint64 { return floor(s.indexes.services) }

// ServiceIndex covers the instances, their checks, and the nodes they are on
// with the nodes' checks; for a service that is not there it is the index at
// which one last went.
func (s *State) ServiceIndex(name string) uint64 {
	if e := findName(s.tables.services.names, lower(name)); e != nil {
		return floor(e.index)
	}
	return floor(s.indexes.serviceGone)
}

// ConnectIndex is ServiceIndex for ConnectInstances.
func (s *State) ConnectIndex(name string) uint64 {
	if e := findName(s.tables.services.dests, lower(name)); e != nil {
		return floor(e.index)
	}
	return floor(s.indexes.serviceGone)
}

// Check returns one check, or nil.
func (s *State) Check(node, id string) *catalog.Check {
	if e := findCheck(s.tables.checks.byNode, lower(node), id); e != nil {
		return &e.Check
	}
	return nil
}

// ChecksOfNode yields all checks of a node by id, those of its services too.
func (s *State) ChecksOfNode(node string) iter.Seq[*catalog.Check] {
	return eachCheck(checksOf(s.tables.checks.byNode, lower(node)))
}

// NodeChecks yields the checks of the node itself by id.
func (s *State) NodeChecks(node string) iter.Seq[*catalog.Check] {
	return eachCheck(checksOwned(s.tables.checks.byOwner, lower(node), ""))
}

// InstanceChecks yields the checks of one instance by id.
func (s *State) InstanceChecks(node, serviceID string) iter.Seq[*catalog.Check] {
	return eachCheck(checksOwned(s.tables.checks.byOwner, lower(node), serviceID))
}

// ChecksOfService yields the checks of all instances of a service by node and id.
func (s *State) ChecksOfService(name string) iter.Seq[*catalog.Check] {
	return func(yield func(*catalog.Check) bool) {
		// A node with several instances has their checks in one order, by id.
		var of []*checkEntry
		flush := func() bool {
			slices.SortFunc(of, compareChecks)
			for _, c := range of {
				if !yield(&c.Check) {
					return false
				}
			}
			of = of[:0]
			return true
		}
		node := ""
		for e := range s.tables.services.named(lower(name)) {
			if e.nodeKey != node && !flush() {
				return
			}
			node = e.nodeKey
			of = slices.AppendSeq(of, checksOwned(s.tables.checks.byOwner, node, e.ID))
		}
		flush()
	}
}

// Checks yields every check by node and id.
func (s *State) Checks() iter.Seq[*catalog.Check] {
	return func(yield func(*catalog.Check) bool) {
		for item := range s.tables.checks.byNode.All() {
			if !yield(&item.Check) {
				return
			}
		}
	}
}

// ChecksIndex changes with every check.
func (s *State) ChecksIndex() uint64 { return floor(s.indexes.checks) }

// NodeChecksIndex covers all checks of a node, those of its services too.
func (s *State) NodeChecksIndex(node string) uint64 {
	if e := s.tables.nodes.get(node); e != nil {
		return floor(e.checksIndex)
	}
	return floor(s.indexes.nodeGone)
}

// ServiceChecksIndex covers the checks of a service's instances.
func (s *State) ServiceChecksIndex(name string) uint64 {
	if e := findName(s.tables.services.names, lower(name)); e != nil {
		return floor(e.checksIndex)
	}
	return floor(s.indexes.serviceGone)
}

// OldestTombstone is the index of the oldest deletion that is still remembered; 0 when there is none.
func (s *State) OldestTombstone() uint64 {
	key := s.OldestDeletedKey()
	gone, ok := s.tables.gone.byAge.Min()
	if !ok || key > 0 && key < gone.index {
		return key
	}
	return gone.index
}
