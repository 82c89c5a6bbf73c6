package statestore

import (
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/core/table"
)

// serviceEdits are the instances in the making, with the entries of their names and of what they connect to.
type serviceEdits struct {
	*step
	byNode, byName, byDest table.Edit[*serviceEntry]
	touched                table.Edit[*touchEntry]
	names, dests           table.Edit[*nameEntry]
	tags                   table.Edit[tagCount]
	name                   *nameEntry // of a service, that was looked up or changed last; never stale
}

// get returns the entry of a service name, nil when there is none.
func (t *serviceEdits) get(name string) *nameEntry {
	if t.name == nil || t.name.key != name {
		t.name = findName(t.names.Table, name)
	}
	return t.name
}

// ownName returns it for changing in place.
func (t *serviceEdits) ownName(name string) *nameEntry {
	e := t.get(name)
	if e == nil || e.epoch == t.epoch {
		return e
	}
	next := *e
	next.epoch = t.epoch
	t.name = &next
	t.names.Set(&next)
	return &next
}

// ownDest is ownName for what is connected to.
func (t *serviceEdits) ownDest(name string) *nameEntry {
	e := findName(t.dests.Table, name)
	if e == nil || e.epoch == t.epoch {
		return e
	}
	next := *e
	next.epoch = t.epoch
	t.dests.Set(&next)
	return &next
}

// touchName notes the index on a name; checks too when one of its checks changed.
func (t *serviceEdits) touchName(e *nameEntry, checks bool) {
	if checks {
		e.checksIndex = t.at
	}
	if e.index == t.at {
		return
	}
	e.index = t.at
	t.changes.Names = append(t.changes.Names, catalog.Touched{Name: e.key, Index: t.at})
}

// touchInstance notes the index on the names under which s is found.
func (t *serviceEdits) touchInstance(s *serviceEntry, checks bool) {
	if e := t.ownName(s.nameKey); e != nil {
		t.touchName(e, checks)
		t.noteTouch(s)
	}
	if s.destKey != "" {
		if e := t.ownDest(s.destKey); e != nil {
			t.touchName(e, checks)
		}
	}
}

// touchAllOf notes the index on every service that the node hosts.
func (t *serviceEdits) touchAllOf(node string) {
	for s := range servicesOf(t.byNode.Table, node) {
		t.touchInstance(s, false)
	}
}

// noteTouch notes that an instance changed by what hangs on it.
func (t *serviceEdits) noteTouch(s *serviceEntry) {
	if s.ModifyIndex == t.at {
		return // its registration says so
	}
	if e := findTouched(t.touched.Table, s); e != nil && e.epoch == t.epoch {
		e.index = t.at // made by this Apply: nobody else sees it yet
		return
	}
	t.touched.Set(&touchEntry{t.epoch, t.at, s.nameKey, s.nodeKey, s.ID})
}

func (t *serviceEdits) untouch(s *serviceEntry) {
	if t.touched.Len() > 0 {
		t.touched.Delete(&touchEntry{name: s.nameKey, node: s.nodeKey, id: s.ID})
	}
}

// countRow is countTags, and notes when the row of the list of services is another.
func (t *serviceEdits) countRow(e *nameEntry, tags []string, by int) {
	was := e.summary.Tags
	t.countTags(e, tags, by)
	now := e.summary.Tags // never changed in place
	if e.listIndex == 0 || len(was) != len(now) || len(now) > 0 && &was[0] != &now[0] {
		e.listIndex, t.ix.list = t.at, t.at
	}
}
