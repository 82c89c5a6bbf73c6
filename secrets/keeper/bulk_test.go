package keeper

import (
	"context"
	"slices"
	"testing"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/memstore"
	"corbel.dev/corbel/secrets/token"
)

func TestNextStep(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		what          string
		size          int
		planned, took time.Duration
		beside        bool
		next          int
		pause         time.Duration
	}{
		{"nobody asks", endBeside, ms / 2, ms, false, endAtOnce, 0},
		{"requests come", endAtOnce, 2 * ms, 4 * ms, true, endBeside, restMost},
		{"a short step", endBeside, ms / 8, ms / 4, true, endBeside, ms / 2},
		{"a slow disk", endBeside, ms / 2, 11 * ms, true, 2 * endBeside, 0},
		{"a slow disk, much at once", 400, 3 * ms, 20 * ms, true, endAtOnce, 0},
		{"a busy processor", endBeside, 4 * ms, 9 * ms, true, endBeside, restMost},
	} {
		if next, pause := nextStep(c.size, c.planned, c.took, c.beside); next != c.next || pause != c.pause {
			t.Errorf("%s: %d after %v, want %d after %v", c.what, next, pause, c.next, c.pause)
		}
	}
}

// askedStore is a store during whose commits a request comes.
type askedStore struct {
	*memstore.Store
	request func()
	gone    []int // tokens that each commit ended
}

func (a *askedStore) Commit(ctx context.Context, epoch storage.Epoch, ops []storage.Op) error {
	gone := 0
	for _, op := range ops {
		if _, ok := token.HashOf(op.Key); ok && op.Value == nil {
			gone++
		}
	}
	if gone > 0 {
		a.gone = append(a.gone, gone)
		a.request()
	}
	return a.Store.Commit(ctx, epoch, ops)
}

// A revocation takes small steps while requests come, and large ones while none do.
func TestStepsBesideRequests(t *testing.T) {
	for _, busy := range []bool{false, true} {
		store := &askedStore{request: func() {}}
		h := newHouseOver(t, func(s *memstore.Store) storage.Backend { store.Store = s; return store })
		for range 5 * endBeside {
			h.token(`{"policies":["default"],"ttl":"1h","no_parent":true}`)
		}
		if busy {
			store.request = func() { _, _ = h.as(h.root, secrets.Read, "secret/none", "") }
		}
		h.ok(secrets.Update, "sys/leases/revoke-prefix/auth/token/create", "")
		if n := field(t, h.ok(secrets.Read, "sys/leases/count", ""), "lease_count"); n != 0.0 {
			t.Errorf("busy %t: %v leases are left", busy, n)
		}
		want := []int{endBeside, 4 * endBeside}
		if busy {
			want = slices.Repeat([]int{endBeside}, 5)
		}
		if !slices.Equal(store.gone, want) {
			t.Errorf("busy %t: commits ended %v tokens, want %v", busy, store.gone, want)
		}
	}
}
