package telemetry

import (
	"math/bits"
	"sync/atomic"
)

// A histogram is log-linear: sixteen equal steps within each power of two, so a
// value is known to within 1/32 (3.1 %) of itself, and below 1 µs to within 32 ns.
// Memory is fixed: 656 buckets, 5.2 kB, made at the first observation.
const (
	unitBits    = 6 // the finest step is 64 ns; nothing we time is told apart below it
	stepBits    = 4 // sixteen steps per power of two
	steps       = 1 << stepBits
	rangeBits   = 50 // up to 2^50 ns, 13 days; longer falls into the last bucket
	bucketCount = (rangeBits - unitBits - stepBits + 1) * steps
)

type histogram struct {
	buckets [bucketCount]atomic.Uint64
	// min and max hold the extremes of the running interval; the roll resets them.
	min, max atomic.Uint64
}

// bucketOf gives the bucket of a number of nanoseconds.
func bucketOf(nanos uint64) int {
	u := nanos >> unitBits
	if u < steps {
		return int(u)
	}
	shift := bits.Len64(u) - stepBits - 1
	return min(shift*steps+int(u>>shift), bucketCount-1)
}

// bucketBounds gives the half-open range [low, high) of a bucket in nanoseconds.
func bucketBounds(i int) (low, high uint64) {
	if i < steps {
		return uint64(i) << unitBits, uint64(i+1) << unitBits
	}
	shift := i/steps - 1
	mantissa := uint64(i%steps + steps)
	return mantissa << shift << unitBits, (mantissa + 1) << shift << unitBits
}

// Buckets is a distribution read from a Timing: how many observations fell into
// each bucket. Distributions add up with Merge.
type Buckets struct {
	Counts [bucketCount]uint64
	Count  uint64
}

// Merge adds other to b.
func (b *Buckets) Merge(other *Buckets) {
	for i, n := range other.Counts {
		b.Counts[i] += n
	}
	b.Count += other.Count
}

// Quantile is the value, in nanoseconds, that the fraction q of observations does
// not pass, within 3.1 %. It is 0 when there are none.
func (b *Buckets) Quantile(q float64) float64 {
	if b.Count == 0 {
		return 0
	}
	rank := uint64(q * float64(b.Count))
	if float64(rank) < q*float64(b.Count) || rank == 0 {
		rank++
	}
	rank = min(rank, b.Count)
	var seen uint64
	for i, n := range b.Counts {
		if seen += n; seen >= rank {
			return midpoint(i)
		}
	}
	return midpoint(bucketCount - 1)
}

// Each calls f for each bucket that holds something, lowest first, with the
// bucket's range [low, high) in nanoseconds.
func (b *Buckets) Each(f func(low, high, count uint64)) {
	for i, n := range b.Counts {
		if n != 0 {
			low, high := bucketBounds(i)
			f(low, high, n)
		}
	}
}

func midpoint(i int) float64 {
	low, high := bucketBounds(i)
	return float64(low+high) / 2
}
