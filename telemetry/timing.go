package telemetry

import (
	"math"
	"sync/atomic"
	"time"
)

// millisecond is the unit in which timings are shown.
const millisecond = float64(time.Millisecond)

type sumCell struct {
	nanos atomic.Uint64
	_     [56]byte
}

// Timing is a distribution of durations, shown in milliseconds.
type Timing struct {
	hist atomic.Pointer[histogram] // nil until the first observation
	sums []sumCell
}

func newTiming() *Timing { return &Timing{sums: make([]sumCell, cellCount)} }

// Observe records one duration. Zero and negative ones count as one nanosecond.
func (t *Timing) Observe(d time.Duration) { t.observe(d, 1) }

// observe records n durations of d each.
func (t *Timing) observe(d time.Duration, n uint64) {
	if t == nil {
		return
	}
	nanos := uint64(max(d, 1))
	h := t.hist.Load()
	if h == nil {
		h = t.begin()
	}
	// The bucket before the sum: a reader skips a timing whose sum stands still, so
	// a sum that it has seen must never be ahead of its bucket.
	h.buckets[bucketOf(nanos)].Add(n)
	t.sums[cellIndex(len(t.sums))].nanos.Add(nanos * n)
	lowerTo(&h.min, nanos)
	raiseTo(&h.max, nanos)
}

// ObserveMillis records a value already in milliseconds, or any other number that
// has no unit of time: it is shown as it was given. Negative ones count as 0.
func (t *Timing) ObserveMillis(v float64) {
	if t == nil || math.IsNaN(v) {
		return
	}
	t.Observe(time.Duration(min(max(v, 0)*millisecond, 1<<rangeBits)))
}

// begin makes the histogram; of two goroutines that come first, one wins.
func (t *Timing) begin() *histogram {
	h := &histogram{}
	h.min.Store(math.MaxUint64)
	if t.hist.CompareAndSwap(nil, h) {
		return h
	}
	return t.hist.Load()
}

// Count is how many durations were observed so far.
func (t *Timing) Count() uint64 {
	var b Buckets
	t.Read(&b)
	return b.Count
}

// Sum is the total of all durations observed so far.
func (t *Timing) Sum() time.Duration { return time.Duration(t.sum()) }

// Read fills b with the distribution of everything observed so far.
func (t *Timing) Read(b *Buckets) {
	*b = Buckets{}
	if t == nil {
		return
	}
	h := t.hist.Load()
	if h == nil {
		return
	}
	for i := range h.buckets {
		n := h.buckets[i].Load()
		b.Counts[i] = n
		b.Count += n
	}
}

func (t *Timing) sum() (nanos uint64) {
	if t == nil {
		return 0
	}
	for i := range t.sums {
		nanos += t.sums[i].nanos.Load()
	}
	return nanos
}
