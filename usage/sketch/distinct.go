package sketch

import (
	"math"
	"math/bits"

	"corbel.dev/corbel/kit/pack"
)

// MaxSlots is how many slots a Distinct can tell apart.
const MaxSlots = 64

// Distinct counts distinct hashes in up to 64 slots. Make one with NewDistinct.
type Distinct struct {
	limit     int
	precision int
	exact     table
	// sketches are by slot, nil where nothing was seen. Invariant: nil as long as the set is exact; never nil again.
	sketches []*Sketch
	// used are the slots that anything was added to.
	used uint64
}

// NewDistinct makes an empty one that is exact up to limit hashes, and then has sketches of a precision.
func NewDistinct(limit, precision int) *Distinct {
	return &Distinct{limit: limit, precision: precision}
}

// Exact reports whether all counts are exact.
func (d *Distinct) Exact() bool { return d.sketches == nil }

// Precision is that of the sketches: after a merge, the lowest of both.
func (d *Distinct) Precision() int { return d.precision }

// Used is the slots that have something, or had it before shards were dropped.
func (d *Distinct) Used() uint64 { return d.used }

// Bytes is the memory that it holds.
func (d *Distinct) Bytes() int {
	n := 16*cap(d.exact.entries) + 8*cap(d.sketches)
	for _, s := range d.sketches {
		if s != nil {
			n += len(s.registers)
		}
	}
	return n
}

// Add sees a hash in a slot. It reports whether that changed what d tells; an exact set says so only of a hash that is
// new in all slots.
func (d *Distinct) Add(hash uint64, slot int) (changed bool) {
	d.used |= 1 << slot
	if d.sketches != nil {
		return d.sketch(slot).Add(hash)
	}
	changed = d.exact.add(hash, 1<<slot)
	if changed && d.exact.count > d.limit {
		d.convert()
	}
	return changed
}

func (d *Distinct) sketch(slot int) *Sketch {
	for slot >= len(d.sketches) {
		d.sketches = append(d.sketches, nil)
	}
	if d.sketches[slot] == nil {
		d.sketches[slot] = New(d.precision)
	}
	return d.sketches[slot]
}

// convert turns the exact set into sketches.
func (d *Distinct) convert() {
	former := d.exact.entries
	d.exact, d.sketches = table{}, []*Sketch{}
	for _, e := range former {
		for slots := e.Slots; slots != 0; slots &= slots - 1 {
			d.sketch(bits.TrailingZeros64(slots)).Add(e.Hash)
		}
	}
}

// Merge adds what other has in the slots of from, all of it into the slot to; to < 0 keeps each slot where it is.
// It changes nothing of other.
func (d *Distinct) Merge(other *Distinct, from uint64, to int) {
	d.reduce(other)
	if slots := other.used & from; to < 0 {
		d.used |= slots
	} else if slots != 0 {
		d.used |= 1 << to
	}
	if d.sketches == nil && (other.sketches != nil || d.exact.count > d.limit) {
		d.convert()
	}
	place := func(slot int) int {
		if to >= 0 {
			return to
		}
		return slot
	}
	for slot, s := range other.sketches {
		if s != nil && from&(1<<slot) != 0 {
			d.sketch(place(slot)).Merge(s)
		}
	}
	for _, e := range other.exact.entries {
		slots := e.Slots & from
		if slots == 0 {
			continue
		}
		if to >= 0 {
			slots = 1 << to
		}
		if d.sketches == nil {
			if d.exact.add(e.Hash, slots) && d.exact.count > d.limit {
				d.convert()
			}
			continue
		}
		for ; slots != 0; slots &= slots - 1 {
			d.sketch(bits.TrailingZeros64(slots)).Add(e.Hash)
		}
	}
}

// reduce brings d to the lower limit and precision of both: sketches merge down, never up, whoever comes first.
func (d *Distinct) reduce(other *Distinct) {
	d.limit = min(d.limit, other.limit)
	if other.precision >= d.precision {
		return
	}
	d.precision = other.precision
	for i, s := range d.sketches {
		if s != nil {
			d.sketches[i] = s.Reduced(d.precision)
		}
	}
}

// Clone returns a copy.
func (d *Distinct) Clone() *Distinct {
	out := *d
	out.exact.entries = append([]Mark(nil), d.exact.entries...)
	if d.sketches == nil {
		return &out
	}
	out.sketches = make([]*Sketch, len(d.sketches))
	for i, s := range d.sketches {
		if s != nil {
			out.sketches[i] = s.Clone()
		}
	}
	return &out
}

// Clear forgets what was seen in some slots: before they are counted again.
func (d *Distinct) Clear(slots uint64) {
	d.used &^= slots
	for i := range d.sketches {
		if slots&(1<<i) != 0 {
			d.sketches[i] = nil
		}
	}
	d.exact.filter(func(e Mark) uint64 { return e.Slots &^ slots })
}

// Part returns a copy of the hashes for whose part (one of 2^width equal ranges) in says so. It is a sketch if d is
// one.
func (d *Distinct) Part(width int, in func(part int) bool) *Distinct {
	out := NewDistinct(d.limit, d.precision)
	out.used = d.used
	for _, e := range d.exact.entries {
		if e.Slots != 0 && in(int(e.Hash>>(64-width))) {
			out.exact.add(e.Hash, e.Slots)
		}
	}
	if d.sketches == nil {
		return out
	}
	out.sketches = []*Sketch{}
	for slot, s := range d.sketches {
		if s == nil {
			continue
		}
		copied := New(d.precision)
		for part := range 1 << width {
			if in(part) {
				copied.Copy(s, part, width)
			}
		}
		if !copied.Empty() {
			*out.sketch(slot) = *copied
		}
	}
	return out
}

