package group

import (
	"errors"
	"runtime"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/kit/errkind"
)

// logAndStable is what a group stores into: a *logstore.Store, or memory.
type logAndStable interface {
	raft.LogStore
	raft.StableStore
}

// guard stands between Raft and the store. Raft panics when it cannot read its
// log or write its term; that would take all planes down for one plane's disk.
// Here the first failure takes this instance out of service, and a call whose
// failure Raft does not survive ends the calling Raft goroutine instead
// (its deferred calls answer what waits); the Group then stops the instance.
type guard struct {
	logAndStable
	fail  func(error)
	armed atomic.Bool // set once NewRaft is through: before that, errors are returned
	// newestCommand is the highest index of a command in the log, or higher when that would take a long
	// search. What stands behind it (entries that begin a term, barriers) never reaches the machine,
	// and must not be waited for on a follower. Raft's main goroutine alone changes it.
	newestCommand atomic.Uint64

	// snapshot is the newest snapshot's place, nil when there is none.
	snapshot *atomic.Pointer[position]
	// installing is the place of the snapshot that a leader's message installs right now, else nil.
	installing atomic.Pointer[position]
	// due reports whether an entry is committed and not applied: if the log lacks it, nobody may go on as if that were
	// nothing.
	due func(index uint64) bool
}

// newGuard knows the newest command from the start: a follower judges by it whether its machine is complete.
func newGuard(s *stores, due func(index uint64) bool, fail func(error)) *guard {
	g := &guard{logAndStable: s.log, snapshot: &s.snaps.newest, due: due, fail: fail}
	g.findNewestCommand()
	return g
}

// farBack bounds the search for the newest command.
const farBack = 64

// findNewestCommand looks for it at the end of the log.
func (g *guard) findNewestCommand() {
	index, err := g.logAndStable.LastIndex()
	var entry raft.Log
	for looked := 0; err == nil && index > 0 && looked < farBack; looked++ {
		if err = g.logAndStable.GetLog(index, &entry); err != nil || entry.Type == raft.LogCommand ||
			entry.Type == raft.LogConfiguration {
			break
		}
		index--
	}
	g.newestCommand.Store(index)
}

// IsMonotonic implements raft.MonotonicLogStore.
func (g *guard) IsMonotonic() bool {
	m, ok := g.logAndStable.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

func (g *guard) fatal(err error) error {
	if err == nil {
		return nil
	}
	g.fail(err)
	if g.armed.Load() {
		runtime.Goexit()
	}
	return err
}

// GetLog implements raft.LogStore. To ask for an entry that is not there is usual, but Raft panics
// when it is one that the machine needs next.
func (g *guard) GetLog(index uint64, out *raft.Log) error {
	err := g.logAndStable.GetLog(index, out)
	if err == nil || errors.Is(err, raft.ErrLogNotFound) && !g.due(index) {
		return err
	}
	if errors.Is(err, raft.ErrLogNotFound) {
		err = errkind.Errorf(errkind.Corrupt, "entry %d is committed and has to be applied, but the log lacks it: %w",
			index, err)
	}
	return g.fatal(err)
}

// StoreLog implements raft.LogStore.
func (g *guard) StoreLog(l *raft.Log) error { return g.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore. Raft survives its failure: a leader steps down.
func (g *guard) StoreLogs(logs []*raft.Log) error {
	err := g.refuseGap(logs[0].Index)
	if err == nil {
		err = g.logAndStable.StoreLogs(logs)
	}
	if err != nil {
		g.fail(err)
		return err
	}
	for i := len(logs) - 1; i >= 0; i-- {
		if t := logs[i].Type; t == raft.LogCommand || t == raft.LogConfiguration {
			g.newestCommand.Store(logs[i].Index)
			break
		}
	}
	return nil
}

// refuseGap lets an entry in only right behind what is there: a log that begins further
// behind the newest snapshot has lost what lies between, and no start can mend that.
func (g *guard) refuseGap(first uint64) error {
	last, err := g.logAndStable.LastIndex()
	if err != nil {
		return err
	}
	if snap := g.snapshot.Load(); snap != nil {
		last = max(last, snap.index)
	}
	if first > last+1 {
		return errkind.Errorf(errkind.Internal, "entry %d was to be stored behind %d: what lies between is missing",
			first, last)
	}
	return nil
}

// DeleteRange implements raft.LogStore.
func (g *guard) DeleteRange(low, high uint64) error {
	last, err := g.logAndStable.LastIndex()
	snap := g.installing.Load()
	// entries behind the snapshot: Raft goes on as if they were still there
	beyond := snap != nil && high >= last && last > snap.index
	if err == nil && beyond && g.holds(*snap) {
		high, beyond = snap.index, false
	}
	if err == nil && low <= high {
		err = g.logAndStable.DeleteRange(low, high)
	}
	if err != nil {
		g.fail(err)
		return err
	}
	if beyond {
		return g.fatal(errkind.Errorf(errkind.Unavailable,
			"the entries up to %d are not the leader's and gave way to its snapshot up to %d: "+
				"this server begins anew with that", last, snap.index))
	}
	if high >= last && low <= g.newestCommand.Load() { // a tail that a leader overwrites
		g.findNewestCommand()
	}
	return nil
}

// holds reports whether the log has this very entry, and so all that is before it.
func (g *guard) holds(at position) bool {
	var entry raft.Log
	return g.logAndStable.GetLog(at.index, &entry) == nil && entry.Term == at.term
}

// Set implements raft.StableStore.
func (g *guard) Set(key, val []byte) error { return g.fatal(g.logAndStable.Set(key, val)) }

// SetUint64 implements raft.StableStore.
func (g *guard) SetUint64(key []byte, val uint64) error {
	return g.fatal(g.logAndStable.SetUint64(key, val))
}
