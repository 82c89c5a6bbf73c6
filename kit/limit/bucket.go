package limit

import (
	"sync/atomic"
	"time"
)

// Bucket limits one rate that all callers share: one atomic number, no lock. The caller
// brings the time, as what has passed since an instant of its own. A nil Bucket allows everything.
type Bucket struct {
	interval, slack int64 // between two at the sustained rate; how far ahead of now the next may lie
	next            atomic.Int64
}

// NewBucket makes a bucket of perSecond with room for burst at once; below zero is no limit, and zero allows nothing.
func NewBucket(perSecond float64, burst int) *Bucket {
	switch {
	case perSecond < 0:
		return nil
	case perSecond == 0:
		return &Bucket{interval: 1, slack: 0}
	}
	interval := max(1, int64(float64(time.Second)/perSecond))
	return &Bucket{interval: interval, slack: interval * int64(max(burst, 1))}
}

// Take takes one; when it is too early it takes nothing and returns false.
func (b *Bucket) Take(now time.Duration) bool {
	if b == nil {
		return true
	}
	for {
		old := b.next.Load()
		next := max(old, int64(now)) + b.interval
		if next-int64(now) > b.slack {
			return false
		}
		if b.next.CompareAndSwap(old, next) {
			return true
		}
	}
}

// Return gives back one that was taken and not used.
func (b *Bucket) Return() {
	if b != nil {
		b.next.Add(-b.interval)
	}
}
