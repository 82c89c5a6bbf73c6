package limit

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestBucket(t *testing.T) {
	b := NewBucket(10, 5)
	took := func(at time.Duration) (n int) {
		for b.Take(at) {
			n++
		}
		return n
	}
	for _, step := range []struct {
		at   time.Duration
		want int
	}{{0, 5}, {50 * time.Millisecond, 0}, {100 * time.Millisecond, 1}, {time.Second, 5}, {time.Hour, 5}} {
		if got := took(step.at); got != step.want {
			t.Errorf("at %s: %d, want %d", step.at, got, step.want)
		}
	}
	b.Return()
	if got := took(time.Hour); got != 1 {
		t.Errorf("after one was returned: %d", got)
	}
	if b := NewBucket(-1, 5); !b.Take(0) {
		t.Error("no limit refuses")
	}
	if b := NewBucket(0, 5); b.Take(time.Hour) {
		t.Error("a rate of nothing allows something")
	}
}

// TestBucketShared: many takers at once get exactly what there is.
func TestBucketShared(t *testing.T) {
	b := NewBucket(1, 1000)
	var got atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				if b.Take(0) {
					got.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if got.Load() != 1000 {
		t.Fatalf("%d of 1000", got.Load())
	}
}

func BenchmarkBucket(b *testing.B) {
	bucket := NewBucket(1e9, 1<<30)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for now := time.Duration(0); pb.Next(); now++ {
			bucket.Take(now)
		}
	})
}
