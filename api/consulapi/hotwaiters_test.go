package consulapi

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
)

func (s *stage) index() uint64 { return s.store.State().ServiceIndex("web") }

func (s *stage) parked(n int) {
	s.Helper()
	until(s.TB, fmt.Sprintf("%d parked calls", n), func() bool { return s.api.Blocking() == n })
}

func watchText(index uint64, more string) string {
	return requestText("GET", fmt.Sprintf("/v1/health/service/web?index=%d%s", index, more), "", "")
}

func TestOneChangeAnswersAllWaiters(t *testing.T) {
	const watchers = 2000
	s := newStage(t, nil)
	s.service("n1", "passing")
	index := s.index()
	before := runtime.NumGoroutine()
	clients := make([]*client, watchers)
	for i := range clients {
		clients[i] = dialTo(t, s.addr)
		clients[i].send(watchText(index, "&wait=60s&passing"))
	}
	s.parked(watchers)
	if n := runtime.NumGoroutine() - before; n > watchers+20 {
		t.Errorf("%d goroutines for %d watchers", n, watchers)
	}
	waits := s.store.waits()
	for _, c := range clients[:100] { // these vanish
		_ = c.Close()
	}
	s.parked(watchers - 100)
	s.service("n2", "passing")
	want := s.api.Bodies
	var first response
	for i, c := range clients[100:] {
		a := c.read()
		if i == 0 {
			first = a
		}
		if a.status != 200 || a.body != first.body || a.header.Get("X-Consul-Index") != strconv.FormatUint(s.index(), 10) {
			t.Fatalf("watcher %d: %d %v %s", i, a.status, a.header, a.body)
		}
	}
	if want.Bytes() == 0 {
		t.Error("the answer was not shared")
	}
	if n := s.api.Blocking(); n != 0 {
		t.Errorf("%d still parked", n)
	}
	if n := s.store.waits() - waits; n > 3 {
		t.Errorf("%d waits began for one change", n)
	}
	// They ask again on the same connections and find the waiters.
	for _, c := range clients[100:] {
		c.send(watchText(s.index(), "&wait=60s&passing"))
	}
	s.parked(watchers - 100)
	s.stop() // a shutdown answers all with what is known
	for i, c := range clients[100:] {
		if a := c.read(); a.body != first.body || a.header.Get("X-Consul-Index") != first.header.Get("X-Consul-Index") {
			t.Fatalf("watcher %d at the end: %d %v %s", i, a.status, a.header, a.body)
		}
	}
}

func TestSharedWaiterDeadlines(t *testing.T) {
	s := newStage(t, nil)
	s.service("n1", "passing")
	slow, quick, far := dialTo(t, s.addr), dialTo(t, s.addr), dialTo(t, s.addr)
	slow.send(watchText(s.index(), "&wait=60s"))
	s.parked(1)
	begun := time.Now()
	quick.send(watchText(s.index(), "&wait=50ms")) // interrupts the wait of the other
	if a := quick.read(); a.header.Get("X-Consul-Index") != strconv.FormatUint(s.index(), 10) {
		t.Errorf("timed out: %v", a.header)
	}
	if d := time.Since(begun); d < 50*time.Millisecond {
		t.Errorf("answered after %v, asked for 50ms", d)
	}
	far.send(watchText(s.index()+1, "&wait=60s")) // not moved by the next change alone
	s.parked(2)
	s.service("n2", "passing")
	slow.read()
	s.parked(1)
	for s.index() <= 3 {
		s.service(fmt.Sprintf("m%d", s.index()), "passing")
	}
	s.service("n4", "passing")
	far.read()
	s.parked(0)
}

