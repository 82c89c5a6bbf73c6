package catalog

import (
	"bytes"
	"strings"
)

// kv applies one of the KV verbs that write; ok is false for a lost race.
func (d *draft) kv(c *KV) (ok bool, err error) {
	p := &c.Pair
	old := d.pair(p.Key)
	switch c.Verb {
	case KVSet:
		d.setPair(old, p, sessionOf(old), lockIndexOf(old))
	case KVCAS:
		if !matches(old, p.ModifyIndex) {
			return false, nil
		}
		d.setPair(old, p, sessionOf(old), lockIndexOf(old))
	case KVLock:
		return d.lock(old, p)
	case KVUnlock:
		if old == nil || old.Session == "" || old.Session != p.Session {
			return false, nil
		}
		d.setPair(old, p, "", old.LockIndex)
	case KVDelete:
		d.deletePair(old)
	case KVDeleteCAS:
		if old != nil && (p.ModifyIndex == 0 || old.ModifyIndex != p.ModifyIndex) {
			return false, nil
		}
		d.deletePair(old)
	case KVDeleteTree:
		d.deleteTree(p.Key)
	default:
		return false, refuse("unknown KV operation %d", c.Verb)
	}
	return true, nil
}

// matches is the test of a check-and-set: index 0 asks for a key that is not there.
func matches(old *KVPair, index uint64) bool {
	if old == nil {
		return index == 0
	}
	return index != 0 && old.ModifyIndex == index
}

func sessionOf(p *KVPair) string {
	if p == nil {
		return ""
	}
	return p.Session
}

func lockIndexOf(p *KVPair) uint64 {
	if p == nil {
		return 0
	}
	return p.LockIndex
}

func (d *draft) lock(old, p *KVPair) (bool, error) {
	if p.Session == "" {
		return false, refuse("missing session")
	}
	session, ok := d.t.sessions.Get(keyed[*Session]{key: p.Session})
	if !ok {
		return false, refuse("invalid session %q", p.Session)
	}
	holder, count := sessionOf(old), lockIndexOf(old)
	if holder != "" && holder != p.Session {
		return false, nil
	}
	if holder == "" {
		count++
	}
	d.setPair(old, p, session.v.ID, count)
	return true, nil
}

func (d *draft) pair(key string) *KVPair {
	return findPair(d.t.kv.Table, key)
}

// setPair stores p's key, value and flags with the given session and lock index. The same again is no change.
func (d *draft) setPair(old, p *KVPair, session string, lockIndex uint64) {
	if old != nil && old.Flags == p.Flags && old.Session == session && old.LockIndex == lockIndex &&
		bytes.Equal(old.Value, p.Value) {
		return
	}
	d.touch()
	next := &KVPair{
		Key: p.Key, Value: p.Value, Flags: p.Flags, Session: session, LockIndex: lockIndex,
		CreateIndex: d.at, ModifyIndex: d.at,
	}
	if old != nil {
		next.Key, next.CreateIndex = old.Key, old.CreateIndex
	} else if g := findTombstone(d.t.tombstones.Table, p.Key); g != nil {
		d.t.tombstones.Delete(g)
		d.t.tombstoneAges.Delete(g)
	}
	if holder := sessionOf(old); holder != session {
		if holder != "" {
			d.t.locks.Delete(pair[struct{}]{a: holder, b: next.Key})
		}
		if session != "" {
			d.t.locks.Set(pair[struct{}]{a: session, b: next.Key})
		}
	}
	d.t.kv.Set(next)
	if old != nil {
		d.t.kvAges.Delete(old)
	}
	d.t.kvAges.Set(next)
	d.touchKey(next.Key)
	d.changes.KV = append(d.changes.KV, Change[KVPair]{old, next, d.at})
}

// deletePair removes a pair (nil is none) and leaves a tombstone.
func (d *draft) deletePair(old *KVPair) {
	if old == nil {
		return
	}
	d.touch()
	if old.Session != "" {
		d.t.locks.Delete(pair[struct{}]{a: old.Session, b: old.Key})
	}
	d.t.kv.Delete(old)
	d.t.kvAges.Delete(old)
	g := &tombstone{d.at, old.Key}
	d.t.tombstones.Set(g)
	d.t.tombstoneAges.Set(g)
	d.touchKey(old.Key)
	d.changes.KV = append(d.changes.KV, Change[KVPair]{old, nil, d.at})
}

func (d *draft) deleteTree(prefix string) {
	var doomed []*KVPair
	for p := range pairsFrom(d.t.kv.Table, prefix) {
		if !strings.HasPrefix(p.Key, prefix) {
			break
		}
		doomed = append(doomed, p)
	}
	for _, p := range doomed {
		d.deletePair(p)
	}
}

// touchKey notes the index in the table and in each folder above the key.
func (d *draft) touchKey(key string) {
	d.ix.kv = d.at
	for i := range len(key) {
		if key[i] != '/' {
			continue
		}
		folder := key[:i+1]
		dir := findDir(d.t.dirs.Table, folder)
		if dir != nil && dir.epoch == d.epoch {
			dir.index = d.at // made by this Apply: nobody else sees it yet
			continue
		} else if dir != nil {
			folder = dir.key // keep the string that is stored already
		}
		d.t.dirs.Set(&dirEntry{d.epoch, d.at, folder})
	}
}

// reap forgets the tombstones up to index, and the folders in which nothing is left.
func (d *draft) reap(index uint64) {
	d.reapGone(index)
	var old []*tombstone
	for g := range d.t.tombstoneAges.All() {
		if g.index > index {
			break
		}
		old = append(old, g)
	}
	for _, g := range old {
		d.touch()
		d.ix.horizon = max(d.ix.horizon, g.index)
		d.t.tombstoneAges.Delete(g)
		d.t.tombstones.Delete(g)
	}
	for _, g := range old {
		d.dropEmptyFolders(g.key)
	}
}

func (d *draft) dropEmptyFolders(key string) {
	for i := len(key) - 1; i >= 0; i-- {
		if key[i] != '/' {
			continue
		}
		folder := key[:i+1]
		if p, ok := d.t.kv.FindNext(func(p *KVPair) int { return strings.Compare(folder, p.Key) }); ok &&
			strings.HasPrefix(p.Key, folder) {
			return // and so is every folder above
		}
		if g, ok := d.t.tombstones.FindNext(func(g *tombstone) int { return strings.Compare(folder, g.key) }); ok &&
			strings.HasPrefix(g.key, folder) {
			return
		}
		d.t.dirs.Delete(&dirEntry{key: folder})
	}
}
