package raftdisk

import (
	"errors"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/kit/errkind"
)

// LogAndStable is what a group stores into: a *logstore.Store, or memory.
type LogAndStable interface {
	raft.LogStore
	raft.StableStore
}

// Guard stands between Raft and the store. Raft panics when it cannot read its
// log or write its term; that would take all planes down for one plane's disk.
// Here the first failure takes this instance out of service, and a call whose
// failure Raft does not survive ends the calling Raft goroutine instead
// (its deferred calls answer what waits); the Group then stops the instance.
type Guard struct {
	LogAndStable
	fail  func(error)
	Armed atomic.Bool // set once NewRaft is through: before that, errors are returned
	// NewestCommand is the highest index of a command in the log, or higher when that would take a long
	// search. What stands behind it (entries that begin a term, barriers) never reaches the machine,
	// and must not be waited for on a follower. Raft's main goroutine alone changes it.
	NewestCommand atomic.Uint64

	// Snapshot is the newest snapshot's place, nil when there is none.
	Snapshot *atomic.Pointer[Position]
	// Restoring is Snapshots.Restoring.
	Restoring *atomic.Bool
	// Installing is the place of the snapshot that a leader's message installs right now, else nil.
	Installing atomic.Pointer[Position]
	// due reports whether an entry is committed and not applied: if the log lacks it, nobody may go on as if that were
	// nothing.
	due func(index uint64) bool
}

// NewGuard knows the newest command from the start: a follower judges by it whether its machine is complete.
func NewGuard(s *Stores, due func(index uint64) bool, fail func(error)) *Guard {
	g := &Guard{LogAndStable: s.Log, Snapshot: &s.Snaps.Newest, Restoring: &s.Snaps.Restoring, due: due, fail: fail}
	g.findNewestCommand()
	return g
}

// farBack bounds the search for the newest command.
const farBack = 64

// findNewestCommand looks for it at the end of the log.
func (g *Guard) findNewestCommand() {
	index, err := g.LogAndStable.LastIndex()
	var entry raft.Log
	for looked := 0; err == nil && index > 0 && looked < farBack; looked++ {
		if err = g.LogAndStable.GetLog(index, &entry); err != nil || entry.Type == raft.LogCommand ||
			entry.Type == raft.LogConfiguration {
			break
		}
		index--
	}
	g.NewestCommand.Store(index)
}

