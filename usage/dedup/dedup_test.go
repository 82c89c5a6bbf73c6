package dedup

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage"
	"pgregory.net/rapid"
)

var start = time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC)

func hashOf(n uint64) usage.Hash {
	h, _ := usage.NewKey([16]byte{7}).EventID(nil, "t", "s", string(rune('a'+n%26))+string(rune(n)))
	return h
}

func restore(t interface{ Fatal(...any) }, s *State) *State {
	r := pack.Read(s.Append(nil))
	next, err := Read(r, s.cfg)
	if err != nil || r.Err() != nil {
		t.Fatal("what was written is not read: ", err)
	}
	return next
}

// TestNewAtMostOnce is section 3's "exactly once, cheaply" against a model that forgets nothing: whatever happens, an
// id is New at most once, is Duplicate only after it was accepted, and is never Late while its product would take it
// and the capacity holds. The state is restored from its snapshot at random: the verdicts stay the same.
func TestNewAtMostOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{Window: 2 * time.Hour, Capacity: rapid.SampledFrom([]int{5, 40, 1000}).Draw(t, "capacity")}
		s := NewState(cfg)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		accepted, counted, times := map[uint64]bool{}, map[uint64]bool{}, map[uint64]time.Time{}
		now := start
		for range 400 {
			now = now.Add(time.Duration(r.IntN(90)) * time.Second)
			if r.IntN(20) == 0 {
				s = restore(t, s)
			}
			s.Advance(now)
			id := uint64(r.IntN(300))
			if _, known := times[id]; !known {
				times[id] = now.Add(-time.Duration(r.IntN(150)) * time.Minute)
			}
			at, floor := times[id], s.Floor()
			if r.IntN(10) == 0 {
				at = now // stamped anew by its sender
			}
			switch v := s.Event(hashOf(id), at, cfg.Window); v {
			case New:
				if counted[id] && at == times[id] {
					t.Fatalf("id %d is new twice", id)
				}
				if at.Before(floor) {
					t.Fatalf("id %d is new before the floor", id)
				}
				accepted[id], counted[id] = true, true
			case Duplicate:
				if !accepted[id] {
					t.Fatalf("id %d is a duplicate and was never accepted: its usage is lost", id)
				}
			case Late:
				if cfg.Capacity == 1000 && at.After(now.Add(-cfg.Window)) {
					t.Fatalf("id %d is late %s after its time", id, now.Sub(at))
				}
				accepted[id] = true
			case Full:
				if cfg.Capacity == 1000 {
					t.Fatal("full with room")
				}
			}
			if s.live > cfg.Capacity {
				t.Fatalf("%d ids, at most %d", s.live, cfg.Capacity)
			}
		}
	})
}

// TestRestoredIsTheSame: a snapshot decides as the state that wrote it, also at its bounds.
func TestRestoredIsTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{Window: time.Hour, Capacity: 50, MaxProducers: 4}
		a := NewState(cfg)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 2))
		b := restore(t, a)
		now := start
		for i := range 500 {
			now = now.Add(time.Duration(r.IntN(120)) * time.Second)
			if r.IntN(30) == 0 {
				b = restore(t, b)
			}
			a.Advance(now)
			b.Advance(now)
			at, id := now.Add(-time.Duration(r.IntN(90))*time.Minute), hashOf(r.Uint64N(200))
			if v, w := a.Event(id, at, time.Hour), b.Event(id, at, time.Hour); v != w {
				t.Fatalf("step %d: %s and %s", i, v, w)
			}
			name, epoch, sequence := string(rune('a'+r.IntN(6))), r.Uint64N(3), r.Uint64N(3000)
			if v, w := a.Batch(name, epoch, sequence), b.Batch(name, epoch, sequence); v != w {
				t.Fatalf("step %d: batch %s and %s", i, v, w)
			}
		}
		if !bytes.Equal(a.Append(nil), b.Append(nil)) {
			t.Fatal("the states differ")
		}
	})
}

