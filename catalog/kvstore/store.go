// Package kvstore is the catalog's key-value store: the pairs, the tombstones of deleted keys, the
// newest index below each folder, and the locks that sessions hold.
//
// Invariants:
//   - A Store is immutable; an Edit makes the next one. Pairs reachable from a Store never change.
//   - A tombstone is kept for each deleted key until Reap, so that the index of a prefix grows
//     with a deletion.
//   - Each folder, up to and including its slash, has the newest index of the keys below it,
//     living and deleted. A folder without any is not there.
//   - A pair with a Session is among the locks of that session, and no other pair is.
//
// The package is pure. An Edit is for one goroutine; a Store is for any number of readers.
package kvstore

import (
	"cmp"
	"iter"
	"strings"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/core/table"
)

// Store is the whole key-value store at one index.
type Store struct {
	index         uint64                       // last change of the store
	pairs         table.Table[*catalog.KVPair] // by key
	ages          table.Table[*catalog.KVPair] // by ModifyIndex, key
	tombstones    table.Table[*tombstone]      // by key
	tombstoneAges table.Table[*tombstone]      // by index of the deletion
	folders       table.Table[*folder]         // by key
	locks         table.Table[lock]            // by session, key
}

// tombstone is a deleted key.
type tombstone struct {
	index uint64
	key   string
}

// folder is the newest index of the keys below it. An entry of the epoch of a running Edit
// was made by it and may be changed in place.
type folder struct {
	epoch, index uint64
	key          string // up to and including the slash
}

type lock struct{ session, key string }

func compareAge(a, b *catalog.KVPair) int {
	if c := cmp.Compare(a.ModifyIndex, b.ModifyIndex); c != 0 {
		return c
	}
	return strings.Compare(a.Key, b.Key)
}

func compareTombstoneAge(a, b *tombstone) int {
	if c := cmp.Compare(a.index, b.index); c != 0 {
		return c
	}
	return strings.Compare(a.key, b.key)
}

func compareLock(a, b lock) int {
	if c := strings.Compare(a.session, b.session); c != 0 {
		return c
	}
	return strings.Compare(a.key, b.key)
}

// Empty returns a Store without keys.
func Empty() Store {
	return Store{
		pairs:         table.New(func(a, b *catalog.KVPair) int { return strings.Compare(a.Key, b.Key) }),
		ages:          table.New(compareAge),
		tombstones:    table.New(func(a, b *tombstone) int { return strings.Compare(a.key, b.key) }),
		tombstoneAges: table.New(compareTombstoneAge),
		folders:       table.New(func(a, b *folder) int { return strings.Compare(a.key, b.key) }),
		locks:         table.New(compareLock),
	}
}

func findPair(t table.Table[*catalog.KVPair], key string) *catalog.KVPair {
	p, _ := t.Find(func(p *catalog.KVPair) int { return strings.Compare(key, p.Key) })
	return p
}

func findTombstone(t table.Table[*tombstone], key string) *tombstone {
	g, _ := t.Find(func(g *tombstone) int { return strings.Compare(key, g.key) })
	return g
}

func findFolder(t table.Table[*folder], key string) *folder {
	e, _ := t.Find(func(e *folder) int { return strings.Compare(key, e.key) })
	return e
}

// under yields the pairs whose key begins with prefix.
func under(t table.Table[*catalog.KVPair], prefix string) iter.Seq[*catalog.KVPair] {
	return func(yield func(*catalog.KVPair) bool) {
		for p := range t.Seek(func(p *catalog.KVPair) int { return strings.Compare(prefix, p.Key) }) {
			if !strings.HasPrefix(p.Key, prefix) || !yield(p) {
				return
			}
		}
	}
}

// floor keeps an index from being 0, which clients take for "no index" and spin on.
func floor(index uint64) uint64 { return max(index, 1) }

// KV returns one pair, or nil.
func (s *Store) KV(key string) *catalog.KVPair { return findPair(s.pairs, key) }

// KVPrefix yields the pairs whose key begins with prefix, by key.
func (s *Store) KVPrefix(prefix string) iter.Seq[*catalog.KVPair] { return under(s.pairs, prefix) }

// KVIndex changes with every pair.
func (s *Store) KVIndex() uint64 { return floor(s.index) }

// KVKeyIndex is the pair's ModifyIndex; without the pair it is KVIndex.
func (s *Store) KVKeyIndex(key string) uint64 {
	if p := s.KV(key); p != nil {
		return p.ModifyIndex
	}
	return s.KVIndex()
}

// KVPrefixIndex is the newest index of the pairs, living and lately deleted,
// under prefix; where there never was one it is KVIndex.
//
// A prefix that ends in a slash is one lookup. Any other costs one step for each
// name directly under it: the keys of deeper folders are answered by their folder.
func (s *Store) KVPrefixIndex(prefix string) uint64 {
	if prefix == "" {
		return s.KVIndex()
	}
	if strings.HasSuffix(prefix, "/") {
		if f := findFolder(s.folders, prefix); f != nil {
			return floor(f.index)
		}
		return s.KVIndex()
	}
	newest := max(newestUnder(s.pairs, s.folders, prefix, pairKey),
		newestUnder(s.tombstones, s.folders, prefix, tombstoneKey))
	if newest == 0 {
		return s.KVIndex()
	}
	return newest
}

func pairKey(p *catalog.KVPair) (key string, index uint64) { return p.Key, p.ModifyIndex }
func tombstoneKey(g *tombstone) (key string, index uint64) { return g.key, g.index }

// newestUnder walks the keys under prefix, and jumps over each folder it meets.
func newestUnder[T any](t table.Table[T], folders table.Table[*folder], prefix string,
	of func(T) (key string, index uint64)) uint64 {
	var newest uint64
	at := prefix
	for {
		jumped := false
		for item := range t.Seek(func(item T) int { key, _ := of(item); return strings.Compare(at, key) }) {
			key, index := of(item)
			if !strings.HasPrefix(key, prefix) {
				return newest
			}
			slash := strings.IndexByte(key[len(prefix):], '/')
			if slash < 0 {
				newest = max(newest, index)
				continue
			}
			name := key[:len(prefix)+slash+1]
			if f := findFolder(folders, name); f != nil {
				newest = max(newest, f.index)
			}
			at, jumped = name[:len(name)-1]+"0", true // '0' is the byte after '/'
			break
		}
		if !jumped {
			return newest
		}
	}
}

// Pairs is the number of pairs.
func (s *Store) Pairs() int { return s.pairs.Len() }

// DeletedKeys is the number of deletions that are still remembered.
func (s *Store) DeletedKeys() int { return s.tombstones.Len() }

// OldestDeletedKey is the index of the oldest deletion that is still remembered; 0 when there is none.
func (s *Store) OldestDeletedKey() uint64 {
	if oldest, ok := s.tombstoneAges.Min(); ok {
		return oldest.index
	}
	return 0
}
