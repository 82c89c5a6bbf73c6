package catalog

import (
	"iter"
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

// underBoth yields the values of the items whose keys are a and b.
func underBoth[V any](t table.Table[pair[V]], a, b string) iter.Seq[V] {
	return func(yield func(V) bool) {
		for item := range t.From(pair[V]{a: a, b: b}) {
			if item.a != a || item.b != b || !yield(item.v) {
				return
			}
		}
	}
}

func (s *State) nodeEntry(name string) *nodeEntry {
	item, _ := s.tables.nodes.Get(keyed[*nodeEntry]{key: lower(name)})
	return item.v
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
	if item, ok := s.tables.nodeIDs.Get(keyed[*nodeEntry]{key: lower(id)}); ok && id != "" {
		return item.v.node
	}
	return nil
}

// Nodes yields every node by name.
func (s *State) Nodes() iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		for item := range s.tables.nodes.All() {
			if !yield(item.v.node) {
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
	item, _ := s.tables.services.Get(pair[*Service]{a: lower(node), b: id})
	return item.v
}

// ServicesOfNode yields a node's instances by id.
func (s *State) ServicesOfNode(node string) iter.Seq[*Service] {
	return under(s.tables.services, lower(node))
}

// Instances yields the instances of a service by node and id.
func (s *State) Instances(name string) iter.Seq[*Service] {
	return under(s.tables.instances, lower(name))
}

// ConnectInstances yields what connects to the service: its proxies, and its
// instances that speak the mesh themselves; by node and id.
func (s *State) ConnectInstances(name string) iter.Seq[*Service] {
	return under(s.tables.connect, lower(name))
}

// ServiceNames yields a summary of each service by name.
func (s *State) ServiceNames() iter.Seq[*ServiceSummary] {
	return func(yield func(*ServiceSummary) bool) {
		for item := range s.tables.names.All() {
			if !yield(item.v.summary) {
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
	if item, ok := s.tables.names.Get(keyed[*nameEntry]{key: lower(name)}); ok {
		return floor(item.v.index)
	}
	return floor(s.indexes.serviceGone)
}

// ConnectIndex is ServiceIndex for ConnectInstances.
func (s *State) ConnectIndex(name string) uint64 {
	if item, ok := s.tables.dests.Get(keyed[*nameEntry]{key: lower(name)}); ok {
		return floor(item.v.index)
	}
	return floor(s.indexes.serviceGone)
}

// Check returns one check, or nil.
func (s *State) Check(node, id string) *Check {
	item, _ := s.tables.checks.Get(pair[*Check]{a: lower(node), b: id})
	return item.v
}

// ChecksOfNode yields all checks of a node by id, those of its services too.
func (s *State) ChecksOfNode(node string) iter.Seq[*Check] {
	return under(s.tables.checks, lower(node))
}

// NodeChecks yields the checks of the node itself by id.
func (s *State) NodeChecks(node string) iter.Seq[*Check] {
	return underBoth(s.tables.byOwner, lower(node), "")
}

// InstanceChecks yields the checks of one instance by id.
func (s *State) InstanceChecks(node, serviceID string) iter.Seq[*Check] {
	return underBoth(s.tables.byOwner, lower(node), serviceID)
}

// ChecksOfService yields the checks of all instances of a service by node and id.
func (s *State) ChecksOfService(name string) iter.Seq[*Check] {
	return under(s.tables.byService, lower(name))
}

// Checks yields every check by node and id.
func (s *State) Checks() iter.Seq[*Check] {
	return func(yield func(*Check) bool) {
		for item := range s.tables.checks.All() {
			if !yield(item.v) {
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
	if item, ok := s.tables.names.Get(keyed[*nameEntry]{key: lower(name)}); ok {
		return floor(item.v.checksIndex)
	}
	return floor(s.indexes.serviceGone)
}

// KV returns one pair, or nil.
func (s *State) KV(key string) *KVPair {
	item, _ := s.tables.kv.Get(keyed[*KVPair]{key: key})
	return item.v
}

// KVPrefix yields the pairs whose key begins with prefix, by key.
func (s *State) KVPrefix(prefix string) iter.Seq[*KVPair] {
	return func(yield func(*KVPair) bool) {
		for item := range s.tables.kv.From(keyed[*KVPair]{key: prefix}) {
			if !strings.HasPrefix(item.key, prefix) || !yield(item.v) {
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
		if dir, ok := s.tables.dirs.Get(keyed[*dirEntry]{key: prefix}); ok {
			return floor(dir.v.index)
		}
		return s.KVIndex()
	}
	newest := max(
		newestUnder(s.tables.kv, s.tables.dirs, prefix, func(p *KVPair) uint64 { return p.ModifyIndex }),
		newestUnder(s.tables.graves, s.tables.dirs, prefix, func(index uint64) uint64 { return index }))
	if newest == 0 {
		return s.KVIndex()
	}
	return newest
}

// newestUnder walks the keys under prefix, and jumps over each folder it meets.
func newestUnder[V any](t table.Table[keyed[V]], dirs table.Table[keyed[*dirEntry]], prefix string, indexOf func(V) uint64) uint64 {
	var newest uint64
	at := prefix
	for {
		jumped := false
		for item := range t.From(keyed[V]{key: at}) {
			if !strings.HasPrefix(item.key, prefix) {
				return newest
			}
			slash := strings.IndexByte(item.key[len(prefix):], '/')
			if slash < 0 {
				newest = max(newest, indexOf(item.v))
				continue
			}
			folder := item.key[:len(prefix)+slash+1]
			if dir, ok := dirs.Get(keyed[*dirEntry]{key: folder}); ok {
				newest = max(newest, dir.v.index)
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
	oldest, _ := s.tables.graveAges.Min()
	return oldest.index
}
