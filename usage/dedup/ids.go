package dedup

import (
	"cmp"
	"slices"

	"corbel.dev/corbel/usage"
)

// entry is an id: 96 bits of its hash, and the minute until which it counts. A minute of 0 is no entry.
type entry struct{ hi, rest uint64 }

func makeEntry(h usage.Hash, m minute) entry { return entry{h.Hi, h.Lo&^0xFFFFFFFF | uint64(m)} }

func (e entry) minute() minute { return minute(e.rest) }

func (e entry) same(o entry) bool { return e.hi == o.hi && (e.rest^o.rest)>>32 == 0 }

// ids is a hash table in segments, so that none is rebuilt all at once. Linear probing; an id that is older than the
// floor is as good as free, and its place is taken by the next one that passes by.
type ids [256]segment

type segment struct {
	entries []entry
	used    int // places that are not empty, those of forgotten ids too
	frozen  bool
}

const smallestSegment = 8

func (t *ids) segment(hi uint64) *segment { return &t[hi>>56] }

func (t *ids) bytes() (n int) {
	for i := range t {
		n += 16 * len(t[i].entries)
	}
	return n
}

func (t *ids) has(h usage.Hash, floor minute) bool {
	_, found := t.find(h, floor)
	return found
}

func (t *ids) find(h usage.Hash, floor minute) (minute, bool) {
	s, want := t.segment(h.Hi), makeEntry(h, 0)
	if len(s.entries) == 0 {
		return 0, false
	}
	mask := uint64(len(s.entries) - 1)
	for i := h.Hi & mask; s.entries[i].minute() != 0; i = (i + 1) & mask {
		if e := s.entries[i]; e.same(want) && e.minute() >= floor {
			return e.minute(), true
		}
	}
	return 0, false
}

// add adds an id that is not there.
func (t *ids) add(h usage.Hash, m, floor minute) { t.put(makeEntry(h, m), floor) }

// put adds an entry and reports whether it was not there.
func (t *ids) put(e entry, floor minute) bool {
	s := t.segment(e.hi)
	if s.frozen { // somebody reads the entries
		s.entries, s.frozen = slices.Clone(s.entries), false
	}
	if s.used*4 >= len(s.entries)*3 {
		s.rebuild(floor)
	}
	mask, free := uint64(len(s.entries)-1), -1
	for i := e.hi & mask; ; i = (i + 1) & mask {
		switch at := s.entries[i]; {
		case at.minute() == 0:
			if free < 0 {
				free = int(i)
				s.used++
			}
			s.entries[free] = e
			return true
		case at.minute() < floor:
			if free < 0 {
				free = int(i)
			}
		case at.same(e):
			return false
		}
	}
}

// rebuild drops forgotten ids, and makes room: afterwards at most 5/8 are filled, and at least 5/16 of a segment that
// has not become small.
func (s *segment) rebuild(floor minute) {
	live := 0
	for _, e := range s.entries {
		if e.minute() != 0 && e.minute() >= floor {
			live++
		}
	}
	size := smallestSegment
	for live*8 > size*5 {
		size *= 2
	}
	former := s.entries
	s.entries, s.used, s.frozen = make([]entry, size), live, false
	mask := uint64(size - 1)
	for _, e := range former {
		if e.minute() == 0 || e.minute() < floor {
			continue
		}
		i := e.hi & mask
		for s.entries[i].minute() != 0 {
			i = (i + 1) & mask
		}
		s.entries[i] = e
	}
}

// sorted are the entries of a segment that are alive.
func sorted(entries []entry, floor minute) []entry {
	var list []entry
	for _, e := range entries {
		if e.minute() != 0 && e.minute() >= floor {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b entry) int { return cmp.Or(cmp.Compare(a.hi, b.hi), cmp.Compare(a.rest, b.rest)) })
	return list
}