func TestRestoreAnswersAllWaiters(t *testing.T) {
	s := newStage(t, nil)
	s.service("n1", "passing")
	s.service("n2", "passing")
	c := dialTo(t, s.addr)
	c.send(watchText(s.index(), "&wait=60s"))
	s.parked(1)
	s.store.restore(statestore.Empty())
	if a := c.read(); a.body != "[]" || a.header.Get("X-Consul-Index") != "1" {
		t.Errorf("after a restore: %v %s", a.header, a.body)
	}
	// The new history reaches the same index with another content.
	s.service("x1", "passing")
	s.service("x2", "passing")
	if hot, slow := c.ask("GET", "/v1/health/service/web", "", ""), dialTo(t, s.slow).ask("GET", "/v1/health/service/web",
		"", ""); hot.body != slow.body ||
		!containsAll(hot.body, "x1", "x2") || containsAll(hot.body, "n1") {
		t.Errorf("another history's body: %s", hot.body)
	}
}

func TestParkedAnswersTellALostLeader(t *testing.T) {
	s := newStage(t, nil)
	s.service("n1", "passing")
	c := dialTo(t, s.addr)
	c.send(watchText(s.index(), "&wait=60s"))
	s.parked(1)
	s.store.mu.Lock()
	s.store.readErr = errkind.New(errkind.Unavailable, "No cluster leader")
	next, _, _ := s.store.st.Apply([]catalog.Command{&catalog.Deregister{Node: "n1"}})
	s.store.st = next
	close(s.store.changed)
	s.store.changed = make(chan struct{})
	s.store.mu.Unlock()
	if a := c.read(); a.status != 200 || a.header.Get("X-Consul-Knownleader") != "false" || a.body != "[]" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
}

func TestSharedWaitersAreBoundedAndEnd(t *testing.T) {
	s := newStage(t, nil)
	s.service("n1", "passing")
	s.hot.SharedLimit = 2
	clients := make([]*client, 3)
	for i, more := range []string{"&passing", "", "&stale"} {
		clients[i] = dialTo(t, s.addr)
		clients[i].send(watchText(s.index(), "&wait=60s"+more))
		s.parked(i + 1)
	}
	if n, d := s.hot.Shared(), s.declined.count(); n != 2 || d != 1 {
		t.Errorf("%d shared, %d declined; want 2 and 1", n, d)
	}
	s.service("n2", "passing")
	for _, c := range clients { // also the one that net/http serves
		c.read()
	}
	until(t, "empty waiters to end", func() bool { return s.hot.Shared() == 0 })
}

// TestNoWakeUpIsLost lets watchers join, time out, vanish and follow while the service
// changes all the time: whoever asks with an old index gets a newer one, and at the end
// each sees the last.
func TestNoWakeUpIsLost(t *testing.T) {
	s := newStage(t, nil)
	s.service("n0", "passing")
	const watchers, answers = 24, 1500
	var done atomic.Bool
	var answered atomic.Int64
	var last atomic.Uint64
	var wg sync.WaitGroup
	for i := range watchers {
		wg.Go(func() {
			c, index := dialTo(t, s.addr), uint64(1)
			for !done.Load() || index < last.Load() {
				wait := "60s"
				if rand.IntN(4) == 0 {
					wait = "1ms"
				}
				c.send(watchText(index, "&wait="+wait))
				if rand.IntN(16) == 0 {
					_ = c.Close()
					c = dialTo(t, s.addr)
					continue
				}
				a := c.read()
				got, err := strconv.ParseUint(a.header.Get("X-Consul-Index"), 10, 64)
				if err != nil || got < index || wait == "60s" && got == index {
					t.Errorf("watcher %d asked with %d and got %d %v", i, index, got, err)
					return
				}
				index = got
				answered.Add(1)
			}
		})
	}
	changes := 0
	until(t, "the watchers to be answered many times", func() bool {
		for range rand.IntN(4) {
			changes++
			s.service("n0", []string{"passing", "critical"}[changes%2])
		}
		return answered.Load() >= answers || t.Failed()
	})
	done.Store(true)
	s.service("last", "passing")
	last.Store(s.index())
	finished := make(chan struct{})
	go func() { wg.Wait(); close(finished) }()
	select {
	case <-finished:
		s.parked(0)
	case <-time.After(20 * time.Second):
		t.Fatalf("%d watchers were not woken", s.api.Blocking())
	}
}

