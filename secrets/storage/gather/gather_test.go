package gather

import (
	"context"
	"errors"
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/secrets/storage"
	"corbel.dev/corbel/secrets/storage/records"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func (q *Queue) depth() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// TestGather: what arrives while work is under way is one piece of work; who gives up before is not done, who
// gives up later does not know; each learns its own outcome; Close does what waits.
func TestGather(t *testing.T) {
	began, goOn := make(chan []records.Batch), make(chan struct{})
	odd := errors.New("odd")
	q := New(func(list []records.Batch) []error {
		began <- list
		<-goOn
		out := make([]error, len(list))
		for i, b := range list {
			if b.Epoch%2 == 1 {
				out[i] = odd
			}
		}
		return out
	})
	do := func(ctx context.Context, epoch storage.Epoch) chan error {
		out := make(chan error, 1)
		go func() { out <- q.Do(ctx, records.Batch{Epoch: epoch}) }()
		return out
	}
	first, cancelFirst := context.WithCancel(t.Context())
	gaveUpLate := do(first, 2)
	if list := polltest.Get(t, began, "the first work"); len(list) != 1 {
		t.Fatalf("%d batches", len(list))
	}
	cancelFirst()
	if err := polltest.Get(t, gaveUpLate, "who gave up"); !errkind.Is(err, errkind.Unknown) {
		t.Errorf("given up while under way: %v", err)
	}
	early, cancelEarly := context.WithCancel(t.Context())
	gaveUpEarly := do(early, 4)
	var others []chan error
	for n := range 5 {
		polltest.Until(t, func() bool { return q.depth() == n+1 }, "%d to wait", n+1)
		others = append(others, do(t.Context(), storage.Epoch(n)))
	}
	polltest.Until(t, func() bool { return q.depth() == 6 }, "all to wait")
	cancelEarly()
	if err := polltest.Get(t, gaveUpEarly, "who gave up"); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("given up while waiting: %v", err)
	}
	goOn <- struct{}{}
	if list := polltest.Get(t, began, "the second work"); len(list) != 5 || list[0].Epoch != 0 || list[4].Epoch != 4 {
		t.Errorf("the second work has %v", list)
	}
	last := do(t.Context(), 6)
	polltest.Until(t, func() bool { return q.depth() == 1 }, "the last to wait")
	closed := make(chan struct{})
	go func() { q.Close(); close(closed) }()
	polltest.Until(t, func() bool { q.mu.Lock(); defer q.mu.Unlock(); return q.closed }, "the queue to be closed")
	if err := q.Do(t.Context(), records.Batch{}); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("after Close began: %v", err)
	}
	goOn <- struct{}{}
	polltest.Get(t, began, "the last work")
	goOn <- struct{}{}
	if err := polltest.Get(t, last, "the last"); err != nil {
		t.Error(err)
	}
	polltest.Get(t, closed, "Close")
	q.Close()
	for n, c := range others {
		if err := polltest.Get(t, c, "batch %d", n); (err != nil) != (n%2 == 1) {
			t.Errorf("batch %d: %v", n, err)
		}
	}
}

func TestFull(t *testing.T) {
	goOn, began := make(chan struct{}), make(chan struct{})
	q := New(func(list []records.Batch) []error {
		close(began)
		<-goOn
		return make([]error, len(list))
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _ = q.Do(ctx, records.Batch{}) }()
	<-began
	q.mu.Lock()
	q.bytes = queueBytes
	q.waiting = append(q.waiting, &waiter{done: make(chan error, 1)})
	q.mu.Unlock()
	if err := q.Do(t.Context(), records.Batch{}); !errkind.Is(err, errkind.Overloaded) {
		t.Errorf("a full queue: %v", err)
	}
	q.mu.Lock()
	q.bytes, q.waiting = 0, nil
	q.mu.Unlock()
	close(goOn)
	cancel()
	q.Close()
}