// TestProducer is the trap "counters that come back with an old epoch", and out-of-order batches of one producer.
func TestProducer(t *testing.T) {
	s := NewState(Config{})
	s.Advance(start)
	for i, step := range []struct {
		epoch, sequence uint64
		want            Verdict
	}{
		{5, 1, New}, {5, 1, Duplicate}, {5, 3, New}, {5, 2, New}, {5, 2, Duplicate}, {5, 3, Duplicate},
		{4, 4, Fenced}, {5, 4, New},
		{6, 1, New}, {5, 5, Fenced}, {6, 1, Duplicate}, // a new start begins anew, the old one is dead
		{6, 1026, New}, {6, 2, Unknown}, {6, 1, Duplicate}, {6, 3, New}, // 2 never came
		{6, 1026, Duplicate},
		{6, 100_000, New}, {6, 3, Unknown}, {6, 99_999, New}, {6, 98_977, New}, {6, 98_976, Unknown},
		{7, 50_000, New}, {7, 49_500, New}, {7, 48_000, Unknown}, {7, 0, Unknown}, // first seen in the middle
	} {
		if got := s.Batch("p", step.epoch, step.sequence); got != step.want {
			t.Errorf("step %d: epoch %d, sequence %d: %s, want %s", i, step.epoch, step.sequence, got, step.want)
		}
	}
}

// TestProducerModel: in any order within what may be in flight, each sequence is New once and then Duplicate.
func TestProducerModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewState(Config{})
		s.Advance(start)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 3))
		seen, next := map[uint64]bool{}, uint64(1)
		for range 5000 {
			sequence := next
			if r.IntN(2) == 0 && next > 1 {
				sequence = next - 1 - r.Uint64N(min(next-1, 1000))
			} else {
				next++
				if r.IntN(3) == 0 {
					continue // comes later
				}
			}
			want := New
			if seen[sequence] {
				want = Duplicate
			}
			got := s.Batch("p", 1, sequence)
			if got != want { // at most 1,000 of 1,024 are in flight: nothing is unknown
				t.Fatalf("sequence %d of %d: %s, want %s", sequence, next, got, want)
			}
			seen[sequence] = seen[sequence] || got == New
		}
	})
}

// TestFull: "429 / 503 when the budget is used up: never accepted and dropped" (section 3).
func TestFull(t *testing.T) {
	s := NewState(Config{Capacity: 3, MaxProducers: 1})
	s.Advance(start)
	for i, want := range []Verdict{New, New, New, Full, Full} {
		if got := s.Event(hashOf(uint64(i)), start, time.Hour); got != want {
			t.Errorf("id %d: %s, want %s", i, got, want)
		}
	}
	if got := s.Event(hashOf(0), start, time.Hour); got != Duplicate {
		t.Errorf("a known id: %s", got)
	}
	s.Advance(start.Add(time.Minute)) // now there is an older minute to forget
	if got := s.Event(hashOf(4), start.Add(time.Minute), time.Hour); got != New {
		t.Errorf("a minute later: %s", got)
	}
	if got := s.Event(hashOf(0), start, time.Hour); got != Late {
		t.Errorf("a forgotten id comes back as %s, not late", got)
	}
	if s.Batch("a", 1, 1) != New || s.Batch("b", 1, 1) != Full {
		t.Error("producers are not bounded")
	}
	s.Advance(start.Add(25 * time.Hour))
	if got := s.Batch("b", 1, 1); got != New {
		t.Errorf("an idle producer is not forgotten: %s", got)
	}
}

func FuzzRead(f *testing.F) {
	s := NewState(Config{})
	f.Add(s.Append(nil))
	s.Advance(start)
	s.Event(hashOf(1), start, time.Hour)
	s.Batch("p", 1, 1)
	f.Add(s.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Read(pack.Read(b), Config{})
		if err != nil {
			return
		}
		once := s.Append(nil)
		if !bytes.Equal(restore(t, s).Append(nil), once) {
			t.Fatal("what was read is not written the same way twice")
		}
	})
}

// BenchmarkEvent is an id that is new, at a steady number of live ids.
func BenchmarkEvent(b *testing.B) {
	s := NewState(Config{Capacity: 1 << 20})
	r := rand.New(rand.NewPCG(1, 1))
	now := start
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i&0x3FF == 0 {
			now = now.Add(2 * time.Second)
			s.Advance(now)
		}
		s.Event(usage.Hash{Hi: r.Uint64(), Lo: r.Uint64()}, now, 24*time.Hour)
	}
	b.ReportMetric(float64(s.Bytes())/float64(s.Live()), "B/id")
}
