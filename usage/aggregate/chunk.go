package aggregate

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/sketch"
	"corbel.dev/corbel/usage/window"
)

// Amount is what a product that is not unique adds up to.
type Amount struct {
	// Count is how many events a sum has; for the other kinds it says that there is one.
	Count uint64
	Value usage.Quantity
	// Time and Order are those of the event that is the last: in Unix nanoseconds, and by arrival.
	Time  int64
	Order uint64
}

// add is associative and commutative for each kind; for Max, Min and Last it is idempotent too.
func (a *Amount) add(kind usage.Kind, b Amount) {
	switch {
	case b.Count == 0:
	case a.Count == 0:
		*a = b
	case kind == usage.Sum:
		a.Count += b.Count
		a.Value, _ = a.Value.Add(b.Value) // MaxDigits leaves room for 2^46 events; beyond, the largest quantity stays
	case kind == usage.Max && b.Value.Compare(a.Value) > 0,
		kind == usage.Min && b.Value.Compare(a.Value) < 0,
		kind == usage.Last && cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(b.Order, a.Order)) > 0:
		*a = b
	}
}

// cell is a slot's amount.
type cell struct {
	slot uint8
	Amount
}

// group is what one value of a tag has, or all of them, by slot: cells for amounts, distinct for uniques.
type group struct {
	weight   uint64 // for the top k alone: events of a unique, the quantity of the others
	cells    []cell // by slot
	distinct *sketch.Distinct
}

func newGroup(p *usage.Product) *group {
	g := &group{}
	if p.Kind == usage.Unique {
		g.distinct = sketch.NewDistinct(p.ExactBelow, p.Precision)
	}
	return g
}

func (g *group) addAmount(kind usage.Kind, slot uint8, a Amount) {
	i := len(g.cells) // mostly the newest slot
	if i == 0 || g.cells[i-1].slot < slot {
		g.cells = append(g.cells, cell{slot, a})
		return
	}
	if g.cells[i-1].slot != slot {
		var found bool
		i, found = slices.BinarySearchFunc(g.cells, slot, func(c cell, s uint8) int { return cmp.Compare(c.slot, s) })
		if !found {
			g.cells = slices.Insert(g.cells, i, cell{slot, a})
			return
		}
		i++
	}
	g.cells[i-1].add(kind, a)
}

// merge adds what other has in the slots of from: into the slot to, or where it was for to < 0. other stays as it is.
func (g *group) merge(kind usage.Kind, other *group, from uint64, to int) {
	for _, c := range other.cells {
		if from&(1<<c.slot) == 0 {
			continue
		}
		slot := c.slot
		if to >= 0 {
			slot = uint8(to)
		}
		g.addAmount(kind, slot, c.Amount)
	}
	if g.distinct != nil {
		g.distinct.Merge(other.distinct, from, to)
	}
	g.weight += other.weight
}

func (g *group) clear(slots uint64) {
	g.cells = slices.DeleteFunc(g.cells, func(c cell) bool { return slots&(1<<c.slot) != 0 })
	if g.distinct != nil {
		g.distinct.Clear(slots)
	}
}

// used is the slots that have something.
func (g *group) used() (slots uint64) {
	if g.distinct != nil {
		return g.distinct.Used()
	}
	for _, c := range g.cells {
		slots |= 1 << c.slot
	}
	return slots
}

func (g *group) empty() bool {
	return len(g.cells) == 0 && (g.distinct == nil || g.distinct.Empty())
}

// values are the groups of one tag: the values that are kept, and the rest.
type values struct {
	kept  map[string]*group
	other *group
}

// group returns that of a value. Of a full table the lightest value goes into other, and the new one inherits its
// weight (space saving, Metwally et al. 2005): who is heavy gets back in, and stays.
func (v *values) group(p *usage.Product, value string, limit int) *group {
	if g := v.kept[value]; g != nil {
		return g
	}
	g := newGroup(p)
	if limit > 0 && len(v.kept) >= limit {
		lightest, least := "", (*group)(nil)
		for name, g := range v.kept {
			if least == nil || g.weight < least.weight || g.weight == least.weight && name > lightest {
				lightest, least = name, g
			}
		}
		if v.other == nil {
			v.other = newGroup(p)
		}
		g.weight = least.weight
		v.other.merge(p.Kind, least, allSlots, -1)
		delete(v.kept, lightest)
	}
	if v.kept == nil {
		v.kept = map[string]*group{}
	}
	v.kept[value] = g
	return g
}

const allSlots = ^uint64(0)

func (v *values) merge(p *usage.Product, other *values, from uint64, to, limit int) {
	for _, name := range slices.Sorted(maps.Keys(other.kept)) { // in order: a full table evicts
		v.group(p, name, limit).merge(p.Kind, other.kept[name], from, to)
	}
	if other.other != nil {
		if v.other == nil {
			v.other = newGroup(p)
		}
		v.other.merge(p.Kind, other.other, from, to)
	}
}

// Level is how fine a chunk is.
type Level uint8

// The levels: a chunk of minutes is an hour of UTC, one of hours a local day, one of days a local month.
const (
	Minutes Level = iota
	Hours
	Days
	levels
)

// Chunk is what one series has in a span of time, by slots. It is the unit that rolls, moves, spills and goes.
type Chunk struct {
	Level   Level
	Span    window.Range
	starts  []int64 // of the days of a month, in Unix seconds; shared between chunks
	product *usage.Product
	home    uint16 // the shard of a product that is not unique
	total   *group
	tags    []values // by the product's tags
	frozen  bool     // somebody had it frozen: Counter.own; whoever encodes it does not look at it
}

