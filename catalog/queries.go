package catalog

import (
	"iter"
	"slices"
	"strings"

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

func pairsFrom(t table.Table[*KVPair], key string) iter.Seq[*KVPair] {
	return t.Seek(func(p *KVPair) int { return strings.Compare(key, p.Key) })
}

// services and checks yield what the entries hold.
func services(seq iter.Seq[*serviceEntry]) iter.Seq[*Service] {
	return func(yield func(*Service) bool) {
		for e := range seq {
			if !yield(&e.Service) {
				return
			}
		}
	}
}

func checks(seq iter.Seq[*checkEntry]) iter.Seq[*Check] {
	return func(yield func(*Check) bool) {
		for e := range seq {
			if !yield(&e.Check) {
				return
			}
		}
	}
}

func (s *State) nodeEntry(name string) *nodeEntry {
	return findNode(s.tables.nodes, lower(name))
}

// Node returns the node of that name, or nil.
func (s *State) Node(name string) *Node {
	if e := s.nodeEntry(name); e != nil {
		return e.node
	}
	return nil
}

// NodeByID returns the node with that UUID, or nil.
func (s *State) NodeByID(id string) *Node {
	if e := findNodeID(s.tables.nodeIDs, lower(id)); e != nil {
		return e.node
	}
	return nil
}

// Nodes yields every node by name.
func (s *State) Nodes() iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		for item := range s.tables.nodes.All() {
			if !yield(item.node) {
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
	if e := s.nodeEntry(name); e != nil {
		return floor(e.index)
	}
	return floor(s.indexes.nodeGone)
}

// Service returns one instance, or nil.
func (s *State) Service(node, id string) *Service {
	if e := findService(s.tables.services, lower(node), id); e != nil {
		return &e.Service
	}
	return nil
}

// ServicesOfNode yields a node's instances by id.
func (s *State) ServicesOfNode(node string) iter.Seq[*Service] {
	return services(servicesOf(s.tables.services, lower(node)))
}

// Instances yields the instances of a service by node and id.
func (s *State) Instances(name string) iter.Seq[*Service] {
	return services(s.instances(lower(name)))
}

func (s *State) instances(name string) iter.Seq[*serviceEntry] {
	return while(s.tables.instances.Seek(func(e *serviceEntry) int {
		return compare3(name, e.nameKey, "", e.nodeKey, "", e.ID)
	}),
		func(e *serviceEntry) bool { return e.nameKey == name })
}

// ConnectInstances yields what connects to the service: its proxies, and its
// instances that speak the mesh themselves; by node and id.
func (s *State) ConnectInstances(name string) iter.Seq[*Service] {
	name = lower(name)
	return services(while(s.tables.connect.Seek(func(e *serviceEntry) int {
		return compare3(name, e.destKey, "", e.nodeKey, "", e.ID)
	}),
		func(e *serviceEntry) bool { return e.destKey == name }))
}

// ServiceNames yields a summary of each service by name.
func (s *State) ServiceNames() iter.Seq[*ServiceSummary] {
	return func(yield func(*ServiceSummary) bool) {
		for item := range s.tables.names.All() {
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
	if e := findName(s.tables.names, lower(name)); e != nil {
		return floor(e.index)
	}
	return floor(s.indexes.serviceGone)
}

// ConnectIndex is ServiceIndex for ConnectInstances.
func (s *State) ConnectIndex(name string) uint64 {
	if e := findName(s.tables.dests, lower(name)); e != nil {
		return floor(e.index)
	}
	return floor(s.indexes.serviceGone)
}

// Check returns one check, or nil.
func (s *State) Check(node, id string) *Check {
	if e := findCheck(s.tables.checks, lower(node), id); e != nil {
		return &e.Check
	}
	return nil
}

// ChecksOfNode yields all checks of a node by id, those of its services too.
func (s *State) ChecksOfNode(node string) iter.Seq[*Check] {
	return checks(checksOf(s.tables.checks, lower(node)))
}

// NodeChecks yields the checks of the node itself by id.
func (s *State) NodeChecks(node string) iter.Seq[*Check] {
	return checks(checksOwned(s.tables.byOwner, lower(node), ""))
}

// InstanceChecks yields the checks of one instance by id.
func (s *State) InstanceChecks(node, serviceID string) iter.Seq[*Check] {
	return checks(checksOwned(s.tables.byOwner, lower(node), serviceID))
}

// ChecksOfService yields the checks of all instances of a service by node and id.
func (s *State) ChecksOfService(name string) iter.Seq[*Check] {
	return func(yield func(*Check) bool) {
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
		for e := range s.instances(lower(name)) {
			if e.nodeKey != node && !flush() {
				return
			}
			node = e.nodeKey
			of = slices.AppendSeq(of, checksOwned(s.tables.byOwner, node, e.ID))
		}
		flush()
	}
}

// Checks yields every check by node and id.
func (s *State) Checks() iter.Seq[*Check] {
	return func(yield func(*Check) bool) {
		for item := range s.tables.checks.All() {
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
	if e := s.nodeEntry(node); e != nil {
		return floor(e.checksIndex)
	}
	return floor(s.indexes.nodeGone)
}

// ServiceChecksIndex covers the checks of a service's instances.
func (s *State) ServiceChecksIndex(name string) uint64 {
	if e := findName(s.tables.names, lower(name)); e != nil {
		return floor(e.checksIndex)
	}
	return floor(s.indexes.serviceGone)
}

// KV returns one pair, or nil.
func (s *State) KV(key string) *KVPair {
	return findPair(s.tables.kv, key)
}

// KVPrefix yields the pairs whose key begins with prefix, by key.
func (s *State) KVPrefix(prefix string) iter.Seq[*KVPair] {
	return func(yield func(*KVPair) bool) {
		for p := range pairsFrom(s.tables.kv, prefix) {
			if !strings.HasPrefix(p.Key, prefix) || !yield(p) {
				return
			}
		}
	}
}

// KVIndex changes with every pair.
func (s *State) KVIndex() uint64 { return floor(s.indexes.kv) }

// KVKeyIndex is the pair's ModifyIndex; without the pair it is KVIndex.
func (s *State) KVKeyIndex(key string) uint64 {
	if p := s.KV(key); p != nil {
		return p.ModifyIndex
	}
	return s.KVIndex()
}

// KVPrefixIndex is the newest index of the pairs, living and lately deleted,
// under prefix; where there never was one it is KVIndex.
//
// A prefix that ends in a slash is one lookup. Any other costs one step for each
// name directly under it: the keys of deeper folders are answered by their folder.
func (s *State) KVPrefixIndex(prefix string) uint64 {
	if prefix == "" {
		return s.KVIndex()
	}
	if strings.HasSuffix(prefix, "/") {
		if dir := findDir(s.tables.dirs, prefix); dir != nil {
			return floor(dir.index)
		}
		return s.KVIndex()
	}
	newest := max(
		newestUnder(s.tables.kv, s.tables.dirs, prefix, func(p *KVPair) (string, uint64) { return p.Key, p.ModifyIndex }),
		newestUnder(s.tables.tombstones, s.tables.dirs, prefix,
			func(g *tombstone) (string, uint64) { return g.key, g.index }))
	if newest == 0 {
		return s.KVIndex()
	}
	return newest
}

// newestUnder walks the keys under prefix, and jumps over each folder it meets.
func newestUnder[T any](t table.Table[T], dirs table.Table[*dirEntry], prefix string,
	of func(T) (key string, index uint64)) uint64 {
	var newest uint64
	at := prefix
	for {
		jumped := false
		for item := range t.Seek(func(item T) int { key, _ := of(item); return strings.Compare(at, key) }) {
			key, index := of(item)
			if !strings.HasPrefix(key, prefix) {
				return newest
			}
			slash := strings.IndexByte(key[len(prefix):], '/')
			if slash < 0 {
				newest = max(newest, index)
				continue
			}
			folder := key[:len(prefix)+slash+1]
			if dir := findDir(dirs, folder); dir != nil {
				newest = max(newest, dir.index)
			}
			at, jumped = folder[:len(folder)-1]+"0", true // '0' is the byte after '/'
			break
		}
		if !jumped {
			return newest
		}
	}
}

// Session returns one session, or nil.
func (s *State) Session(id string) *Session {
	item, _ := s.tables.sessions.Get(keyed[*Session]{key: id})
	return item.v
}

// Sessions yields every session by ID.
func (s *State) Sessions() iter.Seq[*Session] {
	return func(yield func(*Session) bool) {
		for item := range s.tables.sessions.All() {
			if !yield(item.v) {
				return
			}
		}
	}
}

// SessionsOfNode yields a node's sessions by ID.
func (s *State) SessionsOfNode(node string) iter.Seq[*Session] {
	return under(s.tables.nodeSess, lower(node))
}

// SessionsIndex changes with every session.
func (s *State) SessionsIndex() uint64 { return floor(s.indexes.sessions) }

// OldestTombstone is the index of the oldest deletion that is still remembered; 0 when there is none.
func (s *State) OldestTombstone() uint64 {
	key, haveKey := s.tables.tombstoneAges.Min()
	gone, haveGone := s.tables.goneAges.Min()
	switch {
	case haveKey && haveGone:
		return min(key.index, gone.index)
	case haveKey:
		return key.index
	case haveGone:
		return gone.index
	}
	return 0
}
