package registry

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
)

// Apply proposes a command and returns what it gave once it is committed and
// applied here. A refusal by the State is in Result.Err; the error is for what
// did not get that far: NotLeader, Unavailable, Overloaded, or Unknown.
func (r *Registry) Apply(ctx context.Context, c catalog.Command) (catalog.Result, error) {
	if !r.proposer.IsLeader() {
		return catalog.Result{}, r.notLeader()
	}
	if result, refused := r.refuseDelayed(c); refused {
		r.meters.lockDelayRefused.Add(1)
		return result, nil
	}
	for {
		result, err := r.propose(ctx, c)
		if err != nil || result.Err != nil || r.renewLeases(ctx, c) {
			return result, err
		}
	}
}

// propose is one try.
func (r *Registry) propose(ctx context.Context, c catalog.Command) (catalog.Result, error) {
	start := time.Now()
	out, err := r.proposer.Propose(ctx, catalog.EncodeCommand(make([]byte, 0, sizeHint(c)), c))
	if err != nil {
		if errkind.Is(err, errkind.NotLeader) {
			return catalog.Result{}, r.notLeader()
		}
		return catalog.Result{}, err
	}
	took := time.Since(start)
	r.meters.apply[c.Op()].Observe(took)
	r.meters.costs.Done(ctx, costKind(c.Op()), took, nil)
	r.meters.costs.Charge(costKind(c.Op()), 1, 0, 0)
	result, ok := out.(*catalog.Result)
	if !ok {
		return catalog.Result{}, errkind.Errorf(errkind.Internal, "the log gave a %T for a catalog command", out)
	}
	return *result, nil
}

// SetRecords proposes operations on records, all or none. ok is false when an
// index did not compare. A refusal is an error of kind Conflict or Invalid.
func (r *Registry) SetRecords(ctx context.Context, ops ...catalog.RecordOp) (result catalog.Result, ok bool,
	err error) {
	result, err = r.Apply(ctx, &catalog.Records{Ops: ops})
	if err == nil {
		err = result.Err
	}
	return result, result.OK && err == nil, err
}

// sizeHint saves the encoder from growing its buffer for the commonest command.
func sizeHint(c catalog.Command) int {
	if kv, ok := c.(*catalog.KV); ok {
		return 96 + len(kv.Pair.Key) + len(kv.Pair.Value)
	}
	return 512
}

// refuseDelayed answers for commands that would acquire a key within its lock delay.
func (r *Registry) refuseDelayed(c catalog.Command) (catalog.Result, bool) {
	switch c := c.(type) {
	case *catalog.KV:
		if c.Verb == catalog.KVLock && r.delays.live(c.Pair.Key) {
			return catalog.Result{Index: r.State().Index()}, true
		}
	case *catalog.Txn:
		var errs []catalog.TxnError
		for i, op := range c.Ops {
			if op.KV != nil && op.KV.Verb == catalog.KVLock && r.delays.live(op.KV.Pair.Key) {
				errs = append(errs, catalog.TxnError{OpIndex: i, What: fmt.Sprintf("failed to lock key %q due to lock delay",
					op.KV.Pair.Key)})
			}
		}
		if errs != nil {
			return catalog.Result{Index: r.State().Index(), TxnErrors: errs}, true
		}
	}
	return catalog.Result{}, false
}

// lockDelays are the keys that may not be acquired for a while. There are never
// more than keys that lost their holder within the longest delay (60 s).
type lockDelays struct {
	clock clock.Clock
	count atomic.Int64
	mu    sync.Mutex
	until map[string]delay
}

type delay struct {
	from time.Time
	span time.Duration
}

func (l *lockDelays) arm(list []catalog.LockDelay) {
	if len(list) == 0 {
		return
	}
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.until == nil {
		l.until = make(map[string]delay)
	}
	for _, d := range list {
		l.until[d.Key] = delay{now, d.Delay}
	}
	l.count.Store(int64(len(l.until)))
}

func (l *lockDelays) live(key string) bool {
	if l.count.Load() == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	d, ok := l.until[key]
	return ok && l.clock.Since(d.from) < d.span
}

func (l *lockDelays) sweep() {
	if l.count.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, d := range l.until {
		if l.clock.Since(d.from) >= d.span {
			delete(l.until, key)
		}
	}
	l.count.Store(int64(len(l.until)))
}