// Drop forgets the hashes that Part copies.
func (d *Distinct) Drop(width int, in func(part int) bool) {
	d.exact.filter(func(e Mark) uint64 {
		if in(int(e.Hash >> (64 - width))) {
			return 0
		}
		return e.Slots
	})
	for slot, s := range d.sketches {
		if s == nil {
			continue
		}
		for part := range 1 << width {
			if in(part) {
				s.Cut(part, width)
			}
		}
		if s.Empty() {
			d.sketches[slot] = nil
		}
	}
}

// Empty reports whether nothing was seen.
func (d *Distinct) Empty() bool {
	for _, s := range d.sketches {
		if s != nil && !s.Empty() {
			return false
		}
	}
	return d.exact.count == 0
}

// Count is a number of distinct hashes with its bound.
type Count struct {
	Value uint64
	// Exact says that Value is no estimate. Else Relative is its standard error, and in 99 % of cases the truth is
	// from Low to High.
	Exact     bool
	Relative  float64
	Low, High uint64
}

// Count counts the distinct hashes of some slots together.
func (d *Distinct) Count(slots uint64) Count {
	if d.sketches == nil {
		n := uint64(0)
		for _, e := range d.exact.entries {
			if e.Slots&slots != 0 {
				n++
			}
		}
		return Count{Value: n, Exact: true, Low: n, High: n}
	}
	var union *Sketch
	owned := false // the first one is not copied before it must change
	for slot, s := range d.sketches {
		switch {
		case s == nil || slots&(1<<slot) == 0:
			continue
		case union == nil:
			union = s
			continue
		case !owned:
			union, owned = union.Clone(), true
		}
		union.Merge(s)
	}
	relative := RelativeError(d.precision)
	if union == nil {
		return Count{Relative: relative}
	}
	n := union.Estimate()
	return Count{Value: uint64(math.Round(n)), Relative: relative, Low: uint64(math.Floor(n / (1 + quantile*relative))),
		High: uint64(math.Ceil(n / (1 - quantile*relative)))}
}

// quantile is how many standard errors the bound is wide. 2.576 would be 99 % of a normal distribution; a little more
// pays for the sketch's error not being quite normal.
const quantile = 2.7

// Append encodes d: the same content gives the same bytes.
func (d *Distinct) Append(b []byte) []byte {
	b, mark := pack.Begin(b)
	b = pack.Uint(pack.Uint(b, uint64(d.limit)), uint64(d.precision))
	b = pack.Bool(b, d.sketches != nil)
	if d.sketches == nil {
		b = pack.Uint(b, uint64(d.exact.count))
		last := uint64(0)
		for _, e := range d.exact.sorted() {
			b, last = pack.Uint(pack.Uint(b, e.Hash-last), e.Slots), e.Hash
		}
		return pack.End(b, mark)
	}
	n := 0
	for _, s := range d.sketches {
		if s != nil {
			n++
		}
	}
	b = pack.Uint(b, uint64(n))
	for slot, s := range d.sketches {
		if s != nil {
			b = pack.Bytes(pack.Uint(b, uint64(slot)), s.registers)
		}
	}
	return pack.End(b, mark)
}

// ReadDistinct decodes what Append wrote.
func ReadDistinct(outer *pack.Reader) (*Distinct, error) {
	r := outer.Record()
	defer outer.Merge(r)
	d := &Distinct{limit: int(r.Uint()), precision: int(r.Uint())}
	sketched := r.Bool()
	n := r.Count()
	if r.Err() != nil || d.limit < 0 || d.precision < MinPrecision || d.precision > MaxPrecision || n < 0 {
		return nil, ErrDamaged
	}
	if sketched {
		d.sketches = []*Sketch{}
	} else if n > d.limit {
		return nil, ErrDamaged
	}
	for i, hash := 0, uint64(0); i < n; i++ {
		if !sketched {
			step, slots := r.Uint(), r.Uint()
			if r.Err() != nil || slots == 0 || i > 0 && (step == 0 || hash+step < hash) {
				return nil, ErrDamaged
			}
			hash += step
			d.exact.add(hash, slots)
			d.used |= slots
			continue
		}
		slot, registers := r.Uint(), r.Bytes()
		if r.Err() != nil || slot >= MaxSlots || slot < uint64(len(d.sketches)) || len(registers) != 1<<d.precision {
			return nil, ErrDamaged
		}
		copy(d.sketch(int(slot)).registers, registers)
		d.used |= 1 << slot
	}
	for _, s := range d.sketches {
		if s != nil && !s.valid() {
			return nil, ErrDamaged
		}
	}
	return d, nil
}

// valid reports whether hashes can have left this state: nothing is below a register's first update value.
func (s *Sketch) valid() bool {
	first := byte(s.Precision()-1) << 2
	for _, r := range s.registers {
		if r != 0 && r != first && r != first+4 && r != first+6 && r < first+8 {
			return false
		}
	}
	return true
}
