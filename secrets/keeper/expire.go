package keeper

import (
	"context"
	"errors"
	"sync"
	"time"

	"corbel.dev/corbel/secrets/barrier"
	"corbel.dev/corbel/secrets/flight"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/tables"
	"corbel.dev/corbel/secrets/token"
)

const (
	sweepEvery = time.Second // how late what has ended may go
	dueAtOnce  = 256         // entries of the index that are taken at a time
)

// Run takes away what has ended, until ctx ends. One per keeper; while sealed it rests. Tokens, what engines ask of
// themselves, and the leases of each target have a goroutine each: engines may take their time.
func (k *Keeper) Run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { k.every(ctx, k.Tend) })
	group.Go(func() { k.every(ctx, k.EndWorkloads) })
	group.Go(func() { k.every(ctx, k.noteVersion) })
	group.Go(func() { k.every(ctx, k.usage().measure) })
	gauges := newComeAndGo(k.meters.registry)
	defer gauges.gone()
	k.every(ctx, func(ctx context.Context) (int, error) {
		gauges.tell(k, k.startTargets(ctx, &group))
		return k.Expire(ctx)
	})
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
	b := k.flying.Bulk()
	for from := token.DuePrefix; ; b.Rest(ctx) {
		n, next, err := k.expireSome(ctx, b, from, now)
		done, from = done+n, next
		if err != nil || n == 0 {
			return done, err
		}
	}
}

// expireSome deals with the entries that are due from a key on, some at a time, and says from where to go on.
func (k *Keeper) expireSome(ctx context.Context, b *flight.Bulk, from string, now time.Time) (n int, next string, err error) {
	leave, err := k.gate.Enter(ctx)
	if err != nil {
		return 0, from, nil // sealed, or a standby
	}
	defer leave()
	st := k.gate.Load()
	if st == nil {
		return 0, from, nil
	}
	if err := k.finish(ctx, st); err != nil {
		return 0, from, err
	}
	records, err := k.records.Under.Scan(ctx, from, token.DueEnd(now), b.Size) // keys alone
	if err != nil || len(records) == 0 {
		return 0, from, err
	}
	below, err := k.endTokens(ctx, b, st, func() ([]storage.Op, []string, error) { return k.dueTokens(ctx, st, records, now) })
	if err != nil {
		k.meters.own.notExpired.Add(1)
		return 0, from, err
	}
	return len(records), records[len(records)-1].Key + "\x00", k.endBelow(ctx, b, st, below)
}

// dueTokens gives the operations that deal with due entries, and the tokens that end. Keeper.tree is held.
func (k *Keeper) dueTokens(ctx context.Context, st *tables.Tables, due []storage.Record, now time.Time) (ops []storage.Op, ended []string, err error) {
	for _, entry := range due {
		tok, err := st.Book.Find(ctx, token.DueName(entry.Key))
		switch {
		case sealed.Damaged(err):
			k.records.Skip(entry.Key, err)
			continue
		case err != nil:
			return nil, nil, err
		}
		ops = append(ops, storage.Delete(entry.Key))
		switch {
		case tok == nil:
		case tok.Expired(now):
			k.meters.own.expires(now.Sub(tok.Expires))
			ops, ended = append(ops, token.End(tok)...), append(ended, tok.Hash)
		default: // it was renewed
			ops = append(ops, token.Move(tok)...)
		}
	}
	return ops, ended, nil
}
