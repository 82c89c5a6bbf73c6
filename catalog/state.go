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
	serviceGone                           uint64 // last time a service name, or what a name connects to, lost its last instance
	records                               [recordKinds]uint64
}

// tables are the primary tables and their indexes. Names of nodes and services
// are keyed in lower case.
type tables struct {
	nodes     table.Table[keyed[*nodeEntry]] // by name
	nodeIDs   table.Table[keyed[*nodeEntry]] // by ID; nodes without one are absent
	services  table.Table[pair[*Service]]    // by node, id
	instances table.Table[pair[*Service]]    // by name, node, id
	connect   table.Table[pair[*Service]]    // by what it connects to, node, id
	names     table.Table[keyed[*nameEntry]] // service names
	dests     table.Table[keyed[*nameEntry]] // what proxies and native instances connect to
	tags      table.Table[tagCount]          // by service name, tag
	checks    table.Table[pair[*Check]]      // by node, id
	byService table.Table[pair[*Check]]      // service checks by service name, node, id
	byOwner   table.Table[pair[*Check]]      // by node, service id ("" for node checks), id
	kv        table.Table[keyed[*KVPair]]    // by key
	graves    table.Table[keyed[uint64]]     // tombstones: key -> index of the deletion
	graveAges table.Table[grave]             // tombstones by index
	dirs      table.Table[keyed[*dirEntry]]  // key up to and including a slash -> newest index below
	sessions  table.Table[keyed[*Session]]   // by ID
	nodeSess  table.Table[pair[*Session]]    // by node, id
	locks     table.Table[pair[struct{}]]    // by session, key
	records   recordTables
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

// compareInstance orders by a, b and the instance's id; a nil value is before all of them.
func compareInstance(x, y pair[*Service]) int {
	if c := comparePair(x, y); c != 0 {
		return c
	}
	switch {
	case x.v == nil || y.v == nil:
		return cmp.Compare(rank(x.v), rank(y.v))
	default:
		return strings.Compare(x.v.ID, y.v.ID)
	}
}

// compareOwned orders by a, b and the check's id; a nil value is before all of them.
func compareOwned(x, y pair[*Check]) int {
	if c := comparePair(x, y); c != 0 {
		return c
	}
	switch {
	case x.v == nil || y.v == nil:
		return cmp.Compare(rank(x.v), rank(y.v))
	default:
		return strings.Compare(x.v.ID, y.v.ID)
	}
}

func rank[T any](p *T) int {
	if p == nil {
		return 0
	}
	return 1
}

// nodeEntry is a node and the newest index of what hangs on it.
type nodeEntry struct {
	epoch       uint64
	key         string // the name in lower case
	node        *Node
	index       uint64 // the node, its services, its checks, also those that are gone
	checksIndex uint64 // its checks, also those that are gone
}

// nameEntry is a service name (or a connect destination) that has instances.
type nameEntry struct {
	epoch       uint64
	key         string
	count       int
	index       uint64 // instances, their checks, their nodes and the nodes' checks
	checksIndex uint64 // the instances' checks
	summary     *ServiceSummary
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

func compareTag(a, b tagCount) int {
	if c := strings.Compare(a.service, b.service); c != 0 {
		return c
	}
	return strings.Compare(a.tag, b.tag)
}

// grave is a tombstone in order of age.
type grave struct {
	index uint64
	key   string
}

func compareGrave(a, b grave) int {
	if c := cmp.Compare(a.index, b.index); c != 0 {
		return c
	}
	return strings.Compare(a.key, b.key)
}

// dirEntry is the newest index of the keys, living and deleted, below a folder.
type dirEntry struct{ epoch, index uint64 }

// Empty returns the State of a new cluster.
func Empty() *State {
	// A list that was empty all along is given index 1 (never 0), so the first change must be past it.
	return &State{index: 1, tables: tables{
		nodes:     table.New(compareKeyed[*nodeEntry]),
		nodeIDs:   table.New(compareKeyed[*nodeEntry]),
		services:  table.New(comparePair[*Service]),
		instances: table.New(compareInstance),
		connect:   table.New(compareInstance),
		names:     table.New(compareKeyed[*nameEntry]),
		dests:     table.New(compareKeyed[*nameEntry]),
		tags:      table.New(compareTag),
		checks:    table.New(comparePair[*Check]),
		byService: table.New(compareOwned),
		byOwner:   table.New(compareOwned),
		kv:        table.New(compareKeyed[*KVPair]),
		graves:    table.New(compareKeyed[uint64]),
		graveAges: table.New(compareGrave),
		dirs:      table.New(compareKeyed[*dirEntry]),
		sessions:  table.New(compareKeyed[*Session]),
		nodeSess:  table.New(comparePair[*Session]),
		locks:     table.New(comparePair[struct{}]),
		records:   emptyRecords(),
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
		Tombstones: t.graves.Len(), Sessions: t.sessions.Len(), Records: t.records.all.Len(),
	}
}
