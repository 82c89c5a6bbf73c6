package limit

import (
	"context"
	"slices"
	"sync"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
)

// GateConfig configures a Gate.
type GateConfig struct {
	// Name appears in errors.
	Name string
	// Slots is how many may hold a permit at once; zero means 1.
	Slots int
	// MaxWaiting bounds all who wait, MaxPerKey those of one key; zero means 1,024 and a quarter of MaxWaiting.
	MaxWaiting, MaxPerKey int
	// MaxHeldPerKey bounds the permits that one key holds at once, so that one whose work hangs leaves slots to others;
	// zero does not.
	MaxHeldPerKey int
	// MaxWait bounds one wait; zero means 10 s. The context's deadline counts too.
	MaxWait time.Duration
	// Clock measures time; nil means the machine's.
	Clock clock.Clock
}

// Gate limits concurrency with a fair queue. Safe for concurrent use.
type Gate struct {
	cfg GateConfig

	mu      sync.Mutex     // guards all below
	free    int            // above 0: whoever waits holds as many as its key may
	held    map[string]int // by key, where MaxHeldPerKey is set
	queues  map[string]*line
	turn    []*line // keys with waiters, next turn first
	waiting int
	hold    time.Duration // moving average of how long a permit is held
	stats   GateStats
}

// GateStats is a reading of a Gate's counters.
type GateStats struct {
	Slots, Free, Waiting int
	// Granted counts permits, Refused those turned away because the queue was full
	// or the deadline could not be met, TimedOut those whose wait ended without a permit.
	Granted, Refused, TimedOut uint64
	Waited                     time.Duration
}

// line is one key's queue.
type line struct {
	key     string
	waiters []*waiter
}

type waiter struct {
	ready   chan struct{}
	granted bool
}

// Permit is the right to run. Release it exactly once.
type Permit struct {
	gate *Gate
	key  string
	at   time.Time
}

// NewGate makes a gate.
func NewGate(cfg GateConfig) *Gate {
	if cfg.Name == "" {
		cfg.Name = "gate"
	}
	cfg.Slots = max(cfg.Slots, 1)
	if cfg.MaxWaiting <= 0 {
		cfg.MaxWaiting = 1024
	}
	if cfg.MaxPerKey <= 0 {
		cfg.MaxPerKey = max(1, cfg.MaxWaiting/4)
	}
	if cfg.MaxWait <= 0 {
		cfg.MaxWait = 10 * time.Second
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Real{}
	}
	return &Gate{cfg: cfg, free: cfg.Slots, held: map[string]int{}, queues: map[string]*line{}}
}

// Acquire waits for a permit in key's queue. It fails with kind Overloaded when
// the queue is full or the wait would pass ctx's deadline or MaxWait, or with
// the context's error when that is cancelled.
func (g *Gate) Acquire(ctx context.Context, key string) (Permit, error) {
	begin := g.cfg.Clock.Now()
	g.mu.Lock()
	if g.free > 0 && g.mayHoldLocked(key) {
		g.takeLocked(key)
		g.stats.Granted++
		g.mu.Unlock()
		return Permit{g, key, begin}, nil
	}
	limit := g.limit(ctx, begin)
	if err := g.refuseLocked(key, limit); err != nil {
		g.mu.Unlock()
		return Permit{}, err
	}
	w := g.enqueueLocked(key)
	g.mu.Unlock()
	timer := g.cfg.Clock.NewTimer(limit)
	defer timer.Stop()
	var err error
	select {
	case <-w.ready:
	case <-timer.C:
		err = errkind.Errorf(errkind.Overloaded, "%s: no permit within %s", g.cfg.Name, limit)
	case <-ctx.Done():
		err = ctx.Err()
	}
	return g.settle(w, key, begin, err)
}

func (g *Gate) limit(ctx context.Context, now time.Time) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(g.cfg.MaxWait, deadline.Sub(now))
	}
	return g.cfg.MaxWait
}

