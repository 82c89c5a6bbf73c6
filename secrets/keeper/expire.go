package keeper

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/barrier"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/token"
)

const (
	sweepEvery = time.Second // how late what has ended may go
	dueAtOnce  = 256         // entries of the index that are taken at a time
	opsAtOnce  = 1000        // past this a batch is committed
	namedMost  = 1000        // damaged records that are remembered as told of
)

// Run takes away what has ended, until ctx ends. One per keeper; while sealed it rests.
// Tokens, leases and what engines ask of themselves have a goroutine each: engines may take their time.
func (k *Keeper) Run(ctx context.Context) {
	var leases sync.WaitGroup
	defer leases.Wait()
	leases.Go(func() { k.every(ctx, k.ExpireLeases) })
	leases.Go(func() { k.every(ctx, k.Tend) })
	k.every(ctx, k.Expire)
}

func (k *Keeper) every(ctx context.Context, sweep func(context.Context) (int, error)) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		if _, err := sweep(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, barrier.ErrSealed) {
			k.cfg.Log.Warn("secrets: what has ended could not be taken away: it is tried again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Expire takes away the tokens that have ended by now, with all below them and
// what they kept, and says how many entries of the index it dealt with. It
// reads what is due and nothing else, in bounded batches.
func (k *Keeper) Expire(ctx context.Context) (done int, err error) {
	k.sweep.Lock()
	defer k.sweep.Unlock()
	now := k.cfg.Now()
	for from := token.DuePrefix; ; {
		st := k.state.Load()
		if st == nil {
			return done, nil
		}
		records, damaged, err := k.barrier.Scan(ctx, from, token.DueEnd(now), dueAtOnce)
		if err != nil {
			return done, err
		}
		if len(records)+len(damaged) == 0 {
			return done, nil
		}
		for _, d := range damaged {
			k.tell(d.Key, d.Err)
			from = max(from, d.Key+"\x00")
		}
		for len(records) > 0 {
			n, err := k.expireSome(ctx, st, records, now)
			if err != nil {
				return done, err
			}
			from = max(from, records[n-1].Key+"\x00")
			done, records = done+n, records[n:]
		}
	}
}

// tell names a record that is skipped, once.
func (k *Keeper) tell(key string, err error) {
	k.namedMu.Lock()
	defer k.namedMu.Unlock()
	if k.named[key] {
		return
	}
	if k.named == nil || len(k.named) >= namedMost {
		k.named = map[string]bool{}
	}
	k.named[key] = true
	k.cfg.Log.Error("secrets: a damaged record is skipped; what it is about opens nothing after its end", "key", key, "error", err)
}

// expireSome deals with the first of the due entries, as one commit, and says with how many.
func (k *Keeper) expireSome(ctx context.Context, st *state, due []storage.Record, now time.Time) (n int, err error) {
	k.tree.Lock() // nothing is made below, renewed or used meanwhile
	defer k.tree.Unlock()
	var ops []storage.Op
	ended := map[string]bool{}
	for n < len(due) && len(ops) < opsAtOnce {
		entry := due[n]
		n++
		name := token.DueName(entry.Key)
		if ended[name] { // with one above it, in this very commit: storage does not show that yet
			ops = append(ops, storage.Delete(entry.Key))
			continue
		}
		more, gone, err := k.expireToken(ctx, st, name, now)
		switch {
		case errors.Is(err, barrier.ErrSealed) || ctx.Err() != nil:
			return 0, errors.Join(err, ctx.Err())
		case damage(err):
			k.tell(entry.Key, err)
			continue
		case err != nil:
			return 0, err
		}
		ops = append(append(ops, storage.Delete(entry.Key)), more...)
		for _, hash := range gone {
			ended[hash] = true
		}
	}
	return n, k.commitEnd(ctx, st, ops, slices.Collect(maps.Keys(ended)))
}

// expireToken ends the token that an entry is about, or moves the entry where the token lives on.
func (k *Keeper) expireToken(ctx context.Context, st *state, hash string, now time.Time) ([]storage.Op, []string, error) {
	tok, err := st.book.Find(ctx, hash)
	switch {
	case err != nil || tok == nil:
		return nil, nil, err
	case tok.Expired(now):
		return st.book.End(ctx, tok)
	}
	ops, err := token.Move(tok)
	return ops, nil, err
}

// damage reports whether a record is not what was stored: trying again helps nobody.
func damage(err error) bool { return errkind.Is(err, errkind.Corrupt) }
