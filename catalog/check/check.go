// Package check runs health checks on a host: it decides when each is due, runs
// it within its deadline, damps flapping and reports what came out.
//
// Invariants:
//   - One goroutine schedules all checks from a heap; a check that is not due
//     costs memory only, no goroutine and no timer.
//   - At most one run of a check is under way. At most MaxConcurrent network
//     probes and MaxScripts scripts run at once; a check that is due while all are
//     taken waits in a queue that holds each check at most once.
//   - Every run has a deadline, and a script is killed with its whole process
//     group: a hanging check delays nobody beyond the slot that it holds.
//   - Notify is never called under a lock. Results of one check carry growing
//     Seq numbers under which the receiver drops what came late.
//
// All methods are safe for concurrent use. Not here: what a status means, alias
// targets (their Probe is given), telling the catalog.
package check

import (
	"container/heap"
	"context"
	"crypto/tls"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/telemetry"
)

// Config is what a Runner needs; zero fields mean the defaults.
type Config struct {
	Clock clock.Clock
	Log   *slog.Logger
	// Metrics takes check.runs, check.late (due to begun) and check.waiting; nil is allowed.
	Metrics *telemetry.Registry
	// MaxConcurrent bounds the network probes that run at once; 0 means 512.
	MaxConcurrent int
	// MaxScripts bounds the scripts that run at once; 0 means 64.
	MaxScripts int
	// TLS is the base of checks that use TLS (client certificate, roots); nil means Go's defaults.
	TLS *tls.Config
	// Rand returns a number in [0, n): the stagger of first runs. nil means math/rand.
	Rand func(n int64) int64
}

func (c *Config) complete() {
	if c.Clock == nil {
		c.Clock = clock.Real{}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.MaxConcurrent <= 0 {
		c.MaxConcurrent = 512
	}
	if c.MaxScripts <= 0 {
		c.MaxScripts = 64
	}
	if c.Rand == nil {
		c.Rand = rand.Int64N
	}
}

// Notify takes a check's result to show. seq grows with each result of one Add.
type Notify func(seq uint64, r Result)

// Runner runs checks.
type Runner struct {
	cfg  Config
	wake chan struct{} // capacity 1: the heap's top may have changed
	wg   sync.WaitGroup
	runs *telemetry.Counter
	late *telemetry.Timing

	mu      sync.Mutex // guards what follows and the items; no calls out under it
	items   map[string]*item
	due     dueHeap
	network lane
	scripts lane
}

// lane is a class of probes with a bound of its own.
type lane struct {
	limit   int
	running int
	ready   []*item // due and waiting for a slot; each item at most once
}

// item is one check. Guarded by Runner.mu except spec, probe and notify, which never change.
type item struct {
	id     string
	spec   Spec
	probe  Probe
	notify Notify
	lane   *lane

	at     time.Time          // when it is due
	pos    int                // place in the heap, -1 when not in it
	cancel context.CancelFunc // of the run under way
	gone   bool
	flap   Flap
	output string
	last   catalog.Health // the status notified last, when shown
	shown  bool
	seq    uint64
}

// New builds a Runner; it runs nothing until Run.
func New(cfg Config) *Runner {
	cfg.complete()
	r := &Runner{cfg: cfg, wake: make(chan struct{}, 1), items: map[string]*item{},
		network: lane{limit: cfg.MaxConcurrent}, scripts: lane{limit: cfg.MaxScripts},
		runs: cfg.Metrics.Counter("check.runs"), late: cfg.Metrics.Timing("check.late")}
	cfg.Metrics.GaugeFunc("check.waiting", func() float64 {
		r.mu.Lock()
		defer r.mu.Unlock()
		return float64(len(r.network.ready) + len(r.scripts.ready))
	})
	return r
}

// Add begins to run a check, in place of the one with the same id. The first
// run of a probe is at a random moment within its interval; a TTL check's period
// starts now. Maintenance checks and specs without a kind are never run.
func (r *Runner) Add(id string, spec Spec, notify Notify) {
	spec.complete()
	it := &item{id: id, spec: spec, notify: notify, pos: -1, lane: &r.network,
		flap: Flap{Status: spec.Status}, output: spec.Output}
	wait := spec.TTLLeft
	switch spec.Kind {
	case KindTTL:
	case KindMaintenance, "":
		wait = -1
	default:
		it.probe = r.probe(spec)
		wait = time.Duration(r.cfg.Rand(int64(spec.Interval)))
		if spec.Kind == KindScript {
			it.lane = &r.scripts
		}
	}
	now := r.cfg.Clock.Now()
	r.mu.Lock()
	if old := r.items[id]; old != nil {
		r.dropLocked(old)
	}
	r.items[id] = it
	if wait >= 0 {
		r.scheduleLocked(it, now.Add(wait))
	}
	r.mu.Unlock()
}

// Remove ends a check; a run under way is cancelled. A result that is already
// on its way may still be notified.
func (r *Runner) Remove(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if it := r.items[id]; it != nil {
		r.dropLocked(it)
	}
}

// Len is the number of checks.
func (r *Runner) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.items)
}

// Heartbeat sets a TTL check's status and starts its period anew. NotFound when
// there is no such check, Internal with the contract's text when it has no TTL.
func (r *Runner) Heartbeat(id string, res Result) error {
	now := r.cfg.Clock.Now()
	r.mu.Lock()
	it := r.items[id]
	if it == nil || it.spec.Kind != KindTTL {
		r.mu.Unlock()
		if it == nil {
			return errkind.Errorf(errkind.NotFound,
				"Unknown check ID %q. Ensure that the check ID is passed, not the check name.", id)
		}
		return errkind.Errorf(errkind.Internal, "CheckID %q does not have associated TTL", id)
	}
	res.Output = tail(res.Output, it.spec.OutputMaxSizeBytes)
	it.flap.Status, it.output = res.Status, res.Output
	it.seq++
	seq := it.seq
	it.at = now.Add(it.spec.TTL)
	if it.pos >= 0 {
		heap.Fix(&r.due, it.pos) // later than before: the scheduler need not wake
	} else {
		r.scheduleLocked(it, it.at)
	}
	r.mu.Unlock()
	it.notify(seq, res)
	return nil
}

// dropLocked forgets an item.
func (r *Runner) dropLocked(it *item) {
	it.gone = true
	delete(r.items, it.id)
	if it.pos >= 0 {
		heap.Remove(&r.due, it.pos)
	}
	if it.cancel != nil {
		it.cancel()
	}
}

// scheduleLocked puts an item into the heap and wakes the scheduler when it is first.
func (r *Runner) scheduleLocked(it *item, at time.Time) {
	it.at = at
	heap.Push(&r.due, it)
	if it.pos == 0 {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// dueHeap orders items by when they are due.
type dueHeap []*item

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i, j
}

// Push implements heap.Interface.
func (h *dueHeap) Push(x any) {
	it := x.(*item)
	it.pos = len(*h)
	*h = append(*h, it)
}

// Pop implements heap.Interface.
func (h *dueHeap) Pop() any {
	old := *h
	it := old[len(old)-1]
	old[len(old)-1] = nil
	it.pos = -1
	*h = old[:len(old)-1]
	return it
}

// tail keeps the last n bytes: the contract's circular buffer.
func tail(s string, n int) string {
	if len(s) > n {
		return s[len(s)-n:]
	}
	return s
}
