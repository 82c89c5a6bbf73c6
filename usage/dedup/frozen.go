package dedup

import (
	"maps"
	"slices"

	"corbel.dev/corbel/kit/pack"
)

// Frozen is a state as it was at one moment. It may be encoded while the state goes on, by another goroutine: who
// changes a segment of the ids that it has makes a copy first.
type Frozen struct {
	of         *State
	now, floor minute
	live       int
	producers  map[string]producer
	ids        [len(ids{})][]entry
}

// Freeze takes hold of the state as it is now, until Release. It copies the producers, and no id.
func (s *State) Freeze() *Frozen {
	f := &Frozen{of: s, now: s.now, floor: s.floor, live: s.live, producers: make(map[string]producer, len(s.producers))}
	for name, p := range s.producers {
		f.producers[name] = *p
	}
	for i := range s.ids {
		f.ids[i] = s.ids[i].entries
		s.ids[i].frozen = true
	}
	s.freezes++
	return f
}

// Release ends it. Like Freeze, and unlike Append, it is for the goroutine that has the state.
func (f *Frozen) Release() {
	s := f.of
	if s.freezes--; s.freezes > 0 {
		return
	}
	for i := range s.ids {
		s.ids[i].frozen = false
	}
}

// Append encodes the state: the same knowledge gives the same bytes.
func (s *State) Append(b []byte) []byte {
	f := s.Freeze()
	defer f.Release()
	return f.Append(b)
}

// Append encodes the state: the same knowledge gives the same bytes.
func (f *Frozen) Append(b []byte) []byte {
	b, mark := pack.Begin(b)
	b = pack.Uint(pack.Uint(b, uint64(f.now)), uint64(f.floor))
	b = pack.Uint(b, uint64(len(f.producers)))
	for _, name := range slices.Sorted(maps.Keys(f.producers)) {
		p := f.producers[name]
		b = pack.Uint(pack.Uint(pack.Uint(pack.String(b, name), p.epoch), p.solid), p.low)
		b = pack.Uint(b, uint64(p.last))
		for _, w := range p.bits {
			b = pack.Uint(b, w)
		}
	}
	b = pack.Uint(b, uint64(f.live))
	for _, entries := range f.ids {
		for _, e := range sorted(entries, f.floor) {
			b = pack.Uint(pack.Uint(b, e.hi), e.rest)
		}
	}
	return pack.End(b, mark)
}
