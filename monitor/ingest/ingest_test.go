package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/eventstore"
	"corbel.dev/corbel/monitor/eventstore/logevents"
	"corbel.dev/corbel/monitor/runs"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// world is an Ingest on a log, and what it published.
type world struct {
	*Ingest
	*hooks
	fs vfs.FS

	cancel context.CancelFunc
	done   chan error
}

// hooks is the policy and the sink of a world.
type hooks struct {
	Discard
	t        testing.TB
	in       *Ingest
	silences atomic.Pointer[monitor.Silences]
	wants    func(*monitor.Kind, monitor.Outcome) bool
	hears    func() bool
	copies   func(shard uint16, reset bool, until uint64, records []byte)

	mu        sync.Mutex
	published []*monitor.Event
	lifted    []string
}

// hooksOf are those of a configuration that start made.
func hooksOf(c *Config) *hooks { return c.Sink.(*hooks) }

func (h *hooks) Silences(string) *monitor.Silences { return h.silences.Load() }

func (h *hooks) Wants(_ string, k *monitor.Kind, out monitor.Outcome) bool { return h.wants(k, out) }

func (h *hooks) Hears() bool { return h.hears == nil || h.hears() }

func (h *hooks) Deregisters(_, entity string) bool { return strings.HasPrefix(entity, "passing-by") }

func (h *hooks) Deregister(namespace, entity string) { h.in.Delete(namespace, entity, "") }

func (h *hooks) Publish(p *Published) {
	e, err := p.Event()
	if err != nil {
		h.t.Error(err)
	}
	h.mu.Lock()
	h.published = append(h.published, e)
	h.mu.Unlock()
}

func (h *hooks) Lift(_ string, names []string) {
	h.mu.Lock()
	h.lifted = append(h.lifted, names...)
	h.mu.Unlock()
}

func (h *hooks) Replicate(shard uint16, reset bool, until uint64, records []byte) {
	if h.copies != nil {
		h.copies(shard, reset, until, records)
	}
}

func start(t testing.TB, fsys vfs.FS, change ...func(*Config)) *world {
	t.Helper()
	h := &hooks{t: t, wants: func(*monitor.Kind, monitor.Outcome) bool { return true }}
	w := &world{hooks: h, fs: fsys, done: make(chan error, 1)}
	cfg := Config{
		Open: func(l eventstore.Loaded) (eventstore.Store, error) {
			return logevents.Open(logevents.Config{FS: fsys, Dir: "/events", Log: slog.New(slog.DiscardHandler),
				SegmentBytes: 64 << 10}, l)
		},
		Log: slog.New(slog.DiscardHandler), Now: time.Now, Gather: time.Millisecond, Policy: h, Sink: h}
	for _, c := range change {
		c(&cfg)
	}
	in, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.Ingest, h.in = in, in
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	go func() { w.done <- in.Run(ctx) }()
	t.Cleanup(w.stop)
	return w
}

// stop ends Run; a second call does nothing.
func (w *world) stop() {
	w.cancel()
	if err, ok := <-w.done; ok {
		_ = err // whoever cares has read it
		close(w.done)
	}
}

func event(entity, check string, status uint32, executed int64) *monitor.Event {
	return &monitor.Event{
		Timestamp: executed, Sequence: executed, ID: []byte("0123456789abcdef"),
		Entity: &monitor.Entity{Class: "agent", Meta: monitor.Meta{Name: entity, Namespace: "default"},
			Subscriptions: []string{"linux"}},
		Check: &monitor.Check{Meta: monitor.Meta{Name: check, Namespace: "default"}, Command: "true", Interval: 10,
			Handlers: []string{"slack"}, Subscriptions: []string{"linux"},
			Issued: executed, Executed: executed, Status: status, Output: fmt.Sprint("status ", status), ProcessedBy: entity},
	}
}

func (w *world) send(t testing.TB, e *monitor.Event) {
	t.Helper()
	if err := w.Frame(t.Context(), "default", tagproto.Append(nil, e)); err != nil {
		t.Fatal(err)
	}
}

// settled waits until all that was taken is stored.
func (w *world) settled(t testing.TB) {
	t.Helper()
	polltest.Until(t, func() bool { return w.pending.Load() == 0 }, "all is stored")
}

