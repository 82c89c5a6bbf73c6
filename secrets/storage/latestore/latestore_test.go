package latestore

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/memstore"
	"corbel.dev/corbel/secrets/storage/storagetest"
)

var errGone = errkind.New(errkind.Unavailable, "connection refused by 10.0.0.1")

// running is a Store whose storage is away for some tries.
func running(t *testing.T, away int32, lock storage.Lock) (*Store, *memstore.Store, *atomic.Int32) {
	under, tries := memstore.New(), &atomic.Int32{}
	s := New(Config{Name: "postgresql", Least: time.Millisecond, Most: 10 * time.Millisecond,
		Open: func(context.Context) (storage.Backend, storage.Lock, error) {
			if tries.Add(1) <= away {
				return nil, nil, errGone
			}
			return under, lock, nil
		}})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return s, under, tries
}

// Once it is open it is the storage.
func TestConformance(t *testing.T) {
	storagetest.Run(t, storagetest.Kit{Open: func(t *testing.T) storage.Backend {
		s, _, _ := running(t, 2, nil)
		<-s.open
		return s
	}})
}

// turn is a lock that says that it was asked.
type turn struct{ storage.Lock }

var errTurn = errors.New("its turn")

func (turn) Acquire(context.Context) (storage.Leadership, error) { return nil, errTurn }
func (turn) Holder(context.Context) (id string, err error)       { return "other", nil }

// Until the storage is there every call is refused at once, by a text that says nothing of where it is, and the lock
// waits.
func TestAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, tries := running(t, 20, turn{})
		ctx := t.Context()
		_, _, get := s.Get(ctx, "a")
		_, list := s.List(ctx, "", "", 0)
		_, scan := s.Scan(ctx, "", "", 0)
		_, holder := s.Locker().Holder(ctx)
		for what, err := range map[string]error{"get": get, "list": list, "scan": scan, "holder": holder,
			"commit": s.Commit(ctx, 0, []storage.Op{storage.Put("a", nil)}), "fence": s.Fence(ctx, 1)} {
			if !errkind.Is(err, errkind.Unavailable) || errors.Is(err, errGone) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if s.Info().Name != "postgresql" {
			t.Errorf("info: %+v", s.Info())
		}
		short, cancel := context.WithTimeout(ctx, time.Microsecond)
		defer cancel()
		if _, err := s.Locker().Acquire(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a lock that nobody has yet: %v", err)
		}
		if _, err := s.Locker().Acquire(ctx); !errors.Is(err, errTurn) || tries.Load() != 21 {
			t.Errorf("the lock after %d tries: %v", tries.Load(), err)
		}
		if id, err := s.Locker().Holder(ctx); id != "other" || err != nil {
			t.Errorf("holder %q, %v", id, err)
		}
		if err := s.Commit(ctx, 0, []storage.Op{storage.Put("a", nil)}); err != nil {
			t.Error(err)
		}
	})
}

// A storage that opens after Close is closed.
func TestClosedMeanwhile(t *testing.T) {
	opening, goOn := make(chan struct{}), make(chan struct{})
	under := memstore.New()
	s := New(Config{Name: "s3", Least: time.Millisecond, Open: func(context.Context) (storage.Backend,
		storage.Lock, error) {
		close(opening)
		<-goOn
		return under, nil, nil
	}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	<-opening
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	close(goOn)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, _, err := under.Get(t.Context(), "a"); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("the storage stays open: %v", err)
	}
	if _, _, err := s.Get(t.Context(), "a"); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("a get after Close: %v", err)
	}
}
