package statsd

import (
	"math"
	"strconv"
	"strings"

	"corbel.dev/corbel/telemetry"
)

// Dialect is how labels, tags and packets are written.
type Dialect uint8

// The dialects.
const (
	Plain     Dialect = iota // label values become parts of the name
	Statsite                 // as Plain, over a stream: each line ends with a line feed
	Dogstatsd                // labels and tags follow as |#name:value
)

// sampleLimit is how many lines one timing may cause per flush. More observations
// than that are represented by as many of them, evenly spread over their order of
// size, with the sampling rate stated.
const sampleLimit = 32

// line is one series as this sink writes it: what comes before and after the value.
type line struct {
	naming *telemetry.Naming
	head   string // "consul.raft.apply:"
	tail   string // "|#peer:a" or ""
}

func newLine(d Dialect, tags string, naming *telemetry.Naming, r *telemetry.Reading) *line {
	var head, tail []byte
	labels := naming.Labels(r.Series)
	head = appendClean(head, r.Name, nameBreakers)
	if d == Dogstatsd {
		for i, l := range labels {
			if i == 0 {
				tail = append(tail, "|#"...)
			} else {
				tail = append(tail, ',')
			}
			tail = appendClean(tail, l.Name, tagNameBreakers)
			tail = append(tail, ':')
			tail = appendClean(tail, l.Value, tagBreakers)
		}
		if tags != "" {
			if len(tail) == 0 {
				tail = append(tail, "|#"...)
			} else {
				tail = append(tail, ',')
			}
			tail = append(tail, tags...)
		}
	} else {
		for _, l := range labels {
			head = append(head, '.')
			head = appendClean(head, l.Value, nameBreakers)
		}
	}
	return &line{naming: naming, head: string(append(head, ':')), tail: string(tail)}
}

// Bytes that would end a name or tag early, or begin another field.
const (
	nameBreakers    = " :|@#,\n\r\t\x00"
	tagNameBreakers = ":|,\n\r\x00"
	tagBreakers     = "|,\n\r\x00"
)

func appendClean(b []byte, s, breakers string) []byte {
	if !strings.ContainsAny(s, breakers) {
		return append(b, s...)
	}
	for i := range len(s) {
		if strings.IndexByte(breakers, s[i]) >= 0 {
			b = append(b, '_')
		} else {
			b = append(b, s[i])
		}
	}
	return b
}

func (l *line) appendCounter(b []byte, sum float64) []byte {
	b = append(b, l.head...)
	b = strconv.AppendUint(b, uint64(sum), 10)
	b = append(b, "|c"...)
	return append(b, l.tail...)
}

func (l *line) appendGauge(b []byte, v float64) []byte {
	b = append(b, l.head...)
	b = strconv.AppendFloat(b, v, 'f', -1, 64)
	b = append(b, "|g"...)
	return append(b, l.tail...)
}

// appendTiming writes one value in milliseconds; rate below 1 says that it stands for 1/rate.
func (l *line) appendTiming(b []byte, millis, rate float64) []byte {
	b = append(b, l.head...)
	// Nanoseconds are the finest that we measure: six places, none written in vain.
	b = strconv.AppendFloat(b, math.Round(millis*1e6)/1e6, 'f', -1, 64)
	b = append(b, "|ms"...)
	if rate < 1 {
		b = append(b, "|@"...)
		b = strconv.AppendFloat(b, rate, 'g', 6, 64)
	}
	return append(b, l.tail...)
}

// samples turns a flush's distribution into the values to write: all of them
// when they are few, else sampleLimit of them. Values are the middles of their
// buckets, drawn towards the true total without leaving the bucket; a value that came alone is exact.
func samples(r *telemetry.Reading, out []float64) (values []float64, rate float64) {
	total := 0.0
	r.Buckets.Each(func(low, high, count uint64) {
		total += float64(low+high) / 2 / 1e6 * float64(count)
	})
	scale := 1.0
	if total > 0 && r.Sum > 0 {
		scale = r.Sum / total
	}
	step, rate := 1.0, 1.0
	if r.Count > sampleLimit {
		step = float64(r.Count) / sampleLimit
		rate = 1 / step
	}
	rank, next := 0.0, step/2
	r.Buckets.Each(func(low, high, count uint64) {
		rank += float64(count)
		value := min(max(float64(low+high)/2*scale, float64(low)), float64(high-1)) / 1e6
		for ; next <= rank && len(out) < sampleLimit; next += step {
			out = append(out, value)
		}
	})
	return out, rate
}