func TestResultsBecomeEvents(t *testing.T) {
	w := start(t, vfs.NewMem())
	for i, status := range []uint32{0, 2, 2, 0} {
		w.send(t, event("web-1", "cpu", status, int64(1000+i)))
	}
	got, err := w.Get("default", "web-1", "cpu")
	if err != nil {
		t.Fatal(err)
	}
	c := got.Check
	if c.State != "passing" || c.Occurrences != 1 || c.Watermark != 2 || len(c.History) != 4 || c.LastOK != 1003 ||
		c.Output != "status 0" || got.Entity.Name != "web-1" {
		t.Fatalf("%+v", c)
	}
	w.settled(t)
	polltest.Until(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.published) == 4
	}, "four events are published")
	if third := w.published[2].Check; third.Status != 2 || third.Occurrences != 2 || len(third.History) != 3 {
		t.Fatalf("an event is as it was when it came: %+v", third)
	}
}

func TestOutputAndConfigurationMayChange(t *testing.T) {
	w := start(t, vfs.NewMem())
	e := event("e", "c", 0, 1)
	w.send(t, e)
	e.Check.Output, e.Check.MaxOutputSize, e.Check.Executed = "a long output", 6, 2
	e.Meta.Labels = map[string]string{"own": "kept"}
	w.send(t, e)
	got, err := w.Get("default", "e", "c")
	if err != nil || got.Check.Output != "a long" || len(got.Check.History) != 2 || got.Check.MaxOutputSize != 6 {
		t.Fatalf("%v %+v", err, got.Check)
	}
	if l := got.Meta.Labels; len(l) != 2 || l["own"] != "kept" || l["sensu.io/output_truncated_bytes"] != "7" {
		t.Errorf("labels %v", l)
	}
	if len(w.kinds.byStable) != 1 {
		t.Errorf("%d configurations are kept, one is in use", len(w.kinds.byStable))
	}
}

func TestSilences(t *testing.T) {
	w := start(t, vfs.NewMem())
	w.silences.Store(monitor.NewSilences([]*monitor.Silenced{
		{Meta: monitor.Meta{Name: "linux:*"}, Subscription: "linux", ExpireOnResolve: true},
		{Meta: monitor.Meta{Name: "*:cpu"}, Check: "cpu"},
	}))
	w.send(t, event("e", "cpu", 1, 1))
	if got, _ := w.Get("default", "e", "cpu"); !reflect.DeepEqual(got.Check.Silenced, []string{"*:cpu", "linux:*"}) ||
		!got.Check.IsSilenced {
		t.Fatalf("%v", got.Check.Silenced)
	}
	w.send(t, event("e", "cpu", 0, 2))
	if got, _ := w.Get("default", "e", "cpu"); !reflect.DeepEqual(got.Check.Silenced, []string{"*:cpu"}) {
		t.Fatalf("%v", got.Check.Silenced)
	}
	polltest.Until(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return reflect.DeepEqual(w.lifted, []string{"linux:*"})
	}, "the silence is lifted")
}

