package group

import (
	"errors"
	"runtime"
	"sync/atomic"

	"github.com/hashicorp/raft"
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
}

// newGuard knows the newest command from the start: a follower judges by it whether its machine is complete.
func newGuard(log logAndStable, fail func(error)) *guard {
	g := &guard{logAndStable: log, fail: fail}
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
		if err = g.logAndStable.GetLog(index, &entry); err != nil || entry.Type == raft.LogCommand || entry.Type == raft.LogConfiguration {
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

// GetLog implements raft.LogStore.
func (g *guard) GetLog(index uint64, out *raft.Log) error {
	err := g.logAndStable.GetLog(index, out)
	if err == nil || errors.Is(err, raft.ErrLogNotFound) {
		return err
	}
	return g.fatal(err)
}

// StoreLog implements raft.LogStore.
func (g *guard) StoreLog(l *raft.Log) error { return g.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore. Raft survives its failure: a leader steps down.
func (g *guard) StoreLogs(logs []*raft.Log) error {
	if err := g.logAndStable.StoreLogs(logs); err != nil {
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

// DeleteRange implements raft.LogStore.
func (g *guard) DeleteRange(low, high uint64) error {
	last, err := g.logAndStable.LastIndex()
	if err == nil {
		err = g.logAndStable.DeleteRange(low, high)
	}
	if err != nil {
		g.fail(err)
		return err
	}
	if high >= last && low <= g.newestCommand.Load() { // a tail that a leader overwrites
		g.findNewestCommand()
	}
	return nil
}

// Set implements raft.StableStore.
func (g *guard) Set(key, val []byte) error { return g.fatal(g.logAndStable.Set(key, val)) }

// SetUint64 implements raft.StableStore.
func (g *guard) SetUint64(key []byte, val uint64) error {
	return g.fatal(g.logAndStable.SetUint64(key, val))
}
