package check

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/errkind"
)

// log collects notifications.
type log struct {
	mu  sync.Mutex
	all []Result
	seq uint64
	bad bool
}

func (l *log) notify(seq uint64, r Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bad = l.bad || seq <= l.seq
	l.seq, l.all = seq, append(l.all, r)
}

func (l *log) last() (Result, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == 0 {
		return Result{}, 0
	}
	return l.all[len(l.all)-1], len(l.all)
}

// running runs a Runner in a bubble; the returned function stops it.
func running(t *testing.T, cfg Config) (*Runner, func()) {
	r := New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return r, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, stop := running(t, Config{})
		defer stop()
		var l log
		r.Add("a", Spec{Kind: KindTTL, TTL: 10 * time.Second}, l.notify)
		advance(9 * time.Second)
		if err := r.Heartbeat("a", Result{catalog.Passing, "fine"}); err != nil {
			t.Fatal(err)
		}
		advance(9 * time.Second)
		if res, n := l.last(); n != 1 || res.Status != catalog.Passing || res.Output != "fine" {
			t.Fatalf("after the heartbeat: %v, %d", res, n)
		}
		advance(2 * time.Second)
		if res, n := l.last(); n != 2 || res.Status != catalog.Critical ||
			res.Output != "TTL expired (last output before timeout follows): fine" {
			t.Fatalf("after silence: %v, %d", res, n)
		}
		advance(time.Minute)
		if _, n := l.last(); n != 2 {
			t.Fatalf("it expired again: %d", n)
		}
		if err := r.Heartbeat("a", Result{catalog.Warning, "back"}); err != nil {
			t.Fatal(err)
		}
		advance(11 * time.Second)
		if res, n := l.last(); n != 4 || res.Status != catalog.Critical {
			t.Fatalf("after the second silence: %v, %d", res, n)
		}
		if l.bad {
			t.Error("the sequence went back")
		}
		r.Add("silent", Spec{Kind: KindTTL, TTL: 10 * time.Second, Start: Start{TTLLeft: time.Second}}, l.notify)
		advance(1100 * time.Millisecond)
		if res, _ := l.last(); res.Output != "TTL expired" {
			t.Fatalf("a check without a heartbeat: %v", res)
		}
	})
}

// advance lets the bubble's time pass.
func advance(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
	synctest.Wait()
}

func TestHeartbeatErrors(t *testing.T) {
	r := New(Config{})
	r.Add("http", Spec{Kind: KindHTTP, Target: "http://127.0.0.1:1"}, func(uint64, Result) {})
	err := r.Heartbeat("http", Result{})
	if !errkind.Is(err, errkind.Internal) || errkind.Text(err) != `CheckID "http" does not have associated TTL` {
		t.Errorf("got %v", err)
	}
	if err := r.Heartbeat("none", Result{}); !errkind.Is(err, errkind.NotFound) {
		t.Errorf("got %v", err)
	}
}

// alias makes a spec whose probe is f.
func alias(interval time.Duration, f Probe) Spec {
	return Spec{Kind: KindAlias, Interval: interval, Probe: f}
}

func TestFirstRunIsWithinTheIntervalAndThenOnTheBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, stop := running(t, Config{Rand: func(n int64) int64 { return n / 2 }})
		defer stop()
		begin := time.Now()
		var at []time.Duration
		r.Add("a", alias(10*time.Second, func(context.Context) Result {
			at = append(at, time.Since(begin))
			return Result{}
		}), func(uint64, Result) {})
		advance(36 * time.Second)
		if want := "[5s 15s 25s 35s]"; fmt.Sprint(at) != want {
			t.Errorf("ran at %v, want %v", at, want)
		}
	})
}

// TestHangingChecksDelayNobody: one slot stays free of the hanging ones until
// their deadline, and no more than MaxConcurrent run at once.
func TestHangingChecksDelayNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, stop := running(t, Config{MaxConcurrent: 3, Rand: func(int64) int64 { return 0 }})
		defer stop()
		var now, most, quick atomic.Int64
		enter := func() func() {
			n := now.Add(1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			return func() { now.Add(-1) }
		}
		for i := range 2 {
			s := alias(time.Second, func(ctx context.Context) Result {
				defer enter()()
				<-ctx.Done()
				return failed("late")
			})
			s.Timeout = 5 * time.Second
			r.Add(fmt.Sprint("hang", i), s, func(uint64, Result) {})
		}
		for i := range 50 {
			r.Add(fmt.Sprint("quick", i), alias(time.Second, func(context.Context) Result {
				defer enter()()
				quick.Add(1)
				return Result{}
			}), func(uint64, Result) {})
		}
		advance(4500 * time.Millisecond)
		if n := quick.Load(); n != 5*50 {
			t.Errorf("the quick checks ran %d times, want 250", n)
		}
		if most.Load() > 3 {
			t.Errorf("%d ran at once", most.Load())
		}
	})
}

func TestRemoveCancelsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, stop := running(t, Config{Rand: func(int64) int64 { return 0 }})
		defer stop()
		var l log
		ended := make(chan struct{})
		r.Add("a", alias(time.Second, func(ctx context.Context) Result {
			<-ctx.Done()
			close(ended)
			return failed("cut")
		}), l.notify)
		synctest.Wait()
		r.Remove("a")
		<-ended
		advance(10 * time.Second)
		if _, n := l.last(); n != 0 || r.Len() != 0 {
			t.Errorf("%d notifications, %d checks", n, r.Len())
		}
	})
}

func TestUnchangedResultsAreNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, stop := running(t, Config{Rand: func(int64) int64 { return 0 }})
		defer stop()
		var l log
		r.Add("a", alias(time.Second, func(context.Context) Result { return Result{catalog.Passing, "same"} }), l.notify)
		advance(30 * time.Second)
		if _, n := l.last(); n != 1 {
			t.Errorf("%d notifications of one state", n)
		}
	})
}

func BenchmarkHeartbeat(b *testing.B) {
	r := New(Config{})
	for i := range 10000 {
		r.Add(fmt.Sprint(i), Spec{Kind: KindTTL, TTL: time.Minute}, func(uint64, Result) {})
	}
	ids := make([]string, 10000)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		_ = r.Heartbeat(ids[i%len(ids)], Result{catalog.Passing, "ok"})
	}
}
