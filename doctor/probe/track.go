package probe

import (
	"time"

	"corbel.dev/corbel/doctor"
	"corbel.dev/corbel/doctor/usual"
	"corbel.dev/corbel/telemetry"
)

const (
	// tick is how often series are read; a window is the last two ticks, so that what begins shows within one.
	tick   = 5 * time.Second
	window = 2 * tick
	// kept is how many ticks of levels are kept: half an hour.
	kept = 360
	// calmTicks is for how long a series has to be as usual until its next departure is a new one.
	calmTicks = 3
	// farFromUsual is from how many times the usual ninth decile on a series has departed.
	farFromUsual = 3
)

// track follows one series.
type track struct {
	key     string
	series  *telemetry.Series
	kind    doctor.Kind
	ticks   [2]doctor.Stat // the newest last
	seen    bool           // since the last tick
	levels  [kept]float32
	next    int // where the next level goes
	filled  int
	usual   usual.Level
	since   time.Time
	calm    int
	toLearn int
}

func newTrack(s *telemetry.Series, known map[string]usual.Level) *track {
	t := &track{series: s}
	switch s.Kind {
	case telemetry.KindCounter:
		t.kind = doctor.Counter
	case telemetry.KindGauge:
		t.kind = doctor.Gauge
	default:
		t.kind = doctor.Timing
	}
	e := t.evidence()
	t.key = e.Key()
	t.usual = known[t.key]
	return t
}

// take notes what a cursor read.
func (t *track) take(r *telemetry.Reading) {
	s := doctor.Stat{Count: float64(r.Count), Sum: r.Sum}
	switch t.kind {
	case doctor.Counter:
		s.Count = 0
	case doctor.Gauge:
		s = doctor.Stat{Value: r.Sum}
	default:
		s.Mean = r.Sum / float64(r.Count)
		const milli = float64(time.Millisecond)
		s.P50, s.P99 = r.Buckets.Quantile(0.5)/milli, r.Buckets.Quantile(0.99)/milli
		r.Buckets.Each(func(_, high, _ uint64) { s.Max = float64(high) / milli })
	}
	t.ticks[1], t.seen = s, true
}

// roll ends a tick that lasted took.
func (t *track) roll(now time.Time, took time.Duration) {
	if !t.seen {
		t.ticks[1] = doctor.Stat{}
	}
	t.seen = false
	w := t.window(took)
	level := t.level(&w)
	quiet := t.kind == doctor.Timing && w.Count == 0
	if !quiet {
		t.levels[t.next], t.next = float32(level), (t.next+1)%kept
		t.filled = min(t.filled+1, kept)
	}
	t.depart(now, level, quiet)
	if t.toLearn++; t.toLearn%2 == 0 && !quiet {
		t.usual.Learn(level, w.Rate)
	}
}

// shift makes room for the next tick.
func (t *track) shift() { t.ticks[0] = t.ticks[1] }

// window joins the last two ticks.
func (t *track) window(took time.Duration) doctor.Stat {
	a, b := &t.ticks[0], &t.ticks[1]
	seconds := (2 * took).Seconds()
	switch t.kind {
	case doctor.Gauge:
		return doctor.Stat{Value: b.Value, Slope: t.slope()}
	case doctor.Counter:
		return doctor.Stat{Sum: a.Sum + b.Sum, Rate: (a.Sum + b.Sum) / seconds}
	}
	w := doctor.Stat{Count: a.Count + b.Count, Sum: a.Sum + b.Sum, Max: max(a.Max, b.Max)}
	if w.Count == 0 {
		return w
	}
	w.Rate, w.Mean = w.Count/seconds, w.Sum/w.Count
	w.P50 = (a.P50*a.Count + b.P50*b.Count) / w.Count
	// The larger of the two, unless it rests on next to nothing.
	w.P99 = max(a.P99, b.P99)
	if few, other := a, b; w.P99 > 0 {
		if few.Count > other.Count {
			few, other = other, few
		}
		if few.Count < w.Count/100 {
			w.P99 = other.P99
		}
	}
	return w
}

func (t *track) level(w *doctor.Stat) float64 {
	switch t.kind {
	case doctor.Counter:
		return w.Rate
	case doctor.Gauge:
		return w.Value
	default:
		return w.Mean
	}
}

// depart notes since when the series is far from usual.
func (t *track) depart(now time.Time, level float64, quiet bool) {
	far := level > 0
	if t.usual.Known() && t.usual.High > 0 {
		far = level > farFromUsual*t.usual.High
	} else if t.kind != doctor.Counter {
		far = false // a level says nothing while nobody knows which one is usual
	}
	switch {
	case far && !quiet:
		if t.since.IsZero() {
			t.since = now.Add(-tick)
		}
		t.calm = 0
	case !t.since.IsZero():
		if t.calm++; t.calm >= calmTicks {
			t.since, t.calm = time.Time{}, 0
		}
	}
}

// slope is the change per second between the first and the last quarter of what is kept, or of its second half where
// that rose less: what rose once, when its users came, and stays is not what goes on rising.
func (t *track) slope() float64 {
	if t.filled < 4 {
		return 0
	}
	return min(t.slopeOf(t.filled), t.slopeOf((t.filled+1)/2))
}

// slopeOf is the change per second between the first and the last quarter of the newest levels, of which there are
// two at least.
func (t *track) slopeOf(newest int) float64 {
	quarter := max(newest/4, 1)
	at := func(i int) float64 { return float64(t.levels[(t.next-newest+i+2*kept)%kept]) }
	var first, last float64
	for i := range quarter {
		first += at(i)
		last += at(newest - 1 - i)
	}
	span := float64(newest-quarter) * tick.Seconds()
	return (last - first) / float64(quarter) / span
}

// evidence is the series as it is now.
func (t *track) evidence() doctor.Series {
	s := doctor.Series{Name: t.series.Name, Kind: t.kind, Now: t.window(tick), Since: t.since}
	for _, l := range t.series.Labels {
		s.Labels = append(s.Labels, doctor.Label{Name: l.Name, Value: l.Value})
	}
	if t.usual.Windows > 0 {
		usual := t.usual
		s.Usual = &usual
	}
	return s
}
