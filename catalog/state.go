package catalog

import (
	"cmp"
	"strings"

	"corbel.dev/corbel/core/table"
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
}

// tableIndexes holds the index of the last change of each whole table.
type tableIndexes struct {
	nodes, services, checks, sessions, kv uint64
	nodeGone                              uint64 // last deregistration of a node
	// last time a service name, or what a name connects to, lost its last instance
	serviceGone uint64
	records     [recordKinds]uint64
	list        uint64 // last change of a row of the list of services
	horizon     uint64 // newest deletion that was forgotten: what was before cannot be told as changes
}

// tables are the primary tables and their indexes. Names of nodes and services
// are keyed in lower case. The items of those that fleets fill are pointers (see
// package table), to what carries its own keys.
type tables struct {
	nodes         table.Table[*nodeEntry]      // by name
	nodeIDs       table.Table[*nodeEntry]      // by ID; nodes without one are absent
	services      table.Table[*serviceEntry]   // by node, id
	instances     table.Table[*serviceEntry]   // by name, node, id
	connect       table.Table[*serviceEntry]   // by what it connects to, node, id
	touched       table.Table[*touchEntry]     // instances that changed by their checks or nodes, by name, node, id
	nodeAges      table.Table[*Node]           // by ModifyIndex, name
	names         table.Table[*nameEntry]      // service names
	dests         table.Table[*nameEntry]      // what proxies and native instances connect to
	tags          table.Table[tagCount]        // by service name, tag: for names with many tags
	checks        table.Table[*checkEntry]     // by node, id
	byOwner       table.Table[*checkEntry]     // by node, service id ("" for node checks), id
	kv            table.Table[*KVPair]         // by key
	kvAges        table.Table[*KVPair]         // by ModifyIndex, key
	tombstones    table.Table[*tombstone]      // tombstones by key
	tombstoneAges table.Table[*tombstone]      // tombstones by index of the deletion
	gone          table.Table[*goneEntry]      // what left the catalog, by kind, name, node, id
	goneAges      table.Table[*goneEntry]      // the same by index
	dirs          table.Table[*dirEntry]       // key up to and including a slash -> newest index below
	sessions      table.Table[keyed[*Session]] // by ID
	nodeSess      table.Table[pair[*Session]]  // by node, id
	locks         table.Table[pair[struct{}]]  // by session, key
	records       recordTables
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
	node        *Node
	index       uint64 // the node, its services, its checks, also those that are gone
	checksIndex uint64 // its checks, also those that are gone
}

// serviceEntry is an instance with the keys under which it is found.
type serviceEntry struct {
	Service
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
	Check
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

// tombstone notes that a key was deleted.
type tombstone struct {
	index uint64
	key   string
}

func compareTombstoneIndex(a, b *tombstone) int {
	if c := cmp.Compare(a.index, b.index); c != 0 {
		return c
	}
	return strings.Compare(a.key, b.key)
}

// dirEntry is the newest index of the keys, living and deleted, below a folder.
type dirEntry struct {
	epoch, index uint64
	key          string
}

// Empty returns the State of a new cluster.
func Empty() *State {
	// A list that was empty all along is given index 1 (never 0), so the first change must be past it.
	return &State{index: 1, tables: tables{
		nodes:         table.New(func(a, b *nodeEntry) int { return strings.Compare(a.key, b.key) }),
		nodeIDs:       table.New(func(a, b *nodeEntry) int { return strings.Compare(a.idKey, b.idKey) }),
		services:      table.New(compareServices),
		instances:     table.New(compareInstances),
		connect:       table.New(compareConnect),
		touched:       table.New(compareTouched),
		nodeAges:      table.New(compareNodeAge),
		names:         table.New(func(a, b *nameEntry) int { return strings.Compare(a.key, b.key) }),
		dests:         table.New(func(a, b *nameEntry) int { return strings.Compare(a.key, b.key) }),
		tags:          table.New(compareTag),
		checks:        table.New(compareChecks),
		byOwner:       table.New(compareOwned),
		kv:            table.New(func(a, b *KVPair) int { return strings.Compare(a.Key, b.Key) }),
		tombstones:    table.New(func(a, b *tombstone) int { return strings.Compare(a.key, b.key) }),
		tombstoneAges: table.New(compareTombstoneIndex),
		kvAges:        table.New(compareKVAge),
		gone:          table.New(compareGone),
		goneAges:      table.New(compareGoneAge),
		dirs:          table.New(func(a, b *dirEntry) int { return strings.Compare(a.key, b.key) }),
		sessions:      table.New(compareKeyed[*Session]),
		nodeSess:      table.New(comparePair[*Session]),
		locks:         table.New(comparePair[struct{}]),
		records:       emptyRecords(),
	}}
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
		Nodes: t.nodes.Len(), Services: t.names.Len(), Instances: t.services.Len(),
		ConnectInstances: t.connect.Len(), Checks: t.checks.Len(), KV: t.kv.Len(),
		Tombstones: t.tombstones.Len(), Sessions: t.sessions.Len(), Records: t.records.all.Len(),
	}
}