// Rounds of many members, of which those answered first ask again while the others are
// still being answered: everybody gets each answer once, and the last change reaches all.
func TestRoundsOfManyWhoAskAgain(t *testing.T) {
	s := newStage(t, nil)
	s.service("n0", "passing")
	const watchers, changes = 400, 25
	first := s.index()
	var last atomic.Uint64
	last.Store(^uint64(0))
	var answered atomic.Int64
	var wg sync.WaitGroup
	for i := range watchers {
		c := dialTo(t, s.addr)
		wg.Go(func() {
			for index := first; index < last.Load(); {
				if _, err := io.WriteString(c, watchText(index, "&wait=60s")); err != nil {
					t.Errorf("watcher %d: %v", i, err)
					return
				}
				res, err := http.ReadResponse(c.R, nil)
				if err != nil {
					t.Errorf("watcher %d after %d: %v", i, index, err)
					return
				}
				_, _ = io.Copy(io.Discard, res.Body)
				got, err := strconv.ParseUint(res.Header.Get("X-Consul-Index"), 10, 64)
				if err != nil || got <= index {
					t.Errorf("watcher %d asked with %d and got %d %v", i, index, got, err)
					return
				}
				index = got
				answered.Add(1)
			}
		})
	}
	s.parked(watchers)
	for n := range changes - 1 {
		want := answered.Load() + watchers/2
		s.service("n0", []string{"critical", "passing"}[n%2])
		until(t, "half of the watchers to be answered", func() bool { return answered.Load() >= want || t.Failed() })
	}
	s.parked(watchers) // with the newest index, so that one change more ends them all
	last.Store(s.index() + 1)
	s.service("last", "passing")
	if s.index() < last.Load() {
		t.Fatalf("index %d after the last change, want %d", s.index(), last.Load())
	}
	wg.Wait()
	until(t, "the last round to end", func() bool { return !s.hot.Answering() })
}

func TestWatchersOfADyingRegistry(t *testing.T) {
	s := newStage(t, func(c *Config) { c.Registry = dying{c.Registry.(*store)} })
	s.service("n1", "passing")
	a := dialTo(t, s.addr).ask("GET", fmt.Sprintf("/v1/health/service/web?index=%d&wait=60s", s.index()), "", "")
	if a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	until(t, "the waiters to end", func() bool { return s.hot.Shared() == 0 })
}

// dying is a registry that has shut down: no wait lasts.
type dying struct{ *store }

func (d dying) Await(context.Context, registry.Subject, uint64, time.Duration,
	func(*statestore.State) uint64) *statestore.State {
	return d.State()
}

// BenchmarkFanOut is one change told to 1,000 watchers on real connections.
func BenchmarkFanOut(b *testing.B) {
	for _, door := range []string{"hot", "nethttp"} {
		b.Run(door, func(b *testing.B) {
			s := newStage(b, nil)
			s.service("n0", "passing")
			addr := map[string]string{"hot": s.addr, "nethttp": s.slow}[door]
			clients := make([]*client, 1000)
			for i := range clients {
				clients[i] = dialTo(b, addr)
			}
			i := 0
			for b.Loop() {
				b.StopTimer()
				for _, c := range clients {
					c.send(watchText(s.index(), "&wait=60s"))
				}
				for s.api.Blocking() < len(clients) {
					runtime.Gosched()
				}
				i++
				b.StartTimer()
				s.service("n0", []string{"passing", "critical"}[i%2])
				for s.api.Blocking() > 0 {
					runtime.Gosched()
				}
				for _, c := range clients {
					c.read()
				}
			}
		})
	}
}
