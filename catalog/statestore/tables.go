package statestore

import (
	"strings"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/kvstore"
	"corbel.dev/corbel/core/table"
)

// tables are the primary tables of what agents register, and their indexes. Names of nodes and
// services are keyed in lower case. The items of those that fleets fill are pointers (see
// package table), to what carries its own keys.
type tables struct {
	nodes    nodeTables
	services serviceTables
	checks   checkTables
	gone     goneTables
}

type nodeTables struct {
	byName table.Table[*nodeEntry]
	byID   table.Table[*nodeEntry]    // nodes without one are absent
	byAge  table.Table[*catalog.Node] // by ModifyIndex, name
}

type serviceTables struct {
	byNode  table.Table[*serviceEntry] // by node, id
	byName  table.Table[*serviceEntry] // by name, node, id
	byDest  table.Table[*serviceEntry] // by what it connects to, node, id
	touched table.Table[*touchEntry]   // instances that changed by their checks or nodes, by name, node, id
	names   table.Table[*nameEntry]    // service names
	dests   table.Table[*nameEntry]    // what proxies and native instances connect to
	tags    table.Table[tagCount]      // by service name, tag: for names with many tags
}

type checkTables struct {
	byNode  table.Table[*checkEntry] // by node, id
	byOwner table.Table[*checkEntry] // by node, service id ("" for node checks), id
}

// goneTables are the tombstones of what left the catalog.
type goneTables struct {
	all   table.Table[*goneEntry] // by kind, name, node, id
	byAge table.Table[*goneEntry] // by index
}

func emptyTables() tables {
	byKey := func(a, b *nameEntry) int { return strings.Compare(a.key, b.key) }
	return tables{
		nodes: nodeTables{
			byName: table.New(func(a, b *nodeEntry) int { return strings.Compare(a.key, b.key) }),
			byID:   table.New(func(a, b *nodeEntry) int { return strings.Compare(a.idKey, b.idKey) }),
			byAge:  table.New(compareNodeAge),
		},
		services: serviceTables{
			byNode: table.New(compareServices), byName: table.New(compareInstances), byDest: table.New(compareConnect),
			touched: table.New(compareTouched), names: table.New(byKey), dests: table.New(byKey),
			tags: table.New(compareTag),
		},
		checks: checkTables{byNode: table.New(compareChecks), byOwner: table.New(compareOwned)},
		gone:   goneTables{all: table.New(compareGone), byAge: table.New(compareGoneAge)},
	}
}

// edits mirrors what a State has. The parts that need to know which command runs share its step.
type edits struct {
	nodes    nodeEdits
	services serviceEdits
	checks   checkEdits
	gone     goneEdits
	kv       kvstore.Edit
	sessions sessionEdits
	records  recordEdits
}

// edits begins the edits of an Apply.
func (s *State) edits(run *step) edits {
	t := &s.tables
	return edits{
		nodes: nodeEdits{step: run, byName: t.nodes.byName.Edit(), byID: t.nodes.byID.Edit(), byAge: t.nodes.byAge.Edit()},
		services: serviceEdits{step: run, byNode: t.services.byNode.Edit(), byName: t.services.byName.Edit(),
			byDest: t.services.byDest.Edit(), touched: t.services.touched.Edit(), names: t.services.names.Edit(),
			dests: t.services.dests.Edit(), tags: t.services.tags.Edit()},
		checks:   checkEdits{t.checks.byNode.Edit(), t.checks.byOwner.Edit()},
		gone:     goneEdits{step: run, all: t.gone.all.Edit(), byAge: t.gone.byAge.Edit()},
		kv:       s.Store.Edit(run.epoch),
		sessions: s.sessions.edit(),
		records:  s.records.edit(),
	}
}

// done ends the edits and puts what they made into s.
func (t *edits) done(s *State) {
	s.tables = tables{
		nodes: nodeTables{t.nodes.byName.Done(), t.nodes.byID.Done(), t.nodes.byAge.Done()},
		services: serviceTables{byNode: t.services.byNode.Done(), byName: t.services.byName.Done(),
			byDest: t.services.byDest.Done(), touched: t.services.touched.Done(), names: t.services.names.Done(),
			dests: t.services.dests.Done(), tags: t.services.tags.Done()},
		checks: checkTables{t.checks.byNode.Done(), t.checks.byOwner.Done()},
		gone:   goneTables{t.gone.all.Done(), t.gone.byAge.Done()},
	}
	s.Store, s.sessions, s.records = t.kv.Done(), t.sessions.done(), t.records.done()
}

// fork keeps everything as it is now from being changed in place.
func (t *edits) fork() {
	t.nodes.byName.Fork()
	t.nodes.byID.Fork()
	t.nodes.byAge.Fork()
	t.services.byNode.Fork()
	t.services.byName.Fork()
	t.services.byDest.Fork()
	t.services.touched.Fork()
	t.services.names.Fork()
	t.services.dests.Fork()
	t.services.tags.Fork()
	t.checks.byNode.Fork()
	t.checks.byOwner.Fork()
	t.gone.all.Fork()
	t.gone.byAge.Fork()
	t.kv.Fork()
	t.sessions.fork()
	t.records.fork()
}

// nodeEdits are the nodes in the making.
type nodeEdits struct {
	*step
	byName, byID table.Edit[*nodeEntry]
	byAge        table.Edit[*catalog.Node]
	lastKey      string // of the node that was looked up or put last
	last         *nodeEntry
}

// get returns a node's entry, nil when there is none.
func (t *nodeEdits) get(key string) *nodeEntry {
	if t.lastKey != key {
		t.lastKey, t.last = key, findNode(t.byName.Table, key)
	}
	return t.last
}

// own returns the node's entry for changing in place.
func (t *nodeEdits) own(key string) *nodeEntry {
	e := t.get(key)
	if e.epoch == t.epoch {
		return e
	}
	next := *e
	next.epoch = t.epoch
	t.put(&next)
	return &next
}

func (t *nodeEdits) put(e *nodeEntry) {
	t.lastKey, t.last = e.key, e
	t.byName.Set(e)
	if e.idKey != "" {
		t.byID.Set(e)
	}
}

// drop removes an entry from all tables.
func (t *nodeEdits) drop(e *nodeEntry) {
	t.lastKey, t.last = "", nil
	t.byName.Delete(e)
	if e.idKey != "" {
		t.byID.Delete(e)
	}
	t.byAge.Delete(e.node)
}

// checkEdits are the checks in the making.
type checkEdits struct{ byNode, byOwner table.Edit[*checkEntry] }
