package grants

import (
	"context"
	"time"

	"corbel.dev/corbel/kit/backoff"
)

const (
	sweepEvery = 30 * time.Second
	sweepSoon  = time.Second // the least pause between two sweeps
)

// Run does the leader's duties while this server leads, until ctx ends: it makes the
// built-in objects, and removes tokens whose time is over.
func (k *Keeper) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		changes := k.cfg.Leader.LeaderChanges()
		if !k.cfg.Leader.IsLeader() {
			select {
			case <-changes:
			case <-ctx.Done():
			}
			continue
		}
		k.lead(ctx, changes)
	}
	return nil
}

// lead works until the leader changes.
func (k *Keeper) lead(ctx context.Context, changes <-chan struct{}) {
	pause := backoff.Backoff{Min: 50 * time.Millisecond, Max: 5 * time.Second}
	made := false
	for {
		wait := sweepEvery
		if !made {
			if err := k.within(ctx, k.EnsureBuiltins); err != nil {
				k.cfg.Logger.Debug("the built-in ACL objects could not be made yet", "err", err)
				wait = pause.Next()
			} else {
				made, wait = true, 0
			}
		} else {
			var next time.Time
			err := k.within(ctx, func(ctx context.Context) (err error) {
				next, err = k.Sweep(ctx)
				return err
			})
			if err != nil && ctx.Err() == nil {
				k.cfg.Logger.Warn("cannot remove expired tokens yet; they are rejected all the same", "err", err)
			}
			if err == nil && !next.IsZero() {
				wait = min(sweepEvery, max(sweepSoon, next.Sub(k.now())))
			}
		}
		timer := k.cfg.Clock.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changes:
			timer.Stop()
			return
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// dutyTimeout bounds one step of the duties.
const dutyTimeout = 10 * time.Second

func (k *Keeper) within(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, dutyTimeout)
	defer cancel()
	return f(ctx)
}
