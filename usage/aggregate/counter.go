// Package aggregate is a counter's state: what has been counted of the shards that it has, by tenant, product and
// time, and how states merge, move, roll, and are asked.
//
// A series (tenant, product, generation) has chunks of three levels: minutes of an hour, hours of a local day, days
// of a local month. Observations come into minutes. When a chunk of minutes is older than Keep.Minutes it is merged
// into its day and dropped, and so on: each observation is in one chunk at a time, so totals are conserved, and whole
// buckets go without a scan. Queries add up the slots of all levels that begin in a range; where a level is too
// coarse for the range, the answer says that it was rounded.
//
// Merge is associative and commutative. It is idempotent for unique, max and last; sums are kept from counting twice
// by where a state comes from: Copy at a record's offset and the records behind it, nothing else. The top k values of
// a tag depend on the order of events where more than k compete; kept and other together are always the total.
//
// A Counter is not safe for concurrent use. It calls nobody but Config.Zone.
package aggregate

import (
	"cmp"
	"slices"
	"time"

	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/window"
)

// Series is what is counted together.
type Series struct {
	Tenant, Product string
	Generation      uint32
}

// Keep is how long chunks of each level stay after their end.
type Keep struct {
	// Minutes is at least the longest `late` of the products: a late event changes its own minute. Zero means 25 h.
	Minutes time.Duration
	// Hours zero means 72 h, Days zero means 400 days.
	Hours, Days time.Duration
}

// Config configures a Counter.
type Config struct {
	Keep Keep
	// Zone is a tenant's calendar; nil means UTC for all.
	Zone func(tenant string) window.Zone
}

func (c Config) complete() Config {
	c.Keep.Minutes = cmp.Or(c.Keep.Minutes, usage.DefaultLate+time.Hour)
	c.Keep.Hours = cmp.Or(c.Keep.Hours, 72*time.Hour)
	c.Keep.Days = cmp.Or(c.Keep.Days, 400*24*time.Hour)
	if c.Zone == nil {
		c.Zone = func(string) window.Zone { return window.Zone{} }
	}
	return c
}

// bucket is the chunks of a level that begin at the same time.
type bucket struct {
	chunks map[Series]*Chunk
	to     time.Time // the latest end
}

// Counter is the state. Make one with New.
type Counter struct {
	cfg       Config
	watermark time.Time
	levels    [levels]map[int64]*bucket // by the beginning, in Unix seconds
	starts    map[month][]int64         // of the days of a month, shared
	freezes   int                       // under way
}

// month is a month of a zone: two zones may have the same months and other days.
type month struct {
	zone window.Zone
	span window.Range
}

// New makes an empty counter.
func New(cfg Config) *Counter {
	c := &Counter{cfg: cfg.complete(), starts: map[month][]int64{}}
	for i := range c.levels {
		c.levels[i] = map[int64]*bucket{}
	}
	return c
}

// Outcome is what became of an observation.
type Outcome uint8

// The outcomes.
const (
	Counted Outcome = iota + 1
	// TooOld observations belong to a chunk that has rolled: only a correction counts them.
	TooOld
)

// Apply counts an observation. order is its place in the log: it decides between equal times of a Last.
func (c *Counter) Apply(o *usage.Observation, order uint64) Outcome {
	at := time.Unix(0, o.Time).UTC()
	hour := at.Truncate(time.Hour)
	if c.rolled(Minutes, hour.Add(time.Hour)) {
		return TooOld
	}
	chunk := c.chunk(Minutes, window.Range{From: hour, To: hour.Add(time.Hour)}, seriesOf(o), kindOf(o))
	chunk.add(at.Minute(), o, order)
	return Counted
}

// Recount counts an observation again after Clear: into the level that its time has reached.
func (c *Counter) Recount(o *usage.Observation, order uint64) {
	at := time.Unix(0, o.Time).UTC()
	if c.Apply(o, order) == Counted {
		return
	}
	zone := c.cfg.Zone(o.Tenant)
	day := zone.Day(at)
	if !c.rolled(Hours, day.To) {
		c.chunk(Hours, day, seriesOf(o), kindOf(o)).add(int(at.Sub(day.From)/time.Hour), o, order)
		return
	}
	chunk := c.chunk(Days, zone.Month(at), seriesOf(o), kindOf(o))
	chunk.add(dayOf(chunk.starts, at), o, order)
}

