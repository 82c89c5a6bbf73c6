package keeper

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/memstore"
	"corbel.dev/corbel/secrets/token"
)

// counting is a storage that counts what is read of it.
type counting struct {
	*memstore.Store
	read atomic.Int64
}

func (c *counting) Get(ctx context.Context, key string) ([]byte, bool, error) {
	c.read.Add(1)
	return c.Store.Get(ctx, key)
}

func (c *counting) List(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	names, err := c.Store.List(ctx, prefix, after, limit)
	c.read.Add(1 + int64(len(names)))
	return names, err
}

func (c *counting) Scan(ctx context.Context, from, to string, limit int) ([]storage.Record, error) {
	list, err := c.Store.Scan(ctx, from, to, limit)
	c.read.Add(1 + int64(len(list)))
	return list, err
}

// A start, and the sweeps after it, read as much with a thousand tokens and leases as with none: what is not due is
// not looked at.
func TestStartReadsNoLeases(t *testing.T) {
	store := &counting{}
	h := newHouseOver(t, func(s *memstore.Store) storage.Backend { store.Store = s; return store })
	h.ok(secrets.Update, "sys/mounts/db", `{"type":"issuer"}`)
	t.Cleanup(func() { issuers.Delete(h.Keeper) })
	parent := h.token(`{"policies":["root"],"ttl":"20h"}`)
	h.ok(secrets.Read, "db/creds/app", "") // so that the mount is one with leases
	start := func() int64 {
		h.Seal()
		store.read.Store(0)
		h.unseal()
		h.expire()
		h.expireLeases()
		return store.read.Load()
	}
	few := start()
	for range 500 {
		if _, err := h.as(parent, secrets.Update, "auth/token/create", `{"ttl":"10h"}`); err != nil {
			t.Fatal(err)
		}
		if _, err := h.as(parent, secrets.Read, "db/creds/app", ""); err != nil {
			t.Fatal(err)
		}
	}
	if many := start(); many != few {
		t.Errorf("a start reads %d records and names with 1,000 tokens and leases, and %d without", many, few)
	}
	h.wait(30 * time.Minute)
	if again := start(); again != few {
		t.Errorf("later, with nothing due, it is %d", again)
	}
	if got := fmt.Sprint(len(h.keysBelow(token.LeasePrefix))); got != "1002" {
		t.Errorf("%s leases are there", got)
	}
}
