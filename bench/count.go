package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// runCount sends exactly n requests over some connections and fails on the
// first answer that is not 200. next is called under a lock, in order.
func runCount(ctx context.Context, addr string, connections, n int, next func(i int) []byte) (*loadResult, error) {
	return runTimes(ctx, addr, connections, n, func(r reply) bool { return r.status == 200 }, next)
}

// runTimes is runCount with a judge of answers.
func runTimes(ctx context.Context, addr string, connections, n int, ok func(reply) bool,
	next func(i int) []byte) (*loadResult, error) {
	total := &loadResult{hist: newHistogram()}
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
			total.requests += part.requests
			total.hist.Merge(part.hist)
		})
	}
	wg.Wait()
	total.seconds = time.Since(start).Seconds()
	if failed == nil {
		failed = ctx.Err()
	}
	return total, failed
}

func countOne(ctx context.Context, addr string, ok func(reply) bool, take func() ([]byte, bool)) (*loadResult, error) {
	part := &loadResult{hist: newHistogram()}
	c, err := dialWire(ctx, addr, 64<<10)
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
		r, err := c.do(raw, true, ioDeadline)
		if err != nil {
			return part, err
		}
		if !ok(r) {
			return part, fmt.Errorf("status %d: %.200s", r.status, r.body)
		}
		part.requests++
		record(part.hist, time.Since(begin))
	}
}
