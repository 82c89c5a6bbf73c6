package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// RunCount sends exactly n requests over some connections and fails on the
// first answer that is not 200. next is called under a lock, in order.
func RunCount(ctx context.Context, addr string, connections, n int, next func(i int) []byte) (*LoadResult, error) {
	return RunTimes(ctx, addr, connections, n, func(r Reply) bool { return r.Status == 200 }, next)
}

// RunTimes is runCount with a judge of answers.
func RunTimes(ctx context.Context, addr string, connections, n int, ok func(Reply) bool,
	next func(i int) []byte) (*LoadResult, error) {
	total := &LoadResult{Hist: NewHistogram()}
	var mu sync.Mutex
	var failed error
	sent := 0
	take := func() ([]byte, bool) {
		mu.Lock()
		defer mu.Unlock()
		if sent == n || failed != nil || ctx.Err() != nil {
			return nil, false
		}
		sent++
		return next(sent - 1), true
	}
	start := time.Now()
	var wg sync.WaitGroup
	for range min(connections, n) {
		wg.Go(func() {
			part, err := countOne(ctx, addr, ok, take)
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
			total.Requests += part.Requests
			total.Hist.Merge(part.Hist)
		})
	}
	wg.Wait()
	total.seconds = time.Since(start).Seconds()
	if failed == nil {
		failed = ctx.Err()
	}
	return total, failed
}

func countOne(ctx context.Context, addr string, ok func(Reply) bool, take func() ([]byte, bool)) (*LoadResult, error) {
	part := &LoadResult{Hist: NewHistogram()}
	c, err := DialWire(ctx, addr, 64<<10)
	if err != nil {
		return part, err
	}
	defer func() { _ = c.Close() }()
	for {
		raw, more := take()
		if !more {
			return part, nil
		}
		begin := time.Now()
		r, err := c.Do(raw, true, IoDeadline)
		if err != nil {
			return part, err
		}
		if !ok(r) {
			return part, fmt.Errorf("status %d: %.200s", r.Status, r.Body)
		}
		part.Requests++
		Record(part.Hist, time.Since(begin))
	}
}
