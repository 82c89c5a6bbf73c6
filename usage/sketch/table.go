package sketch

import (
	"cmp"
	"slices"
)

// Mark is a hash and the slots in which it was seen, one bit each; a mark in use has at least one.
type Mark struct{ Hash, Slots uint64 }

// table is an open hash table with linear probing: 16 bytes an entry, filled between 3/8 and 3/4. The lower bits of a
// hash are the place, since the upper ones are alike where few shards are owned.
type table struct {
	entries []Mark
	count   int
}

const smallestTable = 4

// add sets slots of a hash and reports whether the hash is new.
func (t *table) add(hash, slots uint64) bool {
	if t.count*4 >= len(t.entries)*3 {
		t.resize(max(smallestTable, len(t.entries)*2))
	}
	mask := uint64(len(t.entries) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		switch e := &t.entries[i]; {
		case e.Slots == 0:
			*e = Mark{hash, slots}
			t.count++
			return true
		case e.Hash == hash:
			e.Slots |= slots
			return false
		}
	}
}

func (t *table) resize(size int) {
	former := t.entries
	t.entries, t.count = make([]Mark, size), 0
	for _, e := range former {
		if e.Slots != 0 {
			t.add(e.Hash, e.Slots)
		}
	}
}

// filter keeps what keep returns, with its slots; it shrinks what has become too large.
func (t *table) filter(keep func(Mark) (slots uint64)) {
	former := t.entries
	t.entries, t.count = nil, 0
	for _, e := range former {
		if e.Slots != 0 {
			if slots := keep(e); slots != 0 {
				t.add(e.Hash, slots)
			}
		}
	}
}

// sorted returns the entries by hash.
func (t *table) sorted() []Mark {
	list := make([]Mark, 0, t.count)
	for _, e := range t.entries {
		if e.Slots != 0 {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b Mark) int { return cmp.Compare(a.Hash, b.Hash) })
	return list
}
