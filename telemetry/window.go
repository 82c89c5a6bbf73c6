package telemetry

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Interval is how long the windows of Summary are.
const Interval = 10 * time.Second

// Aggregate is what happened to one counter or timing during an interval. Timings
// are in milliseconds. Min, Max, Sum, Count and Mean are exact up to observations made
// while the interval ended; Stddev and the quantiles of timings are within 3.1 %.
type Aggregate struct {
	Series                            *Series
	Count                             uint64
	Rate, Sum, Min, Max, Mean, Stddev float64
	// P50, P90 and P99 are quantiles, for timings only.
	P50, P90, P99 float64
}

// GaugeValue is a gauge and its value at the end of an interval.
type GaugeValue struct {
	Series *Series
	Value  float64
}

// Summary is one complete interval.
type Summary struct {
	Start, End time.Time
	Gauges     []GaugeValue
	Counters   []Aggregate
	Timings    []Aggregate

	index map[*Series]int
}

// TimingOf is the aggregate of a timing, nil when it was not observed in the interval.
func (s *Summary) TimingOf(series *Series) *Aggregate {
	if i, ok := s.index[series]; ok {
		return &s.Timings[i]
	}
	return nil
}

// window keeps the last complete interval.
type window struct {
	mu     sync.Mutex // guards cursor and start
	cursor *Cursor
	start  time.Time
	last   atomic.Pointer[Summary]
	r      *Registry
}

func newWindow(r *Registry) *window {
	return &window{r: r, cursor: r.NewCursor(), start: r.cfg.Clock.Now()}
}

func (w *window) roll(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last.Store(summarize(w.cursor, w.start, now, true))
	w.start = now
}

// Summary is the last complete interval; before the first one is complete, what
// happened since New.
func (r *Registry) Summary() *Summary {
	if r == nil {
		return &Summary{}
	}
	if s := r.window.last.Load(); s != nil {
		return s
	}
	r.window.mu.Lock()
	start, s := r.window.start, r.window.last.Load()
	r.window.mu.Unlock()
	if s != nil { // the first one is complete since: start is the second one's
		return s
	}
	return summarize(r.NewCursor(), start, r.cfg.Clock.Now(), false)
}

// summarize reads cursor to its end. reset begins new extremes.
func summarize(cursor *Cursor, start, end time.Time, reset bool) *Summary {
	out := &Summary{Start: start, End: end, index: make(map[*Series]int)}
	seconds := end.Sub(start).Seconds()
	cursor.Each(func(reading *Reading) {
		switch reading.Series.Kind {
		case KindGauge:
			out.Gauges = append(out.Gauges, GaugeValue{reading.Series, reading.Sum})
		case KindCounter:
			out.Counters = append(out.Counters, aggregateCounter(reading, seconds, reset))
		default:
			out.index[reading.Series] = len(out.Timings)
			out.Timings = append(out.Timings, aggregateTiming(reading, seconds, reset))
		}
	})
	return out
}

func aggregateCounter(reading *Reading, seconds float64, reset bool) Aggregate {
	a := Aggregate{Series: reading.Series, Count: reading.Count, Sum: reading.Sum}
	c := reading.Series.counter
	low, high := extremes(&c.low, &c.high, reset)
	if reading.odd < reading.Count { // some Add was an Add(1)
		low, high = min(low, 1), max(high, 1)
	}
	a.Min, a.Max = float64(low), float64(high)
	squares := reading.squares + float64(reading.Count-min(reading.odd, reading.Count))
	a.finish(seconds, squares, a.Sum)
	return a
}

func aggregateTiming(reading *Reading, seconds float64, reset bool) Aggregate {
	a := Aggregate{Series: reading.Series, Count: reading.Count, Sum: reading.Sum}
	squares, mids := 0.0, 0.0
	first, last := uint64(math.MaxUint64), uint64(0)
	reading.Buckets.Each(func(low, high, count uint64) {
		mid := float64(low+high) / 2 / millisecond
		squares += mid * mid * float64(count)
		mids += mid * float64(count)
		first, last = min(first, low), max(last, high)
	})
	h := reading.Series.timing.hist.Load()
	low, high := extremes(&h.min, &h.max, reset)
	if low > high { // reset by a roll that came between an observation's two halves
		low, high = first, last
	}
	a.Min, a.Max = float64(low)/millisecond, float64(high)/millisecond
	a.finish(seconds, squares, mids)
	quantile := func(q float64) float64 {
		return min(max(reading.Buckets.Quantile(q)/millisecond, a.Min), a.Max)
	}
	a.P50, a.P90, a.P99 = quantile(0.5), quantile(0.9), quantile(0.99)
	return a
}

func extremes(low, high *atomic.Uint64, reset bool) (uint64, uint64) {
	if reset {
		return low.Swap(math.MaxUint64), high.Swap(0)
	}
	return low.Load(), high.Load()
}

// finish derives rate, mean and deviation. squares and total are the sum of the
// squares and the sum of the same values, which for timings are those of the buckets.
func (a *Aggregate) finish(seconds, squares, total float64) {
	if a.Min > a.Max { // the extremes were reset between an Add's two halves
		a.Min, a.Max = 0, 0
	}
	if seconds > 0 {
		a.Rate = a.Sum / seconds
	}
	if a.Count == 0 {
		return
	}
	n := float64(a.Count)
	a.Mean = a.Sum / n
	if a.Max > 0 {
		a.Mean = min(max(a.Mean, a.Min), a.Max)
	}
	if a.Count > 1 {
		a.Stddev = math.Sqrt(max(0, (squares-total*total/n)/(n-1)))
	}
}
