// Package queue holds the bounded hand-overs between the parts of Corbel. What
// happens when a queue is full is stated by its type:
//
//   - FIFO with Wait zero sheds: Put fails at once with kind Overloaded;
//   - FIFO with Wait set pushes back: Put waits so long for room, then fails;
//   - Newest keeps the newest value per key: a second value for a key that is
//     still queued replaces the first and counts as merged; a new key beyond
//     the bound fails with kind Overloaded.
//
// Depth, waiting time and drops can be read at any time with Stats. Values leave
// in the order in which they (or for Newest: their keys) came. All methods may
// be called from any goroutine; nothing here starts one.
package queue

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
)

// ErrClosed is what Get returns once a closed queue is empty, and Put after Close.
var ErrClosed = errors.New("queue: closed")

// Stats is a reading of a queue's counters since it was made.
type Stats struct {
	Depth, Capacity int
	// Policy is "wait", "shed" or "newest": the label of the queue's metrics.
	Policy string
	// In counts accepted values, Out those taken, Dropped those refused because full, Merged those replaced by a newer
	// one.
	In, Out, Dropped, Merged uint64
	// Waited is the time that all taken values spent queued, together; MaxWait the longest.
	Waited, MaxWait time.Duration
}

// counters are shared by both kinds of queue.
type counters struct {
	in, out, dropped, merged atomic.Uint64
	waitedNanos, maxNanos    atomic.Int64
}

func (c *counters) took(wait time.Duration) {
	c.out.Add(1)
	c.waitedNanos.Add(int64(wait))
	for {
		top := c.maxNanos.Load()
		if int64(wait) <= top || c.maxNanos.CompareAndSwap(top, int64(wait)) {
			return
		}
	}
}

func (c *counters) stats(depth, capacity int, policy string) Stats {
	return Stats{Depth: depth, Capacity: capacity, Policy: policy,
		In: c.in.Load(), Out: c.out.Load(), Dropped: c.dropped.Load(), Merged: c.merged.Load(),
		Waited: time.Duration(c.waitedNanos.Load()), MaxWait: time.Duration(c.maxNanos.Load())}
}

// Config is what both kinds of queue need to know.
type Config struct {
	// Name appears in errors.
	Name string
	// Capacity bounds the values queued; zero means 1,024.
	Capacity int
	// Wait is how long Put of a FIFO waits for room; zero sheds at once.
	Wait time.Duration
	// Clock is for waiting times; nil means the machine's.
	Clock clock.Clock
}

func (c *Config) complete() {
	if c.Name == "" {
		c.Name = "queue"
	}
	if c.Capacity <= 0 {
		c.Capacity = 1024
	}
	if c.Clock == nil {
		c.Clock = clock.Real{}
	}
}

type item[T any] struct {
	value T
	at    time.Time
}

// FIFO is a bounded queue in order of arrival.
type FIFO[T any] struct {
	cfg    Config
	items  chan item[T]
	closed chan struct{}
	once   sync.Once
	counters
}

// NewFIFO makes a queue that sheds, or waits when cfg.Wait is set.
func NewFIFO[T any](cfg Config) *FIFO[T] {
	cfg.complete()
	return &FIFO[T]{cfg: cfg, items: make(chan item[T], cfg.Capacity), closed: make(chan struct{})}
}

// Put appends v. It fails with kind Overloaded when there is no room (in time),
// with the context's error when ctx ends while waiting, or with ErrClosed.
func (q *FIFO[T]) Put(ctx context.Context, v T) error {
	select {
	case <-q.closed:
		return ErrClosed
	default:
	}
	it := item[T]{v, q.cfg.Clock.Now()}
	select {
	case q.items <- it:
		q.in.Add(1)
		return nil
	default:
	}
	if q.cfg.Wait <= 0 {
		return q.full()
	}
	timer := q.cfg.Clock.NewTimer(q.cfg.Wait)
	defer timer.Stop()
	select {
	case q.items <- it:
		q.in.Add(1)
		return nil
	case <-timer.C:
		return q.full()
	case <-ctx.Done():
		q.dropped.Add(1)
		return ctx.Err()
	case <-q.closed:
		return ErrClosed
	}
}

func (q *FIFO[T]) full() error {
	q.dropped.Add(1)
	return errkind.Errorf(errkind.Overloaded, "%s is full (%d)", q.cfg.Name, q.cfg.Capacity)
}

// Get takes the oldest value, waiting for one until ctx ends. After Close it
// hands out what is left, then ErrClosed.
func (q *FIFO[T]) Get(ctx context.Context) (T, error) {
	select {
	case it := <-q.items:
		return q.take(it), nil
	default:
	}
	var zero T
	select {
	case it := <-q.items:
		return q.take(it), nil
	case <-ctx.Done():
		return zero, ctx.Err()
	case <-q.closed:
	}
	if v, ok := q.TryGet(); ok {
		return v, nil
	}
	return zero, ErrClosed
}

// TryGet takes the oldest value if there is one.
func (q *FIFO[T]) TryGet() (T, bool) {
	select {
	case it := <-q.items:
		return q.take(it), true
	default:
		var zero T
		return zero, false
	}
}

// GetBatch waits for one value as Get does, then adds to it what is there at once, up to len(into).
func (q *FIFO[T]) GetBatch(ctx context.Context, into []T) (int, error) {
	if len(into) == 0 {
		return 0, nil
	}
	v, err := q.Get(ctx)
	if err != nil {
		return 0, err
	}
	into[0] = v
	n := 1
	for ; n < len(into); n++ {
		v, ok := q.TryGet()
		if !ok {
			break
		}
		into[n] = v
	}
	return n, nil
}

func (q *FIFO[T]) take(it item[T]) T {
	q.took(q.cfg.Clock.Since(it.at))
	return it.value
}

// Close refuses further values and wakes all who wait. A Put that runs at the
// same time may still be accepted: whoever closes calls TryGet until it is empty.
func (q *FIFO[T]) Close() { q.once.Do(func() { close(q.closed) }) }

// Stats reads the counters.
func (q *FIFO[T]) Stats() Stats {
	policy := "shed"
	if q.cfg.Wait > 0 {
		policy = "wait"
	}
	return q.stats(len(q.items), q.cfg.Capacity, policy)
}
