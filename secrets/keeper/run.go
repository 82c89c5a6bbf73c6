package keeper

import (
	"context"
	"errors"
	"sync"
	"time"

	"corbel.dev/corbel/secrets/barrier"
)

const sweepEvery = time.Second // how late what has ended may go

// Run takes away what has ended, until ctx ends. One per keeper; while sealed it rests. Tokens, what engines ask of
// themselves, and the leases of each target have a goroutine each: engines may take their time.
func (k *Keeper) Run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { k.every(ctx, k.Tend) })
	group.Go(func() { k.every(ctx, k.tokens.EndWorkloads) })
	group.Go(func() { k.every(ctx, k.owners.namespaces.Sweep) })
	group.Go(func() { k.every(ctx, k.owners.tools.NoteVersion) })
	group.Go(func() { k.every(ctx, k.owners.census.Measure) })
	gauges := newComeAndGo(k.meters.registry)
	defer gauges.gone()
	k.every(ctx, func(ctx context.Context) (int, error) {
		gauges.tell(k.leases.Start(ctx, &group), k.leases.DueAt, k.gate.Load())
		return k.tokens.Expire(ctx)
	})
}

func (k *Keeper) every(ctx context.Context, sweep func(context.Context) (int, error)) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		if _, err := sweep(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, barrier.ErrSealed) {
			k.cfg.Log.Warn("secrets: cannot remove expired tokens and leases; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
