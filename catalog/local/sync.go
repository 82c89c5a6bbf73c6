package local

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/errkind"
)

// Times of anti-entropy, contract section 24.
const (
	syncInterval   = time.Minute
	retryInterval  = 15 * time.Second
	serverUpSpread = 3 * time.Second
	// serverUpShare is each host's share of that spread: a few hosts need none,
	// and whoever starts one sees its services at once.
	serverUpShare = 20 * time.Millisecond
	// minOutputScan is the least time between looks at the outputs held back; it
	// is a fiftieth of CheckUpdateInterval otherwise: fine next to its jitter.
	minOutputScan = time.Second
	// maxBatch bounds one RegisterBatch: large enough that thousands of
	// registrations a second are tens of calls, small enough for one log entry.
	maxBatch = 256
	// removers is how many deregistrations are under way at once; servers merge them.
	removers = 16
)

// scaleFactor stretches the stagger with the cluster, so that the servers' load from
// full syncs stays about equal beyond 128 hosts.
func scaleFactor(hosts int) time.Duration {
	if hosts <= 128 {
		return 1
	}
	return time.Duration(math.Ceil(math.Log2(float64(hosts))-7) + 1)
}

// stagger is a random part of d, which must be above 0, scaled by the cluster's size.
func (l *Local) stagger(d time.Duration) time.Duration {
	return time.Duration(l.cfg.Rand(int64(d * scaleFactor(l.cfg.ClusterSize()))))
}

// syncLoop owns all calls to the servers.
func (l *Local) syncLoop(ctx context.Context) {
	clk := l.cfg.Clock
	full := clk.NewTimer(0) // the first full sync is at once
	defer full.Stop()
	outputScan := max(l.cfg.CheckUpdateInterval/50, minOutputScan)
	scan := clk.NewTimer(outputScan)
	defer scan.Stop()
	serverUp := l.cfg.ServerUp
	fullAt := clk.Now()
	first := true
	schedule := func(d time.Duration) {
		fullAt = clk.Now().Add(d)
		full.Reset(d)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-full.C:
			next := syncInterval + l.stagger(syncInterval)
			if err := l.syncFull(ctx); err != nil && ctx.Err() == nil {
				next = retryInterval + l.stagger(retryInterval)
				level := slog.LevelWarn
				if first { // servers still look for a leader while the process starts: no news
					level = slog.LevelDebug
				}
				l.cfg.Log.Log(ctx, level, "the catalog is not in sync", "error", err, "retry", next)
			}
			first = false
			schedule(next)
		case <-l.full:
			schedule(0)
		case _, open := <-serverUp:
			if !open {
				serverUp = nil
				continue
			}
			schedule(l.stagger(min(serverUpSpread, time.Duration(max(l.cfg.ClusterSize(), 1))*serverUpShare)))
		case <-scan.C:
			if l.board.releaseOutputs(clk.Now()) {
				l.poke(l.kick)
			}
			scan.Reset(outputScan)
		case <-l.kick:
			if l.board.resuming() {
				schedule(0)
				continue
			}
			if err := l.syncChanges(ctx); err != nil && ctx.Err() == nil {
				next := retryInterval + l.stagger(retryInterval)
				if clk.Now().Add(next).Before(fullAt) { // never later: a failing change must not put off a sync that is near
					schedule(next)
				}
				l.cfg.Log.Warn("a change did not reach the catalog", "error", err, "retry", next)
			}
		}
	}
}

// SyncNow asks for a full sync soon; it does not wait for it.
func (l *Local) SyncNow() { l.poke(l.full) }

// syncFull compares everything with the catalog and mends what differs.
func (l *Local) syncFull(ctx context.Context) error {
	l.met.full.Add(1)
	l.judgeAliases(ctx) // a restart tells no alias critical before it asked
	reads := WithToken(ctx, l.cfg.tokens().own())
	own, version := l.board.own()
	name := l.cfg.Node.Name
	var stored Stored
	var err error
	if stored.Node, err = call(reads, l, func(ctx context.Context) (*catalog.Node, error) {
		return l.cfg.Servers.NodeInfo(ctx, name)
	}); err == nil {
		stored.Services, err = call(reads, l, func(ctx context.Context) ([]*catalog.Service, error) {
			return l.cfg.Servers.NodeServices(ctx, name)
		})
	}
	if err == nil {
		stored.Checks, err = call(reads, l, func(ctx context.Context) ([]*catalog.Check, error) {
			return l.cfg.Servers.NodeChecks(ctx, name)
		})
	}
	if err != nil {
		l.board.resumeFailed(err)
		l.board.tried(version) // waiting callers have had their attempt
		l.met.failed.Add(1)
		return err
	}
	if l.board.resuming() {
		l.resume(stored.Checks)
		own, version = l.board.own()
	}
	l.synced.Store(true)
	l.board.plan(Diff(own, stored), version)
	return l.syncChanges(ctx)
}

