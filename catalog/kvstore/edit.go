package kvstore

import (
	"bytes"
	"slices"
	"strings"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/core/table"
	"corbel.dev/corbel/kit/errkind"
)

// Edit is a Store in the making. A copy of it, taken just before Fork, can take its place again.
type Edit struct {
	epoch   uint64
	at      uint64 // what the current command writes
	changed bool   // by the current command

	index         uint64
	pairs, ages   table.Edit[*catalog.KVPair]
	tombstones    table.Edit[*tombstone]
	tombstoneAges table.Edit[*tombstone]
	folders       table.Edit[*folder]
	locks         table.Edit[lock]

	changes []catalog.Change[catalog.KVPair]
}

// Edit begins one. epoch is another one than of all Edits before, so that what this Edit
// makes is told from what others see.
func (s *Store) Edit(epoch uint64) Edit {
	return Edit{epoch: epoch, index: s.index, pairs: s.pairs.Edit(), ages: s.ages.Edit(),
		tombstones: s.tombstones.Edit(), tombstoneAges: s.tombstoneAges.Edit(),
		folders: s.folders.Edit(), locks: s.locks.Edit()}
}

// Done ends the Edit.
func (e *Edit) Done() Store {
	return Store{index: e.index, pairs: e.pairs.Done(), ages: e.ages.Done(),
		tombstones: e.tombstones.Done(), tombstoneAges: e.tombstoneAges.Done(),
		folders: e.folders.Done(), locks: e.locks.Done()}
}

// Fork keeps everything as it is now from being changed in place.
func (e *Edit) Fork() {
	e.pairs.Fork()
	e.ages.Fork()
	e.tombstones.Fork()
	e.tombstoneAges.Fork()
	e.folders.Fork()
	e.locks.Fork()
	e.epoch++
}

// Begin names the index that the next command writes.
func (e *Edit) Begin(at uint64) { e.at, e.changed = at, false }

// Changed tells whether something changed since Begin.
func (e *Edit) Changed() bool { return e.changed }

// Changes are those of all commands, in their order.
func (e *Edit) Changes() []catalog.Change[catalog.KVPair] { return e.changes }

// Pair returns one pair, or nil.
func (e *Edit) Pair(key string) *catalog.KVPair { return findPair(e.pairs.Table, key) }

// Apply applies one of the verbs that write, but KVLock; ok is false for a lost race.
func (e *Edit) Apply(c *catalog.KV) (ok bool, err error) {
	p := &c.Pair
	old := e.Pair(p.Key)
	switch c.Verb {
	case catalog.KVSet:
		e.set(old, p, sessionOf(old), lockIndexOf(old))
	case catalog.KVCAS:
		if !matches(old, p.ModifyIndex) {
			return false, nil
		}
		e.set(old, p, sessionOf(old), lockIndexOf(old))
	case catalog.KVUnlock:
		if old == nil || old.Session == "" || old.Session != p.Session {
			return false, nil
		}
		e.set(old, p, "", old.LockIndex)
	case catalog.KVDelete:
		e.delete(old)
	case catalog.KVDeleteCAS:
		if old != nil && (p.ModifyIndex == 0 || old.ModifyIndex != p.ModifyIndex) {
			return false, nil
		}
		e.delete(old)
	case catalog.KVDeleteTree:
		for _, p := range slices.Collect(under(e.pairs.Table, p.Key)) {
			e.delete(p)
		}
	default:
		return false, errkind.Errorf(errkind.Internal, "unknown KV operation %d", c.Verb)
	}
	return true, nil
}

// Lock writes p for a session that is there; false when another one holds the key.
func (e *Edit) Lock(p *catalog.KVPair, session string) bool {
	old := e.Pair(p.Key)
	holder, count := sessionOf(old), lockIndexOf(old)
	if holder != "" && holder != session {
		return false
	}
	if holder == "" {
		count++
	}
	e.set(old, p, session, count)
	return true
}

// Release gives up the locks of a session that ends, and with remove deletes their keys. It returns the keys.
func (e *Edit) Release(session string, remove bool) (keys []string) {
	for l := range e.locks.From(lock{session: session}) {
		if l.session != session {
			break
		}
		keys = append(keys, l.key)
	}
	for _, key := range keys {
		p := e.Pair(key)
		if remove {
			e.delete(p)
		} else {
			e.set(p, p, "", p.LockIndex)
		}
	}
	return keys
}