func newChunk(level Level, span window.Range, starts []int64, like chunkKind) *Chunk {
	p := like.product
	return &Chunk{Level: level, Span: span, starts: starts, product: p, home: like.home, total: newGroup(p),
		tags: make([]values, len(p.Tags))}
}

// chunkKind is what all chunks of a series share.
type chunkKind struct {
	product *usage.Product
	home    uint16
}

func (c *Chunk) kind() chunkKind { return chunkKind{c.product, c.home} }

// add counts one observation.
func (c *Chunk) add(slot int, o *usage.Observation, order uint64) {
	c.grow(o.Product, len(o.Tags))
	p := c.product
	weight := uint64(1)
	if p.Kind == usage.Unique {
		c.total.distinct.Add(o.Identity.Hi, slot)
	} else {
		c.total.addAmount(p.Kind, uint8(slot), Amount{1, o.Value, o.Time, order})
		if o.Value.Hi == 0 {
			weight = o.Value.Lo
		}
	}
	for i := range min(len(o.Tags), len(c.tags)) {
		g := c.tags[i].group(p, o.Tags[i], p.TopK)
		g.weight += weight
		if p.Kind == usage.Unique {
			g.distinct.Add(o.Identity.Hi, slot)
		} else {
			g.addAmount(p.Kind, uint8(slot), Amount{1, o.Value, o.Time, order})
		}
	}
}

// grow makes room for tags that the product got meanwhile: they come behind the ones that it had.
func (c *Chunk) grow(p *usage.Product, tags int) {
	if tags > len(c.tags) {
		c.product, c.tags = p, append(c.tags, make([]values, tags-len(c.tags))...)
	}
}

func (c *Chunk) merge(other *Chunk, from uint64, to int) {
	c.grow(other.product, len(other.tags))
	c.total.merge(c.product.Kind, other.total, from, to)
	for i := range min(len(c.tags), len(other.tags)) {
		c.tags[i].merge(c.product, &other.tags[i], from, to, c.product.TopK)
	}
}

// groups calls f for each group of the chunk.
func (c *Chunk) groups(f func(*group)) {
	f(c.total)
	for i := range c.tags {
		for _, g := range c.tags[i].kept {
			f(g)
		}
		if g := c.tags[i].other; g != nil {
			f(g)
		}
	}
}

func (c *Chunk) clear(slots uint64) { c.groups(func(g *group) { g.clear(slots) }) }

func (c *Chunk) empty() bool { return c.total.empty() }

// Bytes is about what the chunk takes in memory.
func (c *Chunk) Bytes() int {
	n := 160
	c.groups(func(g *group) {
		n += 64 + 48*cap(g.cells)
		if g.distinct != nil {
			n += 96 + g.distinct.Bytes()
		}
	})
	return n
}

// slot is the span of the i-th slot.
func (c *Chunk) slot(i int) window.Range {
	switch c.Level {
	case Minutes:
		from := c.Span.From.Add(time.Duration(i) * time.Minute)
		return window.Range{From: from, To: from.Add(time.Minute)}
	case Hours:
		from := c.Span.From.Add(time.Duration(i) * time.Hour)
		r := window.Range{From: from, To: from.Add(time.Hour)}
		if r.To.After(c.Span.To) {
			r.To = c.Span.To
		}
		return r
	}
	r := window.Range{From: time.Unix(c.starts[i], 0).UTC(), To: c.Span.To}
	if i+1 < len(c.starts) {
		r.To = time.Unix(c.starts[i+1], 0).UTC()
	}
	return r
}

// slots is how many the chunk has.
func (c *Chunk) slots() int {
	switch c.Level {
	case Minutes:
		return 60
	case Hours:
		return min(int((c.Span.To.Sub(c.Span.From)+time.Hour-1)/time.Hour), sketch.MaxSlots)
	}
	return len(c.starts)
}

// mask is the set of slots in use that begin in a range; rounded says that a slot is only partly in it.
func (c *Chunk) mask(r window.Range) (slots uint64, rounded bool) {
	if !c.Span.Overlaps(r) {
		return 0, false
	}
	used := c.total.used()
	for i := range c.slots() {
		s := c.slot(i)
		if used&(1<<i) == 0 || !s.Overlaps(r) {
			continue
		}
		if r.Contains(s.From) {
			slots |= 1 << i
		}
		if s.From.Before(r.From) || s.To.After(r.To) {
			rounded = true
		}
	}
	return slots, rounded
}

// part returns a copy of what a unique's shards have. A tag's weight is divided by their number: it is a rank, no
// count.
func (c *Chunk) part(moves func(shard int) bool) *Chunk {
	out := newChunk(c.Level, c.Span, c.starts, c.kind())
	count := uint64(0)
	for shard := range usage.Shards {
		if moves(shard) {
			count++
		}
	}
	part := func(g *group) *group {
		return &group{weight: g.weight / usage.Shards * count, distinct: g.distinct.Part(usage.ShardBits, moves)}
	}
	out.total = part(c.total)
	for i, v := range c.tags {
		for name, g := range v.kept {
			if p := part(g); !p.empty() {
				if out.tags[i].kept == nil {
					out.tags[i].kept = map[string]*group{}
				}
				out.tags[i].kept[name] = p
			}
		}
		if v.other != nil {
			out.tags[i].other = part(v.other)
		}
	}
	return out
}
