package group

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/kit/errkind"
)

// maxInFlight is how many merged entries may be on their way at once. More than
// one lets the leader's fsync overlap the followers'; more than a few only makes entries smaller.
const maxInFlight = 3

// eagerCount and eagerBytes are when a further entry is worth sending while others are
// on their way: an entry too early makes smaller batches, and a batch copies what it
// touches once. 'bench register' at 64 connections made a quarter more with 64 than with 32.
const (
	eagerCount = 64
	eagerBytes = 64 << 10
)

// waiter is one proposal. Waiters are pooled, with their channel.
type waiter struct {
	cmd    []byte
	queued time.Time
	state  atomic.Uint32
	done   chan struct{} // one send when result and err are set
	result any
	err    error
}

// The states of a waiter. A proposer that gives up while waiting wins the race
// to abandoned; one that gives up later leaves its waiter to the batcher.
const (
	waiting uint32 = iota
	handedOver
	abandoned
)

var waiters = sync.Pool{New: func() any { return &waiter{done: make(chan struct{}, 1)} }}

// batcher merges proposals into entries: at once when nothing is on its way,
// else it collects until there is enough or something came back. One goroutine
// builds entries; each of the few on their way has one that waits for it.
type batcher struct {
	g    *Group
	wake chan struct{} // one slot: something is queued or came back

	mu    sync.Mutex // guards what follows
	queue []*waiter
	bytes int
	ended bool
	room  chan struct{} // non-nil while somebody waits for room; closed when there is

	inFlight atomic.Int32
	settling atomic.Int32   // those that wait to learn what became of their entry
	back     chan []*waiter // slices to use again

	outMu sync.Mutex // guards out
	out   map[*flight]struct{}
}

// flight is an entry on its way and who waits for it. Who sets answered answers.
type flight struct {
	in       *instance
	future   raft.ApplyFuture
	batch    []*waiter
	sent     time.Time
	answered atomic.Bool
	landed   atomic.Bool // it takes no place among those in flight any more
}

func newBatcher(g *Group) *batcher {
	return &batcher{g: g, wake: make(chan struct{}, 1), back: make(chan []*waiter, maxInFlight+1),
		out: map[*flight]struct{}{}}
}

func (b *batcher) depth() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue)
}

// open counts the entries whose proposers have no answer yet.
func (b *batcher) open() int32 { return b.settling.Load() + b.inFlight.Load() }

// Propose replicates cmd and returns what the Machine made of it. cmd must not be
// changed before it returns, and never again after an error of kind Unknown.
func (g *Group) Propose(ctx context.Context, cmd []byte) (any, error) {
	if err := g.mayPropose(); err != nil {
		return nil, err
	}
	if len(cmd) > g.cfg.MaxCommandBytes {
		return nil, errkind.Errorf(errkind.TooLarge, "command of %d bytes is over the limit of %d", len(cmd),
			g.cfg.MaxCommandBytes)
	}
	w := waiters.Get().(*waiter)
	w.cmd, w.queued = cmd, time.Now()
	w.state.Store(waiting)
	if err := g.batch.enqueue(ctx, w); err != nil {
		w.cmd = nil
		waiters.Put(w)
		return nil, err
	}
	g.metrics.proposals.Add(1)
	select {
	case <-w.done:
	case <-ctx.Done():
		if w.state.CompareAndSwap(waiting, abandoned) {
			return nil, errkind.E(errkind.Unavailable, "propose", ctx.Err()) // the batcher will drop it
		}
		// Handed over: the batcher owns w, and may still read cmd.
		select {
		case <-w.done:
		default:
			g.metrics.unknown.Add(1)
			return nil, errkind.E(errkind.Unknown, "propose: outcome unknown", ctx.Err())
		}
	}
	result, err := w.result, w.err
	w.cmd, w.result, w.err = nil, nil, nil
	waiters.Put(w)
	return result, err
}

