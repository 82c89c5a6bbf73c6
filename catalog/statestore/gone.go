package statestore

import (
	"cmp"
	"strings"

	"corbel.dev/corbel/catalog"
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

func compareNodeAge(a, b *catalog.Node) int {
	if c := cmp.Compare(a.ModifyIndex, b.ModifyIndex); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
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
	gone := &l.d.t.gone.all
	if last, ok := gone.Max(); ok && (first || compareGone(last, g) >= 0) {
		l.in.Fail()
		return
	}
	gone.Load(g)
	l.d.t.gone.byAge.Set(g)
}

// goneEdits are the catalog's tombstones in the making.
type goneEdits struct {
	*step
	all, byAge table.Edit[*goneEntry]
}

// leave notes that something left the catalog.
func (t *goneEdits) leave(g goneEntry) {
	g.index = t.at
	if old, ok := t.all.Set(&g); ok {
		t.byAge.Delete(old)
	}
	t.byAge.Set(&g)
	for t.all.Len() > maxGone {
		t.forget()
	}
}

// back takes the tombstone away of what is there again.
func (t *goneEdits) back(g goneEntry) {
	if t.all.Len() == 0 {
		return
	}
	if old, ok := t.all.Delete(&g); ok {
		t.byAge.Delete(old)
	}
}

// forget drops the oldest of the tombstones.
func (t *goneEdits) forget() {
	oldest, _ := t.byAge.Min()
	t.byAge.Delete(oldest)
	t.all.Delete(oldest)
	t.ix.horizon = max(t.ix.horizon, oldest.index)
}

// reap forgets the tombstones up to index.
func (t *goneEdits) reap(index uint64) {
	for {
		oldest, ok := t.byAge.Min()
		if !ok || oldest.index > index {
			return
		}
		t.touch()
		t.forget()
	}
}
