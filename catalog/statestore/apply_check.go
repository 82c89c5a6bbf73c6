package statestore

import "corbel.dev/corbel/catalog"

// setCheck stores a check of a node that is there (and of a service that is there, if it names one).
func (d *draft) setCheck(node string, c *catalog.Check) {
	entry, old := d.t.nodes.get(node), findCheck(d.t.checks.byNode.Table, node, c.ID)
	next := &checkEntry{Check: *c, nodeKey: entry.key}
	next.Node = entry.node.Name
	next.ServiceName, next.ServiceTags = "", nil
	var owner *serviceEntry
	if next.ServiceID != "" {
		owner = findService(d.t.services.byNode.Table, node, next.ServiceID)
		next.ServiceID, next.ServiceName, next.ServiceTags = owner.ID, owner.Name, owner.Tags
	}
	if old != nil && old.Check.Same(&next.Check) {
		return
	}
	d.touch()
	next.CreateIndex, next.ModifyIndex = d.at, d.at
	moved := old != nil && old.ServiceID != next.ServiceID
	if old != nil {
		next.CreateIndex = old.CreateIndex
		shareCheckStrings(&next.Check, &old.Check)
		if moved {
			d.t.checks.byOwner.Delete(old)
		}
	}
	d.t.services.shareCheck(next, owner)
	d.t.checks.byNode.Set(next)
	d.t.checks.byOwner.Set(next)
	if moved {
		d.touchOwner(old)
	}
	if owner != nil {
		d.t.services.touchInstance(owner, true)
	} else {
		d.t.services.touchAllOf(node)
	}
	d.touchCheck(node, old, next)
	if next.Status == catalog.Critical {
		d.endSessionsOf(node, func(s *catalog.Session) bool { return dependsOn(s, next.ID) })
	}
}

func (d *draft) removeCheck(old *checkEntry) {
	node := old.nodeKey
	d.touch()
	d.t.checks.byNode.Delete(old)
	d.t.checks.byOwner.Delete(old)
	if old.ServiceID != "" {
		if e := d.t.services.get(lower(old.ServiceName)); e != nil && e.check == old {
			d.t.services.ownName(e.key).check = nil
		}
	}
	d.touchOwner(old)
	d.touchCheck(node, old, nil)
	d.endSessionsOf(node, func(s *catalog.Session) bool { return dependsOn(s, old.ID) })
}

// touchOwner notes the index on the service that the check is about; a check of the node is about all its services.
func (d *draft) touchOwner(c *checkEntry) {
	if c.ServiceID == "" {
		d.t.services.touchAllOf(c.nodeKey)
		return
	}
	if s := findService(d.t.services.byNode.Table, c.nodeKey, c.ServiceID); s != nil {
		d.t.services.touchInstance(s, true)
	}
}

func (d *draft) touchCheck(node string, before, after *checkEntry) {
	e := d.t.nodes.own(node)
	e.index, e.checksIndex = d.at, d.at
	d.ix.checks = d.at
	change := catalog.Change[catalog.Check]{Index: d.at}
	if before != nil {
		change.Before = &before.Check
	}
	if after != nil {
		change.After = &after.Check
	}
	d.changes.Checks = append(d.changes.Checks, change)
}
