package pgstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/secrets/storage"
)

func locker(t *testing.T, s *Store, id string) *Locker {
	t.Helper()
	l, err := s.Locker(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func acquire(t *testing.T, l *Locker) storage.Reign {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := l.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestLock: one at a time, epochs grow, a lock that expired goes to another, and whoever lost it writes nothing.
func TestLock(t *testing.T) {
	url := schema(t)
	s := open(t, url, 0)
	defer s.Close()
	a, b := locker(t, s, "a"), locker(t, s, "b")
	if id, err := a.Holder(t.Context()); id != "" || err != nil {
		t.Fatal(id, err)
	}
	first := acquire(t, a)
	if err := s.Fence(t.Context(), first.Epoch()); err != nil || first.Held(t.Context()) != nil {
		t.Fatal(err)
	}
	if id, err := b.Holder(t.Context()); id != "a" || err != nil {
		t.Fatal(id, err)
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := b.Acquire(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	first.Release(t.Context())
	second := acquire(t, b)
	if second.Epoch() <= first.Epoch() {
		t.Fatal(first.Epoch(), second.Epoch())
	}
	if err := s.Fence(t.Context(), second.Epoch()); err != nil {
		t.Fatal(err)
	}
	// b's server sleeps past its time, as far as the database knows.
	run(t, connect(t, url), `UPDATE corbel_secrets_lock SET until = '-infinity'`)
	third := acquire(t, a)
	if err := s.Fence(t.Context(), third.Epoch()); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), second.Epoch(), []storage.Op{storage.Put("k", []byte("late"))}); !errors.Is(err, storage.ErrFenced) {
		t.Fatal(err)
	}
	polltest.Get(t, second.Done(), "the lost lock to be noticed")
	if err := second.Held(t.Context()); !errkind.Is(err, errkind.NotLeader) {
		t.Fatal(err)
	}
	// A server that was restarted has its own lock back at once.
	if again := acquire(t, locker(t, s, "a")); again.Epoch() <= third.Epoch() {
		t.Fatal(again.Epoch())
	}
}
