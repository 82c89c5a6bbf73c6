package aggregate

import (
	"maps"
	"slices"
	"time"

	"corbel.dev/corbel/kit/pack"
	"corbel.dev/corbel/usage"
	"corbel.dev/corbel/usage/sketch"
	"corbel.dev/corbel/usage/window"
)

// Append encodes the state: the same content gives the same bytes. A snapshot of some shards is that of their Copy.
func (c *Counter) Append(b []byte) []byte {
	f := c.Freeze()
	defer f.Release()
	return f.Append(b)
}

func unixNano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// Read decodes what Append wrote. find returns the definition of a series; chunks of one that it does not know are
// left out.
func Read(outer *pack.Reader, cfg Config, find func(Series) (*usage.Product, bool)) (*Counter, error) {
	r := outer.Record()
	defer outer.Merge(r)
	c := New(cfg)
	if at := r.Int(); at != 0 {
		c.watermark = time.Unix(0, at).UTC()
	}
	for range r.Count() {
		s := Series{r.String(), r.String(), uint32(r.Uint())}
		p, known := find(s)
		if !known {
			r.Record()
			continue
		}
		chunk, err := readChunk(r, p)
		if err != nil {
			return nil, err
		}
		if b := c.levels[chunk.Level][chunk.Span.From.Unix()]; b != nil && b.chunks[s] != nil {
			return nil, pack.ErrDamaged
		}
		if chunk.Level == Days {
			if shared := c.daysOf(c.cfg.Zone(s.Tenant), chunk.Span); slices.Equal(shared, chunk.starts) {
				chunk.starts = shared
			}
		}
		c.put(s, chunk)
	}
	return c, r.Err()
}

// Append encodes a chunk, which can be stored by itself.
func (c *Chunk) Append(b []byte) []byte {
	b, mark := pack.Begin(b)
	b = pack.Uint(b, uint64(c.Level))
	b = pack.Int(pack.Int(b, c.Span.From.Unix()), c.Span.To.Unix())
	b = pack.Uint(pack.Uint(b, uint64(c.home)), uint64(len(c.starts)))
	for _, s := range c.starts {
		b = pack.Int(b, s-c.Span.From.Unix())
	}
	b = c.total.append(b)
	b = pack.Uint(b, uint64(len(c.tags)))
	for _, v := range c.tags {
		b = pack.Uint(b, uint64(len(v.kept)))
		for _, name := range slices.Sorted(maps.Keys(v.kept)) {
			b = v.kept[name].append(pack.String(b, name))
		}
		b = pack.Bool(b, v.other != nil)
		if v.other != nil {
			b = v.other.append(b)
		}
	}
	return pack.End(b, mark)
}

func (g *group) append(b []byte) []byte {
	b = pack.Uint(pack.Uint(b, g.weight), uint64(len(g.cells)))
	for _, c := range g.cells {
		b = pack.Uint(pack.Uint(b, uint64(c.slot)), c.Count)
		b = pack.Uint(pack.Int(b, c.Value.Hi), c.Value.Lo)
		b = pack.Uint(pack.Int(b, c.Time), c.Order)
	}
	b = pack.Bool(b, g.distinct != nil)
	if g.distinct != nil {
		b = g.distinct.Append(b)
	}
	return b
}

// maxSpan is longer than any month.
const maxSpan = 32 * 24 * time.Hour

func readChunk(outer *pack.Reader, p *usage.Product) (*Chunk, error) {
	r := outer.Record()
	defer outer.Merge(r)
	level := Level(r.Uint())
	span := window.Range{From: time.Unix(r.Int(), 0).UTC(), To: time.Unix(r.Int(), 0).UTC()}
	home := r.Uint()
	var starts []int64
	for range r.Count() {
		starts = append(starts, r.Int()+span.From.Unix())
	}
	length := span.To.Sub(span.From)
	if r.Err() != nil || level >= levels || length <= 0 || length > maxSpan || home >= usage.Shards ||
		len(starts) > sketch.MaxSlots || (level == Days) != (len(starts) > 0) || !slices.IsSorted(starts) ||
		level == Minutes && length != time.Hour {
		return nil, pack.ErrDamaged
	}
	c := newChunk(level, span, starts, chunkKind{p, uint16(home)})
	var err error
	if c.total, err = readGroup(r, p); err != nil {
		return nil, err
	}
	for i := range r.Count() {
		var v values
		if v, err = readValues(r, p); err != nil {
			return nil, err
		}
		if i < len(c.tags) { // a definition that lost a tag keeps the others
			c.tags[i] = v
		}
	}
	return c, r.Err()
}

func readValues(r *pack.Reader, p *usage.Product) (v values, err error) {
	for range r.Count() {
		if v.kept == nil {
			v.kept = map[string]*group{}
		}
		name := r.String()
		if _, twice := v.kept[name]; twice {
			return v, pack.ErrDamaged
		}
		if v.kept[name], err = readGroup(r, p); err != nil {
			return v, err
		}
	}
	if r.Bool() {
		v.other, err = readGroup(r, p)
	}
	return v, err
}

func readGroup(r *pack.Reader, p *usage.Product) (*group, error) {
	g := &group{weight: r.Uint()}
	for range r.Count() {
		c := cell{uint8(r.Uint()), Amount{r.Uint(), usage.Quantity{Hi: r.Int(), Lo: r.Uint()}, r.Int(), r.Uint()}}
		if n := len(g.cells); r.Err() != nil || c.slot >= sketch.MaxSlots || c.Count == 0 ||
			n > 0 && c.slot <= g.cells[n-1].slot {
			return nil, pack.ErrDamaged
		}
		g.cells = append(g.cells, c)
	}
	if r.Bool() {
		d, err := sketch.ReadDistinct(r)
		if err != nil {
			return nil, err
		}
		g.distinct = d
	}
	if r.Err() != nil || (p.Kind == usage.Unique) != (g.distinct != nil) || g.distinct != nil && len(g.cells) > 0 {
		return nil, pack.ErrDamaged
	}
	return g, nil
}
