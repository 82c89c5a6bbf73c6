package registry

import (
	"context"
	"strconv"
	"sync"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/clock"
)

// followLeadership runs the leader's duties for as long as this server leads.
func (r *Registry) followLeadership(ctx context.Context) {
	for ctx.Err() == nil {
		changes := r.proposer.LeaderChanges()
		if !r.proposer.IsLeader() {
			select {
			case <-changes:
			case <-ctx.Done():
			}
			continue
		}
		term, cancel := context.WithCancel(ctx)
		var duties sync.WaitGroup
		duties.Go(func() { r.lead(term) })
		select {
		case <-changes:
		case <-ctx.Done():
		}
		cancel()
		duties.Wait()
	}
}

// lead does the duties until ctx ends. They begin once a quorum has confirmed
// the term: before that the State may lack what an earlier leader committed.
func (r *Registry) lead(ctx context.Context) {
	var between backoff.Backoff
	for {
		err := r.proposer.VerifyLeader(ctx)
		if err == nil {
			break
		}
		r.cfg.Logger.Debug("leadership not confirmed yet", "err", err)
		timer := r.cfg.Clock.NewTimer(between.Next())
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
	r.cfg.Logger.Info("catalog leadership begins", "index", r.State().Index())
	r.ttl.lead(r.State)
	defer r.ttl.follow()
	var duties sync.WaitGroup
	duties.Go(func() { r.expireSessions(ctx) })
	duties.Go(func() { r.reapTombstones(ctx) })
	duties.Go(func() { r.passOutdone(ctx) })
	duties.Go(func() { r.expireLeases(ctx) })
	if r.cfg.Members != nil {
		duties.Go(func() { r.members.run(ctx) })
	}
	duties.Wait()
	r.cfg.Logger.Info("catalog leadership ends", "index", r.State().Index())
}

// reapTombstones forgets deletions that are older than TombstoneTTL by this
// leader's clock. A new leader starts counting anew: later is harmless.
func (r *Registry) reapTombstones(ctx context.Context) {
	history := newIndexHistory(r.cfg.TombstoneTTL, r.cfg.TombstoneStep)
	begin := r.cfg.Clock.Now()
	timer := r.cfg.Clock.NewTimer(r.cfg.TombstoneStep)
	defer timer.Stop()
	for {
		state := r.State()
		upTo := history.mark(r.cfg.Clock.Since(begin), state.Index())
		if oldest := state.OldestTombstone(); oldest > 0 && oldest <= upTo {
			start := time.Now()
			if err := r.duty(ctx, &catalog.ReapTombstones{Index: upTo}); err == nil {
				r.meters.reap.Observe(time.Since(start))
			} else if ctx.Err() == nil {
				r.cfg.Logger.Warn("tombstones not reaped; trying again later", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			timer.Reset(r.cfg.TombstoneStep)
		}
	}
}

// passOutdone makes the index pass those that an older snapshot took away when it was
// restored. An index that a client got before would else name another State one day,
// and what changed since it would be told wrong.
func (r *Registry) passOutdone(ctx context.Context) {
	for {
		restored := *r.past.restored.Load()
		if index := r.past.outdone.Load(); index >= r.State().Index() {
			// The name first: when this is cut short, the horizon is still to be passed.
			name := catalog.Record{Kind: catalog.RecordSystem, Key: catalog.HistoryKey,
				Value: strconv.AppendUint(nil, index, 10)}
			err := r.duty(ctx, &catalog.Records{Ops: []catalog.RecordOp{{Verb: catalog.RecordSet, Record: name}}})
			if err == nil {
				err = r.duty(ctx, &catalog.Horizon{Index: index})
			}
			if err != nil && ctx.Err() == nil {
				r.cfg.Logger.Warn("the index has not passed the one before the restore; trying again", "index", index, "err", err)
				if !pause(ctx, r.cfg.Clock, reconcileRetry) {
					return
				}
				continue
			}
		}
		select {
		case <-restored:
		case <-ctx.Done():
			return
		}
	}
}

// pause waits; it is false when ctx ended.
func pause(ctx context.Context, c clock.Clock, d time.Duration) bool {
	timer := c.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// duty proposes a command of the leader's own, within ProposeTimeout.
func (r *Registry) duty(ctx context.Context, c catalog.Command) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.ProposeTimeout)
	defer cancel()
	result, err := r.Apply(ctx, c)
	if err == nil {
		err = result.Err
	}
	return err
}
