package aggregate

import (
	"cmp"
	"maps"
	"slices"

	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/window"
)

// Partial is what some counters know about one series in some ranges of time: the unit that an aggregator merges.
type Partial struct {
	Product *usage.Product
	Slices  []Slice
}

// Slice is one range of a Partial.
type Slice struct {
	Range window.Range
	// Rounded says that data are coarser than the range: slots that began in it count as a whole, others not at all.
	Rounded bool
	total   *group
	by      values
}

// Value is a number with its bound.
type Value struct {
	usage.Quantity
	// Present is false where there is nothing: a max of nothing is no 0.
	Present bool
	// Exact says that it is no estimate. Else Relative is the standard error, and Low and High hold the truth in 99
	// %.
	Exact     bool
	Relative  float64
	Low, High usage.Quantity
	// Count is how many events a sum has.
	Count uint64
}

// Tagged is what one value of a tag has.
type Tagged struct {
	Tag string
	Value
}

// Query asks for a series in some ranges, broken down by the product's tag of a number; -1 is none.
func (c *Counter) Query(s Series, p *usage.Product, ranges []window.Range, tag int) *Partial {
	out := &Partial{Product: p}
	for _, r := range ranges {
		out.Slices = append(out.Slices, Slice{Range: r, total: newGroup(p)})
	}
	c.each(s, func(chunk *Chunk) {
		for i := range out.Slices {
			slice := &out.Slices[i]
			slots, rounded := chunk.mask(slice.Range)
			slice.Rounded = slice.Rounded || rounded
			if slots == 0 {
				continue
			}
			slice.total.merge(p.Kind, chunk.total, slots, 0)
			if tag >= 0 && tag < len(chunk.tags) {
				slice.by.merge(p, &chunk.tags[tag], slots, 0, 0)
			}
		}
	})
	return out
}

// Only returns what the counter has of one series in a range, for the Query of somebody else. It shares chunks with the
// counter: Append it before the counter goes on.
func (c *Counter) Only(s Series, r window.Range) *Counter {
	out := New(c.cfg)
	out.watermark = c.watermark
	c.each(s, func(chunk *Chunk) {
		if chunk.Span.Overlaps(r) {
			out.put(s, chunk)
		}
	})
	return out
}

// Series lists what has been counted, by tenant, product and generation.
func (c *Counter) Series() []Series {
	seen := map[Series]bool{}
	c.eachChunk(func(s Series, _ *Chunk) { seen[s] = true })
	return slices.SortedFunc(maps.Keys(seen), func(a, b Series) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Product, b.Product),
			cmp.Compare(a.Generation, b.Generation))
	})
}

// Merge adds what other counters know about the same series and ranges.
func (p *Partial) Merge(other *Partial) {
	for i := range min(len(p.Slices), len(other.Slices)) {
		to, from := &p.Slices[i], &other.Slices[i]
		to.total.merge(p.Product.Kind, from.total, allSlots, 0)
		to.by.merge(p.Product, &from.by, allSlots, 0, 0)
		to.Rounded = to.Rounded || from.Rounded
	}
}

// Total is the value of a slice.
func (s *Slice) Total(kind usage.Kind) Value { return s.total.value(kind) }

// By lists the largest values of the tag, at most limit, and the rest as one. The rest of a max is their largest, of
// a min their smallest, of a last their last.
func (s *Slice) By(p *usage.Product, limit int) (list []Tagged, other Value) {
	return s.Grouped(p, limit, func(tag string) (string, bool) { return tag, true })
}

// Grouped is By for groups of values: into names the group that a value is in, or leaves the value out. What several
// values of a group have in common counts once. What was seen with values that are not kept may be of any group: it is
// in other, which is what a group has at most beyond its own.
func (s *Slice) Grouped(p *usage.Product, limit int, into func(tag string) (name string, in bool),
) (list []Tagged, other Value) {
	rest := newGroup(p)
	if s.by.other != nil {
		rest.merge(p.Kind, s.by.other, allSlots, 0)
	}
	groups, merged := map[string]*group{}, map[string]bool{}
	for _, tag := range slices.Sorted(maps.Keys(s.by.kept)) {
		name, in := into(tag)
		if !in {
			continue
		}
		g := s.by.kept[tag]
		if was := groups[name]; was != nil && !merged[name] { // what is kept stays as it is
			groups[name], merged[name] = newGroup(p), true
			groups[name].merge(p.Kind, was, allSlots, 0)
		}
		if merged[name] {
			groups[name].merge(p.Kind, g, allSlots, 0)
			continue
		}
		groups[name] = g
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		if v := groups[name].value(p.Kind); v.Present {
			list = append(list, Tagged{name, v})
		}
	}
	slices.SortStableFunc(list, func(a, b Tagged) int {
		return cmp.Or(b.Compare(a.Quantity), cmp.Compare(a.Tag, b.Tag))
	})
	if len(list) > limit {
		for _, t := range list[limit:] {
			rest.merge(p.Kind, groups[t.Tag], allSlots, 0)
		}
		list = list[:limit]
	}
	return list, rest.value(p.Kind)
}

func (g *group) value(kind usage.Kind) Value {
	if kind == usage.Unique {
		c := g.distinct.Count(allSlots)
		return Value{Quantity: usage.Uint(c.Value), Present: c.Value > 0, Exact: c.Exact, Relative: c.Relative,
			Low: usage.Uint(c.Low), High: usage.Uint(c.High), Count: c.Value}
	}
	var a Amount
	for _, c := range g.cells {
		a.add(kind, c.Amount)
	}
	return Value{Quantity: a.Value, Present: a.Count > 0, Exact: true, Low: a.Value, High: a.Value, Count: a.Count}
}
