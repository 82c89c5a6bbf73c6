package telemetry

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// slowKept is how many of the slowest requests each plane keeps, slowFor for how long one is of interest.
	slowKept = 16
	slowFor  = 5 * time.Minute
	// slowLeast is from how long on a request is worth keeping at all.
	slowLeast = 2 * time.Millisecond
)

// Spent is how long a request spent in each stage; what no stage accounts for is its own computing.
type Spent [stageCount]time.Duration

// Slow is one of the slowest requests of late.
type Slow struct {
	Plane, Kind string
	At          time.Time
	Took        time.Duration
	Spent       Spent
	// Trace is the trace's id where the caller sent one (W3C traceparent), or where its spans are exported.
	Trace string
}

// Each calls f for each stage that took any time, in their order.
func (s *Spent) Each(f func(stage string, took time.Duration)) {
	for i, d := range s {
		if d > 0 {
			f(Stage(i).String(), d)
		}
	}
}

// slowRing keeps the slowest. Requests that are faster than all it has take one atomic load.
type slowRing struct {
	// bar is how long a request has to take to get in, in nanoseconds.
	bar atomic.Int64

	mu  sync.Mutex // guards all
	all []Slow
}

func (r *slowRing) offer(s Slow) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = slices.DeleteFunc(r.all, func(o Slow) bool { return s.At.Sub(o.At) > slowFor })
	r.all = append(r.all, s)
	slices.SortFunc(r.all, func(a, b Slow) int { return -cmp.Compare(a.Took, b.Took) })
	r.bar.Store(int64(slowLeast))
	if len(r.all) > slowKept {
		r.all = r.all[:slowKept]
		r.bar.Store(int64(r.all[slowKept-1].Took))
	}
}

// list gives those of late and lets newer ones in, where old ones held the bar up.
func (r *slowRing) list(now time.Time) []Slow {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = slices.DeleteFunc(r.all, func(o Slow) bool { return now.Sub(o.At) > slowFor })
	if len(r.all) < slowKept {
		r.bar.Store(int64(slowLeast))
	}
	return slices.Clone(r.all)
}

// Done records that a request of a kind ended: request.total{plane,kind}, request.stage for what it spent, and itself
// when it is one of the slowest. spent may be nil. ctx is the request's: it has the caller's trace (WithTrace), and
// the span that this is a part of (WithRequest).
func (s *Stages) Done(ctx context.Context, kind int, took time.Duration, spent *Spent) {
	if s == nil || uint(kind) >= uint(len(s.totals)) {
		return
	}
	s.totals[kind].Observe(took)
	if spent != nil {
		for stage, d := range spent {
			if d > 0 {
				s.timing(kind, Stage(stage)).Observe(d)
			}
		}
	}
	slow, trace := int64(took) > s.slow.bar.Load(), ""
	if q := s.r.cfg.Traces.on(); q != nil {
		trace = s.trace(ctx, q, kind, took, spent, slow)
	}
	if !slow {
		return
	}
	if trace == "" {
		trace = TraceOf(ctx)
	}
	one := Slow{Plane: s.plane, Kind: s.kinds[kind], At: s.r.cfg.Clock.Now(), Took: took, Trace: trace}
	if spent != nil {
		one.Spent = *spent
	}
	s.slow.offer(one)
}

// Shed counts a request of the plane that was turned away for want of capacity: request.shed{plane}.
func (s *Stages) Shed() {
	if s != nil {
		s.shed.Add(1)
	}
}

// Slowest gives the slowest requests of late of all planes that count in the registry, the slowest first.
func (r *Registry) Slowest() []Slow {
	if r == nil {
		return nil
	}
	r.mu.RLock()
	rings := slices.Clone(r.slow)
	r.mu.RUnlock()
	var out []Slow
	now := r.cfg.Clock.Now()
	for _, ring := range rings {
		out = append(out, ring.list(now)...)
	}
	slices.SortStableFunc(out, func(a, b Slow) int { return -cmp.Compare(a.Took, b.Took) })
	return out
}
