package keeper

import (
	"context"
	"errors"
	"sync"
	"time"

	"corbel.dev/corbel/secrets/barrier"
)

const (
	sweepEvery = time.Second // how late what has ended may go
	// keysEvery is how late a key may change by its rule.
	keysEvery = 5 * time.Minute
)

// Run takes away what has ended, until ctx ends. One per keeper; while sealed it rests. Tokens, what engines ask of
// themselves, and the leases of each target have a goroutine each: engines may take their time.
func (k *Keeper) Run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { k.every(ctx, sweepEvery, k.Tend) })
	group.Go(func() { k.every(ctx, sweepEvery, k.tokens.EndWorkloads) })
	group.Go(func() { k.every(ctx, sweepEvery, k.owners.namespaces.Sweep) })
	group.Go(func() { k.every(ctx, sweepEvery, k.owners.tools.NoteVersion) })
	group.Go(func() { k.every(ctx, sweepEvery, k.owners.census.Measure) })
	group.Go(func() { k.every(ctx, keysEvery, k.TendKeys) })
	group.Go(func() { k.owners.plugins.Run(ctx) })
	gauges := newComeAndGo(k.meters.registry)
	defer gauges.gone()
	k.every(ctx, sweepEvery, func(ctx context.Context) (int, error) {
		gauges.tell(k.leases.Start(ctx, &group), k.leases.DueAt, k.gate.Load())
		return k.tokens.Expire(ctx)
	})
}

func (k *Keeper) every(ctx context.Context, period time.Duration, sweep func(context.Context) (int, error)) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		if _, err := sweep(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, barrier.ErrSealed) {
			k.cfg.Log.Warn("secrets: cannot do what falls due; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
