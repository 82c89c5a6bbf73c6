package catalog

func (d *draft) registerBatch(c *RegisterBatch, r *Result) {
	for i, one := range c.Registrations {
		d.begin()
		if err := d.register(one); err != nil {
			r.TxnErrors = append(r.TxnErrors, TxnError{OpIndex: i, What: err.Error()})
		}
		d.end()
	}
	d.begin() // each took its own index: none is left for the batch
	r.OK = len(r.TxnErrors) == 0
}

// register checks everything first: a refused registration changes nothing.
func (d *draft) register(c *Register) error {
	if c.Node.Name == "" {
		return refuse("Must provide node")
	}
	key := lower(c.Node.Name)
	writeNode := d.node(key) == nil || !c.SkipNodeUpdate
	if writeNode {
		if err := d.refuseNode(key, &c.Node); err != nil {
			return err
		}
	}
	for _, check := range c.Checks {
		if check.ServiceID == "" || c.Service != nil && check.ServiceID == c.Service.ID {
			continue
		}
		if _, ok := d.t.services.Get(pair[*Service]{a: key, b: check.ServiceID}); !ok {
			return refuse("Missing service registration")
		}
	}
	if writeNode {
		d.setNode(key, &c.Node)
	}
	if c.Service != nil {
		d.setService(key, c.Service)
	}
	for _, check := range c.Checks {
		d.setCheck(key, check)
	}
	return nil
}

// refuseNode protects a living node's name and ID: the same name under another
// ID, or the same ID under another name, is accepted only when the node that
// has it is known to be dead.
func (d *draft) refuseNode(key string, n *Node) error {
	if n.ID == "" {
		return nil
	}
	if old := d.node(key); old != nil && old.node.ID != "" && lower(old.node.ID) != lower(n.ID) && d.alive(key) {
		return refuse("Node name %s is reserved by node %s with name %s (%s)", n.Name, old.node.ID, old.node.Name, old.node.Address)
	}
	if item, ok := d.t.nodeIDs.Get(keyed[*nodeEntry]{key: lower(n.ID)}); ok && item.v.key != key && d.alive(item.v.key) {
		old := item.v.node
		return refuse("Node name %s is reserved by node %s with name %s (%s)", n.Name, old.ID, old.Name, old.Address)
	}
	return nil
}

// alive tells whether gossip vouches for the node.
func (d *draft) alive(key string) bool {
	item, ok := d.t.checks.Get(pair[*Check]{a: key, b: SerfHealthID})
	return ok && item.v.Status != Critical
}

func (d *draft) deregister(c *Deregister) {
	key := lower(c.Node)
	if d.node(key) == nil {
		return
	}
	switch {
	case c.ServiceID != "":
		if item, ok := d.t.services.Get(pair[*Service]{a: key, b: c.ServiceID}); ok {
			d.removeService(key, item.v)
		}
	case c.CheckID != "":
		if item, ok := d.t.checks.Get(pair[*Check]{a: key, b: c.CheckID}); ok {
			d.removeCheck(key, item.v)
		}
	default:
		d.removeNode(key)
	}
}

func (d *draft) node(key string) *nodeEntry {
	item, _ := d.t.nodes.Get(keyed[*nodeEntry]{key: key})
	return item.v
}

// ownNode returns the node's entry for changing in place.
func (d *draft) ownNode(key string) *nodeEntry {
	e := d.node(key)
	if e.epoch == d.epoch {
		return e
	}
	next := *e
	next.epoch = d.epoch
	d.putNode(&next)
	return &next
}

func (d *draft) putNode(e *nodeEntry) {
	d.t.nodes.Set(keyed[*nodeEntry]{e.key, e})
	if e.node.ID != "" {
		d.t.nodeIDs.Set(keyed[*nodeEntry]{lower(e.node.ID), e})
	}
}

func (d *draft) setNode(key string, n *Node) {
	e := d.node(key)
	next := *n
	if e == nil {
		if item, ok := d.t.nodeIDs.Get(keyed[*nodeEntry]{key: lower(n.ID)}); ok && n.ID != "" {
			d.removeNode(item.v.key) // renamed: refuseNode saw that the old one is dead
		}
		d.touch()
		next.CreateIndex, next.ModifyIndex = d.at, d.at
		d.shareNode(key, &next)
		d.putNode(&nodeEntry{epoch: d.epoch, key: lower(next.Name), node: &next, index: d.at, checksIndex: d.at})
	} else {
		old := e.node
		next.Name = old.Name // the case stays as first registered: services and checks carry it too
		if next.ID == "" {
			next.ID = old.ID // a registration by name alone keeps the identity
		}
		if sameNode(old, &next) {
			return
		}
		if item, ok := d.t.nodeIDs.Get(keyed[*nodeEntry]{key: lower(next.ID)}); ok && next.ID != "" && item.v.key != key {
			d.removeNode(item.v.key)
		}
		d.touch()
		if old.ID != "" && lower(old.ID) != lower(next.ID) {
			d.t.nodeIDs.Delete(keyed[*nodeEntry]{key: lower(old.ID)})
		}
		next.CreateIndex, next.ModifyIndex = old.CreateIndex, d.at
		shareNodeStrings(&next, old)
		own := *e
		own.epoch, own.node, own.index = d.epoch, &next, d.at
		d.putNode(&own)
		d.touchServicesOf(key)
	}
	d.ix.nodes = d.at
	var before *Node
	if e != nil {
		before = e.node
	}
	d.changes.Nodes = append(d.changes.Nodes, Change[Node]{before, &next, d.at})
}

func (d *draft) removeNode(key string) {
	e := d.node(key)
	d.touch()
	d.endSessionsOf(key, func(*Session) bool { return true })
	var services []*Service
	for s := range under(d.t.services.Table, key) {
		services = append(services, s)
	}
	for _, s := range services {
		d.removeService(key, s)
	}
	var checks []*Check
	for c := range under(d.t.checks.Table, key) {
		checks = append(checks, c)
	}
	for _, c := range checks {
		d.removeCheck(key, c)
	}
	d.dropTied("n" + key)
	d.t.nodes.Delete(keyed[*nodeEntry]{key: key})
	if e.node.ID != "" {
		d.t.nodeIDs.Delete(keyed[*nodeEntry]{key: lower(e.node.ID)})
	}
	d.ix.nodes, d.ix.nodeGone = d.at, d.at
	d.changes.Nodes = append(d.changes.Nodes, Change[Node]{e.node, nil, d.at})
}
