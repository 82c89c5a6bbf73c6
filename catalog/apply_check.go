package catalog

// setCheck stores a check of a node that is there (and of a service that is there, if it names one).
func (d *draft) setCheck(node string, c *Check) {
	item, _ := d.t.checks.Get(pair[*Check]{a: node, b: c.ID})
	old, next := item.v, *c
	entry := d.node(node)
	next.Node = entry.node.Name
	next.ServiceName, next.ServiceTags = "", nil
	var owner *Service
	if next.ServiceID != "" {
		found, _ := d.t.services.Get(pair[*Service]{a: node, b: next.ServiceID})
		owner = found.v
		next.ServiceID, next.ServiceName, next.ServiceTags = owner.ID, owner.Name, owner.Tags
	}
	if old != nil && sameCheck(old, &next) {
		return
	}
	d.touch()
	next.CreateIndex, next.ModifyIndex = d.at, d.at
	if old != nil {
		next.CreateIndex = old.CreateIndex
		shareCheckStrings(&next, old)
		d.unindexCheck(entry.key, old)
	}
	d.shareCheck(&next)
	d.t.checks.Set(pair[*Check]{entry.key, next.ID, &next})
	d.t.byOwner.Set(pair[*Check]{entry.key, next.ServiceID, &next})
	if owner != nil {
		d.t.byService.Set(pair[*Check]{lower(next.ServiceName), entry.key, &next})
	}
	if old != nil && old.ServiceID != next.ServiceID {
		d.touchOwner(node, old)
	}
	d.touchOwner(node, &next)
	d.touchCheck(node, old, &next)
	if next.Status == Critical {
		d.endSessionsOf(node, func(s *Session) bool { return dependsOn(s, next.ID) })
	}
}

func (d *draft) removeCheck(node string, old *Check) {
	d.touch()
	d.t.checks.Delete(pair[*Check]{a: node, b: old.ID})
	d.unindexCheck(node, old)
	d.touchOwner(node, old)
	d.touchCheck(node, old, nil)
	d.endSessionsOf(node, func(s *Session) bool { return dependsOn(s, old.ID) })
}

func (d *draft) unindexCheck(node string, old *Check) {
	d.t.byOwner.Delete(pair[*Check]{node, old.ServiceID, old})
	if old.ServiceID != "" {
		d.t.byService.Delete(pair[*Check]{lower(old.ServiceName), node, old})
	}
}

// touchOwner notes the index on the service that the check is about; a check of
// the node is about all its services.
func (d *draft) touchOwner(node string, c *Check) {
	if c.ServiceID == "" {
		d.touchServicesOf(node)
		return
	}
	if item, ok := d.t.services.Get(pair[*Service]{a: node, b: c.ServiceID}); ok {
		d.touchInstance(item.v, true)
	}
}

func (d *draft) touchCheck(node string, before, after *Check) {
	e := d.ownNode(node)
	e.index, e.checksIndex = d.at, d.at
	d.ix.checks = d.at
	d.changes.Checks = append(d.changes.Checks, Change[Check]{before, after, d.at})
}