// IsMonotonic implements raft.MonotonicLogStore.
func (g *Guard) IsMonotonic() bool {
	m, ok := g.LogAndStable.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

func (g *Guard) fatal(err error) error {
	if err == nil {
		return nil
	}
	g.fail(err)
	if g.Armed.Load() {
		runtime.Goexit()
	}
	return err
}

// GetLog implements raft.LogStore. To ask for an entry that is not there is usual, but Raft panics
// when it is one that the machine needs next.
func (g *Guard) GetLog(index uint64, out *raft.Log) error {
	err := g.LogAndStable.GetLog(index, out)
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
func (g *Guard) StoreLog(l *raft.Log) error { return g.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore. Raft survives its failure: a leader steps down.
func (g *Guard) StoreLogs(logs []*raft.Log) error {
	err := g.refuseGap(logs[0].Index)
	if err == nil {
		err = g.LogAndStable.StoreLogs(logs)
	}
	if err != nil {
		g.fail(err)
		return err
	}
	for i := len(logs) - 1; i >= 0; i-- {
		if t := logs[i].Type; t == raft.LogCommand || t == raft.LogConfiguration {
			g.NewestCommand.Store(logs[i].Index)
			break
		}
	}
	return nil
}

// refuseGap lets an entry in only right behind what is there: a log that begins further
// behind the newest snapshot has lost what lies between, and no start can mend that.
func (g *Guard) refuseGap(first uint64) error {
	last, err := g.LogAndStable.LastIndex()
	if err != nil {
		return err
	}
	if snap := g.Snapshot.Load(); snap != nil {
		last = max(last, snap.Index)
	}
	if first > last+1 {
		return errkind.Errorf(errkind.Internal, "entry %d was to be stored behind %d: what lies between is missing",
			first, last)
	}
	return nil
}

// DeleteRange implements raft.LogStore.
func (g *Guard) DeleteRange(low, high uint64) error {
	last, err := g.LogAndStable.LastIndex()
	snap := g.Installing.Load()
	// entries behind the snapshot: Raft goes on as if they were still there
	beyond := snap != nil && high >= last && last > snap.Index
	if err == nil && beyond && g.holds(*snap) {
		high, beyond = snap.Index, false
	}
	if err == nil && low <= high {
		err = g.LogAndStable.DeleteRange(low, high)
	}
	if err != nil {
		g.fail(err)
		return err
	}
	if beyond {
		return g.fatal(errkind.Errorf(errkind.Unavailable,
			"the entries up to %d are not the leader's and gave way to its snapshot up to %d: "+
				"this server begins anew with that", last, snap.Index))
	}
	if high >= last && low <= g.NewestCommand.Load() { // a tail that a leader overwrites
		g.findNewestCommand()
	}
	return nil
}

// holds reports whether the log has this very entry, and so all that is before it.
func (g *Guard) holds(at Position) bool {
	var entry raft.Log
	return g.LogAndStable.GetLog(at.Index, &entry) == nil && entry.Term == at.Term
}

// Fail takes the instance out of service.
func (g *Guard) Fail(err error) { g.fail(err) }

// Set implements raft.StableStore.
func (g *Guard) Set(key, val []byte) error { return g.fatal(g.LogAndStable.Set(key, val)) }

// SetUint64 implements raft.StableStore.
func (g *Guard) SetUint64(key []byte, val uint64) error {
	return g.fatal(g.LogAndStable.SetUint64(key, val))
}

// Spare takes away from an append what the newest snapshot has: the library compares an append's predecessor with its
// last entry or with its log, which a snapshot may have emptied, and refuses what it cannot compare. The leader then
// goes back to what it has no entries of any more, and sends a snapshot again. A leader that has the snapshot's last
// entry has the same before it; and what it says is committed counts for nothing new when it is acknowledged.
func (g *Guard) Spare(m *raft.AppendEntriesRequest) {
	snap := g.Snapshot.Load()
	if snap == nil || m.PrevLogEntry > snap.Index {
		return
	}
	var entry raft.Log
	if m.PrevLogEntry > 0 && g.LogAndStable.GetLog(m.PrevLogEntry, &entry) != raft.ErrLogNotFound {
		return // the log tells
	}
	behind := slices.IndexFunc(m.Entries, func(l *raft.Log) bool { return l.Index > snap.Index })
	if behind < 0 {
		behind = len(m.Entries)
	}
	last := Position{m.PrevLogEntry, m.PrevLogTerm} // of what the snapshot has, as the leader has it
	if behind > 0 {
		last = Position{m.Entries[behind-1].Index, m.Entries[behind-1].Term}
	}
	if last == *snap || last.Index < snap.Index && m.LeaderCommitIndex >= last.Index {
		m.PrevLogEntry, m.PrevLogTerm, m.Entries = 0, 0, m.Entries[behind:]
	}
}

// Contradicts reports whether a message of a leader, of term or a later one, has another entry where the newest
// snapshot ends. What a snapshot has is committed, and a leader has all that is, but for one that an operator restores:
// the library writes it on the leader alone, before anybody else has it. If that leader loses its place then, the
// others may go on without it, and the library never takes it back: it puts their entries behind it, or stands still.
func (g *Guard) Contradicts(command any, term uint64) bool {
	snap := g.Snapshot.Load()
	if snap == nil {
		return false
	}
	switch m := command.(type) {
	case *raft.InstallSnapshotRequest:
		return m.Term >= term && m.LastLogIndex == snap.Index && m.LastLogTerm != snap.Term
	case *raft.AppendEntriesRequest:
		theirs := snap.Term
		if m.PrevLogEntry == snap.Index {
			theirs = m.PrevLogTerm
		} else if n := uint64(len(m.Entries)); n > 0 && m.Entries[0].Index <= snap.Index &&
			snap.Index-m.Entries[0].Index < n { // they have no gaps
			theirs = m.Entries[snap.Index-m.Entries[0].Index].Term
		}
		return m.Term >= term && theirs != snap.Term
	}
	return false
}

// BoundCommit lets a message commit no more than what it proves to be the leader's: what
// stands up to its own last entry. The library bounds it by this member's last index instead;
// entries behind what the message compares may come from a former leader, and would be
// committed when the leader's commit index overtook them between two reads of the sender.
func BoundCommit(m *raft.AppendEntriesRequest) {
	last := m.PrevLogEntry
	if n := len(m.Entries); n > 0 {
		last = m.Entries[n-1].Index
	}
	m.LeaderCommitIndex = min(m.LeaderCommitIndex, last)
}
