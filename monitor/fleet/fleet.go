// Package fleet keeps the monitor and the catalog of one mind: a monitoring check that says so decides on the health
// of a service or node, and a node that the catalog takes for failed is an event of the entity of the same name.
//
// Neither direction is a stream of messages that could be lost. What is to be done follows from comparing what the
// event store of this server has with the catalog as it is here, for the entities whose shard this server owns, so
// each of them is looked after by one server of the cluster. A change marks its entity; everything is compared from
// time to time besides, which mends what was missed.
//
// Invariants: nothing is written that the catalog has already, so a result like the one before costs nothing. What
// waits is a set of entities, bounded: it holds no states, and the newest one is written. Events of failures are
// bounded by the second, and a node that came back before its turn makes none.
package fleet

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/monitor/ingest"
)

const (
	// maxMarked is how many entities may wait; beyond it all are compared.
	maxMarked = 16384
	// maxWaiting is how many entities are looked at each second since the catalog lacks what their checks are about.
	maxWaiting = 4096
	// batchWrites is how many checks go to the catalog with one call.
	batchWrites = 128
	// gather is for how long the first change waits for others.
	gather = 50 * time.Millisecond
	// within bounds one call.
	within = 10 * time.Second
)

// Catalog is what the catalog knows, as this server has it. Names of nodes are matched without regard to case.
type Catalog interface {
	// Current says whether what is here is not much older than what the catalog's leader has: otherwise nothing is
	// concluded from it.
	Current() bool
	// Version changes with nodes and checks.
	Version() uint64
	// Nodes calls f with the name of each node.
	Nodes(f func(name string))
	// Node returns a node with its instances and all its checks; ok is false where there is none.
	Node(name string) (n Node, ok bool)
	// Check returns one check of a node itself; ok is false where there is none.
	Check(node, id string) (c Check, ok bool)
	// Known says whether there is a node, and gossips, whether it is one whose agent gossips.
	Known(node string) (known, gossips bool)
	// Write has the leader do all of writes that the catalog does not refuse, and returns how many it refused.
	Write(ctx context.Context, writes []Write) (refused int, err error)
}

// Events is where events are: an *ingest.Ingest.
type Events interface {
	Owns(shard uint16) bool
	Of(namespace, entity string) ([]*ingest.Published, error)
	Walk(f func(ingest.Summary))
	Summary(namespace, entity, check string) (sum ingest.Summary, ok bool, err error)
	Entity(namespace, entity string) []byte
	Frame(ctx context.Context, namespace string, event []byte) error
}

// Config of a Fleet.
type Config struct {
	Catalog Catalog
	Events  Events
	// Namespace is the one whose entities are the catalog's nodes.
	Namespace string
	// Failures are the IDs of the catalog's checks of nodes that are told as events; none tells nothing.
	Failures []string
	// Proxy returns the message of an entity, and makes it where there is none.
	Proxy func(ctx context.Context, namespace, entity string) ([]byte, error)
	// Handlers and Pipelines are given these events.
	Handlers, Pipelines []string
	// Tick is how often failures are looked for, 0 for 1 s; Sweep, how often all is compared, 0 for 30 s; Repeat, after
	// which time the event of what still fails comes again, 0 for 60 s.
	Tick, Sweep, Repeat time.Duration
	// Burst is how many events of failures are made at each tick at most, 0 for 100.
	Burst int
	Log   *slog.Logger
	Now   func() time.Time
}

func (c *Config) complete() {
	for d, v := range map[*time.Duration]time.Duration{&c.Tick: time.Second, &c.Sweep: 30 * time.Second,
		&c.Repeat: time.Minute} {
		if *d == 0 {
			*d = v
		}
	}
	if c.Burst == 0 {
		c.Burst = 100
	}
}

// Fleet compares and mends. StatusChanged may be called from any goroutine; Run does the work.
type Fleet struct {
	cfg Config

	mu     sync.Mutex // guards what follows
	marked map[string]bool
	sweep  bool // all are marked
	wake   chan struct{}

	waiting  map[string]bool     // entities whose checks are about what the catalog lacks; Run's alone
	failures failures            // the same
	owned    [ingest.Shards]bool // the same: as it was at the last tick

	written, refused, failed, overflowed, told, delayed, lacking atomic.Uint64
}

// New returns a Fleet that does nothing yet.
func New(cfg Config) *Fleet {
	cfg.complete()
	f := &Fleet{cfg: cfg, marked: map[string]bool{}, sweep: true, wake: make(chan struct{}, 1), waiting: map[string]bool{}}
	f.failures.open = map[failing]bool{}
	return f
}

// StatusChanged marks an entity, a check of which has another status, or is gone, that something depends on.
func (f *Fleet) StatusChanged(namespace, entity string) {
	if namespace != f.cfg.Namespace {
		return
	}
	f.mark(entity)
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *Fleet) mark(entity string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.sweep: // all are looked at anyway
	case len(f.marked) >= maxMarked && !f.marked[entity]:
		f.sweep = true
		f.overflowed.Add(1)
	default:
		f.marked[entity] = true
	}
}

// markSweep marks all entities.
func (f *Fleet) markSweep() {
	f.mu.Lock()
	f.sweep = true
	f.mu.Unlock()
}

// take returns what is marked, and forgets it.
func (f *Fleet) take() (marked map[string]bool, sweep bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	marked, sweep = f.marked, f.sweep
	f.marked, f.sweep = map[string]bool{}, false
	return marked, sweep
}

