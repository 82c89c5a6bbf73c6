// Package raftstore keeps records in a Raft group: the default backend, for one
// server or several.
//
// Each Commit is a command of the group's log; core/group merges what waits into
// one entry, so concurrent commits share the fsync of each member. The epoch
// stands in the command and is judged where it is applied, by every member alike:
// what a former writer still sends after the fence changes nothing, wherever it
// comes from and however late.
//
// The state is one immutable root. Reads take no lock. They answer on the leader
// alone: within its lease at once, else after a round to a quorum.
package raftstore

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"

	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/records"
)

// Group is what replicates: a *group.Group.
type Group interface {
	Propose(ctx context.Context, cmd []byte) (any, error)
	LeaseHeld() bool
	VerifyLeader(ctx context.Context) error
	Leader() (id, addr string)
}

// valueBytes is the largest value, as Vault's max_entry_size has it by default.
const valueBytes = 1 << 20

// Store is the backend and the group's Machine. Make it, give it to group.Open,
// and give the group to Serve; before that it answers Unavailable.
type Store struct {
	records.Reader
	group  atomic.Pointer[Group]
	state  atomic.Pointer[records.State]
	closed atomic.Bool
	told   atomic.Pointer[func(ops []storage.Op, all bool)]
	log    *slog.Logger
}

var (
	_ storage.Backend = (*Store)(nil)
	_ group.Machine   = (*Store)(nil)
)

// New makes an empty store. log may be nil.
func New(log *slog.Logger) *Store {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Store{log: log}
	s.state.Store(&records.State{Set: records.New()})
	s.At = s.read
	return s
}

// Serve says by which group the store's commands are replicated.
func (s *Store) Serve(g Group) { s.group.Store(&g) }

// Tell has f told of what is applied from now on, once reads see it: the operations, or that everything was replaced.
// It is called where commands are applied: it must not wait.
func (s *Store) Tell(f func(ops []storage.Op, all bool)) { s.told.Store(&f) }

func (s *Store) tell(ops []storage.Op, all bool) {
	if f := s.told.Load(); f != nil {
		(*f)(ops, all)
	}
}

// Elsewhere is the cause of an error of kind NotLeader: who leads, as far as this server knows.
type Elsewhere struct {
	// ID and Address are the leader's, "" when unknown. The address is the one of the group's wire.
	ID, Address string
}

// Error implements error.
func (e *Elsewhere) Error() string {
	if e.Address == "" {
		return "this server does not lead, and no leader is known at the moment"
	}
	return fmt.Sprintf("this server does not lead; %s at %s does", e.ID, e.Address)
}

var (
	errClosed   = errkind.New(errkind.Unavailable, "the storage is closed")
	errNotReady = errkind.New(errkind.Unavailable, "the storage's Raft group has not started yet")
)

func (s *Store) ready(ctx context.Context) (Group, error) {
	if s.closed.Load() {
		return nil, errClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, errkind.E(errkind.Unavailable, "storage", err)
	}
	g := s.group.Load()
	if g == nil {
		return nil, errNotReady
	}
	return *g, nil
}

// explain adds who leads to an error that says "not I".
func explain(g Group, err error) error {
	if err == nil || !errkind.Is(err, errkind.NotLeader) {
		return err
	}
	id, addr := g.Leader()
	return errkind.E(errkind.NotLeader, "storage", &Elsewhere{ID: id, Address: addr})
}

// read returns a state that has every commit which was acknowledged before the call.
func (s *Store) read(ctx context.Context) (records.Set, error) {
	if err := s.Leads(ctx); err != nil {
		return records.Set{}, err
	}
	return s.state.Load().Set, nil // after the lease was seen: not before
}

// Leads returns nil when this server surely leads, and its state holds all that was acknowledged before: within
// its lease at once, else after a round to a quorum.
func (s *Store) Leads(ctx context.Context) error {
	g, err := s.ready(ctx)
	if err != nil || g.LeaseHeld() {
		return err
	}
	return explain(g, g.VerifyLeader(ctx))
}

// Local reads this member's own copy, whoever leads: it may be old.
func (s *Store) Local() records.Reader {
	return records.Reader{At: func(context.Context) (records.Set, error) { return s.state.Load().Set, nil }}
}

// Epoch is the newest epoch in this member's own copy.
func (s *Store) Epoch() storage.Epoch { return s.state.Load().Epoch }

// Commit implements storage.Backend. NotLeader errors have an *Elsewhere within.
func (s *Store) Commit(ctx context.Context, epoch storage.Epoch, ops []storage.Op) error {
	if err := storage.CheckOps(s.Info(), ops); err != nil {
		return err
	}
	return s.propose(ctx, records.Batch{Epoch: epoch, Ops: ops})
}

// Fence implements storage.Backend.
func (s *Store) Fence(ctx context.Context, epoch storage.Epoch) error {
	return s.propose(ctx, records.Batch{Epoch: epoch, Fence: true})
}

func (s *Store) propose(ctx context.Context, b records.Batch) error {
	g, err := s.ready(ctx)
	if err != nil {
		return err
	}
	out, err := g.Propose(ctx, b.Append(make([]byte, 0, records.BatchBytes(b.Ops))))
	if err != nil {
		return explain(g, err)
	}
	if outcome, ok := out.(error); ok {
		return outcome
	}
	return nil
}

// Info implements storage.Backend.
func (s *Store) Info() storage.Info {
	return storage.Info{Name: "raft", HA: true, ValueBytes: valueBytes,
		Durability: "a commit is fsynced in the log of a quorum of the servers before it returns: it outlives the loss of " +
			"any minority, and a power loss of all"}
}

// Close implements storage.Backend. The group is its owner's to stop.
func (s *Store) Close() error {
	s.closed.Store(true)
	return nil
}

// ApplyBatch implements group.Machine. A result is nil or the error that the
// proposer gets. A command that cannot be read changes nothing, on every member alike.
func (s *Store) ApplyBatch(cmds [][]byte) []any {
	out := make([]any, len(cmds))
	batches := make([]records.Batch, 0, len(cmds))
	places := make([]int, 0, len(cmds))
	for i, cmd := range cmds {
		b, err := records.DecodeBatch(cmd)
		if err != nil {
			s.log.Error("cannot decode a committed batch of the secrets storage; ignoring it", "err", err)
			out[i] = err
			continue
		}
		batches, places = append(batches, b), append(places, i)
	}
	next, outcomes := s.state.Load().Fold(batches)
	for i, err := range outcomes {
		if err != nil {
			out[places[i]] = err
		}
	}
	s.state.Store(&next)
	for _, b := range batches {
		s.tell(b.Ops, false)
	}
	return out
}

// Snapshot implements group.Machine.
func (s *Store) Snapshot() group.Snapshot { return records.Image{State: *s.state.Load()} }

// Restore implements group.Machine: nothing changes unless the whole stream is sound.
func (s *Store) Restore(r io.Reader) error {
	image, err := records.ReadImage(r)
	if err != nil {
		return err
	}
	s.state.Store(&image.State)
	s.tell(nil, true)
	return nil
}
