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
	item, _ := d.t.services.Get(pair[*Service]{a: node, b: s.ID})
	old, next := item.v, *s
	entry := d.node(node)
	next.Node = entry.node.Name
	if old != nil && sameService(old, &next) {
		return
	}
	d.touch()
	next.CreateIndex, next.ModifyIndex = d.at, d.at
	name, oldName, dest, oldDest := lower(next.Name), "", connectsTo(&next), ""
	if old != nil {
		next.CreateIndex = old.CreateIndex
		oldName, oldDest = lower(old.Name), connectsTo(old)
		shareServiceStrings(&next, old)
	}
	name = d.shareService(name, &next)
	renamed := old != nil && oldName != name
	retagged := old == nil || renamed || old.Name != next.Name || !slices.Equal(old.Tags, next.Tags)

	d.t.services.Set(pair[*Service]{entry.key, next.ID, &next})
	if old != nil && (renamed || retagged) {
		d.leaveName(oldName, entry.key, old, renamed)
	}
	d.joinName(name, entry.key, &next, old == nil || renamed, retagged)
	if oldDest != "" && oldDest != dest {
		d.leaveDest(oldDest, entry.key, old)
	}
	if dest != "" {
		d.joinDest(dest, entry.key, &next, oldDest != dest)
	}
	if retagged {
		d.ix.services, d.changes.ServiceList = d.at, true
	}
	d.ownNode(node).index = d.at
	d.changes.Services = append(d.changes.Services, Change[Service]{old, &next, d.at})
	if old != nil && retagged {
		d.rehomeChecks(node, &next)
	}
}

// rehomeChecks tells the instance's checks its new name and tags.
func (d *draft) rehomeChecks(node string, s *Service) {
	for _, c := range slices.Collect(underBoth(d.t.byOwner.Table, node, s.ID)) {
		d.setCheck(node, c)
	}
}

// removeService removes an instance with its checks.
func (d *draft) removeService(node string, s *Service) {
	d.touch()
	for _, c := range slices.Collect(underBoth(d.t.byOwner.Table, node, s.ID)) {
		d.removeCheck(node, c)
	}
	d.t.services.Delete(pair[*Service]{a: node, b: s.ID})
	d.leaveName(lower(s.Name), node, s, true)
	if dest := connectsTo(s); dest != "" {
		d.leaveDest(dest, node, s)
	}
	d.ix.services, d.changes.ServiceList = d.at, true
	d.ownNode(node).index = d.at
	d.changes.Services = append(d.changes.Services, Change[Service]{s, nil, d.at})
}

// joinName puts s under its name. fresh: it was not there before; retagged: its tags are to be counted.
func (d *draft) joinName(name, node string, s *Service, fresh, retagged bool) {
	d.t.instances.Set(pair[*Service]{name, node, s})
	e := d.ownName(&d.t.names, name)
	if e == nil {
		e = &nameEntry{epoch: d.epoch, key: name, checksIndex: d.at, summary: &ServiceSummary{Name: s.Name}}
		d.t.names.Set(keyed[*nameEntry]{name, e})
	}
	if fresh {
		e.count++
	}
	if retagged {
		d.countTags(name, s.Tags, 1)
		d.summarize(e)
	}
	d.touchName(e, false)
}

// leaveName takes old's tags out of the count and, when it goes for good, old itself.
func (d *draft) leaveName(name, node string, old *Service, gone bool) {
	d.countTags(name, old.Tags, -1)
	if !gone {
		return // joinName follows and does the rest
	}
	d.t.instances.Delete(pair[*Service]{name, node, old})
	e := d.ownName(&d.t.names, name)
	e.count--
	d.touchName(e, true)
	if e.count == 0 {
		d.t.names.Delete(keyed[*nameEntry]{key: name})
		d.ix.serviceGone = d.at
		return
	}
	d.summarize(e)
}

func (d *draft) joinDest(dest, node string, s *Service, fresh bool) {
	d.t.connect.Set(pair[*Service]{dest, node, s})
	e := d.ownName(&d.t.dests, dest)
	if e == nil {
		e = &nameEntry{epoch: d.epoch, key: dest}
		d.t.dests.Set(keyed[*nameEntry]{dest, e})
	}
	if fresh {
		e.count++
	}
	d.touchName(e, false)
}

func (d *draft) leaveDest(dest, node string, old *Service) {
	d.t.connect.Delete(pair[*Service]{dest, node, old})
	e := d.ownName(&d.t.dests, dest)
	e.count--
	d.touchName(e, false)
	if e.count == 0 {
		d.t.dests.Delete(keyed[*nameEntry]{key: dest})
		d.ix.serviceGone = d.at
	}
}

// ownName returns an entry for changing in place, nil when there is none.
func (d *draft) ownName(t *table.Edit[keyed[*nameEntry]], name string) *nameEntry {
	item, ok := t.Get(keyed[*nameEntry]{key: name})
	if !ok || item.v.epoch == d.epoch {
		return item.v
	}
	next := *item.v
	next.epoch = d.epoch
	t.Set(keyed[*nameEntry]{next.key, &next})
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
func (d *draft) touchInstance(s *Service, checks bool) {
	if e := d.ownName(&d.t.names, lower(s.Name)); e != nil {
		d.touchName(e, checks)
	}
	if dest := connectsTo(s); dest != "" {
		if e := d.ownName(&d.t.dests, dest); e != nil {
			d.touchName(e, checks)
		}
	}
}

// touchServicesOf notes the index on every service that the node hosts.
func (d *draft) touchServicesOf(node string) {
	for s := range under(d.t.services.Table, node) {
		d.touchInstance(s, false)
	}
}

func (d *draft) countTags(name string, tags []string, by int) {
	for _, tag := range tags {
		item, ok := d.t.tags.Get(tagCount{service: name, tag: tag})
		if !ok {
			item = tagCount{service: name, tag: tag}
		}
		if item.count += by; item.count > 0 {
			d.t.tags.Set(item)
		} else {
			d.t.tags.Delete(item)
		}
	}
}

// summarize renews the row of the list of services. The tags are kept when they are the same.
func (d *draft) summarize(e *nameEntry) {
	next := &ServiceSummary{Name: e.summary.Name, Tags: e.summary.Tags, Instances: e.count}
	same, i := true, 0
	for item := range d.t.tags.From(tagCount{service: e.key}) {
		if item.service != e.key {
			break
		}
		if same = i < len(next.Tags) && next.Tags[i] == item.tag; !same {
			break
		}
		i++
	}
	if !same || i != len(next.Tags) {
		next.Tags = nil
		for item := range d.t.tags.From(tagCount{service: e.key}) {
			if item.service != e.key {
				break
			}
			next.Tags = append(next.Tags, item.tag)
		}
	}
	e.summary = next
}
