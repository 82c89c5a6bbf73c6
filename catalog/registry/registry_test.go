package registry

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/telemetry"
)

func snapshotOf(t testing.TB, r *Registry) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	if _, err := r.Snapshot().WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return &b
}

// blocked is how many Awaits are waiting.
func blocked(r *Registry) float64 { return r.meters.blocking.Value() }

// Each follower reads with the index of its last answer. As long as no wake-up
// is lost it sees every writer's last value long before the wait is over.
func TestAwaitLosesNoWakeUp(t *testing.T) {
	r, _ := newRegistry(t, Config{Metrics: telemetry.New(telemetry.Config{})}, true)
	const writers, followers, rounds = 4, 16, 200
	subjects := func(w int) (Subject, func(*statestore.State) uint64) {
		key := fmt.Sprintf("w%d/k", w)
		return Subject{TopicKVPrefix, key[:3]}, func(s *statestore.State) uint64 { return s.KVPrefixIndex(key[:3]) }
	}
	last := fmt.Sprint(rounds - 1)
	var group sync.WaitGroup
	for f := range followers {
		w := f % writers
		subject, indexOf := subjects(w)
		group.Go(func() {
			var index uint64
			for {
				begin := time.Now()
				s := r.Await(context.Background(), subject, index, time.Minute, indexOf)
				if time.Since(begin) >= time.Minute {
					t.Errorf("follower %d slept through a change", f)
					return
				}
				if p := s.KV(subject.Key + "k"); p != nil && string(p.Value) == last {
					return
				}
				index = indexOf(s)
			}
		})
	}
	for w := range writers {
		group.Go(func() {
			for i := range rounds {
				if _, err := r.Apply(context.Background(), set(fmt.Sprintf("w%d/k", w), fmt.Sprint(i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if waited, _ := r.Watched(); waited != 0 {
		t.Errorf("%d subjects are still watched", waited)
	}
}

// watchers starts n Awaits on one subject and tells how many have returned.
func watchers(r *Registry, n int, s Subject, indexOf func(*statestore.State) uint64) (back *atomic.Int64, wait func()) {
	back = new(atomic.Int64)
	var group sync.WaitGroup
	index := indexOf(r.State())
	for range n {
		group.Go(func() {
			r.Await(context.Background(), s, index, 10*time.Minute, indexOf)
			back.Add(1)
		})
	}
	return back, group.Wait
}

func serviceIndex(s *statestore.State) uint64 { return s.ServiceIndex("web") }

func TestOneChangeWakesTenThousand(t *testing.T) {
	r, _ := newRegistry(t, Config{Metrics: telemetry.New(telemetry.Config{})}, true)
	apply(t, r, register("n1"))
	const n = 10_000
	back, wait := watchers(r, n, Subject{TopicService, "Web"}, serviceIndex)
	polltest.Until(t, func() bool { return blocked(r) == n }, "%d waiters", n)
	apply(t, r, set("k", "v"))
	apply(t, r, register("n2"))
	if back.Load() != 0 {
		t.Errorf("%d waiters returned for changes of something else", back.Load())
	}
	c := register("n1")
	c.Service = &catalog.Service{Node: "n1", ID: "web1", Name: "web"}
	apply(t, r, c)
	wait()
	if waited, _ := r.Watched(); waited != 0 {
		t.Errorf("%d subjects are still watched", waited)
	}
}

func TestRestoreAndShutdownWakeAll(t *testing.T) {
	for _, how := range []string{"restore", "shutdown"} {
		t.Run(how, func(t *testing.T) {
			r, _ := newRegistry(t, Config{Metrics: telemetry.New(telemetry.Config{})}, true)
			apply(t, r, set("k", "v"))
			saved := snapshotOf(t, r)
			apply(t, r, set("k", "w"))
			stop := start(r)
			defer stop()
			var waits []func()
			for _, s := range []Subject{{TopicKV, "k"}, {TopicKVPrefix, ""}, {TopicService, "web"}, {TopicServices, ""},
				{TopicNodes, ""},
				{TopicNode, "n"}, {TopicChecks, ""}, {TopicNodeChecks, "n"}, {TopicServiceChecks, "web"}, {TopicSessions, ""},
				{TopicSession, "x"}} {
				_, wait := watchers(r, 3, s, func(*statestore.State) uint64 { return 1 })
				waits = append(waits, wait)
			}
			polltest.Until(t, func() bool { return blocked(r) == 33 }, "the waiters")
			if how == "restore" {
				if err := r.Restore(saved); err != nil {
					t.Fatal(err)
				}
				if p := r.State().KV("k"); string(p.Value) != "v" {
					t.Errorf("restored k is %q", p.Value)
				}
			} else {
				stop()
			}
			for _, wait := range waits {
				wait()
			}
		})
	}
}

func TestDamagedSnapshotChangesNothing(t *testing.T) {
	r, _ := newRegistry(t, Config{Metrics: telemetry.New(telemetry.Config{})}, true)
	apply(t, r, set("k", "v"))
	saved := snapshotOf(t, r).Bytes()
	before := r.State()
	for _, cut := range []int{0, 1, len(saved) / 2, len(saved) - 1} {
		if err := r.Restore(bytes.NewReader(saved[:cut])); err == nil {
			t.Errorf("%d of %d bytes were taken for a snapshot", cut, len(saved))
		}
	}
	if r.State() != before {
		t.Error("a damaged snapshot replaced the State")
	}
}

func TestFollowerForwards(t *testing.T) {
	r, log := newRegistry(t, Config{Metrics: telemetry.New(telemetry.Config{})}, false)
	_, err := r.Apply(t.Context(), set("k", "v"))
	if !errkind.Is(err, errkind.NotLeader) || errkind.Text(err) != "No cluster leader" {
		t.Errorf("without a leader: %v", err)
	}
	if _, err := r.Read(t.Context(), Default); !errkind.Is(err, errkind.NotLeader) {
		t.Errorf("read without a leader: %v", err)
	}
	if c, err := r.Read(t.Context(), Stale); err != nil || c.KnownLeader {
		t.Errorf("stale read without a leader: %+v %v", c, err)
	}
	log.elect(true)
	for _, mode := range []Mode{Default, Consistent, Stale} {
		if c, err := r.Read(t.Context(), mode); err != nil || !c.Leader || !c.KnownLeader {
			t.Errorf("mode %d on the leader: %+v %v", mode, c, err)
		}
	}
}

func TestUnreadableCommandChangesNothing(t *testing.T) {
	r, _ := newRegistry(t, Config{Metrics: telemetry.New(telemetry.Config{})}, true)
	good := catalog.EncodeCommand(nil, set("k", "v"))
	out := r.ApplyBatch([][]byte{{0xff, 1, 2}, good, nil})
	if len(out) != 3 {
		t.Fatalf("%d results", len(out))
	}
	for i, bad := range []bool{true, false, true} {
		if got := out[i].(*catalog.Result); (got.Err != nil) != bad {
			t.Errorf("result %d: %+v", i, got)
		}
	}
	if r.State().Index() != statestore.Empty().Index()+1 || r.State().KV("k") == nil {
		t.Error("the good command was not applied alone")
	}
}

func BenchmarkApply(b *testing.B) {
	value := string(make([]byte, 128))
	for _, waiting := range []int{0, 10_000} {
		b.Run(fmt.Sprintf("kv/watched=%d", waiting), func(b *testing.B) {
			r, log := newRegistry(b, Config{Metrics: telemetry.New(telemetry.Config{})}, true)
			log.refuseBy(nil)
			ctx, cancel := context.WithCancel(context.Background())
			var group sync.WaitGroup
			for i := range waiting {
				key := fmt.Sprintf("other/%d", i)
				group.Go(func() {
					r.Await(ctx, Subject{TopicKV, key}, 1<<62, time.Hour,
						func(s *statestore.State) uint64 { return s.KVKeyIndex(key) })
				})
			}
			polltest.Until(b, func() bool { return blocked(r) == float64(waiting) }, "the waiters")
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := r.Apply(ctx, set(fmt.Sprintf("k/%d", i%10_000), value)); err != nil {
					b.Fatal(err)
				}
				log.forget()
			}
			cancel()
			group.Wait()
		})
	}
}

// TestSlowWritesKeepTheirTrace: a slow write is kept with the trace of its caller.
func TestSlowWritesKeepTheirTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := telemetry.New(telemetry.Config{})
		r, log := newRegistry(t, Config{Metrics: metrics}, true)
		log.refuse = func(catalog.Command) error { time.Sleep(time.Second); return nil }
		ctx := telemetry.WithTrace(t.Context(), "0af7651916cd43dd8448eb211c80319c")
		if _, err := r.Apply(ctx, &catalog.KV{Verb: catalog.KVSet, Pair: catalog.KVPair{Key: "k"}}); err != nil {
			t.Fatal(err)
		}
		slow := metrics.Slowest()
		if len(slow) != 1 || slow[0].Kind != "kv" || slow[0].Took < time.Second ||
			slow[0].Trace != "0af7651916cd43dd8448eb211c80319c" {
			t.Errorf("kept are %+v", slow)
		}
	})
}
