package snapcache

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/core/feed"
)

// followAll follows a subject n times, as connections do: a set marks and returns.
func followAll(b *testing.B, h *harness, subject string, n int, told *tally) {
	b.Helper()
	for range n {
		if _, err := h.Follow(feed.Identity{}, subject, func(feed.Value) { told.add() }, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// tally counts how often followers were told.
type tally struct {
	n    atomic.Int64
	want atomic.Int64
	full chan struct{}
}

func newTally() *tally { return &tally{full: make(chan struct{}, 1)} }

func (t *tally) add() {
	if t.n.Add(1) == t.want.Load() {
		t.full <- struct{}{}
	}
}

// during does something that has n followers told, and waits for the last.
func (t *tally) during(b *testing.B, n int64, do func()) {
	b.Helper()
	t.want.Store(t.n.Load() + n)
	do()
	select {
	case <-t.full:
	case <-time.After(time.Minute):
		b.Fatalf("%d of %d told", t.n.Load(), t.want.Load())
	}
}

// BenchmarkDeregister is one of 10 or 85 instances that goes (or comes back), until the last of
// 10,000 followers of the service's endpoints was told.
func BenchmarkDeregister(b *testing.B) {
	for _, instances := range []int{10, 85} {
		b.Run(fmt.Sprintf("instances=%d/followers=10000", instances), func(b *testing.B) {
			h := newHarness(b, Config{Window: -1})
			for i := range instances {
				h.do(proxy(fmt.Sprintf("n%d", i), "web", i+1))
			}
			told := newTally()
			const followers = 10_000
			followAll(b, h, "endpoints/dc1/web/", followers, told)
			was, rounds := h.Stats(), int64(0)
			b.ReportAllocs()
			for b.Loop() {
				told.during(b, followers, func() {
					if rounds%2 == 0 {
						h.do(&catalog.Deregister{Node: "n3", ServiceID: "web-sidecar-proxy"})
					} else {
						h.do(proxy("n3", "web", 4))
					}
				})
				rounds++
			}
			if s := h.Stats(); s.Builds-was.Builds != uint64(rounds) {
				b.Errorf("%d builds for %d changes", s.Builds-was.Builds, rounds)
			}
		})
	}
}

// BenchmarkWildcardIntention changes what holds for all services, until the last of 10,000 followers of the
// rules that no intention names a service in is told, or the last of 3,000 services that have intentions of their own.
func BenchmarkWildcardIntention(b *testing.B) {
	b.Run("shared", func(b *testing.B) {
		h, told := newHarness(b, Config{Window: -1}), newTally()
		followAll(b, h, "rules/", 10_000, told)
		wildcardIntention(b, h, told, 10_000)
	})
	b.Run("own", func(b *testing.B) {
		h, told := newHarness(b, Config{Window: -1}), newTally()
		const services = 3000
		for i := range services {
			h.do(configEntry(b, fmt.Sprintf(`{"Kind":"service-intentions","Name":"s%d","Sources":[{"Name":"s%d",`+
				`"Action":"allow"}]}`, i, i+1)))
			followAll(b, h, fmt.Sprintf("rules/s%d", i), 1, told)
		}
		wildcardIntention(b, h, told, services)
	})
}

func wildcardIntention(b *testing.B, h *harness, told *tally, followers int64) {
	rounds := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		told.during(b, followers, func() {
			h.do(configEntry(b, fmt.Sprintf(`{"Kind":"service-intentions","Name":"*","Sources":[{"Name":"r%d",`+
				`"Action":"allow"}]}`, rounds)))
		})
		rounds++
	}
}

// BenchmarkFollow is one more follower of a subject that 10,000 follow, and its end.
func BenchmarkFollow(b *testing.B) {
	h := newHarness(b, Config{})
	told := newTally()
	followAll(b, h, "endpoints/dc1/web/", 10_000, told)
	b.ReportAllocs()
	for b.Loop() {
		stop, err := h.Follow(feed.Identity{}, "endpoints/dc1/web/", func(feed.Value) {}, nil)
		if err != nil {
			b.Fatal(err)
		}
		stop()
	}
}

// BenchmarkUntouched is what a batch of writes that touches nothing of the mesh costs the log.
func BenchmarkUntouched(b *testing.B) {
	h := newHarness(b, Config{})
	told := newTally()
	followAll(b, h, "endpoints/dc1/web/", 1, told)
	changes := &catalog.Changes{KV: make([]catalog.Change[catalog.KVPair], 64),
		Names: []catalog.Touched{{Name: "other", Index: 9}}}
	b.ReportAllocs()
	for b.Loop() {
		h.changed(h.State(), changes)
	}
}
