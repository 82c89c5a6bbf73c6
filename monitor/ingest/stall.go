package ingest

import (
	"context"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/monitor/eventstore"
)

// A store that does not come back from a commit, or refuses it again and again, for longer than StallAfter is as good
// as gone: another server should have the shards. So that nothing of what was taken is lost by that, the replica is
// given everything before it is durable here, in the order in which it was taken, and what a shard's owner owes
// (actions) is done once the replica has it. When the store answers, it gets all of it.

// stallRound is how often what was taken goes to the replicas while the store is stalled.
const stallRound = 50 * time.Millisecond

// calm is how many times StallAfter a store is not trusted after it was stalled.
const calm = 3

// Stalled reports whether the store does not answer, or did not until a moment ago.
func (in *Ingest) Stalled() bool {
	return in.hangs.Load() || time.Since(in.born) < time.Duration(in.wary.Load())
}

// Failed reports whether nothing can be stored any more.
func (in *Ingest) Failed() bool { return in.failed.Load() != nil }

// Full reports whether a stalled store has as much to come as may wait: a replica takes nothing more then.
func (in *Ingest) Full() bool { return in.hangs.Load() && in.pending.Load() >= in.cfg.PendingBytes }

// HandedOver says that a shard's replica has all that was taken.
func (in *Ingest) HandedOver(shard uint16) {
	s := &in.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.confirmed = s.sequence
}

// write has the store take batches, however often it refuses them.
func (in committer) write(ctx context.Context, all []taken, batches []eventstore.Batch, until []uint64) error {
	done := make(chan error, 1)
	go func() { done <- in.insist(ctx, batches, until) }()
	patience := time.NewTimer(in.cfg.StallAfter)
	defer patience.Stop()
	select {
	case err := <-done:
		return err
	case <-patience.C:
	}
	began := time.Now().Add(-in.cfg.StallAfter)
	in.hangs.Store(true)
	in.cfg.Log.Error("the event store does not answer; handing over to other servers", "for", in.cfg.StallAfter)
	defer func() {
		in.wary.Store(int64(time.Since(in.born) + calm*in.cfg.StallAfter))
		in.hangs.Store(false)
		in.cfg.Log.Warn("the event store answers again", "after", time.Since(began).Round(time.Millisecond))
	}()
	tick := time.NewTicker(stallRound)
	defer tick.Stop()
	for {
		in.handOn(all)
		for _, round := range in.backlog {
			in.handOn(round)
		}
		select {
		case err := <-done:
			return err
		case <-tick.C:
		}
		if next := in.gather(nil, true); len(next) > 0 {
			in.backlog = append(in.backlog, next)
		}
	}
}

// insist commits until that goes well.
func (in committer) insist(ctx context.Context, batches []eventstore.Batch, until []uint64) error {
	for {
		err := in.store.Commit(ctx, batches, until)
		if err == nil || errkind.Of(err) != errkind.Unavailable || ctx.Err() != nil {
			return err
		}
		in.cfg.Log.Error("cannot store events; trying again", "error", err, "waiting_bytes", in.pending.Load())
		select {
		case <-ctx.Done():
		case <-time.After(retryPause):
		}
	}
}

// handOn gives a round to the replicas, and does what waits for what they have.
func (in committer) handOn(round []taken) {
	for i := range round {
		t := &round[i]
		in.replicate(t)
		if len(t.after) == 0 {
			continue
		}
		t.shard.mu.Lock()
		there := t.shard.confirmed >= t.until
		t.shard.mu.Unlock()
		if there {
			t.finish()
		}
	}
}
