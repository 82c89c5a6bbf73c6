package group

import (
	"bytes"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/core/group/outcomes"
	"corbel.dev/corbel/core/group/raftdisk"
	"corbel.dev/corbel/core/group/snapshot"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/telemetry"
)

// fsm stands between Raft and the Machine, and outlives a Raft instance that is
// stopped and started again: entries that the Machine has are skipped then.
// Raft calls it from one goroutine; applied and wait may be used from any.
type fsm struct {
	machine Machine
	timing  *telemetry.Timing
	// fail takes the group out of service when the machine cannot go on.
	fail func(error)
	// untold reports whether an entry of the term may have somebody who waits for what becomes of it elsewhere than with
	// the library.
	untold   func(term uint64) bool
	outcomes outcomes.Kept

	// blank is the machine's state before anything; foreign is set when what it has now was never the group's.
	blank   bytes.Buffer
	foreign atomic.Bool

	applied atomic.Uint64
	grown   atomic.Int64 // bytes of entries applied since the newest snapshot was begun
	cmds    [][]byte
	counts  []int

	mu      sync.Mutex
	changed chan struct{} // non-nil while somebody waits
}

var (
	_ raft.BatchingFSM        = (*fsm)(nil)
	_ raft.ConfigurationStore = (*fsm)(nil)
)

// Apply implements raft.FSM; RecoverCluster is its only caller.
func (f *fsm) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

// StoreConfiguration implements raft.ConfigurationStore: with it configuration entries move the applied index.
func (f *fsm) StoreConfiguration(index uint64, _ raft.Configuration) { f.advance(index) }

// ApplyBatch applies all commands of all entries in one call of the Machine.
// An entry's response is the []any of its commands' results.
func (f *fsm) ApplyBatch(logs []*raft.Log) []any {
	began := time.Now()
	f.cmds, f.counts = f.cmds[:0], f.counts[:0]
	applied := f.applied.Load()
	bytes := 0
	for _, l := range logs {
		before := len(f.cmds)
		if l.Type == raft.LogCommand && l.Index > applied {
			bytes += len(l.Data)
			var err error
			if f.cmds, err = splitEntry(f.cmds, l.Data); err != nil {
				// To skip a committed entry would make this member differ from the others.
				f.fail(errkind.Errorf(errkind.Of(err), "entry %d cannot be applied: %w", l.Index, err))
				runtime.Goexit()
			}
		}
		f.counts = append(f.counts, len(f.cmds)-before)
	}
	var results []any
	if len(f.cmds) > 0 {
		results = f.machine.ApplyBatch(f.cmds)
		if len(results) != len(f.cmds) {
			f.fail(errkind.Errorf(errkind.Internal, "machine gave %d results for %d commands", len(results), len(f.cmds)))
			runtime.Goexit()
		}
		clear(f.cmds) // the entries shall not live on through them
	}
	out := make([]any, len(logs))
	for i, n := range f.counts {
		out[i] = results[:n:n]
		results = results[n:]
		if n > 0 && f.untold(logs[i].Term) {
			f.outcomes.Note(outcomes.Place{Index: logs[i].Index, Term: logs[i].Term}, out[i].([]any))
		}
	}
	f.advance(logs[len(logs)-1].Index)
	f.grown.Add(int64(bytes))
	f.timing.Observe(time.Since(began))
	return out
}

// advance moves the applied index forward, never back.
func (f *fsm) advance(index uint64) {
	for {
		old := f.applied.Load()
		if index <= old {
			return
		}
		if f.applied.CompareAndSwap(old, index) {
			break
		}
	}
	f.mu.Lock()
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
	f.mu.Unlock()
}

// next returns a channel that is closed when the applied index moves on.
func (f *fsm) next() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	return f.changed
}

// Snapshot implements raft.FSM.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	f.grown.Store(0)
	return fsmSnapshot{f.machine.Snapshot()}, nil
}

// Restore implements raft.FSM for snapshots that come while running, from a leader or an operator.
func (f *fsm) Restore(r io.ReadCloser) error {
	if err := f.replace(r); err != nil {
		f.fail(errkind.E(errkind.Of(err), "restore snapshot", err))
	}
	return nil // Raft panics on an error here; the group is out of service already
}

func (f *fsm) replace(r io.ReadCloser) error {
	var source any = r
	if w, ok := source.(raft.ReadCloserWrapper); ok {
		source = w.WrappedReadCloser()
	}
	if u, ok := source.(raftdisk.Unopened); ok {
		return u.Err
	}
	snap, ok := source.(*raftdisk.Reader)
	if !ok {
		return errkind.Errorf(errkind.Internal, "a snapshot came as a %T", source)
	}
	if snap.Index <= f.applied.Load() {
		return nil // a member that is rebuilt is sent what its machine has already
	}
	if err := f.load(r); err != nil {
		return err
	}
	f.advance(snap.Index)
	return nil
}

// renounce has restore bring the machine up to the newest snapshot, between two instances. A machine whose state was
// never the group's goes back to its beginning if there is none; stale reads see that for no longer than they must.
func (f *fsm) renounce(restore func() error) error {
	foreign := f.foreign.Load()
	if foreign {
		f.applied.Store(0)
	}
	err := restore()
	if err == nil && foreign && f.applied.Load() == 0 {
		err = f.load(bytes.NewReader(f.blank.Bytes()))
	}
	if err == nil {
		f.foreign.Store(false)
	}
	return err
}

func (f *fsm) load(r io.Reader) error { return snapshot.Read(r, f.machine.Restore) }

type fsmSnapshot struct{ state Snapshot }

// Persist implements raft.FSMSnapshot.
func (s fsmSnapshot) Persist(sink raft.SnapshotSink) error { return snapshot.Write(sink, s.state) }

// Release implements raft.FSMSnapshot.
func (s fsmSnapshot) Release() {}
