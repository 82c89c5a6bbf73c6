package statestore

import (
	"slices"

	"corbel.dev/corbel/catalog"
)

func (d *draft) setService(node string, s *catalog.Service) {
	entry, old := d.t.nodes.get(node), findService(d.t.services.byNode.Table, node, s.ID)
	next := &serviceEntry{Service: *s, nodeKey: entry.key}
	next.Node = entry.node.Name
	if old != nil && old.Service.Same(&next.Service) {
		return
	}
	d.touch()
	next.CreateIndex, next.ModifyIndex = d.at, d.at
	next.nameKey, next.destKey = lower(next.Name), next.ConnectsTo()
	if old != nil {
		next.CreateIndex = old.CreateIndex
		shareServiceStrings(&next.Service, &old.Service)
	}
	next.nameKey = d.t.services.share(next.nameKey, &next.Service)
	renamed := old != nil && old.nameKey != next.nameKey
	retagged := old == nil || renamed || old.Name != next.Name || !slices.Equal(old.Tags, next.Tags)

	d.t.services.byNode.Set(next)
	if old != nil && retagged {
		d.leaveName(old, renamed)
	}
	d.joinName(next, old == nil || renamed, retagged)
	if old != nil && old.destKey != "" && old.destKey != next.destKey {
		d.leaveDest(old)
	}
	if next.destKey != "" {
		d.joinDest(next, old == nil || old.destKey != next.destKey)
	}
	if retagged {
		d.ix.services, d.changes.ServiceList = d.at, true
	}
	d.t.nodes.own(node).index = d.at
	change := catalog.Change[catalog.Service]{Before: nil, After: &next.Service, Index: d.at}
	if old != nil {
		change.Before = &old.Service
	}
	d.changes.Services = append(d.changes.Services, change)
	if old != nil && retagged {
		d.rehomeChecks(next)
	}
}

// rehomeChecks tells the instance's checks its new name and tags.
func (d *draft) rehomeChecks(s *serviceEntry) {
	for _, c := range slices.Collect(checksOwned(d.t.checks.byOwner.Table, s.nodeKey, s.ID)) {
		d.setCheck(s.nodeKey, &c.Check)
	}
}

// removeService removes an instance with its checks.
func (d *draft) removeService(s *serviceEntry) {
	d.touch()
	for _, c := range slices.Collect(checksOwned(d.t.checks.byOwner.Table, s.nodeKey, s.ID)) {
		d.removeCheck(c)
	}
	d.t.services.byNode.Delete(s)
	d.leaveName(s, true)
	if s.destKey != "" {
		d.leaveDest(s)
	}
	d.ix.services, d.changes.ServiceList = d.at, true
	d.t.nodes.own(s.nodeKey).index = d.at
	d.changes.Services = append(d.changes.Services, catalog.Change[catalog.Service]{Before: &s.Service, After: nil,
		Index: d.at})
}

// joinName puts s under its name. fresh: it was not there before; retagged: its tags are to be counted.
func (d *draft) joinName(s *serviceEntry, fresh, retagged bool) {
	d.t.services.byName.Set(s)
	if fresh {
		d.t.gone.back(goneEntry{kind: goneInstance, name: s.nameKey, node: s.Node, id: s.ID})
	}
	e := d.t.services.ownName(s.nameKey)
	if e == nil {
		e = &nameEntry{epoch: d.epoch, key: s.nameKey, checksIndex: d.at, summary: ServiceSummary{Name: s.Name}}
		d.t.services.name = e
		d.t.services.names.Set(e)
		d.t.gone.back(goneEntry{kind: goneName, name: s.Name})
	}
	e.service = s
	if fresh {
		e.count++
		e.summary.Instances = e.count
	}
	if retagged {
		d.t.services.countRow(e, s.Tags, 1)
	}
	d.t.services.touchName(e, false)
}

// leaveName takes old's tags out of the count and, when it goes for good, old itself.
func (d *draft) leaveName(old *serviceEntry, gone bool) {
	e := d.t.services.ownName(old.nameKey)
	d.t.services.countRow(e, old.Tags, -1)
	if !gone {
		return // joinName follows and does the rest
	}
	d.t.services.byName.Delete(old)
	d.t.services.untouch(old)
	d.t.gone.leave(goneEntry{kind: goneInstance, name: old.nameKey, node: old.Node, id: old.ID})
	if e.service == old {
		e.service = nil
	}
	e.count--
	e.summary.Instances = e.count
	d.t.services.touchName(e, true)
	if e.count == 0 {
		d.t.services.name = nil
		d.t.services.names.Delete(e)
		d.t.gone.leave(goneEntry{kind: goneName, name: e.summary.Name})
		d.ix.list = d.at
		d.ix.serviceGone = d.at
	}
}

func (d *draft) joinDest(s *serviceEntry, fresh bool) {
	d.t.services.byDest.Set(s)
	e := d.t.services.ownDest(s.destKey)
	if e == nil {
		e = &nameEntry{epoch: d.epoch, key: s.destKey}
		d.t.services.dests.Set(e)
	}
	if fresh {
		e.count++
	}
	d.t.services.touchName(e, false)
}

func (d *draft) leaveDest(old *serviceEntry) {
	d.t.services.byDest.Delete(old)
	e := d.t.services.ownDest(old.destKey)
	e.count--
	d.t.services.touchName(e, false)
	if e.count == 0 {
		d.t.services.dests.Delete(e)
		d.ix.serviceGone = d.at
	}
}
