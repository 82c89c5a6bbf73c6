package sealed

import (
	"context"
	"testing"
	"time"

	"corbel.dev/corbel/secrets/barrier"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/memstore"
)

// lateStore calls after once, between the end of a commit and its caller.
type lateStore struct {
	storage.Backend
	after func()
}

func (s *lateStore) Commit(ctx context.Context, epoch storage.Epoch, ops []storage.Op) error {
	err := s.Backend.Commit(ctx, epoch, ops)
	if f := s.after; f != nil {
		s.after = nil
		f()
	}
	return err
}

// TestCommitOfAFormerLeaderIsNotKept: a commit that succeeded, and whose caller goes on only when its term is over
// and another server has written, leaves nothing in the caches: a standby would answer with it, and call it new.
func TestCommitOfAFormerLeaderIsNotKept(t *testing.T) {
	ctx := t.Context()
	write := func(v *Store, value string) {
		t.Helper()
		if err := v.Commit(ctx, []storage.Op{{Key: "k", Value: []byte(value)}}); err != nil {
			t.Fatal(err)
		}
	}
	for name, meanwhile := range map[string]func(s *Store){
		"told of before the term ends":   func(v *Store) { v.Forget() }, // Replicated heeds nothing in a term
		"told of after the term ended":   func(v *Store) { v.Forget(); v.Drop("k") },
		"told of where nothing is kept":  func(v *Store) { v.Drop("k") },
		"another record of a batch, too": func(v *Store) { v.Drop("k"); v.Drop("other") },
	} {
		t.Run(name, func(t *testing.T) {
			store := &lateStore{Backend: memstore.New()}
			c := Config{Under: store, Now: time.Now, CacheBytes: 1 << 20, Committed: func([]storage.Op) {}}
			v, other := New(c), New(c)
			if err := store.Fence(ctx, 1); err != nil {
				t.Fatal(err)
			}
			if err := other.Barrier.Initialize(ctx, 1, make([]byte, barrier.KeyBytes), nil); err != nil {
				t.Fatal(err)
			}
			if err := v.Barrier.Unseal(ctx, make([]byte, barrier.KeyBytes)); err != nil {
				t.Fatal(err)
			}
			other.SetEpoch(1)
			v.SetEpoch(1)
			store.after = func() {
				write(other, "new")
				meanwhile(v)
			}
			write(v, "old")
			if value, ok, err := v.Get(ctx, "k"); err != nil || !ok || string(value) != "new" {
				t.Errorf("read as %q, %t, %v after another server wrote it anew", value, ok, err)
			}
			write(v, "newest")
			if value, ok, _ := v.Get(ctx, "k"); !ok || string(value) != "newest" || v.shard("k").values["k"] == nil {
				t.Errorf("an own commit that nothing came between is read as %q, or is not kept", value)
			}
		})
	}
}
