package kvstore

import (
	"iter"
	"slices"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/core/table"
)

// LastChange is the index of the last change; 0 before the first.
func (s *Store) LastChange() uint64 { return s.index }

// Tombstones yields the deleted keys that are still remembered, by key, with the index of the deletion.
func (s *Store) Tombstones() iter.Seq2[string, uint64] {
	return func(yield func(string, uint64) bool) {
		for g := range s.tombstones.All() {
			if !yield(g.key, g.index) {
				return
			}
		}
	}
}

// FolderCount is the number of folders.
func (s *Store) FolderCount() int { return s.folders.Len() }

// Folders yields the folders by key, each with the newest index below it.
func (s *Store) Folders() iter.Seq2[string, uint64] {
	return func(yield func(string, uint64) bool) {
		for f := range s.folders.All() {
			if !yield(f.key, f.index) {
				return
			}
		}
	}
}

// LoadIndex, LoadPair, LoadTombstone and LoadFolder fill an Edit of an empty Store from a
// snapshot, each kind in the order of the keys. LoadEnd completes it.
func (e *Edit) LoadIndex(index uint64) { e.index = index }

// LoadPair loads one pair.
func (e *Edit) LoadPair(p *catalog.KVPair) {
	e.pairs.Load(p)
	if p.Session != "" {
		e.locks.Set(lock{p.Session, p.Key})
	}
}

// LoadTombstone loads one deleted key.
func (e *Edit) LoadTombstone(key string, index uint64) {
	g := &tombstone{index, key}
	e.tombstones.Load(g)
	e.tombstoneAges.Set(g)
}

// LoadFolder loads one folder.
func (e *Edit) LoadFolder(key string, index uint64) { e.folders.Load(&folder{e.epoch, index, key}) }

// LoadEnd fills what is not in snapshots. It is false when a pair has a session that is not there.
func (e *Edit) LoadEnd(session func(id string) bool) bool {
	byAge := slices.Collect(e.pairs.All())
	slices.SortFunc(byAge, compareAge)
	for _, p := range byAge {
		e.ages.Load(p)
	}
	return all(e.locks.Table, func(l lock) bool { return session(l.session) })
}

func all[T any](t table.Table[T], holds func(T) bool) bool {
	for item := range t.All() {
		if !holds(item) {
			return false
		}
	}
	return true
}
