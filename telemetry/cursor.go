package telemetry

import (
	"math"
)

// Reading is what happened to one series since a cursor's previous pass. It and
// what it points to are valid during the call that hands it out.
type Reading struct {
	Series *Series
	// Name is the name with prefix and host.
	Name string
	// Count is how often the series was added to or observed since the last pass.
	Count uint64
	// Sum is what was added (counter), the total in milliseconds (timing), or the
	// value (gauge).
	Sum float64
	// Buckets is the distribution of a timing's new observations.
	Buckets *Buckets

	odd     uint64
	squares float64
}

// mark is where a cursor stands in one series.
type mark struct {
	naming  *Naming // the one that name and allowed were made with
	name    string
	allowed bool

	counter counterTotals
	nanos   uint64
	buckets *Buckets // nil until the timing was observed
}

// Cursor reads the series' changes. Each reader has its own, which starts at the
// beginning of the process unless Skip is called first. It is not safe for use from two
// goroutines at once; the registry may be used by all the while.
type Cursor struct {
	r     *Registry
	marks map[*Series]*mark
	fresh Buckets
}

// NewCursor makes a cursor over r, which must not be nil.
func (r *Registry) NewCursor() *Cursor {
	return &Cursor{r: r, marks: make(map[*Series]*mark)}
}

// Skip passes over everything that happened so far.
func (c *Cursor) Skip() { c.Each(func(*Reading) {}) }

// Each calls f for every allowed counter and timing that changed since the last pass,
// and for every allowed gauge that has a value, in the order of their names.
func (c *Cursor) Each(f func(*Reading)) {
	naming, list := c.r.Naming(), c.r.Series()
	defer c.drop(list)
	for _, s := range list {
		m := c.marks[s]
		if m == nil {
			m = &mark{}
			c.marks[s] = m
		}
		if m.naming != naming {
			m.naming, m.name, m.allowed = naming, naming.Name(s), naming.Allowed(s)
		}
		reading := Reading{Series: s, Name: m.name}
		if c.advance(s, m, &reading) && m.allowed {
			f(&reading)
		}
	}
}

// EachOf is Each for the series that want names, whatever the naming lets through: what Naming hides from exporters
// is still there. Series that it does not want are not read at all. Reading.Name is empty.
func (c *Cursor) EachOf(want func(*Series) bool, f func(*Reading)) {
	list := c.r.Series()
	defer c.drop(list)
	for _, s := range list {
		if !want(s) {
			continue
		}
		m := c.marks[s]
		if m == nil {
			m = &mark{}
			c.marks[s] = m
		}
		reading := Reading{Series: s}
		if c.advance(s, m, &reading) {
			f(&reading)
		}
	}
}

// advance moves the mark to now and fills in what changed; false when nothing did.
func (c *Cursor) advance(s *Series, m *mark, out *Reading) bool {
	switch s.Kind {
	case KindCounter:
		now := s.counter.totals()
		// The shards are read one after the other while others add: a difference is
		// never negative for sum and odd, which only grow, but calls may lag its sum.
		out.Sum = float64(now.sum - m.counter.sum)
		out.Count = now.calls - m.counter.calls
		out.odd = now.odd - m.counter.odd
		out.squares = max(0, now.squares-m.counter.squares)
		if int64(out.Count) < 0 {
			out.Count, now.calls = 0, m.counter.calls
		}
		m.counter = now
		return out.Count > 0 || out.Sum > 0
	case KindGauge:
		v, ok := s.GaugeValue()
		out.Sum, out.Count = v, 1
		return ok
	default:
		return c.advanceTiming(s.timing, m, out)
	}
}

func (c *Cursor) advanceTiming(t *Timing, m *mark, out *Reading) bool {
	nanos := t.sum()
	if nanos == m.nanos {
		return false
	}
	t.Read(&c.fresh)
	if m.buckets == nil {
		m.buckets = &Buckets{}
	}
	// c.fresh becomes the difference and the mark the new total.
	for i, n := range c.fresh.Counts {
		c.fresh.Counts[i] = n - m.buckets.Counts[i]
		m.buckets.Counts[i] = n
	}
	total := c.fresh.Count
	c.fresh.Count -= m.buckets.Count
	m.buckets.Count = total
	if c.fresh.Count == 0 {
		// The sum of an observation whose bucket the last pass has counted: it stays
		// outstanding, and the next observation's pass takes it along.
		return false
	}
	out.Sum, m.nanos = float64(nanos-m.nanos)/millisecond, nanos
	out.Count, out.Buckets = c.fresh.Count, &c.fresh
	return true
}

// GaugeValue is the gauge's value now; ok is false when it has none that is a number.
func (s *Series) GaugeValue() (v float64, ok bool) {
	if f := s.read.Load(); f != nil {
		v = (*f)()
		return v, !math.IsNaN(v) && !math.IsInf(v, 0)
	}
	return s.gauge.load()
}

// CounterValue is everything added to a counter so far; 0 for other kinds.
func (s *Series) CounterValue() uint64 { return s.counter.Value() }

// TimingTotals fills b with all observations so far and gives their sum in
// milliseconds; nothing for other kinds.
func (s *Series) TimingTotals(b *Buckets) (sumMillis float64) {
	sumMillis = float64(s.timing.sum()) / millisecond
	s.timing.Read(b)
	return sumMillis
}
