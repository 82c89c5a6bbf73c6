package queue

import (
	"context"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// Newest is a bounded queue of keys, each with the newest value put for it. A
// key keeps its place in the order when its value is replaced, so that a key
// that changes all the time is neither starved nor starves others.
type Newest[K comparable, V any] struct {
	cfg Config

	mu     sync.Mutex // guards all below
	values map[K]item[V]
	order  []K // ring of capacity cfg.Capacity
	head   int
	closed bool
	wake   chan struct{} // one token: something may be there
	counters
}

// NewNewest makes a queue that holds at most cfg.Capacity keys.
func NewNewest[K comparable, V any](cfg Config) *Newest[K, V] {
	cfg.complete()
	return &Newest[K, V]{cfg: cfg, values: map[K]item[V]{}, wake: make(chan struct{}, 1)}
}

// Put queues v for key, in place of a value that is still queued for it. It never
// waits: a new key that does not fit fails with kind Overloaded.
func (q *Newest[K, V]) Put(key K, v V) error {
	now := q.cfg.Clock.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return ErrClosed
	}
	if old, ok := q.values[key]; ok {
		q.values[key] = item[V]{v, old.at}
		q.merged.Add(1)
		return nil
	}
	if len(q.values) >= q.cfg.Capacity {
		q.dropped.Add(1)
		return errkind.Errorf(errkind.Overloaded, "%s is full (%d keys)", q.cfg.Name, q.cfg.Capacity)
	}
	q.pushLocked(key)
	q.values[key] = item[V]{v, now}
	q.in.Add(1)
	q.signal()
	return nil
}

// pushLocked appends to the ring, which grows as needed: most queues stay far below their bound.
func (q *Newest[K, V]) pushLocked(key K) {
	n := len(q.values)
	if n == len(q.order) {
		grown := make([]K, min(max(2*n, 8), q.cfg.Capacity))
		for i := range n {
			grown[i] = q.order[(q.head+i)%len(q.order)]
		}
		q.order, q.head = grown, 0
	}
	q.order[(q.head+n)%len(q.order)] = key
}

func (q *Newest[K, V]) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// TryGet takes the key that came first, with its newest value.
func (q *Newest[K, V]) TryGet() (K, V, bool) {
	now := q.cfg.Clock.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.popLocked(now)
}

func (q *Newest[K, V]) popLocked(now time.Time) (key K, v V, ok bool) {
	if len(q.values) == 0 {
		return key, v, false
	}
	var none K
	key = q.order[q.head]
	q.order[q.head] = none
	q.head = (q.head + 1) % len(q.order)
	it := q.values[key]
	delete(q.values, key)
	q.took(now.Sub(it.at))
	if len(q.values) > 0 {
		q.signal() // another waiting reader goes on
	}
	return key, it.value, true
}

// Get is TryGet that waits for a value until ctx ends. After Close it hands out what is left, then ErrClosed.
func (q *Newest[K, V]) Get(ctx context.Context) (K, V, error) {
	for {
		now := q.cfg.Clock.Now()
		q.mu.Lock()
		key, v, ok := q.popLocked(now)
		closed := q.closed
		q.mu.Unlock()
		if ok {
			return key, v, nil
		}
		if closed {
			q.signal() // hand the news on to the next waiting reader
			return key, v, ErrClosed
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
			return key, v, ctx.Err()
		}
	}
}

// Close refuses further values and wakes all who wait.
func (q *Newest[K, V]) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.signal()
}

// Stats reads the counters.
func (q *Newest[K, V]) Stats() Stats {
	q.mu.Lock()
	depth := len(q.values)
	q.mu.Unlock()
	return q.stats(depth, q.cfg.Capacity, "newest")
}
