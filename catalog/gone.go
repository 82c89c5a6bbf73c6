package catalog

import (
	"cmp"
	"strings"

	"corbel.dev/corbel/core/table"
	"corbel.dev/corbel/kit/pack"
)

// touchEntry is the index at which an instance last changed in the list of its service
// by something else than its own registration: its checks, its node, its node's checks.
// Instances whose registration came last have none, or an older one.
type touchEntry struct {
	epoch, index   uint64
	name, node, id string // name and node in lower case
}

func compareTouched(a, b *touchEntry) int {
	return compare3(a.name, b.name, a.node, b.node, a.id, b.id)
}

func findTouched(t table.Table[*touchEntry], s *serviceEntry) *touchEntry {
	e, _ := t.Find(func(e *touchEntry) int { return compare3(s.nameKey, e.name, s.nodeKey, e.node, s.ID, e.id) })
	return e
}

// touchedAt is 0 for an instance that has no entry.
func touchedAt(t table.Table[*touchEntry], s *serviceEntry) uint64 {
	if e := findTouched(t, s); e != nil {
		return e.index
	}
	return 0
}

// noteTouch notes that an instance changed by what hangs on it.
func (d *draft) noteTouch(s *serviceEntry) {
	if s.ModifyIndex == d.at {
		return // its registration says so
	}
	if e := findTouched(d.t.touched.Table, s); e != nil && e.epoch == d.epoch {
		e.index = d.at // made by this Apply: nobody else sees it yet
		return
	}
	d.t.touched.Set(&touchEntry{d.epoch, d.at, s.nameKey, s.nodeKey, s.ID})
}

func (d *draft) untouch(s *serviceEntry) {
	if d.t.touched.Len() > 0 {
		d.t.touched.Delete(&touchEntry{name: s.nameKey, node: s.nodeKey, id: s.ID})
	}
}

// countRow is countTags, and notes when the row of the list of services is another.
func (d *draft) countRow(e *nameEntry, tags []string, by int) {
	was := e.summary.Tags
	d.countTags(e, tags, by)
	now := e.summary.Tags // never changed in place
	if e.listIndex == 0 || len(was) != len(now) || len(now) > 0 && &was[0] != &now[0] {
		e.listIndex, d.ix.list = d.at, d.at
	}
}

func compareNodeAge(a, b *Node) int {
	if c := cmp.Compare(a.ModifyIndex, b.ModifyIndex); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

func compareKVAge(a, b *KVPair) int {
	if c := cmp.Compare(a.ModifyIndex, b.ModifyIndex); c != 0 {
		return c
	}
	return strings.Compare(a.Key, b.Key)
}

// goneKind is what a tombstone of the catalog stands for. The values are in snapshots.
type goneKind uint8

const (
	goneNode     goneKind = iota + 1 // name: the node's
	goneName                         // name: of a service without instances
	goneInstance                     // name: of the service; node, id
)

// maxGone bounds the catalog's tombstones, whatever the leader's reaping does. Past it
// the oldest is forgotten and the horizon rises: some 40 MB.
const maxGone = 1 << 18

// goneEntry is a tombstone: what left the catalog at an index. It is kept until
// ReapTombstones, or until what it stands for is back. Names are told apart by case here:
// who held WEB and is told that web is there must be told that WEB is not.
type goneEntry struct {
	kind     goneKind
	name     string // as it was written; an instance's service in lower case
	node, id string // of an instance; the node as it was written
	index    uint64
}

func compareGone(a, b *goneEntry) int {
	if c := cmp.Compare(a.kind, b.kind); c != 0 {
		return c
	}
	if c := strings.Compare(a.name, b.name); c != 0 {
		return c
	}
	if c := strings.Compare(a.node, b.node); c != 0 {
		return c
	}
	return strings.Compare(a.id, b.id)
}

func compareGoneAge(a, b *goneEntry) int {
	if c := cmp.Compare(a.index, b.index); c != 0 {
		return c
	}
	return compareGone(a, b)
}

func (g *goneEntry) appendPack(b []byte) []byte {
	b = pack.String(pack.Uint(b, uint64(g.kind)), g.name)
	b = pack.String(pack.String(b, g.node), g.id)
	return pack.Uint(b, g.index)
}

func (l *loader) loadGone(first bool, r *pack.Reader) {
	g := &goneEntry{kind: goneKind(r.Uint()), name: r.String(), node: r.String(), id: r.String(), index: r.Uint()}
	gone := &l.d.t.gone
	if last, ok := gone.Max(); ok && (first || compareGone(last, g) >= 0) {
		l.in.fail()
		return
	}
	gone.Load(g)
	l.d.t.goneAges.Set(g)
}

// leave notes that something left the catalog.
func (d *draft) leave(g goneEntry) {
	g.index = d.at
	if old, ok := d.t.gone.Set(&g); ok {
		d.t.goneAges.Delete(old)
	}
	d.t.goneAges.Set(&g)
	for d.t.gone.Len() > maxGone {
		d.forget()
	}
}

// back takes the tombstone away of what is there again.
func (d *draft) back(g goneEntry) {
	if d.t.gone.Len() == 0 {
		return
	}
	if old, ok := d.t.gone.Delete(&g); ok {
		d.t.goneAges.Delete(old)
	}
}

// forget drops the oldest of the catalog's tombstones.
func (d *draft) forget() {
	oldest, _ := d.t.goneAges.Min()
	d.t.goneAges.Delete(oldest)
	d.t.gone.Delete(oldest)
	d.ix.horizon = max(d.ix.horizon, oldest.index)
}

// reapGone forgets the catalog's tombstones up to index.
func (d *draft) reapGone(index uint64) {
	for {
		oldest, ok := d.t.goneAges.Min()
		if !ok || oldest.index > index {
			return
		}
		d.touch()
		d.forget()
	}
}

// raiseHorizon lets the index pass index, and nobody tell changes since before then.
func (d *draft) raiseHorizon(index uint64) {
	d.touch()
	d.at = max(d.at, index+1)
	d.ix.horizon = d.at
}
