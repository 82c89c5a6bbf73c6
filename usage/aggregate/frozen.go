package aggregate

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"corbel.dev/corbel/kit/pack"
)

// Frozen is a state as it was at one moment. It may be encoded while the counter goes on, by another goroutine: who
// changes a chunk that it has makes a copy first.
type Frozen struct {
	of        *Counter
	watermark time.Time
	all       []placed
}

// placed is a chunk of a series.
type placed struct {
	Series
	*Chunk
}

// Freeze takes hold of the state as it is now, until Release. It copies no chunk.
func (c *Counter) Freeze() *Frozen {
	f := &Frozen{of: c, watermark: c.watermark}
	c.eachChunk(func(s Series, chunk *Chunk) {
		chunk.frozen = true
		f.all = append(f.all, placed{s, chunk})
	})
	c.freezes++
	return f
}

// Release ends it. Like Freeze, and unlike Append, it is for the goroutine that has the counter.
func (f *Frozen) Release() { f.of.freezes-- }

// Append encodes the state: the same content gives the same bytes.
func (f *Frozen) Append(b []byte) []byte {
	b, mark := pack.Begin(b)
	b = pack.Int(b, unixNano(f.watermark))
	slices.SortFunc(f.all, func(x, y placed) int {
		return cmp.Or(cmp.Compare(x.Level, y.Level), x.Span.From.Compare(y.Span.From), cmp.Compare(x.Tenant, y.Tenant),
			cmp.Compare(x.Product, y.Product), cmp.Compare(x.Generation, y.Generation))
	})
	b = pack.Uint(b, uint64(len(f.all)))
	for _, p := range f.all {
		b = pack.Uint(pack.String(pack.String(b, p.Tenant), p.Product), uint64(p.Generation))
		b = p.Chunk.Append(b)
	}
	return pack.End(b, mark)
}

// own returns a chunk that may be changed: a copy in its place where somebody has frozen it.
func (c *Counter) own(s Series, chunk *Chunk) *Chunk {
	if !chunk.frozen {
		return chunk
	}
	if c.freezes > 0 {
		chunk = chunk.clone()
		c.levels[chunk.Level][chunk.Span.From.Unix()].chunks[s] = chunk
	}
	chunk.frozen = false
	return chunk
}

func (c *Chunk) clone() *Chunk {
	out := *c
	out.total = c.total.clone()
	out.tags = slices.Clone(c.tags)
	for i, v := range c.tags {
		out.tags[i].kept = maps.Clone(v.kept)
		for name, g := range v.kept {
			out.tags[i].kept[name] = g.clone()
		}
		if v.other != nil {
			out.tags[i].other = v.other.clone()
		}
	}
	return &out
}

func (g *group) clone() *group {
	out := &group{weight: g.weight, cells: slices.Clone(g.cells)}
	if g.distinct != nil {
		out.distinct = g.distinct.Clone()
	}
	return out
}
