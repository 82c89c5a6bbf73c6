package limit

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
)

func TestRate(t *testing.T) {
	clk := clock.NewFake(time.Time{})
	r := NewRate(RateConfig{PerSecond: 10, Burst: 3, Clock: clk})
	for i := range 3 {
		if ok, _ := r.Allow("a"); !ok {
			t.Fatalf("burst: %d refused", i)
		}
	}
	ok, retry := r.Allow("a")
	if ok || retry != 100*time.Millisecond {
		t.Fatalf("past the burst: %t, retry after %s", ok, retry)
	}
	if ok, _ := r.Allow("b"); !ok {
		t.Fatal("another key pays for this one")
	}
	clk.Advance(retry)
	if ok, _ := r.Allow("a"); !ok {
		t.Fatal("refused after the stated wait")
	}
	allowed := 0
	for range 1000 {
		clk.Advance(10 * time.Millisecond)
		if ok, _ := r.Allow("a"); ok {
			allowed++
		}
	}
	if allowed != 100 {
		t.Errorf("%d in 10 s at 10/s", allowed)
	}
	clk.Advance(time.Minute)
	for i := range 4 {
		if ok, _ := r.Allow("a"); ok != (i < 3) {
			t.Errorf("after a pause, number %d: %t", i, ok)
		}
	}
	free := NewRate(RateConfig{})
	for range 100 {
		if ok, _ := free.Allow("x"); !ok {
			t.Fatal("no limit was asked for")
		}
	}
}

func TestRateMemoryIsBounded(t *testing.T) {
	clk := clock.NewFake(time.Time{})
	r := NewRate(RateConfig{PerSecond: 1, Burst: 1, MaxKeys: 320, Clock: clk})
	for i := range 10000 {
		if ok, _ := r.Allow("key " + strconv.Itoa(i)); !ok {
			t.Fatal("a new key is refused")
		}
	}
	if n := r.Keys(); n > 320 {
		t.Errorf("%d keys are kept", n)
	}
	if n := testing.AllocsPerRun(100, func() { r.Allow("one key") }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestGateIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(GateConfig{Slots: 1, MaxWaiting: 100, MaxPerKey: 50})
		first, err := g.Acquire(t.Context(), "storm")
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var order []string
		var wg sync.WaitGroup
		enter := func(key string) {
			wg.Go(func() {
				p, err := g.Acquire(t.Context(), key)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, key)
				mu.Unlock()
				p.Release()
			})
			synctest.Wait()
		}
		for range 5 {
			enter("storm")
		}
		enter("other")
		enter("third")
		first.Release()
		wg.Wait()
		if want := []string{"storm", "other", "third", "storm", "storm", "storm", "storm"}; !slices.Equal(order, want) {
			t.Errorf("order %q, want %q", order, want)
		}
		if s := g.Stats(); s.Free != 1 || s.Waiting != 0 || s.Granted != 8 {
			t.Errorf("stats: %+v", s)
		}
	})
}

func TestGateBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(GateConfig{Slots: 1, MaxWaiting: 3, MaxPerKey: 2, MaxWait: time.Second})
		p, err := g.Acquire(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		results := make(chan error, 3)
		wait := func(ctx context.Context, key string) {
			go func() {
				_, err := g.Acquire(ctx, key)
				results <- err
			}()
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		wait(ctx, "a")
		wait(t.Context(), "a")
		if _, err := g.Acquire(t.Context(), "a"); !errkind.Is(err, errkind.Overloaded) {
			t.Errorf("past the bound of a key: %v", err)
		}
		wait(t.Context(), "b")
		if _, err := g.Acquire(t.Context(), "c"); !errkind.Is(err, errkind.Overloaded) {
			t.Errorf("past the bound of all: %v", err)
		}
		cancel()
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		begin := time.Now()
		for range 2 {
			if err := <-results; !errkind.Is(err, errkind.Overloaded) {
				t.Errorf("waited too long: %v", err)
			}
		}
		if time.Since(begin) != time.Second {
			t.Errorf("gave up after %s", time.Since(begin))
		}
		if s := g.Stats(); s.Waiting != 0 || s.Refused != 2 || s.TimedOut != 3 {
			t.Errorf("stats: %+v", s)
		}
		p.Release()
		if p, err = g.Acquire(t.Context(), "a"); err != nil {
			t.Fatalf("the slot was lost: %v", err)
		}
		p.Release()
	})
}

// TestGateLeavesSlots: a key that holds as many permits as one may waits although slots are free, and others do not.
func TestGateLeavesSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(GateConfig{Slots: 4, MaxHeldPerKey: 2})
		take := func(key string) Permit {
			t.Helper()
			p, err := g.Acquire(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		held := []Permit{take("hangs"), take("hangs")}
		got := make(chan Permit)
		for range 2 {
			go func() { got <- take("hangs") }()
		}
		synctest.Wait()
		if s := g.Stats(); s.Free != 2 || s.Waiting != 2 {
			t.Errorf("%+v: two of one key were to wait, and two slots to be free", s)
		}
		begin := time.Now()
		others := []Permit{take("b"), take("c")}
		if took := time.Since(begin); took != 0 {
			t.Errorf("others waited %s beside free slots", took)
		}
		others[0].Release() // not for the key that has its share
		synctest.Wait()
		if s := g.Stats(); s.Free != 1 || s.Waiting != 2 {
			t.Errorf("%+v", s)
		}
		for _, p := range held {
			p.Release()
			(<-got).Release()
		}
		others[1].Release()
		if s := g.Stats(); s.Free != 4 || s.Waiting != 0 || len(g.held) != 0 {
			t.Errorf("%+v, held %v", s, g.held)
		}
	})
}

func TestGateRefusesWhatCannotBeServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(GateConfig{Slots: 1, MaxWait: time.Minute})
		for range 30 { // teaches it that a permit is held for about 10 s
			p, err := g.Acquire(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			<-time.After(10 * time.Second)
			p.Release()
		}
		p, err := g.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if p, err := g.Acquire(t.Context(), "k"); err == nil {
				p.Release()
			}
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		begin := time.Now()
		if _, err := g.Acquire(ctx, "k"); !errkind.Is(err, errkind.Overloaded) || time.Since(begin) != 0 {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
		if after := g.RetryAfter(); after < 15*time.Second || after > 25*time.Second {
			t.Errorf("retry after %s", after)
		}
		p.Release()
		<-done
	})
}

// TestGateNeverOverbooks hammers it from many goroutines.
func TestGateNeverOverbooks(t *testing.T) {
	g := NewGate(GateConfig{Slots: 3, MaxWaiting: 1000})
	var mu sync.Mutex
	inside, most := 0, 0
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			for range 50 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*100*time.Microsecond)
				p, err := g.Acquire(ctx, strconv.Itoa(i%7))
				if err == nil {
					mu.Lock()
					inside++
					most = max(most, inside)
					mu.Unlock()
					mu.Lock()
					inside--
					mu.Unlock()
					p.Release()
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if s := g.Stats(); most > 3 || s.Free != 3 || s.Waiting != 0 {
		t.Errorf("%d inside at once, stats %+v", most, s)
	}
}

func BenchmarkRate(b *testing.B) {
	r := NewRate(RateConfig{PerSecond: 1e9, Burst: 100})
	b.ReportAllocs()
	for b.Loop() {
		r.Allow("key")
	}
}

func BenchmarkGateUncontended(b *testing.B) {
	g := NewGate(GateConfig{Slots: 1})
	b.ReportAllocs()
	for b.Loop() {
		p, _ := g.Acquire(b.Context(), "key")
		p.Release()
	}
}
