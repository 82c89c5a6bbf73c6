package telemetry

import (
	"sync/atomic"
	"testing"
	"time"
)

func BenchmarkCounterAdd(b *testing.B) {
	c := New(Config{}).Counter("c")
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c.Add(1)
		}
	})
}

// BenchmarkPlainAtomic is what an unsharded counter would cost.
func BenchmarkPlainAtomic(b *testing.B) {
	var c atomic.Uint64
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c.Add(1)
		}
	})
}

func BenchmarkTimingObserve(b *testing.B) {
	timing := New(Config{}).Timing("t")
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			timing.Observe(time.Duration(i) * time.Microsecond)
		}
	})
}

func BenchmarkRegistryLookup(b *testing.B) {
	r := New(Config{})
	b.ReportAllocs()
	for b.Loop() {
		r.Timing("api.http", "method", "GET", "path", "v1_kv_").Observe(time.Millisecond)
	}
}

func BenchmarkCursorOver500Timings(b *testing.B) {
	r := New(Config{})
	var all []*Timing
	for i := range 500 {
		all = append(all, r.Timing("t", "n", string(rune('a'+i%26))+string(rune('a'+i/26))))
	}
	cursor := r.NewCursor()
	for b.Loop() {
		for _, t := range all[:50] {
			t.Observe(time.Millisecond)
		}
		cursor.Each(func(*Reading) {})
	}
}
