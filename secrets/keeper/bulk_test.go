package keeper

import (
	"context"
	"slices"
	"testing"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/flight"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/memstore"
	"corbel.dev/corbel/secrets/token"
)

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
		for range 5 * flight.EndBeside {
			h.token(`{"policies":["default"],"ttl":"1h","no_parent":true}`)
		}
		if busy {
			store.request = func() { _, _ = h.as(h.root, secrets.Read, "secret/none", "") }
		}
		h.ok(secrets.Update, "sys/leases/revoke-prefix/auth/token/create", "")
		if n := field(t, h.ok(secrets.Read, "sys/leases/count", ""), "lease_count"); n != 0.0 {
			t.Errorf("busy %t: %v leases are left", busy, n)
		}
		want := []int{flight.EndBeside, 4 * flight.EndBeside}
		if busy {
			want = slices.Repeat([]int{flight.EndBeside}, 5)
		}
		if !slices.Equal(store.gone, want) {
			t.Errorf("busy %t: commits ended %v tokens, want %v", busy, store.gone, want)
		}
	}
}
