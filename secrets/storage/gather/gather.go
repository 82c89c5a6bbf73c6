// Package gather is group commit without a timer: while one piece of work is under
// way, what arrives gathers; the next takes all of it, within its bounds. Each
// caller waits for the work that holds its own batch and learns its own outcome.
//
// A queue has one goroutine, which New starts and Close ends. Methods may be called from any.
package gather

import (
	"context"
	"sync"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/storage/records"
)

// Bounds of what waits, and of one piece of work.
const (
	queueCount = 8192
	queueBytes = 64 << 20
	workCount  = 1024
	workBytes  = 8 << 20
)

// Work does the batches, in order, and returns one outcome for each.
type Work func([]records.Batch) []error

// Queue is what waits, with its worker.
type Queue struct {
	work Work

	mu      sync.Mutex // guards what follows
	waiting []*waiter
	bytes   int
	closed  bool
	wake    chan struct{} // one slot
	ended   chan struct{}
}

type waiter struct {
	batch records.Batch
	bytes int
	taken bool // guarded by the queue's mu: handed to the worker, which answers
	done  chan error
}

// New starts a queue.
func New(work Work) *Queue {
	q := &Queue{work: work, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	go q.run()
	return q
}

var errClosed = errkind.New(errkind.Unavailable, "the storage is closed")

// Do waits for a batch's outcome. When ctx ends before the work has begun, nothing was
// done (Unavailable); when it ends later nobody knows (Unknown). A full queue refuses: Overloaded.
func (q *Queue) Do(ctx context.Context, b records.Batch) error {
	w := &waiter{batch: b, bytes: records.BatchBytes(b.Ops), done: make(chan error, 1)}
	if err := q.enqueue(w); err != nil {
		return err
	}
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.taken {
		select {
		case err := <-w.done:
			return err
		default:
			return errkind.E(errkind.Unknown, "storage commit: outcome unknown", ctx.Err())
		}
	}
	for i, other := range q.waiting {
		if other == w {
			q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
			q.bytes -= w.bytes
			break
		}
	}
	return errkind.E(errkind.Unavailable, "storage commit", ctx.Err())
}

func (q *Queue) enqueue(w *waiter) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return errClosed
	case len(q.waiting) >= queueCount || (q.bytes+w.bytes > queueBytes && len(q.waiting) > 0):
		return errkind.New(errkind.Overloaded, "too many writes wait for the storage; try again later")
	}
	q.waiting = append(q.waiting, w)
	q.bytes += w.bytes
	q.notify()
	return nil
}

func (q *Queue) notify() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *Queue) run() {
	defer close(q.ended)
	for range q.wake {
		for {
			taken, closed := q.take()
			if len(taken) == 0 {
				if closed {
					return
				}
				break
			}
			batches := make([]records.Batch, len(taken))
			for i, w := range taken {
				batches[i] = w.batch
			}
			for i, err := range q.work(batches) {
				taken[i].done <- err
			}
		}
	}
}

// take takes what one piece of work may have.
func (q *Queue) take() ([]*waiter, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, size := 0, 0
	for n < len(q.waiting) && n < workCount && (n == 0 || size+q.waiting[n].bytes <= workBytes) {
		size += q.waiting[n].bytes
		q.waiting[n].taken = true
		n++
	}
	taken := q.waiting[:n:n]
	q.waiting = q.waiting[n:]
	if len(q.waiting) == 0 {
		q.waiting = nil
	}
	q.bytes -= size
	return taken, q.closed
}

// Close refuses new batches, waits until those that wait are done, and ends the worker. It is idempotent.
func (q *Queue) Close() {
	q.mu.Lock()
	q.closed = true
	q.notify()
	q.mu.Unlock()
	<-q.ended
}
