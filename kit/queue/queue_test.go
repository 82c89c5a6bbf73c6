package queue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"corbel.dev/corbel/kit/errkind"
)

func TestShed(t *testing.T) {
	q := NewFIFO[int](Config{Name: "inbox", Capacity: 2})
	for i := range 4 {
		err := q.Put(t.Context(), i)
		if want := i >= 2; errkind.Is(err, errkind.Overloaded) != want {
			t.Errorf("put %d: %v", i, err)
		}
	}
	if s := q.Stats(); s.Depth != 2 || s.In != 2 || s.Dropped != 2 || s.Policy != "shed" {
		t.Errorf("stats: %+v", s)
	}
	into := make([]int, 5)
	if n, err := q.GetBatch(t.Context(), into); n != 2 || err != nil || !slices.Equal(into[:2], []int{0, 1}) {
		t.Errorf("batch: %v %d %v", into, n, err)
	}
	if _, ok := q.TryGet(); ok {
		t.Error("the empty queue gave something")
	}
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewFIFO[string](Config{Capacity: 1, Wait: time.Second})
		ctx := t.Context()
		if err := q.Put(ctx, "first"); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if err := q.Put(ctx, "too late"); !errkind.Is(err, errkind.Overloaded) || time.Since(begin) != time.Second {
			t.Errorf("full for %s: %v", time.Since(begin), err)
		}
		done := make(chan error, 1)
		go func() { done <- q.Put(ctx, "second") }()
		synctest.Wait()
		if v, err := q.Get(ctx); v != "first" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
		if err := <-done; err != nil {
			t.Errorf("room came in time, but: %v", err)
		}
		if s := q.Stats(); s.Waited != time.Second || s.MaxWait != time.Second || s.Policy != "wait" {
			t.Errorf("stats: %+v", s)
		}
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		if err := q.Put(short, "x"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("context ended: %v", err)
		}
	})
}

func TestCloseHandsOutTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewFIFO[int](Config{Capacity: 3})
		n := NewNewest[string, int](Config{Capacity: 3})
		_ = q.Put(t.Context(), 1)
		_ = n.Put("a", 1)
		q.Close()
		n.Close()
		q.Close()
		if err := q.Put(t.Context(), 2); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if err := n.Put("b", 2); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if v, err := q.Get(t.Context()); v != 1 || err != nil {
			t.Error(v, err)
		}
		if k, v, err := n.Get(t.Context()); k != "a" || v != 1 || err != nil {
			t.Error(k, v, err)
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if _, err := q.Get(t.Context()); !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
				if _, _, err := n.Get(t.Context()); !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}

func TestNewestWakesAllReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewNewest[int, int](Config{Capacity: 10})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if _, _, err := q.Get(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		for i := range 3 {
			_ = q.Put(i, i)
		}
		wg.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := q.Get(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// TestNewestModel compares with a slice and a map, also when the ring grows.
func TestNewestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(1, 20).Draw(t, "capacity")
		q := NewNewest[int, int](Config{Capacity: capacity})
		var order []int
		values := map[int]int{}
		for step := range rapid.IntRange(1, 80).Draw(t, "steps") {
			if rapid.IntRange(0, 2).Draw(t, "get") == 0 {
				key, value, ok := q.TryGet()
				if ok != (len(order) > 0) || (ok && (key != order[0] || value != values[key])) {
					t.Fatalf("got %d=%d %t, model has %v %v", key, value, ok, order, values)
				}
				if ok {
					order = order[1:]
					delete(values, key)
				}
				continue
			}
			key := rapid.IntRange(0, 25).Draw(t, "key")
			err := q.Put(key, step)
			_, queued := values[key]
			if full := !queued && len(order) >= capacity; full != (err != nil) {
				t.Fatalf("put with %d of %d: %v", len(order), capacity, err)
			}
			if err == nil {
				if !queued {
					order = append(order, key)
				}
				values[key] = step
			}
		}
		if got := q.Stats().Depth; got != len(order) {
			t.Fatalf("depth %d, want %d", got, len(order))
		}
	})
}

func BenchmarkFIFO(b *testing.B) {
	q := NewFIFO[int](Config{Capacity: 16})
	b.ReportAllocs()
	for b.Loop() {
		_ = q.Put(b.Context(), 1)
		_, _ = q.TryGet()
	}
}

func BenchmarkNewest(b *testing.B) {
	q := NewNewest[int, int](Config{Capacity: 16})
	b.ReportAllocs()
	for b.Loop() {
		_ = q.Put(1, 1)
		_, _, _ = q.TryGet()
	}
}
