//go:build unix

package pgstore

import (
	"context"
	"errors"
	"strings"
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

func acquire(t *testing.T, l *Locker) storage.Leadership {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := l.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A user who may use the tables and make none opens them with Made alone.
func TestTablesThatAreThere(t *testing.T) {
	url := schema(t)
	own := open(t, url, 0)
	defer own.Close()
	locker(t, own, "a")
	_, name, _ := strings.Cut(url, "search_path=")
	run(t, connect(t, url), "CREATE ROLE user_alone LOGIN; GRANT USAGE ON SCHEMA "+name+
		" TO user_alone; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "+name+" TO user_alone")
	cfg := Config{URL: url + " user=user_alone", Connections: 2}
	if _, err := Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "permission denied for schema") {
		t.Errorf("a user who may make no tables: %v", err)
	}
	cfg.Made = true
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	locker(t, s, "b")
	if err := s.Commit(t.Context(), 0, []storage.Op{storage.Put("k", []byte("v"))}); err != nil {
		t.Error(err)
	}
	if n := s.pool.Config().MaxConns; n != 2 {
		t.Errorf("%d connections", n)
	}
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
	if err := s.Commit(t.Context(), second.Epoch(), []storage.Op{storage.Put("k", []byte("late"))}); !errors.Is(err,
		storage.ErrFenced) {
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