func seriesOf(o *usage.Observation) Series {
	return Series{o.Tenant, o.Product.Name, o.Product.Generation}
}

func kindOf(o *usage.Observation) chunkKind { return chunkKind{o.Product, uint16(o.Identity.Shard())} }

// rolled reports whether chunks of a level that end at a time have gone.
func (c *Counter) rolled(level Level, end time.Time) bool {
	keep := [levels]time.Duration{c.cfg.Keep.Minutes, c.cfg.Keep.Hours, c.cfg.Keep.Days}[level]
	return !c.watermark.Before(end.Add(keep))
}

func (c *Counter) chunk(level Level, span window.Range, s Series, like chunkKind) *Chunk {
	b := c.levels[level][span.From.Unix()]
	if b == nil {
		b = &bucket{chunks: map[Series]*Chunk{}}
		c.levels[level][span.From.Unix()] = b
	}
	if span.To.After(b.to) {
		b.to = span.To
	}
	chunk := b.chunks[s]
	if chunk != nil {
		return c.own(s, chunk)
	}
	var starts []int64
	if level == Days {
		starts = c.daysOf(c.cfg.Zone(s.Tenant), span)
	}
	chunk = newChunk(level, span, starts, like)
	b.chunks[s] = chunk
	return chunk
}

func (c *Counter) daysOf(zone window.Zone, span window.Range) []int64 {
	if list := c.starts[month{zone, span}]; list != nil {
		return list
	}
	var list []int64
	for at := span.From; at.Before(span.To); at = zone.Day(at).To {
		list = append(list, at.Unix())
	}
	c.starts[month{zone, span}] = list
	return list
}

func dayOf(starts []int64, at time.Time) int {
	i, found := slices.BinarySearch(starts, at.Unix())
	if !found {
		i--
	}
	return max(i, 0)
}

// Watermark is the newest time that Advance was told.
func (c *Counter) Watermark() time.Time { return c.watermark }

// Advance says that records up to a time have been applied: chunks that have become too old roll. Time never goes
// back.
func (c *Counter) Advance(to time.Time) {
	if to.Before(c.watermark) {
		return
	}
	c.watermark = to.UTC()
	for level := Minutes; level < levels; level++ {
		var due []int64
		for from, b := range c.levels[level] {
			if c.rolled(level, b.to) {
				due = append(due, from)
			}
		}
		slices.Sort(due)
		for _, from := range due {
			b := c.levels[level][from]
			delete(c.levels[level], from)
			switch level {
			case Minutes:
				c.rollMinutes(b)
			case Hours:
				c.rollHours(b)
			}
		}
	}
	if len(c.starts) > 1000 {
		clear(c.starts) // they are found again
	}
}

// target is where some slots of a chunk go to.
type target struct {
	span window.Range
	from uint64
	to   int
}

func (c *Counter) rollMinutes(b *bucket) {
	known := map[window.Zone][]target{} // an hour of UTC may be of two local hours, and of two days
	for s, chunk := range b.chunks {
		zone := c.cfg.Zone(s.Tenant)
		targets, ok := known[zone]
		if !ok {
			for i := range 60 {
				at := chunk.Span.From.Add(time.Duration(i) * time.Minute)
				if n := len(targets); n == 0 || !targets[n-1].span.Contains(at) {
					targets = append(targets, target{span: zone.Day(at), to: -1})
				}
				last := &targets[len(targets)-1]
				slot := int(at.Sub(last.span.From) / time.Hour)
				if last.to >= 0 && last.to != slot {
					targets = append(targets, target{span: last.span})
					last = &targets[len(targets)-1]
				}
				last.to = slot
				last.from |= 1 << i
			}
			known[zone] = targets
		}
		for _, t := range targets {
			c.chunk(Hours, t.span, s, chunk.kind()).merge(chunk, t.from, t.to)
		}
	}
}

func (c *Counter) rollHours(b *bucket) {
	for s, chunk := range b.chunks {
		days := c.chunk(Days, c.cfg.Zone(s.Tenant).Month(chunk.Span.From), s, chunk.kind())
		days.merge(chunk, allSlots, dayOf(days.starts, chunk.Span.From))
	}
}

