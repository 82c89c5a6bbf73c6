package ingest

import (
	"context"
	"errors"
	"time"

	"corbel.dev/corbel/monitor/eventstore"
)

// refreshMost is how many keys are put whole again with one commit, so that compaction never makes one large.
const refreshMost = 2000

// askEvery is how often the store is asked what it lacks when nothing comes.
const askEvery = time.Second

// resendMost is of how many shards all is written out with one commit.
const resendMost = 2

// retryPause is how long a commit that was refused waits before it is tried again.
const retryPause = 200 * time.Millisecond

// Run commits what gathers until ctx ends, then what is left, and returns. Afterwards nothing more is taken.
func (in *Ingest) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	ask := time.NewTicker(askEvery)
	defer ask.Stop()
	for {
		select {
		case <-ctx.Done():
			return committer{in}.stop(ctx)
		case <-in.wake:
		case <-ask.C:
		}
		timer.Reset(in.cfg.Gather)
		select {
		case <-ctx.Done():
			return committer{in}.stop(ctx)
		case <-timer.C:
		}
		committer{in}.refresh()
		if err := (committer{in}).commit(ctx); err != nil {
			return err
		}
	}
}

var errStopped = errors.New("the server is stopping")

// stopTime bounds the last commit.
const stopTime = 10 * time.Second

// committer makes durable what gathered.
type committer struct{ *Ingest }

func (in committer) stop(ctx context.Context) error {
	in.fail(errStopped)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	return errors.Join(in.commit(last), in.store.Close())
}

func (in committer) fail(err error) {
	in.failed.CompareAndSwap(nil, &err)
	in.makeRoom()
}

func (in committer) makeRoom() {
	in.roomMu.Lock()
	close(in.room)
	in.room = make(chan struct{})
	in.roomMu.Unlock()
}

// taken is what one shard had gathered.
type taken struct {
	shard *shard
	batch eventstore.Batch
	begun time.Time // when the batch was
	until uint64
	after []func()
	reset bool   // all of the shard was asked for,
	whole []byte // and is this
	owned bool
	told  bool // the replica was given it
}

// commit makes what gathered durable, and then does what waits for it: first what gathered while the store was stalled.
func (in committer) commit(ctx context.Context) error {
	for len(in.backlog) > 0 {
		round := in.backlog[0]
		in.backlog = in.backlog[1:]
		if err := in.keep(ctx, round); err != nil {
			return err
		}
	}
	all := in.gather(in.taken[:0], false)
	defer func() { clear(all); in.taken = all }()
	if len(all) == 0 {
		return nil
	}
	return in.keep(ctx, all)
}

// gather appends what the shards have to be committed, those that are owned here or all.
func (in committer) gather(all []taken, owned bool) []taken {
	resent := 0
	for i := range in.shards {
		s := &in.shards[i]
		s.mu.Lock()
		if again := s.resend && resent < resendMost; (s.batch != nil || again) && (s.owned || !owned) {
			t := taken{shard: s, batch: s.batch, begun: s.opened, until: s.sequence, after: s.after, owned: s.owned}
			if again {
				t.whole, t.reset, s.resend = s.whole(), true, false
				resent++
			}
			all = append(all, t)
			s.batch, s.after = nil, nil
		}
		s.mu.Unlock()
	}
	if resent == resendMost {
		in.notify()
	}
	return all
}

// keep makes a round durable, and does what waits for it.
func (in committer) keep(ctx context.Context, all []taken) error {
	var batches []eventstore.Batch
	var until []uint64
	var size int64
	for _, t := range all {
		if t.batch != nil {
			batches, until = append(batches, t.batch), append(until, t.until)
			size += int64(t.batch.Bytes())
		}
	}
	began := time.Now()
	if len(batches) > 0 {
		if err := in.write(ctx, all, batches, until); err != nil {
			in.fail(err)
			return err
		}
	}
	store := time.Since(began)
	in.pending.Add(-size)
	in.makeRoom()
	for i := range all {
		t := &all[i]
		in.replicate(t) // before it counts as stored: who waits for that finds it on its way
		t.shard.stored.Store(t.until)
		if t.batch != nil {
			if in.cfg.Meter != nil {
				in.cfg.Meter.Stored(time.Since(t.begun), store)
			}
			t.batch.Reset()
			t.shard.mu.Lock()
			t.shard.spare = t.batch
			t.shard.mu.Unlock()
		}
		t.finish()
	}
	return nil
}

// finish does what waits for a batch, once.
func (t *taken) finish() {
	for _, do := range t.after {
		do()
	}
	t.after = nil
}

// replicate tells what is durable now, or what a store that is stalled has not taken yet, once.
func (in committer) replicate(t *taken) {
	if t.told {
		return
	}
	t.told = true
	t.shard.told.Store(t.until)
	if !t.owned {
		return
	}
	if b, ok := t.batch.(interface{ Records() []byte }); ok {
		in.cfg.Sink.Replicate(t.shard.number, false, t.until, b.Records())
	}
	if t.reset { // for those who lacked something before
		in.cfg.Sink.Replicate(t.shard.number, true, t.until, t.whole)
	}
}

// refresh puts again what the store asks for.
func (in committer) refresh() {
	results, entities := in.store.Refresh(refreshMost)
	for _, n := range results {
		s := &in.shards[n.Shard()]
		s.mu.Lock()
		if k := s.keys[n.Index()]; k != nil {
			b := s.open(in.Ingest)
			size := b.Bytes()
			b.Put(n, &k.res, eventstore.Whole)
			intake(in).changed(s, b, size)
		}
		s.mu.Unlock()
	}
	for _, n := range entities {
		s := &in.shards[n.Shard()]
		s.mu.Lock()
		if e := s.entities[n.Index()]; e != nil {
			b := s.open(in.Ingest)
			size := b.Bytes()
			b.PutEntity(n, &eventstore.Entity{Namespace: e.namespace, Name: e.entity, Message: e.message, LastSeen: e.lastSeen})
			intake(in).changed(s, b, size)
		}
		s.mu.Unlock()
	}
}
