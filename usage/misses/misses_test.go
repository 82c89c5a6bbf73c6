package misses

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/telemetry"
	"corbel.dev/corbel/usage/aggregate"
	"corbel.dev/corbel/usage/pace"
)

func key(n int) Key { return Key{Series: aggregate.Series{Tenant: fmt.Sprint("t", n)}} }

// run runs Misses until the test ends, inside its bubble.
func run(t *testing.T, cfg Config) (*Misses, *telemetry.Registry) {
	cfg.Metrics = telemetry.New(telemetry.Config{})
	m := New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return m, cfg.Metrics
}

// TestCoalesced: a key is asked for once, however many wait, and keys of one part travel together, in batches that are
// bounded.
func TestCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		times, largest, batches := map[string]int{}, 0, 0
		m, metrics := run(t, Config{Batch: 8, Fetch: func(_ context.Context, part string, keys []Key) ([][]byte, error) {
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			largest, batches = max(largest, len(keys)), batches+1
			out := make([][]byte, len(keys))
			for i, k := range keys {
				times[part+k.Tenant]++
				if k != key(3) {
					out[i] = []byte(part + k.Tenant)
				}
			}
			return out, nil
		}})
		var wg sync.WaitGroup
		for n := range 200 {
			wg.Go(func() {
				part, k := fmt.Sprint("p", n%2), key(n/2%20)
				data, err := m.Get(t.Context(), part, k)
				if k == key(3) {
					if !errkind.Is(err, errkind.Unavailable) {
						t.Error("what nobody has: ", err)
					}
				} else if err != nil || string(data) != part+k.Tenant {
					t.Errorf("%s %s: %q, %v", part, k.Tenant, data, err)
				}
			})
		}
		wg.Wait()
		for what, n := range times {
			if n != 1 {
				t.Errorf("%s was asked for %d times", what, n)
			}
		}
		if len(times) != 40 || largest != 8 || batches > 10 {
			t.Errorf("%d keys in %d batches of up to %d", len(times), batches, largest)
		}
		if got := metrics.Counter("usage.misses.coalesced").Value(); got != 160 {
			t.Errorf("%d were coalesced", got)
		}
	})
}

// TestBounded: what waits is bounded in number and time, who gives up makes room, and the budget bounds what comes.
func TestBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate = 1 << 20
		budget := pace.New(pace.Config{Rate: rate, Metrics: telemetry.New(telemetry.Config{})})
		fetched := 0
		m, metrics := run(t, Config{Queue: 4, Batch: 1, Workers: 1, Lane: budget.Lane("misses"),
			Fetch: func(_ context.Context, _ string, keys []Key) ([][]byte, error) {
				fetched++
				return [][]byte{make([]byte, 2*rate)}, nil
			}})
		began := time.Now()
		if _, err := m.Get(t.Context(), "p", key(0)); err != nil || time.Since(began) > 0 {
			t.Fatalf("after %s: %v", time.Since(began), err)
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		came, late, full := 0, 0, 0
		for n := range 6 { // one second has to pass before the next one may come
			wg.Go(func() {
				_, err := m.Get(t.Context(), "p", key(n+1))
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					came++
				case time.Since(began) == 0:
					full++
				default:
					late++
				}
			})
			synctest.Wait()
		}
		if n, _ := m.waiting(); n != 4 {
			t.Errorf("%d wait", n)
		}
		time.Sleep(500 * time.Millisecond)
		if _, age := m.waiting(); age != 500*time.Millisecond {
			t.Errorf("the oldest waits for %s", age)
		}
		wg.Wait()
		if came != 1 || full != 2 || late != 3 || fetched != 2 || time.Since(began) != 2*time.Second {
			t.Errorf("%d came, %d were refused, %d late, %d fetched after %s", came, full, late, fetched, time.Since(began))
		}
		if n, _ := m.waiting(); n != 0 || metrics.Counter("usage.misses.refused").Value() != 2 {
			t.Errorf("%d still wait", n)
		}
	})
}

// TestEnds: who waits when it ends is told.
func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Config{Metrics: telemetry.New(telemetry.Config{}),
			Fetch: func(ctx context.Context, _ string, _ []Key) ([][]byte, error) { <-ctx.Done(); return nil, ctx.Err() }})
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 10)
		for n := range 10 {
			go func() {
				_, err := m.Get(t.Context(), fmt.Sprint(n), key(n))
				got <- err
			}()
		}
		synctest.Wait()
		go func() { time.Sleep(time.Second); cancel() }()
		_ = m.Run(ctx)
		for range 10 {
			if <-got == nil {
				t.Error("a key came of nobody")
			}
		}
	})
}
