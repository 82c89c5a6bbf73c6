package jobstore

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"

	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/core/topic"
	"corbel.dev/corbel/kit/errkind"
)

// Config is what a Store needs. Zero means the default.
type Config struct {
	Log *slog.Logger // nil: discard
	// Applied is told of each batch, by the group's goroutine, after the View is visible. It must not block.
	Applied func(before, after *View, changes []Changed)
	// Events is how many changed objects the ring keeps; 65,536 (NK-10).
	Events int
}

// Store is the plane's machine.
type Store struct {
	cfg     Config
	view    atomic.Pointer[View]
	waiters *topic.Waiters[Subject]
	ring    *Ring
	follow  followers
}

// New is an empty Store.
func New(cfg Config) *Store {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Events == 0 {
		cfg.Events = 1 << 16
	}
	s := &Store{cfg: cfg, waiters: topic.NewWaiters[Subject](), ring: newRing(cfg.Events)}
	s.view.Store(Empty())
	return s
}

var _ group.Machine = (*Store)(nil)

// View is the newest.
func (s *Store) View() *View { return s.view.Load() }

// Ring has the events.
func (s *Store) Ring() *Ring { return s.ring }

// ApplyBatch implements group.Machine; each result is a *Result. A command that cannot be read is refused on every
// server alike.
func (s *Store) ApplyBatch(raw [][]byte) []any {
	out := make([]any, len(raw))
	cmds, places := make([]*Command, 0, len(raw)), make([]int, 0, len(raw))
	before := s.View()
	for i, b := range raw {
		c, err := Decode(b)
		if err != nil {
			s.cfg.Log.Error("cannot read a committed command of the jobs plane; ignoring it", "err", err)
			out[i] = &Result{Err: err, Done: Done{Index: before.State.Index()}}
			continue
		}
		cmds, places = append(cmds, c), append(places, i)
	}
	next, results, changes := before.Apply(cmds)
	for i := range results {
		out[places[i]] = &results[i]
	}
	if len(changes) == 0 {
		return out
	}
	s.view.Store(next)
	s.ring.add(changes)
	s.follow.note(changes)
	s.wake(changes)
	if s.cfg.Applied != nil {
		s.cfg.Applied(before, next, changes)
	}
	return out
}

// Snapshot implements group.Machine: a View is its own snapshot.
func (s *Store) Snapshot() group.Snapshot { return s.View() }

// Restore implements group.Machine.
func (s *Store) Restore(r io.Reader) error {
	next, err := ReadView(r)
	if err != nil {
		return errkind.E(errkind.Of(err), "restore jobs", err)
	}
	before := s.View()
	next.generation = before.generation + 1
	s.view.Store(next)
	s.ring.reset(next.State.Index())
	s.follow.lose(next.State.Index())
	s.waiters.WakeAll()
	if s.cfg.Applied != nil {
		s.cfg.Applied(before, next, nil)
	}
	return nil
}

// Wait returns when what subject names may have changed in a View above index, at the latest when ctx ends. index is
// that of the View at which the caller looked. It may return too early, never too late: who waits looks again.
func (s *Store) Wait(ctx context.Context, subject Subject, index uint64) {
	w := s.waiters.Watch(subject)
	defer w.Stop()
	if v := s.View(); v.Index(subject.Table) > index || v.State.Index() < index {
		return
	}
	select {
	case <-ctx.Done():
	case <-w.Woken():
	}
}

// Watch begins to wait for the next change of a subject: look at the View after it. Stop it.
func (s *Store) Watch(subject Subject) topic.Watch[Subject] { return s.waiters.Watch(subject) }
