package node

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// reignGrace is how long a former leader may take to answer what it was asked: one
// that lives refuses what it cannot finish at once, one that hangs or is cut off never answers.
const reignGrace = time.Second

// reigns ends calls to a leader that leads no more. A frozen process, a hanging disk and
// a cut network leave a connection open and silent, and whoever waits on it would wait
// until the call's own deadline, which for a blocking query is minutes away.
//
// The map holds one entry per address that was called while it led: a few.
type reigns struct {
	leader  func() string
	changes func() <-chan struct{}

	mu  sync.Mutex // guards all
	all map[string]reign

	// empty is since when no leader is known, in nanoseconds of the wall clock; 0 while one is.
	empty atomic.Int64
}

type reign struct {
	ctx context.Context
	end context.CancelFunc
}

// Of returns the context that ends with the reign of the leader at addr.
func (r *reigns) Of(addr string) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one, ok := r.all[addr]; ok {
		return one.ctx
	}
	if r.all == nil {
		r.all = map[string]reign{}
	}
	ctx, end := context.WithCancel(context.Background())
	r.all[addr] = reign{ctx, end}
	return ctx
}

// Vacant returns since when no leader is known; a long time ago when none ever was.
func (r *reigns) Vacant() time.Time {
	if at := r.empty.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Now()
}

func (r *reigns) noteVacancy() {
	if r.leader() != "" {
		r.empty.Store(0)
	} else {
		r.empty.CompareAndSwap(0, time.Now().UnixNano())
	}
}

// run follows who leads until ctx ends, and then ends all reigns.
func (r *reigns) run(ctx context.Context) error {
	defer r.endOthers("")
	r.empty.Store(1)
	timer := time.NewTimer(reignGrace)
	defer timer.Stop()
	timer.Stop()
	running := false // the grace, since a reign other than the leader's was seen
	for {
		changed := r.changes()
		r.noteVacancy()
		if stale := r.stale(r.leader()); stale != running {
			running = stale
			timer.Stop()
			if stale {
				timer.Reset(reignGrace)
			}
		}
		select {
		case <-timer.C:
			r.endOthers(r.leader())
			running = false
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// stale reports whether a reign other than that of addr goes on.
func (r *reigns) stale(addr string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for other := range r.all {
		if other != addr {
			return true
		}
	}
	return false
}

func (r *reigns) endOthers(addr string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for other, one := range maps.All(r.all) {
		if other != addr {
			one.end()
			delete(r.all, other)
		}
	}
}