func TestBadEvents(t *testing.T) {
	w := start(t, vfs.NewMem())
	for name, change := range map[string]func(*monitor.Event){
		"no entity": func(e *monitor.Event) {
			e.Entity = nil
		}, "another namespace": func(e *monitor.Event) { e.Entity.Namespace = "other" },
		"a bad name":                func(e *monitor.Event) { e.Check.Name = "a b" },
		"neither check nor metrics": func(e *monitor.Event) { e.Check = nil },
		"a short id":                func(e *monitor.Event) { e.ID = []byte("x") },
	} {
		e := event("e", "c", 0, 1)
		change(e)
		if err := w.Frame(t.Context(), "default", tagproto.Append(nil, e)); errkind.Of(err) != errkind.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := w.Frame(t.Context(), "default", []byte("rubbish")); errkind.Of(err) != errkind.Invalid {
		t.Error(err)
	}
	if n := len(w.List("", "")); n != 0 {
		t.Errorf("%d events are there", n)
	}
}

func TestDelete(t *testing.T) {
	w := start(t, vfs.NewMem())
	for _, check := range []string{"a", "b"} {
		w.send(t, event("e", check, 0, 1))
	}
	if !w.Delete("default", "e", "a") || w.Delete("default", "e", "a") || len(w.List("default", "e")) != 1 {
		t.Fatal("one of two")
	}
	w.send(t, event("e2", "c", 0, 1))
	if !w.Delete("default", "e", "") || len(w.List("", "")) != 1 {
		t.Fatal("the rest")
	}
	w.stop()
	again := start(t, w.fs)
	if n := len(again.List("", "")); n != 1 {
		t.Fatalf("after a restart: %d events", n)
	}
}

// What was taken is there after a restart, and goes on from where it was.
func TestRestart(t *testing.T) {
	fsys := vfs.NewMem()
	rng := rand.New(rand.NewPCG(1, 2))
	w := start(t, fsys)
	var executed int64
	for round := range 4 {
		for range 2000 {
			executed++
			e := event(fmt.Sprint("e", rng.IntN(20)), fmt.Sprint("c", rng.IntN(5)), uint32(rng.IntN(10)/8), executed)
			if rng.IntN(50) == 0 {
				e.Check.Interval = uint32(10 + rng.IntN(3))
			}
			w.send(t, e)
		}
		want := all(t, w)
		w.stop()
		stored := w.sequences() // the last commits may still have put anew what is old
		w = start(t, fsys)
		if got := all(t, w); !reflect.DeepEqual(got, want) {
			t.Fatalf("round %d: the events differ", round)
		}
		if w.Stored() != stored {
			t.Fatalf("round %d: the sequences differ", round)
		}
	}
	if info := w.Stats().Store; info.Bytes > 5*(64<<10)+4*info.Live {
		t.Errorf("%d bytes for %d alive", info.Bytes, info.Live)
	}
}

// What is known of the past is the same after a power loss at any time, through compaction, and within its limits.
func TestPastOutlivesPowerLoss(t *testing.T) {
	mem := vfs.NewMem()
	rng := rand.New(rand.NewPCG(3, 4))
	limits := func(c *Config) { c.HistoryRuns = 30 }
	executed := time.Now().Unix() - 20_000
	want := map[string][]runs.Span{}
	for round := range 5 {
		w := start(t, mem, limits)
		if got := pasts(w); round > 0 && !reflect.DeepEqual(got, want) {
			t.Fatalf("round %d:\n got %v\nwant %v", round, got, want)
		}
		for range 3000 {
			executed++
			n := rng.IntN(40)
			e := event(fmt.Sprint("e", n%8), fmt.Sprint("c", n/8), uint32(rng.IntN(10)/(5+n/8)), executed)
			w.send(t, e)
			list := want[e.Entity.Name+"/"+e.Check.Name]
			if last := len(list) - 1; last >= 0 && list[last].Status == e.Check.Status {
				list[last].Last, list[last].Runs = executed, list[last].Runs+1
			} else {
				list = append(list, runs.Span{Status: e.Check.Status, First: executed, Last: executed, Runs: 1})
			}
			want[e.Entity.Name+"/"+e.Check.Name] = list[max(len(list)-30, 0):]
		}
		if got := pasts(w); !reflect.DeepEqual(got, want) {
			t.Fatalf("round %d, before the power loss:\n got %v\nwant %v", round, got, want)
		}
		w.settled(t)
		mem = mem.Crash(rng)
		w.stop()
	}
	if n := len(want["e0/c0"]); n != 30 {
		t.Errorf("%d spans: the limit was not reached", n)
	}
	old := start(t, mem, limits, func(c *Config) {
		c.Now = func() time.Time { return time.Now().Add(48 * time.Hour) }
		c.HistoryAge = 24 * time.Hour
	})
	for key, spans := range pasts(old) {
		if list := want[key]; !reflect.DeepEqual(spans, list[len(list)-1:]) {
			t.Errorf("%s: %v, want the newest alone of what is too old: %v", key, spans, list)
		}
	}
}

func pasts(w *world) map[string][]runs.Span {
	out := map[string][]runs.Span{}
	for _, p := range w.List("", "") {
		out[p.Entity+"/"+p.Check] = p.Past()
	}
	return out
}

func (w *world) sequences() (out [Shards]uint64) {
	for i := range w.shards {
		w.shards[i].mu.Lock()
		out[i] = w.shards[i].sequence
		w.shards[i].mu.Unlock()
	}
	return out
}

func all(t *testing.T, w *world) (out []*monitor.Event) {
	t.Helper()
	for _, p := range w.List("", "") {
		e, err := p.Event()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

// A full disk holds up those who bring results, loses nothing, and is over when there is room.
func TestFullDisk(t *testing.T) {
	faulty := vfs.NewFaulty(vfs.NewMem())
	w := start(t, faulty, func(c *Config) { c.PendingBytes = 4 << 10 })
	w.send(t, event("e", "c", 0, 1))
	w.settled(t)
	faulty.Inject(vfs.Rule{Name: "full", Ops: vfs.OpWrite, Err: syscall.ENOSPC})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var taken int64
	for {
		if err := w.Frame(ctx, "default", tagproto.Append(nil, event("e", "c", 0, 2+taken))); err != nil {
			if errkind.Of(err) != errkind.Overloaded || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			break
		}
		taken++
	}
	faulty.LiftAll()
	w.send(t, event("e", "c", 0, 2+taken))
	w.settled(t)
	w.stop()
	again := start(t, faulty)
	if got, err := again.Get("default", "e", "c"); err != nil || got.Check.Executed != 2+taken {
		t.Fatalf("%v %+v, %d were taken", err, got, taken)
	}
}

// An unchanged result of a known check allocates nothing.
func TestSteadyResultAllocatesNothing(t *testing.T) {
	w := start(t, vfs.NewMem())
	w.wants = func(*monitor.Kind, monitor.Outcome) bool { return false }
	b := tagproto.Append(nil, event("e", "c", 0, 1))
	for range 100 {
		if err := w.Frame(t.Context(), "default", b); err != nil {
			t.Fatal(err)
		}
	}
	w.stop() // nobody commits meanwhile: what is counted is the taking alone
	w.failed.Store(nil)
	n := testing.AllocsPerRun(200, func() {
		if err := w.Frame(t.Context(), "default", b); err != nil {
			t.Fatal(err)
		}
	})
	if n > 1 { // the race detector makes pools forget
		t.Errorf("%v allocations a result", n)
	}
}

func BenchmarkFrame(b *testing.B) {
	for _, entities := range []int{100, 20000} {
		b.Run(fmt.Sprint(entities, "entities"), func(b *testing.B) {
			w := start(b, vfs.OS{}, func(c *Config) {
				dir := b.TempDir()
				c.Gather = 5 * time.Millisecond
				c.Open = func(l eventstore.Loaded) (eventstore.Store, error) {
					return logevents.Open(logevents.Config{FS: vfs.OS{}, Dir: dir, Log: slog.New(slog.DiscardHandler)}, l)
				}
			})
			w.wants = func(*monitor.Kind, monitor.Outcome) bool { return false }
			var frames [][]byte
			for e := range entities {
				for c := range 11 {
					frames = append(frames, tagproto.Append(nil, event(fmt.Sprint("entity-", e), fmt.Sprint("check-", c), 0,
						1_700_000_000)))
				}
			}
			for _, f := range frames {
				if err := w.Frame(b.Context(), "default", f); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; b.Loop(); i++ {
				if err := w.Frame(b.Context(), "default", frames[i%len(frames)]); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			info := w.Stats().Store
			b.ReportMetric(float64(info.Commits)/float64(info.Changes), "commits/result")
		})
	}
}

// Pipelines learn of an event once it is stored, and not before (SE-12).
func TestPublishedOnceStored(t *testing.T) {
	faulty := vfs.NewFaulty(vfs.NewMem())
	w := start(t, faulty)
	published := func() int { w.mu.Lock(); defer w.mu.Unlock(); return len(w.published) }
	w.send(t, event("e", "c", 2, 1))
	polltest.Until(t, func() bool { return published() == 1 }, "the first event")
	faulty.Inject(vfs.Rule{Name: "full", Ops: vfs.OpWrite, Err: syscall.ENOSPC})
	w.send(t, event("e", "c", 2, 2))
	polltest.Until(t, func() bool { return faulty.Status()[0].Hits > 1 }, "the store to have failed")
	if n := published(); n != 1 {
		t.Fatalf("%d events are published, one is stored", n)
	}
	faulty.LiftAll()
	polltest.Until(t, func() bool { return published() == 2 }, "the second event")
}
