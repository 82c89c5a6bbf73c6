package secretsplane

import (
	"context"
	"errors"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/node/vaultconf"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/latestore"
	"corbel.dev/corbel/secrets/storage/pgstore"
)

// remoteStorage is a storage that is somewhere else, by its keys. Nothing was asked of it yet.
type remoteStorage struct {
	at   []string
	ha   bool // servers share it
	open func(ctx context.Context) (storage.Backend, storage.Lock, error)
	// look finds out whether open would succeed and changes nothing; it says what it found.
	look func(ctx context.Context) (string, error)
	drop func() // ends what was made to open it, where it is not to be opened; nil: there is nothing
}

// remoteFirst is how long a server waits for such a storage before it opens its ports without it.
const remoteFirst = 5 * time.Second

// openRemote opens a storage that is somewhere else. A server whose storage is away comes up without it, refuses what
// needs it, and finds it when it is back; what is wrong with the configuration is an error all the same.
func openRemote(ctx context.Context, h *secretsHost, b vaultconf.Block,
	configure func(*secretsHost, *vaultconf.Keys) (remoteStorage, error)) (s secretsStore, err error) {
	r, err := configure(h, b.Keys)
	if err == nil {
		err = b.Keys.Err()
	}
	if err != nil {
		return s, err
	}
	first := ctx
	if h.wait {
		var cancel context.CancelFunc
		first, cancel = context.WithTimeout(ctx, remoteFirst)
		defer cancel()
	}
	s.at = r.at
	s.backend, s.lock, err = r.open(first)
	switch {
	case err == nil:
	case h.wait && ctx.Err() == nil && isAway(err):
		h.log.Warn("secrets: cannot reach the storage; starting without it, answering 503 and trying again", "type", b.Type,
			"error", err)
		late := latestore.New(latestore.Config{Name: b.Type, Open: r.open, Clock: h.clock, Log: h.log})
		s.backend, s.lock, s.late = late, late.Locker(), true
		s.parts = []life.Part{{Name: "secrets storage", Run: late.Run}}
	default:
		if r.drop != nil {
			r.drop()
		}
		return secretsStore{}, err
	}
	if !r.ha {
		s.lock = nil
	}
	return s, nil
}

// isAway reports whether an error is of a storage that may be there later.
func isAway(err error) bool {
	switch errkind.Of(err) {
	case errkind.Unavailable, errkind.Overloaded, errkind.Unknown:
		return true
	}
	return errors.Is(err, context.DeadlineExceeded)
}

func remotePostgres(h *secretsHost, k *vaultconf.Keys) (remoteStorage, error) {
	// each commit is one statement; a server that is away is tried again for good
	k.Ignore("transaction_max_parallel", "max_connect_retries", "upsert_function")
	k.Warn("max_idle_connections", "ha_table")
	cfg := pgstore.Config{URL: k.String("connection_url", ""), Table: k.String("table", ""),
		Connections: k.Int("max_parallel", 0), Made: k.Bool("skip_create_table", false), Log: h.log}
	ha := k.Bool("ha_enabled", false)
	look := func(ctx context.Context) (string, error) { return pgstore.Look(ctx, cfg) }
	return remoteStorage{ha: ha, look: look, open: func(ctx context.Context) (storage.Backend, storage.Lock, error) {
		store, err := pgstore.Open(ctx, cfg)
		if err != nil || !ha {
			return store, nil, err
		}
		lock, err := store.Locker(ctx, h.address)
		if err != nil {
			return nil, nil, errors.Join(err, store.Close())
		}
		return &lockedBackend{store, lock.Close}, lock, nil
	}}, nil
}
