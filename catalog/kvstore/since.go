package kvstore

import (
	"iter"
	"slices"
	"strings"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/core/table"
)

// sinceBudget is how many steps each way of finding changes gets in the first round.
const sinceBudget = 1024

// KVSince tells the pairs under prefix that were set after an index, and the keys that were deleted.
//
// There are two ways to find them: through all changes of the store in the order of
// their age, and through the prefix, where folders that did not change are passed
// over. Which is shorter depends on how busy the rest of the store is, so they take
// turns with growing budgets: the cost is within a small factor of the shorter one.
func (s *Store) KVSince(prefix string, since uint64) (set []*catalog.KVPair, gone []string) {
	if prefix != "" && s.KVPrefixIndex(prefix) <= since {
		return nil, nil
	}
	for budget := sinceBudget; ; budget *= 4 {
		steps := budget
		wanted := func(p *catalog.KVPair) (*catalog.KVPair, bool) { return p, strings.HasPrefix(p.Key, prefix) }
		if set, ok := collect(s.ages.From(&catalog.KVPair{ModifyIndex: since + 1}), &steps, wanted); ok {
			slices.SortFunc(set, func(a, b *catalog.KVPair) int { return strings.Compare(a.Key, b.Key) })
			return set, s.goneSince(prefix, since)
		}
		w := walk[*catalog.KVPair]{table: s.pairs, folders: s.folders, since: since, steps: budget, of: pairKey}
		if w.under(prefix) {
			return w.found, s.goneSince(prefix, since)
		}
	}
}

func (s *Store) goneSince(prefix string, since uint64) (gone []string) {
	for budget := sinceBudget; ; budget *= 4 {
		steps := budget
		wanted := func(g *tombstone) (string, bool) { return g.key, strings.HasPrefix(g.key, prefix) }
		if gone, ok := collect(s.tombstoneAges.From(&tombstone{index: since + 1}), &steps, wanted); ok {
			slices.Sort(gone)
			return gone
		}
		w := walk[*tombstone]{table: s.tombstones, folders: s.folders, since: since, steps: budget, of: tombstoneKey}
		if w.under(prefix) {
			for _, g := range w.found {
				gone = append(gone, g.key)
			}
			return gone
		}
	}
}

// collect takes what pick wants; false when it did not get to the end within the steps.
func collect[T, R any](from iter.Seq[T], steps *int, pick func(T) (R, bool)) (list []R, ok bool) {
	ok = true
	from(func(item T) bool {
		if *steps--; *steps < 0 {
			ok = false
			return false
		}
		if r, wanted := pick(item); wanted {
			list = append(list, r)
		}
		return true
	})
	return list, ok
}

// walk finds the keys that changed after an index, and passes over folders that did not.
type walk[V any] struct {
	table   table.Table[V]
	folders table.Table[*folder]
	since   uint64
	steps   int
	of      func(V) (key string, index uint64)
	found   []V
}

// under is false when the steps did not suffice.
func (w *walk[V]) under(prefix string) bool {
	at := prefix
	for {
		below := ""
		for item := range w.table.Seek(func(v V) int { key, _ := w.of(v); return strings.Compare(at, key) }) {
			if w.steps--; w.steps < 0 {
				return false
			}
			key, index := w.of(item)
			if !strings.HasPrefix(key, prefix) {
				return true
			}
			if slash := strings.IndexByte(key[len(prefix):], '/'); slash >= 0 {
				below = key[:len(prefix)+slash+1]
				break
			}
			if index > w.since {
				w.found = append(w.found, item)
			}
		}
		if below == "" {
			return true
		}
		if f := findFolder(w.folders, below); f == nil || f.index > w.since {
			if !w.under(below) {
				return false
			}
		}
		at = below[:len(below)-1] + "0" // '0' is the byte after '/'
	}
}
