package catalog

import (
	"slices"

	"corbel.dev/corbel/core/table"
)

// connectsTo is the lower-case name under which ConnectInstances finds s; "" is none.
func connectsTo(s *Service) string {
	switch {
	case s.Kind == KindConnectProxy:
		return lower(s.ProxyDestination)
	case s.Native:
		return lower(s.Name)
	}
	return ""
}

// ConnectsTo is the name, in lower case, under which ConnectInstances finds s;
// "" when it does not take part in the mesh.
func (s *Service) ConnectsTo() string { return connectsTo(s) }

func (d *draft) setService(node string, s *Service) {
	entry, old := d.node(node), findService(d.t.services.Table, node, s.ID)
	next := &serviceEntry{Service: *s, nodeKey: entry.key}
	next.Node = entry.node.Name
	if old != nil && sameService(&old.Service, &next.Service) {
		return
	}
	d.touch()
	next.CreateIndex, next.ModifyIndex = d.at, d.at
	next.nameKey, next.destKey = lower(next.Name), connectsTo(&next.Service)
	if old != nil {
		next.CreateIndex = old.CreateIndex
		shareServiceStrings(&next.Service, &old.Service)
	}
	next.nameKey = d.shareService(next.nameKey, &next.Service)
	renamed := old != nil && old.nameKey != next.nameKey
	retagged := old == nil || renamed || old.Name != next.Name || !slices.Equal(old.Tags, next.Tags)

	d.t.services.Set(next)
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
	d.ownNode(node).index = d.at
	change := Change[Service]{nil, &next.Service, d.at}
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
	for _, c := range slices.Collect(checksOwned(d.t.byOwner.Table, s.nodeKey, s.ID)) {
		d.setCheck(s.nodeKey, &c.Check)
	}
}

// removeService removes an instance with its checks.
func (d *draft) removeService(s *serviceEntry) {
	d.touch()
	for _, c := range slices.Collect(checksOwned(d.t.byOwner.Table, s.nodeKey, s.ID)) {
		d.removeCheck(c)
	}
	d.t.services.Delete(s)
	d.leaveName(s, true)
	if s.destKey != "" {
		d.leaveDest(s)
	}
	d.ix.services, d.changes.ServiceList = d.at, true
	d.ownNode(s.nodeKey).index = d.at
	d.changes.Services = append(d.changes.Services, Change[Service]{&s.Service, nil, d.at})
}

// joinName puts s under its name. fresh: it was not there before; retagged: its tags are to be counted.
func (d *draft) joinName(s *serviceEntry, fresh, retagged bool) {
	d.t.instances.Set(s)
	if fresh {
		d.back(goneEntry{kind: goneInstance, name: s.nameKey, node: s.Node, id: s.ID})
	}
	e := d.ownService(s.nameKey)
	if e == nil {
		e = &nameEntry{epoch: d.epoch, key: s.nameKey, checksIndex: d.at, summary: ServiceSummary{Name: s.Name}}
		d.name = e
		d.t.names.Set(e)
		d.back(goneEntry{kind: goneName, name: s.Name})
	}
	e.service = s
	if fresh {
		e.count++
		e.summary.Instances = e.count
	}
	if retagged {
		d.countRow(e, s.Tags, 1)
	}
	d.touchName(e, false)
}

// leaveName takes old's tags out of the count and, when it goes for good, old itself.
func (d *draft) leaveName(old *serviceEntry, gone bool) {
	e := d.ownService(old.nameKey)
	d.countRow(e, old.Tags, -1)
	if !gone {
		return // joinName follows and does the rest
	}
	d.t.instances.Delete(old)
	d.untouch(old)
	d.leave(goneEntry{kind: goneInstance, name: old.nameKey, node: old.Node, id: old.ID})
	if e.service == old {
		e.service = nil
	}
	e.count--
	e.summary.Instances = e.count
	d.touchName(e, true)
	if e.count == 0 {
		d.name = nil
		d.t.names.Delete(e)
		d.leave(goneEntry{kind: goneName, name: e.summary.Name})
		d.ix.list = d.at
		d.ix.serviceGone = d.at
	}
}

func (d *draft) joinDest(s *serviceEntry, fresh bool) {
	d.t.connect.Set(s)
	e := d.ownName(&d.t.dests, s.destKey)
	if e == nil {
		e = &nameEntry{epoch: d.epoch, key: s.destKey}
		d.t.dests.Set(e)
	}
	if fresh {
		e.count++
	}
	d.touchName(e, false)
}

func (d *draft) leaveDest(old *serviceEntry) {
	d.t.connect.Delete(old)
	e := d.ownName(&d.t.dests, old.destKey)
	e.count--
	d.touchName(e, false)
	if e.count == 0 {
		d.t.dests.Delete(e)
		d.ix.serviceGone = d.at
	}
}

// service returns the entry of a service name, nil when there is none.
func (d *draft) service(name string) *nameEntry {
	if d.name == nil || d.name.key != name {
		d.name = findName(d.t.names.Table, name)
	}
	return d.name
}

// ownService returns it for changing in place.
func (d *draft) ownService(name string) *nameEntry {
	e := d.service(name)
	if e == nil || e.epoch == d.epoch {
		return e
	}
	next := *e
	next.epoch = d.epoch
	d.name = &next
	d.t.names.Set(&next)
	return &next
}

// ownName is ownService for what is connected to.
func (d *draft) ownName(t *table.Edit[*nameEntry], name string) *nameEntry {
	e := findName(t.Table, name)
	if e == nil || e.epoch == d.epoch {
		return e
	}
	next := *e
	next.epoch = d.epoch
	t.Set(&next)
	return &next
}

// touchName notes the index on a name; checks too when one of its checks changed.
func (d *draft) touchName(e *nameEntry, checks bool) {
	if checks {
		e.checksIndex = d.at
	}
	if e.index == d.at {
		return
	}
	e.index = d.at
	d.changes.Names = append(d.changes.Names, Touched{e.key, d.at})
}

// touchInstance notes the index on the names under which s is found.
func (d *draft) touchInstance(s *serviceEntry, checks bool) {
	if e := d.ownService(s.nameKey); e != nil {
		d.touchName(e, checks)
		d.noteTouch(s)
	}
	if s.destKey != "" {
		if e := d.ownName(&d.t.dests, s.destKey); e != nil {
			d.touchName(e, checks)
		}
	}
}

// touchServicesOf notes the index on every service that the node hosts.
func (d *draft) touchServicesOf(node string) {
	for s := range servicesOf(d.t.services.Table, node) {
		d.touchInstance(s, false)
	}
}
