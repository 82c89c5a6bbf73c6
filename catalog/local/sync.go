package local

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/errkind"
)

// Times of anti-entropy, contract section 24.
const (
	syncInterval  = time.Minute
	retryInterval = 15 * time.Second
	// firstRetry is the least pause before the first full sync is tried again.
	firstRetry     = 500 * time.Millisecond
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

// syncer is anti-entropy: it makes the catalog say what the state says. Whoever changes the
// state notifies it; its queue is the marks in the state.
type syncer struct {
	cfg      *Config
	state    *state
	runs     *runs
	rights   *aliasRights
	kick     chan struct{} // capacity 1: something is to be synced
	full     chan struct{} // capacity 1: a full sync is wanted
	attempts attempts
	synced   atomic.Bool // the catalog was read since the start
	answered atomic.Bool // it was read, or said that this host may not read it
	met      metrics
}

// attempts tell those who registered which version of the state a sync attempt saw.
type attempts struct {
	mu   sync.Mutex
	seen uint64        // newest version that an attempt saw
	next chan struct{} // closed and replaced after each attempt
}

// note wakes those who wait for an attempt that saw version.
func (a *attempts) note(version uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen = max(a.seen, version)
	close(a.next)
	a.next = make(chan struct{})
}

func (a *attempts) newest() (uint64, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen, a.next
}

// notify says that the state has something to tell.
func (s *syncer) notify() { signal(s.kick) }

// signal fills a channel of capacity 1.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// await waits until a sync that saw version was attempted, at most SyncWait.
func (s *syncer) await(ctx context.Context, version uint64) {
	timer := s.cfg.Clock.NewTimer(s.cfg.SyncWait)
	defer timer.Stop()
	for {
		seen, next := s.attempts.newest()
		if seen >= version {
			return
		}
		select {
		case <-next:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// scaleFactor stretches the stagger with the cluster, so that the servers' load from
// full syncs stays about equal beyond 128 hosts.
func scaleFactor(hosts int) time.Duration {
	if hosts <= 128 {
		return 1
	}
	return time.Duration(math.Ceil(math.Log2(float64(hosts))-7) + 1)
}

// stagger is a random part of d, which must be above 0, scaled by the cluster's size.
func (s *syncer) stagger(d time.Duration) time.Duration {
	return time.Duration(s.cfg.Rand(int64(d * scaleFactor(s.cfg.ClusterSize()))))
}

// loop owns all calls to the servers.
func (s *syncer) loop(ctx context.Context) {
	clk := s.cfg.Clock
	full := clk.NewTimer(0) // the first full sync is at once
	defer full.Stop()
	outputScan := max(s.cfg.CheckUpdateInterval/50, minOutputScan)
	scan := clk.NewTimer(outputScan)
	defer scan.Stop()
	serverUp := s.cfg.ServerUp
	fullAt := clk.Now()
	tries := 0 // of the first full sync
	schedule := func(d time.Duration) {
		fullAt = clk.Now().Add(d)
		full.Reset(d)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-full.C:
			next := syncInterval + s.stagger(syncInterval)
			if err := s.syncFull(ctx); err != nil && ctx.Err() == nil {
				pause := retryInterval
				if tries++; !s.answered.Load() { // an attempt that fell between two leaders is not to hold up a start
					pause = min(pause, firstRetry<<min(tries-1, 10))
				}
				level := slog.LevelWarn
				if pause < retryInterval { // servers still look for a leader while the process starts: no news
					level = slog.LevelDebug
				}
				next = pause + s.stagger(pause)
				s.cfg.Log.Log(ctx, level, "the catalog is not in sync", "error", err, "retry", next)
			}
			schedule(next)
		case <-s.full:
			schedule(0)
		case _, open := <-serverUp:
			if !open {
				serverUp = nil
				continue
			}
			schedule(s.stagger(min(serverUpSpread, time.Duration(max(s.cfg.ClusterSize(), 1))*serverUpShare)))
		case <-scan.C:
			if s.state.releaseOutputs(clk.Now()) {
				s.notify()
			}
			scan.Reset(outputScan)
		case <-s.kick:
			if s.state.resuming() {
				schedule(0)
				continue
			}
			if err := s.syncChanges(ctx); err != nil && ctx.Err() == nil {
				next := retryInterval + s.stagger(retryInterval)
				if clk.Now().Add(next).Before(fullAt) { // never later: a failing change must not put off a sync that is near
					schedule(next)
				}
				s.cfg.Log.Warn("a change did not reach the catalog", "error", err, "retry", next)
			}
		}
	}
}

// syncFull compares everything with the catalog and mends what differs.
func (s *syncer) syncFull(ctx context.Context) error {
	s.met.full.Add(1)
	if s.rights.judge(ctx) { // a restart tells no alias critical before it asked
		s.notify()
	}
	token := s.cfg.tokens().own()
	own, version := s.state.own()
	name := s.cfg.Node.Name
	var stored Stored
	var err error
	if stored.Node, err = call(ctx, s, func(ctx context.Context) (*catalog.Node, error) {
		return s.cfg.Servers.NodeInfo(ctx, token, name)
	}); err == nil {
		stored.Services, err = call(ctx, s, func(ctx context.Context) ([]*catalog.Service, error) {
			return s.cfg.Servers.NodeServices(ctx, token, name)
		})
	}
	if err == nil {
		stored.Checks, err = call(ctx, s, func(ctx context.Context) ([]*catalog.Check, error) {
			return s.cfg.Servers.NodeChecks(ctx, token, name)
		})
	}
	if err != nil {
		if errkind.Is(err, errkind.Denied) {
			s.answered.Store(true)
		}
		s.state.resumeFailed(err)
		s.attempts.note(version) // waiting callers have had their attempt
		s.met.failed.Add(1)
		return err
	}
	if s.state.resuming() {
		s.runs.resume(stored.Checks)
		own, version = s.state.own()
	}
	s.synced.Store(true)
	s.answered.Store(true)
	s.state.plan(Diff(own, stored), version)
	return s.syncChanges(ctx)
}

// call bounds one call to the servers.
func call[T any](ctx context.Context, s *syncer, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.CallTimeout)
	defer cancel()
	return f(ctx)
}

// syncChanges tells the catalog what changed: removals first, then
// registrations in batches. What could not be told stays marked.
func (s *syncer) syncChanges(ctx context.Context) error {
	w := s.state.collect()
	defer s.attempts.note(w.version)
	if err := s.remove(ctx, w.removals); err != nil {
		s.met.failed.Add(1)
		return err
	}
	for len(w.registers) > 0 {
		n := 1
		for n < min(len(w.registers), maxBatch) && w.registers[n].token == w.registers[0].token {
			n++
		}
		if err := s.registerBatch(ctx, w.registers[:n]); err != nil {
			s.met.failed.Add(1)
			return err
		}
		w.registers = w.registers[n:]
	}
	return nil
}

// registerBatch tries one call for all; when it fails, one by one, so that a
// registration that is refused does not hold up the others.
func (s *syncer) registerBatch(ctx context.Context, batch []registration) error {
	regs := make([]*catalog.Register, len(batch))
	for i := range batch {
		regs[i] = batch[i].reg
	}
	s.met.registers.Add(uint64(len(regs)))
	_, err := call(ctx, s, func(ctx context.Context) (struct{}, error) {
		if len(regs) == 1 {
			return struct{}{}, s.cfg.Servers.Register(ctx, batch[0].token, regs[0])
		}
		return struct{}{}, s.cfg.Servers.RegisterBatch(ctx, batch[0].token, regs)
	})
	switch {
	case err == nil:
		s.state.settle(batch)
		s.tell(batch)
		return nil
	case !refused(err):
		return err
	case len(batch) == 1:
		s.cfg.Log.Error("the catalog refused a registration", "service", batch[0].service, "error", err)
		s.state.settle(batch) // until the next full sync finds it missing
		return nil
	}
	for i := range batch {
		if err := s.registerBatch(ctx, batch[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// tell logs what reached the catalog.
func (s *syncer) tell(batch []registration) {
	if !s.cfg.Log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	for _, r := range batch {
		if r.serviceGen != 0 {
			s.cfg.Log.Debug("synced a service", "service", r.service)
		}
		for _, c := range r.checks {
			s.cfg.Log.Debug("synced a check", "check", c.id)
		}
	}
}

func refused(err error) bool {
	return errkind.Is(err, errkind.Invalid) || errkind.Is(err, errkind.Denied) || errkind.Is(err, errkind.TooLarge)
}

// remove deregisters with a bounded number of calls at once.
func (s *syncer) remove(ctx context.Context, removals []removal) error {
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
			if err := s.removeOne(ctx, r); err != nil {
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

func (s *syncer) removeOne(ctx context.Context, r removal) error {
	s.met.deregisters.Add(1)
	_, err := call(ctx, s, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.cfg.Servers.Deregister(ctx, r.token, &catalog.Deregister{
			Node: s.cfg.Node.Name, ServiceID: r.service, CheckID: r.check})
	})
	switch {
	case err == nil, errkind.Is(err, errkind.NotFound):
	case refused(err):
		s.cfg.Log.Error("the catalog refused a removal", "service", r.service, "check", r.check, "error", err)
	default:
		return err
	}
	s.state.removed(r)
	return nil
}