// mayPropose says without a wait whether a proposal makes sense here.
func (g *Group) mayPropose() error {
	in := g.current.Load()
	if in == nil {
		return g.outOfService()
	}
	if in.leads() {
		return nil
	}
	if addr, _ := in.raft.LeaderWithID(); addr == "" || in.raft.State() == raft.Leader {
		return errNoLeader
	}
	return errNotLeader
}

var errNotLeader = errkind.New(errkind.NotLeader, "node is not the leader")

func (g *Group) outOfService() error {
	if t := g.trouble.Load(); t != nil && t.err != nil {
		return errkind.E(errkind.Unavailable, "raft group "+g.cfg.Name+" is out of service", t.err)
	}
	return errNoLeader
}

// enqueue waits for room within the bounds, at most QueueWait.
func (b *batcher) enqueue(ctx context.Context, w *waiter) error {
	cfg := &b.g.cfg
	var timeout <-chan time.Time
	for {
		b.mu.Lock()
		if b.ended {
			b.mu.Unlock()
			return errNoLeader
		}
		if len(b.queue) < cfg.QueueCount && (b.bytes+len(w.cmd) <= cfg.QueueBytes || len(b.queue) == 0) {
			b.queue = append(b.queue, w)
			b.bytes += len(w.cmd)
			b.mu.Unlock()
			b.notify()
			return nil
		}
		if b.room == nil {
			b.room = make(chan struct{})
		}
		room := b.room
		b.mu.Unlock()
		if timeout == nil {
			timer := cfg.Clock.NewTimer(cfg.QueueWait)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-room:
		case <-timeout:
			b.g.metrics.shed.Add(1)
			return errkind.New(errkind.Overloaded, "too many writes wait; try again later")
		case <-ctx.Done():
			return errkind.E(errkind.Unavailable, "propose", ctx.Err())
		}
	}
}

func (b *batcher) notify() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// run builds entries until stop, and answers whoever is left.
func (b *batcher) run(stop <-chan struct{}) {
	for {
		select {
		case <-b.wake:
			for b.ready() {
				b.send()
			}
		case <-stop:
			b.mu.Lock()
			b.ended = true
			if b.room != nil {
				close(b.room)
				b.room = nil
			}
			b.mu.Unlock()
			b.refuse(errNoLeader)
			return
		}
	}
}

// ready decides whether to build an entry now.
func (b *batcher) ready() bool {
	flying := b.inFlight.Load()
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case len(b.queue) == 0 || flying >= maxInFlight:
		return false
	case flying == 0:
		return true
	default:
		return len(b.queue) >= eagerCount || b.bytes >= eagerBytes
	}
}

// take moves what fits one entry from the queue to batch. Abandoned proposals are dropped.
func (b *batcher) take(batch []*waiter) ([]*waiter, int) {
	cfg := &b.g.cfg
	b.mu.Lock()
	defer b.mu.Unlock()
	size, n := 0, 0
	for _, w := range b.queue {
		cost := len(w.cmd) + commandOverheadBytes
		if len(batch) > 0 && (size+cost > cfg.MaxBatchBytes || len(batch) >= cfg.MaxBatchCount) {
			break
		}
		n++
		b.bytes -= len(w.cmd)
		if w.state.CompareAndSwap(waiting, handedOver) {
			batch = append(batch, w)
			size += cost
		}
	}
	left := copy(b.queue, b.queue[n:])
	clear(b.queue[left:])
	b.queue = b.queue[:left]
	if b.room != nil {
		close(b.room)
		b.room = nil
	}
	return batch, size
}

