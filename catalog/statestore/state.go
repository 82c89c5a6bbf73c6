package statestore

import (
	"strings"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/kvstore"
)

// State is the whole catalog at one index. It is immutable and safe for
// concurrent use; Empty and ReadState make the first one, Apply the next.
type State struct {
	// epoch numbers the Apply that made this State: an entry of the same epoch
	// was made by the running Apply and may still be changed in place.
	epoch   uint64
	index   uint64
	indexes tableIndexes
	tables  tables
	kvstore.Store
	sessions
	records
}

// tableIndexes holds the index of the last change of each whole table.
type tableIndexes struct {
	nodes, services, checks uint64
	nodeGone                uint64 // last deregistration of a node
	// last time a service name, or what a name connects to, lost its last instance
	serviceGone uint64
	list        uint64 // last change of a row of the list of services
	horizon     uint64 // newest deletion that was forgotten: what was before cannot be told as changes
}

// keyed is a value under one key.
type keyed[V any] struct {
	key string
	v   V
}

func compareKeyed[V any](a, b keyed[V]) int { return strings.Compare(a.key, b.key) }

// pair is a value under two keys. Tables whose order needs a third take it from the value.
type pair[V any] struct {
	a, b string
	v    V
}

func comparePair[V any](x, y pair[V]) int {
	if c := strings.Compare(x.a, y.a); c != 0 {
		return c
	}
	return strings.Compare(x.b, y.b)
}

// compare2 and compare3 compare keys of several parts, each followed by its counterpart.
func compare2(a1, a2, b1, b2 string) int {
	if c := strings.Compare(a1, a2); c != 0 {
		return c
	}
	return strings.Compare(b1, b2)
}

func compare3(a1, a2, b1, b2, c1, c2 string) int {
	if c := compare2(a1, a2, b1, b2); c != 0 {
		return c
	}
	return strings.Compare(c1, c2)
}

// nodeEntry is a node and the newest index of what hangs on it.
type nodeEntry struct {
	epoch       uint64
	key, idKey  string // the name and the ID in lower case
	node        *catalog.Node
	index       uint64 // the node, its services, its checks, also those that are gone
	checksIndex uint64 // its checks, also those that are gone
}

// serviceEntry is an instance with the keys under which it is found.
type serviceEntry struct {
	catalog.Service
	nodeKey, nameKey string
	destKey          string // what it connects to; "" is nothing
}

func compareServices(a, b *serviceEntry) int { return compare2(a.nodeKey, b.nodeKey, a.ID, b.ID) }

func compareInstances(a, b *serviceEntry) int {
	return compare3(a.nameKey, b.nameKey, a.nodeKey, b.nodeKey, a.ID, b.ID)
}

func compareConnect(a, b *serviceEntry) int {
	return compare3(a.destKey, b.destKey, a.nodeKey, b.nodeKey, a.ID, b.ID)
}

// checkEntry is a check with the keys under which it is found.
type checkEntry struct {
	catalog.Check
	nodeKey string
}

func compareChecks(a, b *checkEntry) int { return compare2(a.nodeKey, b.nodeKey, a.ID, b.ID) }

func compareOwned(a, b *checkEntry) int {
	return compare3(a.nodeKey, b.nodeKey, a.ServiceID, b.ServiceID, a.ID, b.ID)
}

// nameEntry is a service name (or a connect destination) that has instances.
type nameEntry struct {
	epoch       uint64
	key         string
	count       int
	index       uint64 // instances, their checks, their nodes and the nodes' checks
	checksIndex uint64 // the instances' checks
	listIndex   uint64 // its row of the list of services
	summary     ServiceSummary
	// tagCounts says how often each of the summary's tags occurs. Of names with more
	// than fewTags it is nil, and the tags table says it.
	tagCounts []int
	tagEpoch  uint64 // as epoch, for the elements of tagCounts
	manyTags  bool
	// service and check are one of the instances and one of their checks, for sharing
	// equal parts with the next ones; nil when the one that was here went.
	service *serviceEntry
	check   *checkEntry
}

// ServiceSummary is one row of the list of services.
type ServiceSummary struct {
	Name      string   // as first registered
	Tags      []string // sorted union over the instances
	Instances int
}

type tagCount struct {
	service, tag string
	count        int
}

func compareTag(a, b tagCount) int { return compare2(a.service, b.service, a.tag, b.tag) }

// Empty returns the State of a new cluster.
func Empty() *State {
	// A list that was empty all along is given index 1 (never 0), so the first change must be past it.
	return &State{index: 1, tables: emptyTables(), Store: kvstore.Empty(), sessions: emptySessions(),
		records: emptyRecords()}
}

// Index is the index of the last command that changed something; 1 for an empty catalog.
func (s *State) Index() uint64 { return s.index }

// Counts tells how much the catalog holds.
type Counts struct {
	Nodes, Services, Instances, ConnectInstances, Checks, KV, Tombstones, Sessions, Records int
}

// Counts is O(1).
func (s *State) Counts() Counts {
	t := &s.tables
	return Counts{
		Nodes: t.nodes.byName.Len(), Services: t.services.names.Len(), Instances: t.services.byNode.Len(),
		ConnectInstances: t.services.byDest.Len(), Checks: t.checks.byNode.Len(), KV: s.Pairs(),
		Tombstones: s.DeletedKeys(), Sessions: s.sessions.byID.Len(), Records: s.records.all.Len(),
	}
}
