// Package tally adds up what programs send in statsd's format, and makes points of it at each flush.
//
// Counters give .value and .per_second, gauges .value, sets .value (how many different ones), timers and histograms
// .min, .max, .count, .per_second, .mean, .median, .stddev, .sum, .sum_squares and five of the 90th percentile.
// Counters and timers begin anew at each flush, gauges stay; a series that nothing was sent of for Expiry is
// forgotten. Times of points are Unix nanoseconds, unlike those of checks (the contract says so).
//
// Series, different values of a set and values kept of a timer are bounded: what is beyond is counted (Dropped), and
// a timer keeps every second, fourth, ... value for its median and percentile then. A Tally belongs to one goroutine,
// or to a lock of its owner.
package tally

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/monitor"
)

// Bounds of what is kept.
const (
	MaxSeries = 10_000
	maxKept   = 4096   // values of a timer
	maxSet    = 10_000 // different values of a set
	// Expiry is how long a series is told of that nothing is sent of any more.
	Expiry = 5 * time.Minute
)

// Tally holds the series since the last flush. The zero value is ready.
type Tally struct {
	series  map[string]*series
	flushed time.Time
	// Dropped counts lines that were not understood or had no room.
	Dropped uint64
}

// series is one name with one set of tags.
type series struct {
	name string
	tags []*monitor.MetricTag
	kind byte
	seen time.Time

	sum, squares, low, high float64
	count                   float64 // by the sampling rate
	kept                    []float64
	stride, skipped         int
	members                 map[string]struct{}
}

// Add takes the lines of one datagram and returns the first thing that was wrong.
func (t *Tally) Add(datagram string, now time.Time) (first error) {
	if t.flushed.IsZero() {
		t.flushed = now
	}
	for line := range strings.Lines(datagram) {
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			continue
		}
		s, err := parse(line)
		if err == nil && t.take(s, now) {
			continue
		}
		t.Dropped++
		if first == nil {
			first = err
		}
	}
	return first
}

// take adds a sample; false says that there was no room.
func (t *Tally) take(s sample, now time.Time) bool {
	key := string(s.kind) + s.name + "|" + strings.Join(s.tags, ",")
	found := t.series[key]
	if found == nil {
		if len(t.series) >= MaxSeries {
			return false
		}
		if t.series == nil {
			t.series = map[string]*series{}
		}
		found = &series{name: s.name, kind: s.kind, tags: tagsOf(s.tags)}
		t.series[key] = found
	}
	found.seen = now
	ok := true
	for _, v := range s.values {
		ok = found.add(v, s.rate) && ok
	}
	return ok
}

func tagsOf(list []string) []*monitor.MetricTag {
	out := make([]*monitor.MetricTag, 0, len(list))
	for _, t := range list {
		name, value, _ := strings.Cut(t, ":")
		out = append(out, &monitor.MetricTag{Name: name, Value: value})
	}
	return out
}

func (s *series) add(text string, rate float64) bool {
	if s.kind == set {
		if _, known := s.members[text]; !known && len(s.members) >= maxSet {
			return false
		}
		if s.members == nil {
			s.members = map[string]struct{}{}
		}
		s.members[text] = struct{}{}
		return true
	}
	v, _ := strconv.ParseFloat(text, 64) // parse made sure
	switch {
	case s.kind == counter:
		s.sum += v / rate
	case s.kind == gauge && (text[0] == '+' || text[0] == '-'):
		s.sum += v
	case s.kind == gauge:
		s.sum = v
	default:
		s.time(v, rate)
	}
	return true
}

func (s *series) time(v, rate float64) {
	if s.count == 0 {
		s.low, s.high, s.stride = v, v, 1
	}
	s.low, s.high = min(s.low, v), max(s.high, v)
	s.count += 1 / rate
	s.sum += v
	s.squares += v * v
	if s.skipped++; s.skipped < s.stride {
		return
	}
	s.skipped = 0
	if len(s.kept) == maxKept {
		for i := range maxKept / 2 {
			s.kept[i] = s.kept[2*i]
		}
		s.kept = s.kept[:maxKept/2]
		s.stride *= 2
	}
	s.kept = append(s.kept, v)
}

// Flush returns the points since the flush before, in the order of their names, and begins anew.
func (t *Tally) Flush(now time.Time) []*monitor.Point {
	elapsed := now.Sub(t.flushed).Seconds()
	if elapsed <= 0 {
		elapsed = 1 // a clock that stood still: better a rate by the second than none
	}
	t.flushed = now
	var out []*monitor.Point
	for _, key := range slices.Sorted(maps.Keys(t.series)) {
		s := t.series[key]
		if now.Sub(s.seen) >= Expiry {
			delete(t.series, key)
			continue
		}
		out = s.points(out, now.UnixNano(), elapsed)
	}
	return out
}

// points appends what the series has, and begins it anew.
func (s *series) points(out []*monitor.Point, at int64, elapsed float64) []*monitor.Point {
	add := func(suffix string, v float64) {
		if !math.IsNaN(v) && !math.IsInf(v, 0) { // sums of large numbers
			out = append(out, &monitor.Point{Name: s.name + "." + suffix, Value: v, Timestamp: at, Tags: s.tags})
		}
	}
	switch s.kind {
	case gauge:
		add("value", s.sum)
		return out
	case set:
		add("value", float64(len(s.members)))
		s.members = nil
		return out
	case counter:
		add("value", s.sum)
		add("per_second", s.sum/elapsed)
		s.sum = 0
		return out
	}
	add("count", s.count)
	add("per_second", s.count/elapsed)
	if len(s.kept) > 0 {
		s.distribution(add)
	}
	*s = series{name: s.name, tags: s.tags, kind: s.kind, seen: s.seen}
	return out
}

// percentile is the one that statsd servers compute by default.
const percentile = 90

func (s *series) distribution(add func(suffix string, v float64)) {
	slices.Sort(s.kept)
	n := len(s.kept)
	median := s.kept[n/2]
	if n%2 == 0 {
		median = (s.kept[n/2-1] + median) / 2
	}
	mean, deviation, _, _ := moments(s.kept)
	add("min", s.low)
	add("max", s.high)
	add("mean", mean)
	add("median", median)
	add("stddev", deviation)
	add("sum", s.sum)
	add("sum_squares", s.squares)
	part := s.kept[:max(1, int(math.Round(float64(n)*percentile/100)))]
	mean, _, sum, squares := moments(part)
	add("percentile_count_90", float64(len(part)*s.stride))
	add("percentile_mean_90", mean)
	add("percentile_sum_90", sum)
	add("percentile_sum_squares_90", squares)
	add("percentile_upper_90", part[len(part)-1])
}

func moments(values []float64) (mean, deviation, sum, squares float64) {
	for _, v := range values {
		sum += v
		squares += v * v
	}
	mean = sum / float64(len(values))
	spread := 0.0
	for _, v := range values {
		spread += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(spread / float64(len(values))), sum, squares
}
