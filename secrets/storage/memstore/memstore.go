// Package memstore keeps records in memory and nowhere else: for dev mode and
// tests. Reads take no lock; commits are one after the other.
package memstore

import (
	"context"
	"sync"
	"sync/atomic"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/records"
)

// Store is the in-memory backend.
type Store struct {
	records.Reader
	mu      sync.Mutex // one commit or fence at a time; guards epoch
	epoch   storage.Epoch
	records atomic.Pointer[records.Set]
	closed  atomic.Bool
}

var _ storage.Backend = (*Store)(nil)

// New makes an empty store.
func New() *Store {
	s := &Store{}
	empty := records.New()
	s.records.Store(&empty)
	s.At = func(ctx context.Context) (records.Set, error) { return *s.records.Load(), s.ready(ctx) }
	return s
}

var errClosed = errkind.New(errkind.Unavailable, "the storage is closed")

func (s *Store) ready(ctx context.Context) error {
	if s.closed.Load() {
		return errClosed
	}
	if err := ctx.Err(); err != nil {
		return errkind.E(errkind.Unavailable, "storage", err)
	}
	return nil
}

// Commit implements storage.Backend.
func (s *Store) Commit(ctx context.Context, epoch storage.Epoch, ops []storage.Op) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if err := storage.CheckOps(s.Info(), ops); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if epoch != s.epoch {
		return storage.Fenced(epoch, s.epoch)
	}
	next := s.records.Load().Apply(ops)
	s.records.Store(&next)
	return nil
}

// Fence implements storage.Backend.
func (s *Store) Fence(ctx context.Context, epoch storage.Epoch) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if epoch < s.epoch {
		return storage.Fenced(epoch, s.epoch)
	}
	s.epoch = epoch
	return nil
}

// Info implements storage.Backend.
func (s *Store) Info() storage.Info {
	return storage.Info{Name: "inmem", Durability: "none: everything is gone when the process ends"}
}

// Close implements storage.Backend. Reads and commits fail afterwards.
func (s *Store) Close() error {
	s.closed.Store(true)
	return nil
}