// call bounds one call to the servers.
func call[T any](ctx context.Context, l *Local, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.CallTimeout)
	defer cancel()
	return f(ctx)
}

// syncChanges tells the catalog what changed: removals first, then
// registrations in batches. What could not be told stays marked.
func (l *Local) syncChanges(ctx context.Context) error {
	w := l.board.collect()
	defer l.board.tried(w.version)
	if err := l.remove(ctx, w.removals); err != nil {
		l.met.failed.Add(1)
		return err
	}
	for len(w.registers) > 0 {
		n := 1
		for n < min(len(w.registers), maxBatch) && w.registers[n].token == w.registers[0].token {
			n++
		}
		if err := l.registerBatch(ctx, w.registers[:n]); err != nil {
			l.met.failed.Add(1)
			return err
		}
		w.registers = w.registers[n:]
	}
	return nil
}

// registerBatch tries one call for all; when it fails, one by one, so that a
// registration that is refused does not hold up the others.
func (l *Local) registerBatch(ctx context.Context, batch []registration) error {
	regs := make([]*catalog.Register, len(batch))
	for i := range batch {
		regs[i] = batch[i].reg
	}
	l.met.registers.Add(uint64(len(regs)))
	_, err := call(WithToken(ctx, batch[0].token), l, func(ctx context.Context) (struct{}, error) {
		if len(regs) == 1 {
			return struct{}{}, l.cfg.Servers.Register(ctx, regs[0])
		}
		return struct{}{}, l.cfg.Servers.RegisterBatch(ctx, regs)
	})
	switch {
	case err == nil:
		l.board.settle(batch)
		l.tell(batch)
		return nil
	case !refused(err):
		return err
	case len(batch) == 1:
		l.cfg.Log.Error("the catalog refused a registration", "service", batch[0].service, "error", err)
		l.board.settle(batch) // until the next full sync finds it missing
		return nil
	}
	for i := range batch {
		if err := l.registerBatch(ctx, batch[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// tell logs what reached the catalog.
func (l *Local) tell(batch []registration) {
	if !l.cfg.Log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	for _, r := range batch {
		if r.serviceGen != 0 {
			l.cfg.Log.Debug("synced a service", "service", r.service)
		}
		for _, c := range r.checks {
			l.cfg.Log.Debug("synced a check", "check", c.id)
		}
	}
}

func refused(err error) bool {
	return errkind.Is(err, errkind.Invalid) || errkind.Is(err, errkind.Denied) || errkind.Is(err, errkind.TooLarge)
}

// remove deregisters with a bounded number of calls at once.
func (l *Local) remove(ctx context.Context, removals []removal) error {
	var wg sync.WaitGroup
	slots := make(chan struct{}, removers)
	var mu sync.Mutex
	var first error
	for _, r := range removals {
		slots <- struct{}{}
		mu.Lock()
		failed := first != nil
		mu.Unlock()
		if failed {
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := l.removeOne(ctx, r); err != nil {
				mu.Lock()
				if first == nil {
					first = err
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return first
}

func (l *Local) removeOne(ctx context.Context, r removal) error {
	l.met.deregisters.Add(1)
	_, err := call(WithToken(ctx, r.token), l, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, l.cfg.Servers.Deregister(ctx, &catalog.Deregister{
			Node: l.cfg.Node.Name, ServiceID: r.service, CheckID: r.check})
	})
	switch {
	case err == nil, errkind.Is(err, errkind.NotFound):
	case refused(err):
		l.cfg.Log.Error("the catalog refused a removal", "service", r.service, "check", r.check, "error", err)
	default:
		return err
	}
	l.board.removed(r)
	return nil
}