// send builds one entry and hands it to Raft.
func (b *batcher) send() {
	var batch []*waiter
	select {
	case batch = <-b.back:
	default:
	}
	batch, size := b.take(batch[:0])
	if len(batch) == 0 {
		return
	}
	now := time.Now()
	entry := beginEntry(make([]byte, 0, size+2*commandOverheadBytes), len(batch))
	for _, w := range batch {
		entry = appendCommand(entry, w.cmd)
	}
	b.g.metrics.queue.Observe(now.Sub(batch[0].queued))
	b.g.metrics.entries.Add(1)
	b.g.metrics.bytes.Add(uint64(len(entry)))
	in := b.g.current.Load()
	if in == nil || !in.leads() {
		b.answer(batch, nil, errNotLeader)
		return
	}
	f := &flight{in: in, batch: batch, sent: now}
	b.inFlight.Add(1)
	b.outMu.Lock()
	b.out[f] = struct{}{}
	b.outMu.Unlock()
	f.future = in.raft.Apply(entry, b.g.cfg.QueueWait)
	in.bound(f.future)
	go b.collect(f) // ends with the entry; abandonAll speaks for one that never does
}

// collect waits for an entry and answers its proposers.
func (b *batcher) collect(f *flight) {
	err := f.future.Error()
	var results []any
	switch {
	case err == nil:
		results, _ = f.future.Response().([]any)
		b.g.metrics.replicate.Observe(time.Since(f.sent))
	case lostPlace(err):
		b.settling.Add(1)
		b.leave(f) // what is queued behind it need not wait: it is refused
		results, err = b.outcome(f.in, f.future, err)
		if b.settling.Add(-1) == 0 && b.inFlight.Load() == 0 {
			b.g.fsm.outcomes.Forget()
		}
	default:
		err = applyError(err)
	}
	if err == nil && len(results) != len(f.batch) {
		err = errResultsMissing
	}
	b.land(f, results, err)
}

// leave takes an entry from those in flight, once.
func (b *batcher) leave(f *flight) {
	if !f.landed.Swap(true) {
		b.inFlight.Add(-1)
		b.notify()
	}
}

// land answers a flight's proposers, once.
func (b *batcher) land(f *flight, results []any, err error) {
	if f.answered.Swap(true) {
		return
	}
	b.outMu.Lock()
	delete(b.out, f)
	b.outMu.Unlock()
	b.leave(f) // the next entry can go before the results are handed out
	b.answer(f.batch, results, err)
}

// abandonAll answers what an instance that has ended left unanswered.
func (b *batcher) abandonAll() { b.abandon(0, raft.ErrRaftShutdown) }

// abandon answers what is on its way for longer than age: nobody can tell what becomes of it.
func (b *batcher) abandon(age time.Duration, why error) {
	b.outMu.Lock()
	left := slices.Collect(maps.Keys(b.out))
	b.outMu.Unlock()
	for _, f := range left {
		if time.Since(f.sent) >= age {
			b.land(f, nil, applyError(why))
		}
	}
}

// applyError gives the library's errors a kind: those that it gives before it
// took the entry say "not done", all others that nobody knows.
func applyError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader):
		return errNotLeader
	case errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return errNoLeader // for the moment
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return errkind.New(errkind.Overloaded, "too many writes wait; try again later")
	case errkind.Is(err, errkind.Unknown):
		return err
	default:
		return errkind.E(errkind.Unknown, "propose: outcome unknown", err)
	}
}

func (b *batcher) answer(batch []*waiter, results []any, err error) {
	for i, w := range batch {
		if err == nil {
			w.result = results[i]
		} else {
			w.err = err
		}
		w.done <- struct{}{}
	}
	clear(batch)
	select {
	case b.back <- batch[:0]:
	default:
	}
}

// refuse answers everything that is queued.
func (b *batcher) refuse(err error) {
	for b.depth() > 0 {
		batch, _ := b.take(nil)
		b.answer(batch, nil, err)
	}
}

// quiesce waits until nothing is on its way to an instance that is about to
// stop: what still waits inside the library when it stops is never answered.
func (b *batcher) quiesce(limit time.Duration) {
	b.refuse(errNoLeader)
	began := time.Now()
	for b.open() > 0 && time.Since(began) < limit {
		timer := time.NewTimer(time.Millisecond)
		<-timer.C
	}
}
