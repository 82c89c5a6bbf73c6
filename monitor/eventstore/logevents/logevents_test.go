package logevents

import (
	"log/slog"
	"math/rand/v2"
	"testing"

	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/eventstore"
	"corbel.dev/corbel/monitor/eventstore/eventrecord"
	"corbel.dev/corbel/monitor/eventstore/eventstoretest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func config(fsys vfs.FS, dir string) Config {
	return Config{FS: fsys, Dir: dir, Log: slog.New(slog.DiscardHandler), SegmentBytes: 4 << 10}
}

func TestConformance(t *testing.T) {
	eventstoretest.Run(t, func(t *testing.T) eventstoretest.Open {
		cfg := config(vfs.OS{}, t.TempDir())
		return func(t testing.TB, l eventstore.Loaded) eventstore.Store {
			s, err := Open(cfg, l)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
	})
}

// The log stays in proportion to what is alive, however long it is written to.
func TestLogIsCompacted(t *testing.T) {
	fsys := vfs.NewMem()
	f := eventstoretest.NewFleet(1)
	_, l := eventstoretest.Loaded()
	s, err := Open(config(fsys, "/e"), l)
	if err != nil {
		t.Fatal(err)
	}
	for range 3000 {
		b := s.NewBatch(1)
		for range 5 {
			f.Change(b, 1)
		}
		results, entities := s.Refresh(3)
		f.Sequences[1] += uint64(f.Refresh(b, 1, results, entities))
		if err := s.Commit(t.Context(), []eventstore.Batch{b}, []uint64{f.Sequences[1]}); err != nil {
			t.Fatal(err)
		}
		if info := s.Info(); info.Bytes > 5*4<<10+4*info.Live {
			t.Fatalf("%d bytes for %d alive", info.Bytes, info.Live)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	got, l := eventstoretest.Loaded()
	if s, err = Open(config(fsys, "/e"), l); err != nil {
		t.Fatal(err)
	}
	f.Equal(t, got)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A power loss at any operation leaves a commit's changes all or none, and each that was acknowledged.
func TestPowerLoss(t *testing.T) {
	mem := vfs.NewMem()
	faulty := vfs.NewFaulty(mem)
	rng := rand.New(rand.NewPCG(1, 2))
	type wreck struct {
		fs    *vfs.Mem
		acked int
	}
	var wrecks []wreck
	acked := 0
	faulty.Observe = func(vfs.Op, string) { wrecks = append(wrecks, wreck{mem.Crash(rng), acked}) }
	_, l := eventstoretest.Loaded()
	s, err := Open(config(faulty, "/e"), l)
	if err != nil {
		t.Fatal(err)
	}
	const commits = 60
	states := make([]*eventstoretest.Fleet, 0, commits+1) // after each commit
	at := func(n int) *eventstoretest.Fleet {             // the fleet after n commits, made anew: it is deterministic
		f := eventstoretest.NewFleet(5)
		for range n {
			round(f, s)
		}
		return f
	}
	states = append(states, at(0))
	f := eventstoretest.NewFleet(5)
	for n := range commits {
		if err := s.Commit(t.Context(), []eventstore.Batch{round(f, s)}, []uint64{f.Sequences[1]}); err != nil {
			t.Fatal(err)
		}
		acked = n + 1
		states = append(states, at(n+1))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for i, w := range wrecks {
		got, l := eventstoretest.Loaded()
		s, err := Open(config(w.fs, "/e"), l)
		if err != nil {
			t.Fatalf("crash %d: %v", i, err)
		}
		n := int(got.Sequences[1] / perRound)
		if n < w.acked || n > w.acked+1 {
			t.Fatalf("crash %d: %d commits are there, %d were acknowledged", i, n, w.acked)
		}
		states[n].Equal(t, got)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(wrecks) < 2*commits {
		t.Fatalf("%d crashes", len(wrecks))
	}
}

const perRound = 4

func round(f *eventstoretest.Fleet, s *Store) eventstore.Batch {
	b := s.NewBatch(1)
	for range perRound {
		f.Change(b, 1)
	}
	return b
}

func FuzzApply(f *testing.F) {
	s := &Store{}
	fleet := eventstoretest.NewFleet(3)
	b := s.NewBatch(2).(*eventrecord.Batch)
	for range 40 {
		fleet.Change(b, 2)
	}
	f.Add(b.Records())
	f.Fuzz(func(t *testing.T, records []byte) {
		h := newHeld()
		_ = eventrecord.Read(2, records, h)
	})
}

// A result that changes nothing but itself.
func BenchmarkDelta(b *testing.B) {
	s := &Store{}
	batch := s.NewBatch(1)
	r := &eventstore.Result{State: monitor.State{Result: monitor.Result{Executed: 1_700_000_000, Issued: 1_700_000_000,
		Timestamp: 1_700_000_001, Sequence: 100, Duration: 0.01}}}
	for b.Loop() {
		if batch.Put(5, r, 0); batch.Len() == 10000 {
			b.ReportMetric(float64(batch.Bytes())/10000, "bytes/result")
			batch.Reset()
		}
	}
}