// Span is a range with all the slots that it touches, as Clear clears it.
func (c *Counter) Span(s Series, r window.Range) window.Range {
	for grown := true; grown; {
		grown = false
		c.each(s, func(chunk *Chunk) {
			if !chunk.Span.Overlaps(r) {
				return
			}
			for i := range chunk.slots() {
				slot := chunk.slot(i)
				if !slot.Overlaps(r) {
					continue
				}
				if slot.From.Before(r.From) {
					r.From, grown = slot.From, true
				}
				if slot.To.After(r.To) {
					r.To, grown = slot.To, true
				}
			}
		})
	}
	return r
}

// Clear forgets what a series has in a range, before it is recounted from the log. The range grows to whole slots of
// the levels that hold it: all events in the returned range must be counted again.
func (c *Counter) Clear(s Series, r window.Range) window.Range {
	r = c.Span(s, r)
	c.each(s, func(chunk *Chunk) {
		if slots, _ := chunk.mask(r); slots != 0 {
			c.own(s, chunk).clear(slots)
		}
	})
	return r
}

// each visits the chunks of a series, in the order of levels and time.
func (c *Counter) each(s Series, f func(*Chunk)) {
	for level := range c.levels {
		for _, from := range sortedKeys(c.levels[level]) {
			if chunk := c.levels[level][from].chunks[s]; chunk != nil {
				f(chunk)
			}
		}
	}
}

func sortedKeys[V any](m map[int64]V) []int64 {
	keys := make([]int64, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Merge adds another counter's state: of other shards, or of what came before this one began. Chunks that this
// counter's time has passed roll at once.
func (c *Counter) Merge(other *Counter) {
	for level := range other.levels {
		for from := range other.levels[level] {
			for s, chunk := range other.levels[level][from].chunks {
				c.chunk(chunk.Level, chunk.Span, s, chunk.kind()).merge(chunk, allSlots, -1)
			}
		}
	}
	if other.watermark.After(c.watermark) {
		c.watermark = other.watermark
	}
	c.Advance(c.watermark)
}

// Copy returns a copy of what belongs to some shards: what another counter loads. moves says which.
func (c *Counter) Copy(moves func(shard int) bool) *Counter {
	out := New(c.cfg)
	out.watermark = c.watermark
	c.eachChunk(func(s Series, chunk *Chunk) {
		if chunk.product.Kind != usage.Unique {
			if moves(int(chunk.home)) {
				out.chunk(chunk.Level, chunk.Span, s, chunk.kind()).merge(chunk, allSlots, -1)
			}
			return
		}
		part := chunk.part(moves)
		if !part.empty() {
			out.put(s, part)
		}
	})
	return out
}

// Drop forgets what belongs to some shards: another counter owns them now.
func (c *Counter) Drop(moves func(shard int) bool) {
	c.eachChunk(func(s Series, chunk *Chunk) {
		if chunk.product.Kind != usage.Unique {
			if moves(int(chunk.home)) {
				c.remove(s, chunk)
			}
			return
		}
		chunk = c.own(s, chunk)
		chunk.groups(func(g *group) { g.distinct.Drop(usage.ShardBits, moves) })
		if chunk.empty() {
			c.remove(s, chunk)
		}
	})
}

func (c *Counter) put(s Series, chunk *Chunk) {
	from := chunk.Span.From.Unix()
	b := c.levels[chunk.Level][from]
	if b == nil {
		b = &bucket{chunks: map[Series]*Chunk{}}
		c.levels[chunk.Level][from] = b
	}
	if chunk.Span.To.After(b.to) {
		b.to = chunk.Span.To
	}
	b.chunks[s] = chunk
}

func (c *Counter) remove(s Series, chunk *Chunk) {
	from := chunk.Span.From.Unix()
	delete(c.levels[chunk.Level][from].chunks, s)
	if len(c.levels[chunk.Level][from].chunks) == 0 {
		delete(c.levels[chunk.Level], from)
	}
}

// eachChunk visits all chunks in no order; f may remove the one that it visits.
func (c *Counter) eachChunk(f func(Series, *Chunk)) {
	for level := range c.levels {
		for _, b := range c.levels[level] {
			for s, chunk := range b.chunks {
				f(s, chunk)
			}
		}
	}
}

// Bytes is about the memory of all chunks. It visits each: for a metric once a minute, not for each event.
func (c *Counter) Bytes() (n int) {
	c.eachChunk(func(s Series, chunk *Chunk) { n += len(s.Tenant) + len(s.Product) + 64 + chunk.Bytes() })
	return n
}
