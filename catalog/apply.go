package catalog

import (
	"fmt"

	"corbel.dev/corbel/core/table"
	"corbel.dev/corbel/kit/errkind"
)

// draft is a State in the making: what one Apply works on.
type draft struct {
	epoch   uint64
	index   uint64 // of the last command that changed something
	at      uint64 // what the current command writes: index+1
	changed bool   // by the current command
	ix      tableIndexes
	t       edits
	changes Changes
	lastKey string // of the node that was looked up or put last
	last    *nodeEntry
	name    *nameEntry // of a service, that was looked up or changed last; never stale
}

// edits mirrors tables.
type edits struct {
	nodes, nodeIDs            table.Edit[*nodeEntry]
	services                  table.Edit[*serviceEntry]
	instances, connect        table.Edit[*serviceEntry]
	touched                   table.Edit[*touchEntry]
	nodeAges                  table.Edit[*Node]
	names, dests              table.Edit[*nameEntry]
	tags                      table.Edit[tagCount]
	checks, byOwner           table.Edit[*checkEntry]
	kv, kvAges                table.Edit[*KVPair]
	gone, goneAges            table.Edit[*goneEntry]
	tombstones, tombstoneAges table.Edit[*tombstone]
	dirs                      table.Edit[*dirEntry]
	sessions                  table.Edit[keyed[*Session]]
	nodeSess                  table.Edit[pair[*Session]]
	locks                     table.Edit[pair[struct{}]]
	records                   recordEdits
}

func (s *State) draft() *draft {
	t := &s.tables
	return &draft{epoch: s.epoch + 1, index: s.index, ix: s.indexes, t: edits{
		nodes: t.nodes.Edit(), nodeIDs: t.nodeIDs.Edit(),
		services: t.services.Edit(), instances: t.instances.Edit(), connect: t.connect.Edit(),
		names: t.names.Edit(), dests: t.dests.Edit(), tags: t.tags.Edit(),
		checks: t.checks.Edit(), byOwner: t.byOwner.Edit(),
		kv: t.kv.Edit(), tombstones: t.tombstones.Edit(), tombstoneAges: t.tombstoneAges.Edit(), dirs: t.dirs.Edit(),
		kvAges: t.kvAges.Edit(), nodeAges: t.nodeAges.Edit(), touched: t.touched.Edit(),
		gone: t.gone.Edit(), goneAges: t.goneAges.Edit(),
		sessions: t.sessions.Edit(), nodeSess: t.nodeSess.Edit(), locks: t.locks.Edit(),
		records: t.records.edit(),
	}}
}

func (d *draft) state() *State {
	t := &d.t
	return &State{epoch: d.epoch, index: d.index, indexes: d.ix, tables: tables{
		nodes: t.nodes.Done(), nodeIDs: t.nodeIDs.Done(),
		services: t.services.Done(), instances: t.instances.Done(), connect: t.connect.Done(),
		names: t.names.Done(), dests: t.dests.Done(), tags: t.tags.Done(),
		checks: t.checks.Done(), byOwner: t.byOwner.Done(),
		kv: t.kv.Done(), tombstones: t.tombstones.Done(), tombstoneAges: t.tombstoneAges.Done(), dirs: t.dirs.Done(),
		kvAges: t.kvAges.Done(), nodeAges: t.nodeAges.Done(), touched: t.touched.Done(),
		gone: t.gone.Done(), goneAges: t.goneAges.Done(),
		sessions: t.sessions.Done(), nodeSess: t.nodeSess.Done(), locks: t.locks.Done(),
		records: t.records.done(),
	}}
}

// fork keeps everything as it is now from being changed in place, so that a
// copy of the draft taken just before can take its place again. The epoch
// grows for the same reason: entries made so far are no longer ours to change.
func (d *draft) fork() {
	t := &d.t
	t.nodes.Fork()
	t.nodeIDs.Fork()
	t.services.Fork()
	t.instances.Fork()
	t.connect.Fork()
	t.names.Fork()
	t.dests.Fork()
	t.tags.Fork()
	t.checks.Fork()
	t.byOwner.Fork()
	t.kv.Fork()
	t.tombstones.Fork()
	t.tombstoneAges.Fork()
	t.kvAges.Fork()
	t.nodeAges.Fork()
	t.touched.Fork()
	t.gone.Fork()
	t.goneAges.Fork()
	t.dirs.Fork()
	t.sessions.Fork()
	t.nodeSess.Fork()
	t.locks.Fork()
	t.records.fork()
	d.epoch++
}

// touch claims the current command's index.
func (d *draft) touch() { d.changed = true }

// Apply runs the commands in order and returns the State after them, one
// result per command, and what changed. A command that is refused leaves no
// trace; the others do not notice. With no effect at all the State is s itself.
//
// It is deterministic. Two Applies on one State may not run at the same time;
// readers of s may.
func (s *State) Apply(cmds []Command) (next *State, results []Result, changes Changes) {
	d := s.draft()
	results = make([]Result, len(cmds))
	for i, c := range cmds {
		d.begin()
		d.command(c, &results[i])
		d.end()
		results[i].Index = d.index
	}
	if d.index == s.index {
		return s, results, d.changes
	}
	return d.state(), results, d.changes
}

func (d *draft) begin() { d.at, d.changed = d.index+1, false }

func (d *draft) end() {
	if d.changed {
		d.index = d.at
	}
}

func (d *draft) command(c Command, r *Result) {
	switch c := c.(type) {
	case *KV:
		r.OK, r.Err = d.kv(c)
	case *Register:
		r.Err = d.register(c)
		r.OK = r.Err == nil
	case *RegisterBatch:
		d.registerBatch(c, r)
	case *Deregister:
		d.deregister(c)
		r.OK = true
	case *Txn:
		d.txn(c, r)
	case *SessionCreate:
		r.Err = d.createSession(&c.Session)
		r.OK = r.Err == nil
	case *SessionDestroy:
		d.destroySession(c.ID)
		r.OK = true
	case *Records:
		r.OK, r.Err = d.records(c)
	case *ReapTombstones:
		d.reap(c.Index)
		r.OK = true
	case *Horizon:
		d.raiseHorizon(c.Index)
		r.OK = true
	default:
		r.Err = refuse("unknown command %T", c)
	}
}

// refuse makes the error of a command that the State does not accept. The
// contract answers 500 to all of them, hence the kind.
func refuse(format string, args ...any) error {
	return errkind.New(errkind.Internal, fmt.Sprintf(format, args...))
}
