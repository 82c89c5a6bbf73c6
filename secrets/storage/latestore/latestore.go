// Package latestore is a storage that may be away when its server starts. It is opened again and again until that
// succeeds; until then every call is refused at once (Unavailable), and the lock waits. Why it cannot be opened is
// for the log alone: who asks a sealed server is anybody.
//
// Invariants: no call waits for the opening. A storage that was opened stays: what it says afterwards is its own.
// Methods may be called from any goroutine; Run has none of its own but the caller's.
package latestore

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/storage"
)

// Config of a Store. Zero values mean the defaults that are named.
type Config struct {
	// Name is what the storage is called in the configuration.
	Name string
	// Open opens it. Its lock is nil where no servers share it.
	Open  func(ctx context.Context) (storage.Backend, storage.Lock, error)
	Clock clock.Clock
	Log   *slog.Logger
	// Least (100 ms) and Most (5 s) bound what is waited between two tries.
	Least, Most time.Duration
}

// Store is the backend.
type Store struct {
	cfg  Config
	away error // what a call is answered with before it is open
	has  atomic.Pointer[opened]
	open chan struct{} // closed once it is

	mu     sync.Mutex // guards closed, and the moment in which has is set
	closed bool
}

type opened struct {
	storage.Backend
	lock storage.Lock
}

var _ storage.Backend = (*Store)(nil)

// New makes a Store; it opens nothing before Run.
func New(cfg Config) *Store {
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Least == 0 {
		cfg.Least = 100 * time.Millisecond
	}
	if cfg.Most == 0 {
		cfg.Most = 5 * time.Second
	}
	away := errkind.Errorf(errkind.Unavailable, "the storage %q cannot be reached yet; the server's log says why",
		cfg.Name)
	return &Store{cfg: cfg, away: away, open: make(chan struct{})}
}

// Run tries until the storage is open, and then rests until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	pause := backoff.Backoff{Min: s.cfg.Least, Max: s.cfg.Most}
	for {
		t := s.cfg.Clock.NewTimer(pause.Next())
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil
		}
		if s.try(ctx, pause.Tries()) {
			<-ctx.Done()
			return nil
		}
	}
}

// try opens once; true when there is nothing left to do.
func (s *Store) try(ctx context.Context, tries int) bool {
	backend, lock, err := s.cfg.Open(ctx)
	if err != nil {
		if tries%10 == 0 && ctx.Err() == nil {
			s.cfg.Log.Warn("secrets: cannot reach the storage yet; trying again", "type", s.cfg.Name, "error", err)
		}
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = backend.Close()
		return true
	}
	s.has.Store(&opened{backend, lock})
	close(s.open)
	s.cfg.Log.Info("secrets: reached the storage", "type", s.cfg.Name, "durability", backend.Info().Durability)
	return true
}

// now is the storage, or why there is none.
func (s *Store) now() (storage.Backend, error) {
	if o := s.has.Load(); o != nil {
		return o.Backend, nil
	}
	return nil, s.away
}

// Get implements storage.Backend.
func (s *Store) Get(ctx context.Context, key string) ([]byte, bool, error) {
	b, err := s.now()
	if err != nil {
		return nil, false, err
	}
	return b.Get(ctx, key)
}

// List implements storage.Backend.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	b, err := s.now()
	if err != nil {
		return nil, err
	}
	return b.List(ctx, prefix, after, limit)
}

// Scan implements storage.Backend.
func (s *Store) Scan(ctx context.Context, from, to string, limit int) ([]storage.Record, error) {
	b, err := s.now()
	if err != nil {
		return nil, err
	}
	return b.Scan(ctx, from, to, limit)
}

// Commit implements storage.Backend.
func (s *Store) Commit(ctx context.Context, epoch storage.Epoch, ops []storage.Op) error {
	b, err := s.now()
	if err != nil {
		return err
	}
	return b.Commit(ctx, epoch, ops)
}

// Fence implements storage.Backend.
func (s *Store) Fence(ctx context.Context, epoch storage.Epoch) error {
	b, err := s.now()
	if err != nil {
		return err
	}
	return b.Fence(ctx, epoch)
}

// Info implements storage.Backend. Before the storage is open it is a name.
func (s *Store) Info() storage.Info {
	if b, err := s.now(); err == nil {
		return b.Info()
	}
	return storage.Info{Name: s.cfg.Name, Durability: "not known: it cannot be reached"}
}

// Close implements storage.Backend.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if o := s.has.Load(); o != nil {
		return o.Close()
	}
	return nil
}

// Locker is the storage's lock.
func (s *Store) Locker() storage.Lock { return lateLock{s} }

type lateLock struct{ s *Store }

// Acquire implements storage.Lock: it waits for the storage first.
func (l lateLock) Acquire(ctx context.Context) (storage.Leadership, error) {
	select {
	case <-l.s.open:
		return l.s.has.Load().lock.Acquire(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Holder implements storage.Lock.
func (l lateLock) Holder(ctx context.Context) (string, error) {
	o := l.s.has.Load()
	if o == nil {
		return "", l.s.away
	}
	return o.lock.Holder(ctx)
}
