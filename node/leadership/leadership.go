// Package leadership ends calls to a leader that leads no more, with its term. Run follows who leads.
package leadership

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// grace is how long a former leader may take to answer what it was asked: one
// that lives refuses what it cannot finish at once, one that hangs or is cut off never answers.
const grace = time.Second

// Terms ends calls to a leader that leads no more. A frozen process, a hanging disk and
// a cut network leave a connection open and silent, and whoever waits on it would wait
// until the call's own deadline, which for a blocking query is minutes away.
//
// The map holds one entry per address that was called while it led: a few.
type Terms struct {
	Leader  func() string
	Changes func() <-chan struct{}

	mu  sync.Mutex // guards all
	all map[string]term

	// empty is since when no leader is known, in nanoseconds of the wall clock; 0 while one is.
	empty atomic.Int64
}

type term struct {
	ctx context.Context
	end context.CancelFunc
}

// Of returns the context that ends with the term of the leader at addr.
func (r *Terms) Of(addr string) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one, ok := r.all[addr]; ok {
		return one.ctx
	}
	if r.all == nil {
		r.all = map[string]term{}
	}
	ctx, end := context.WithCancel(context.Background())
	r.all[addr] = term{ctx, end}
	return ctx
}

// Vacant returns since when no leader is known: since Run began at the earliest. A server that has just started does
// not know the leader that its cluster has, and must not refuse for it what comes to it meanwhile.
func (r *Terms) Vacant() time.Time {
	if at := r.empty.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Now()
}

func (r *Terms) noteVacancy() {
	if r.Leader() != "" {
		r.empty.Store(0)
	} else {
		r.empty.CompareAndSwap(0, time.Now().UnixNano())
	}
}

// Run follows who leads until ctx ends, and then ends all terms.
func (r *Terms) Run(ctx context.Context) error {
	defer r.endOthers("")
	r.empty.Store(time.Now().UnixNano())
	timer := time.NewTimer(grace)
	defer timer.Stop()
	timer.Stop()
	running := false // the grace, since a term other than the leader's was seen
	for {
		changed := r.Changes()
		r.noteVacancy()
		if stale := r.stale(r.Leader()); stale != running {
			running = stale
			timer.Stop()
			if stale {
				timer.Reset(grace)
			}
		}
		select {
		case <-timer.C:
			r.endOthers(r.Leader())
			running = false
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// stale reports whether a term other than that of addr goes on.
func (r *Terms) stale(addr string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for other := range r.all {
		if other != addr {
			return true
		}
	}
	return false
}

func (r *Terms) endOthers(addr string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for other, one := range maps.All(r.all) {
		if other != addr {
			one.end()
			delete(r.all, other)
		}
	}
}