func (g *Gate) refuseLocked(key string, limit time.Duration) error {
	perKey := 0
	if l := g.queues[key]; l != nil {
		perKey = len(l.waiters)
	}
	expected := g.hold * time.Duration(g.waiting+1) / time.Duration(g.cfg.Slots)
	switch {
	case g.waiting >= g.cfg.MaxWaiting || perKey >= g.cfg.MaxPerKey:
		g.stats.Refused++
		return errkind.Errorf(errkind.Overloaded, "%s: queue is full (%d waiting)", g.cfg.Name, g.waiting)
	case expected > limit && g.fairShareLocked(key):
		g.stats.Refused++
		return errkind.Errorf(errkind.Overloaded, "%s: a wait of about %s passes the deadline", g.cfg.Name,
			expected.Round(time.Millisecond))
	}
	return nil
}

// fairShareLocked reports whether key already has its turn's worth of waiters:
// the estimate counts all queues, and must not refuse a key whose turn is near.
func (g *Gate) fairShareLocked(key string) bool {
	l := g.queues[key]
	return l != nil && len(l.waiters)*max(1, len(g.turn)) >= g.waiting
}

func (g *Gate) enqueueLocked(key string) *waiter {
	l := g.queues[key]
	if l == nil {
		l = &line{key: key}
		g.queues[key] = l
		g.turn = append(g.turn, l)
	}
	w := &waiter{ready: make(chan struct{})}
	l.waiters = append(l.waiters, w)
	g.waiting++
	return w
}

// settle ends a wait: a permit that arrived together with a failure is kept.
func (g *Gate) settle(w *waiter, key string, begin time.Time, err error) (Permit, error) {
	now := g.cfg.Clock.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stats.Waited += now.Sub(begin)
	if w.granted {
		g.stats.Granted++
		return Permit{g, key, now}, nil
	}
	g.stats.TimedOut++
	g.leaveLocked(w, key)
	return Permit{}, err
}

func (g *Gate) leaveLocked(w *waiter, key string) {
	l := g.queues[key]
	for i, other := range l.waiters {
		if other == w {
			l.waiters = append(l.waiters[:i], l.waiters[i+1:]...)
			break
		}
	}
	g.waiting--
	if len(l.waiters) > 0 {
		return
	}
	delete(g.queues, key)
	for i, other := range g.turn {
		if other == l {
			g.turn = append(g.turn[:i], g.turn[i+1:]...)
			return
		}
	}
}

// Release gives the permit back and hands it to whoever's turn it is.
func (p Permit) Release() {
	g := p.gate
	held := g.cfg.Clock.Since(p.at)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hold += (held - g.hold) / 8
	g.free++
	if g.held[p.key]--; g.held[p.key] <= 0 {
		delete(g.held, p.key)
	}
	g.handLocked()
}

// handLocked gives a free permit to the first in turn whose key may hold one more.
func (g *Gate) handLocked() {
	for i, l := range g.turn {
		if !g.mayHoldLocked(l.key) {
			continue
		}
		g.turn = slices.Delete(g.turn, i, i+1)
		w := l.waiters[0]
		l.waiters = l.waiters[1:]
		g.waiting--
		if len(l.waiters) > 0 {
			g.turn = append(g.turn, l)
		} else {
			delete(g.queues, l.key)
		}
		g.takeLocked(l.key)
		w.granted = true
		close(w.ready)
		return
	}
}

func (g *Gate) mayHoldLocked(key string) bool {
	return g.cfg.MaxHeldPerKey <= 0 || g.held[key] < g.cfg.MaxHeldPerKey
}

func (g *Gate) takeLocked(key string) {
	g.free--
	if g.cfg.MaxHeldPerKey > 0 {
		g.held[key]++
	}
}

// RetryAfter is how long the queue of now will take: what to tell those who were refused.
func (g *Gate) RetryAfter() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(time.Second, g.hold*time.Duration(g.waiting+1)/time.Duration(g.cfg.Slots))
}

// Stats reads the counters.
func (g *Gate) Stats() GateStats {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.stats
	s.Slots, s.Free, s.Waiting = g.cfg.Slots, g.free, g.waiting
	return s
}