// matches is the test of a check-and-set: index 0 asks for a key that is not there.
func matches(old *catalog.KVPair, index uint64) bool {
	if old == nil {
		return index == 0
	}
	return index != 0 && old.ModifyIndex == index
}

func sessionOf(p *catalog.KVPair) string {
	if p == nil {
		return ""
	}
	return p.Session
}

func lockIndexOf(p *catalog.KVPair) uint64 {
	if p == nil {
		return 0
	}
	return p.LockIndex
}

// set stores p's key, value and flags with the given session and lock
// index. The same again is no change.
func (e *Edit) set(old, p *catalog.KVPair, session string, lockIndex uint64) {
	if old != nil && old.Flags == p.Flags && old.Session == session && old.LockIndex == lockIndex &&
		bytes.Equal(old.Value, p.Value) {
		return
	}
	next := &catalog.KVPair{
		Key: p.Key, Value: p.Value, Flags: p.Flags, Session: session, LockIndex: lockIndex,
		CreateIndex: e.at, ModifyIndex: e.at, By: p.By,
	}
	if old != nil {
		next.Key, next.CreateIndex = old.Key, old.CreateIndex
	} else if g := findTombstone(e.tombstones.Table, p.Key); g != nil {
		e.tombstones.Delete(g)
		e.tombstoneAges.Delete(g)
	}
	if holder := sessionOf(old); holder != session {
		if holder != "" {
			e.locks.Delete(lock{holder, next.Key})
		}
		if session != "" {
			e.locks.Set(lock{session, next.Key})
		}
	}
	e.pairs.Set(next)
	if old != nil {
		e.ages.Delete(old)
	}
	e.ages.Set(next)
	e.note(next.Key, old, next)
}

// delete removes a pair (nil is none) and leaves a tombstone.
func (e *Edit) delete(old *catalog.KVPair) {
	if old == nil {
		return
	}
	if old.Session != "" {
		e.locks.Delete(lock{old.Session, old.Key})
	}
	e.pairs.Delete(old)
	e.ages.Delete(old)
	g := &tombstone{e.at, old.Key}
	e.tombstones.Set(g)
	e.tombstoneAges.Set(g)
	e.note(old.Key, old, nil)
}

// note notes a change, and its index in the store and in each folder above the key.
func (e *Edit) note(key string, before, after *catalog.KVPair) {
	e.changed = true
	e.changes = append(e.changes, catalog.Change[catalog.KVPair]{Before: before, After: after, Index: e.at})
	e.index = e.at
	for i := range len(key) {
		if key[i] != '/' {
			continue
		}
		name := key[:i+1]
		f := findFolder(e.folders.Table, name)
		if f != nil && f.epoch == e.epoch {
			f.index = e.at // made by this Edit: nobody else sees it yet
			continue
		} else if f != nil {
			name = f.key // keep the string that is stored already
		}
		e.folders.Set(&folder{e.epoch, e.at, name})
	}
}

// Reap forgets the deletions up to index, and the folders in which nothing is left. It returns
// the index of the newest one that it forgot; 0 when there was none.
func (e *Edit) Reap(index uint64) (newest uint64) {
	var old []*tombstone
	for g := range e.tombstoneAges.All() {
		if g.index > index {
			break
		}
		old = append(old, g)
	}
	for _, g := range old {
		e.changed = true
		newest = g.index
		e.tombstoneAges.Delete(g)
		e.tombstones.Delete(g)
	}
	for _, g := range old {
		e.dropEmptyFolders(g.key)
	}
	return newest
}

func (e *Edit) dropEmptyFolders(key string) {
	for i := len(key) - 1; i >= 0; i-- {
		if key[i] != '/' {
			continue
		}
		name := key[:i+1]
		if p, ok := e.pairs.FindNext(func(p *catalog.KVPair) int { return strings.Compare(name, p.Key) }); ok &&
			strings.HasPrefix(p.Key, name) {
			return // and so is every folder above
		}
		if g, ok := e.tombstones.FindNext(func(g *tombstone) int { return strings.Compare(name, g.key) }); ok &&
			strings.HasPrefix(g.key, name) {
			return
		}
		e.folders.Delete(&folder{key: name})
	}
}