// Stats counts since the start.
type Stats struct {
	Written    uint64 // checks that were set or removed in the catalog
	Refused    uint64 // that it refused
	Failed     uint64 // calls that failed, and are made again
	Overflowed uint64 // times at which more entities had changed than are remembered, so that all were compared
	Told       uint64 // events of failures and of their ends
	Delayed    uint64 // ticks at which there were more of these than Burst, so that some came later
	Waiting    uint64 // entities whose checks are about what the catalog lacks
}

// Stats returns the counts.
func (f *Fleet) Stats() Stats {
	return Stats{f.written.Load(), f.refused.Load(), f.failed.Load(), f.overflowed.Load(), f.told.Load(), f.delayed.Load(),
		f.lacking.Load()}
}

// Run does the work until ctx ends.
func (f *Fleet) Run(ctx context.Context) error {
	tick := time.NewTicker(f.cfg.Tick)
	defer tick.Stop()
	pause := backoff.Backoff{Min: 200 * time.Millisecond, Max: 5 * time.Second}
	next := f.cfg.Now().Add(f.cfg.Sweep)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
			if !sleep(ctx, gather) {
				return nil
			}
		case <-tick.C:
			if now := f.cfg.Now(); !now.Before(next) || next.Sub(now) > 2*f.cfg.Sweep { // the second: the clock was set back
				next = now.Add(f.cfg.Sweep)
				f.markSweep()
			}
			for entity := range f.waiting {
				f.mark(entity)
			}
			f.followShards()
		}
		if !f.cfg.Catalog.Current() {
			continue
		}
		if err := f.mend(ctx); err != nil && ctx.Err() == nil {
			f.cfg.Log.Warn("the catalog does not have the status of monitoring checks yet", "error", err)
			if !sleep(ctx, pause.Next()) {
				return nil
			}
		} else {
			pause = backoff.Backoff{Min: 200 * time.Millisecond, Max: 5 * time.Second}
		}
		f.tell(ctx)
	}
}

// followShards has everything compared when other shards are this server's than a moment ago.
func (f *Fleet) followShards() {
	var owned [ingest.Shards]bool
	for i := range owned {
		owned[i] = f.cfg.Events.Owns(uint16(i))
	}
	if owned != f.owned {
		f.owned = owned
		f.markSweep()
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// mend makes the catalog's checks what the events of the marked entities say. What could not be done stays marked.
func (f *Fleet) mend(ctx context.Context) error {
	marked, sweep := f.take()
	if sweep {
		f.markAll(marked)
	}
	var writes []Write
	var of []string // the entity of each
	flush := func() error {
		if len(writes) == 0 {
			return nil
		}
		call, cancel := context.WithTimeout(ctx, within)
		refused, err := f.cfg.Catalog.Write(call, writes)
		cancel()
		if err != nil {
			f.failed.Add(1)
			for _, entity := range of {
				f.mark(entity)
			}
			return err
		}
		f.refused.Add(uint64(refused))
		f.written.Add(uint64(len(writes) - refused))
		writes, of = writes[:0], of[:0]
		return nil
	}
	for entity := range marked {
		delete(marked, entity)
		for _, w := range f.look(entity) {
			writes, of = append(writes, w), append(of, entity)
		}
		if len(writes) < batchWrites {
			continue
		}
		if err := flush(); err != nil {
			for rest := range marked {
				f.mark(rest)
			}
			return err
		}
	}
	f.lacking.Store(uint64(len(f.waiting)))
	return flush()
}

// markAll marks every entity of this server that something depends on, and every node that has a check of ours.
func (f *Fleet) markAll(marked map[string]bool) {
	f.failures.rescan = true
	var keepalives []string
	f.cfg.Events.Walk(func(s ingest.Summary) {
		if s.Namespace != f.cfg.Namespace {
			return
		}
		switch b := s.Kind.Catalog; {
		case b.Service != "" || b.Node:
			marked[s.Entity] = true
		case b.Stray:
			keepalives = append(keepalives, s.Entity)
		}
		if id, ok := failureOf(s.Check); ok && s.Status != 0 {
			f.failures.open[failing{s.Entity, id}] = true
		}
	})
	for _, entity := range keepalives {
		if known, gossips := f.cfg.Catalog.Known(entity); known && !gossips {
			marked[entity] = true
		}
	}
	f.cfg.Catalog.Nodes(func(name string) {
		if f.owns(name) && !marked[name] {
			if n, ok := f.cfg.Catalog.Node(name); ok && n.has() {
				marked[name] = true
			}
		}
	})
}

func (f *Fleet) owns(entity string) bool {
	return f.cfg.Events.Owns(ingest.ShardOf(f.cfg.Namespace, entity))
}

// look returns what the catalog lacks of one entity, nothing where another server looks after it.
func (f *Fleet) look(entity string) []Write {
	delete(f.waiting, entity)
	list, err := f.cfg.Events.Of(f.cfg.Namespace, entity)
	if err != nil {
		return nil
	}
	node, ok := f.cfg.Catalog.Node(entity)
	results := make([]Result, 0, len(list))
	for _, p := range list {
		if p.Kind != nil && !p.Kind.Catalog.Empty() {
			results = append(results, Result{Check: p.Check, Binding: p.Kind.Catalog, Status: p.State().Status,
				Output: string(p.Output())})
		}
	}
	var writes []Write
	lacks := false
	if ok {
		writes, lacks = Plan(node, results)
	} else {
		lacks = slices.ContainsFunc(results, func(r Result) bool { return r.Binding.Service != "" || r.Binding.Node })
	}
	if lacks && len(f.waiting) < maxWaiting {
		f.waiting[entity] = true
	}
	return writes
}
