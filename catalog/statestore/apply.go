package statestore

import (
	"fmt"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/errkind"
)

// draft is a State in the making: what one Apply works on. A copy of it, taken just before
// fork, can take its place again.
type draft struct {
	step
	t edits
}

// step is the command that runs, and what all commands of the Apply did so far.
type step struct {
	epoch   uint64
	index   uint64 // of the last command that changed something
	at      uint64 // what the current command writes: index+1
	changed bool   // by the current command
	ix      tableIndexes
	changes catalog.Changes
}

func (s *State) draft() *draft {
	d := &draft{step: step{epoch: s.epoch + 1, index: s.index, ix: s.indexes}}
	d.t = s.edits(&d.step)
	return d
}

func (d *draft) state() *State {
	s := &State{epoch: d.epoch, index: d.index, indexes: d.ix}
	d.t.done(s)
	return s
}

// fork keeps everything as it is now from being changed in place, so that a
// copy of the draft taken just before can take its place again. The epoch
// grows for the same reason: entries made so far are no longer ours to change.
func (d *draft) fork() {
	d.t.fork()
	d.epoch++
}

// touch claims the current command's index.
func (s *step) touch() { s.changed = true }

// Apply runs the commands in order and returns the State after them, one
// result per command, and what changed. A command that is refused leaves no
// trace; the others do not notice. With no effect at all the State is s itself.
//
// It is deterministic. Two Applies on one State may not run at the same time;
// readers of s may.
func (s *State) Apply(cmds []catalog.Command) (next *State, results []catalog.Result, changes catalog.Changes) {
	d := s.draft()
	results = make([]catalog.Result, len(cmds))
	for i, c := range cmds {
		d.begin()
		d.command(c, &results[i])
		d.end()
		results[i].Index = d.index
	}
	d.changes.KV = d.t.kv.Changes()
	if d.index == s.index {
		return s, results, d.changes
	}
	return d.state(), results, d.changes
}

func (d *draft) begin() {
	d.at, d.changed = d.index+1, false
	d.t.kv.Begin(d.at)
}

func (d *draft) end() {
	if d.changed || d.t.kv.Changed() {
		d.index = d.at
	}
}

func (d *draft) command(c catalog.Command, r *catalog.Result) {
	switch c := c.(type) {
	case *catalog.KV:
		r.OK, r.Err = d.kv(c)
	case *catalog.Register:
		r.Err = d.register(c)
		r.OK = r.Err == nil
	case *catalog.RegisterBatch:
		d.registerBatch(c, r)
	case *catalog.Deregister:
		d.deregister(c)
		r.OK = true
	case *catalog.Txn:
		d.txn(c, r)
	case *catalog.SessionCreate:
		r.Err = d.createSession(&c.Session)
		r.OK = r.Err == nil
	case *catalog.SessionDestroy:
		if s := d.t.sessions.get(c.ID); s != nil {
			d.endSession(s)
		}
		r.OK = true
	case *catalog.Records:
		r.OK, r.Err = d.setRecords(c)
	case *catalog.ReapTombstones:
		d.reap(c.Index)
		r.OK = true
	case *catalog.Horizon:
		d.raiseHorizon(c.Index)
		r.OK = true
	default:
		r.Err = refuse("unknown command %T", c)
	}
}

// kv applies one of the KV verbs that write; ok is false for a lost race.
func (d *draft) kv(c *catalog.KV) (ok bool, err error) {
	if c.Verb != catalog.KVLock {
		return d.t.kv.Apply(c)
	}
	if c.Pair.Session == "" {
		return false, refuse("missing session")
	}
	session := d.t.sessions.get(c.Pair.Session)
	if session == nil {
		return false, refuse("invalid session %q", c.Pair.Session)
	}
	return d.t.kv.Lock(&c.Pair, session.ID), nil
}

// reap forgets the deletions up to index.
func (d *draft) reap(index uint64) {
	d.t.gone.reap(index)
	d.ix.horizon = max(d.ix.horizon, d.t.kv.Reap(index))
}

// raiseHorizon lets the index pass index, and nobody tell changes since before then.
func (d *draft) raiseHorizon(index uint64) {
	d.touch()
	d.at = max(d.at, index+1)
	d.ix.horizon = d.at
}

// refuse makes the error of a command that the State does not accept. The
// contract answers 500 to all of them, hence the kind.
func refuse(format string, args ...any) error {
	return errkind.New(errkind.Internal, fmt.Sprintf(format, args...))
}
