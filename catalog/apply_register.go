package catalog

import "slices"

func (d *draft) registerBatch(c *RegisterBatch, r *Result) {
	saved := *d
	if c.Atomic {
		d.fork()
	}
	for i, one := range c.Registrations {
		d.begin()
		if err := d.register(one); err != nil {
			r.TxnErrors = append(r.TxnErrors, TxnError{OpIndex: i, What: err.Error()})
		}
		d.end()
	}
	if c.Atomic && len(r.TxnErrors) > 0 {
		*d = saved
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
	if err := d.refuseBarred(key, &c.Node); err != nil {
		return err
	}
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
		if findService(d.t.services.Table, key, check.ServiceID) == nil {
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
		return refuse("Node name %s is reserved by node %s with name %s (%s)", n.Name, old.node.ID, old.node.Name,
			old.node.Address)
	}
	if e := findNodeID(d.t.nodeIDs.Table, lower(n.ID)); e != nil && e.key != key && d.alive(e.key) {
		old := e.node
		return refuse("Node name %s is reserved by node %s with name %s (%s)", n.Name, old.ID, old.Name, old.Address)
	}
	return nil
}

// alive tells whether gossip vouches for the node.
func (d *draft) alive(key string) bool {
	c := findCheck(d.t.checks.Table, key, SerfHealthID)
	return c != nil && c.Status != Critical
}

func (d *draft) deregister(c *Deregister) {
	key := lower(c.Node)
	if d.node(key) == nil {
		return
	}
	switch {
	case c.ServiceID != "":
		if s := findService(d.t.services.Table, key, c.ServiceID); s != nil {
			d.removeService(s)
		}
	case c.CheckID != "":
		if check := findCheck(d.t.checks.Table, key, c.CheckID); check != nil {
			d.removeCheck(check)
		}
	default:
		d.removeNode(key)
	}
}

func (d *draft) node(key string) *nodeEntry {
	if d.lastKey != key {
		d.lastKey, d.last = key, findNode(d.t.nodes.Table, key)
	}
	return d.last
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
	d.lastKey, d.last = e.key, e
	d.t.nodes.Set(e)
	if e.idKey != "" {
		d.t.nodeIDs.Set(e)
	}
}

func (d *draft) setNode(key string, n *Node) {
	e := d.node(key)
	next := *n
	if e == nil {
		d.evict(lower(n.ID), key) // renamed: refuseNode saw that the old one is dead
		d.touch()
		next.CreateIndex, next.ModifyIndex = d.at, d.at
		d.shareNode(key, &next)
		d.putNode(&nodeEntry{epoch: d.epoch, key: lower(next.Name), idKey: lower(next.ID), node: &next, index: d.at,
			checksIndex: d.at})
		d.back(goneEntry{kind: goneNode, name: next.Name})
	} else {
		old := e.node
		next.Name = old.Name // the case stays as first registered: services and checks carry it too
		if next.ID == "" {
			next.ID = old.ID // a registration by name alone keeps the identity
		}
		if sameNode(old, &next) {
			return
		}
		idKey := lower(next.ID)
		d.evict(idKey, key)
		d.touch()
		if e.idKey != "" && e.idKey != idKey {
			d.t.nodeIDs.Delete(e)
		}
		next.CreateIndex, next.ModifyIndex = old.CreateIndex, d.at
		shareNodeStrings(&next, old)
		d.t.nodeAges.Delete(old)
		own := *e
		own.epoch, own.idKey, own.node, own.index = d.epoch, idKey, &next, d.at
		d.putNode(&own)
		d.touchServicesOf(key)
	}
	d.t.nodeAges.Set(&next)
	d.ix.nodes = d.at
	var before *Node
	if e != nil {
		before = e.node
	}
	d.changes.Nodes = append(d.changes.Nodes, Change[Node]{before, &next, d.at})
}

// evict removes the node that has an ID which is now key's.
func (d *draft) evict(id, key string) {
	if id == "" {
		return
	}
	if e := findNodeID(d.t.nodeIDs.Table, id); e != nil && e.key != key {
		d.removeNode(e.key)
	}
}

func (d *draft) removeNode(key string) {
	e := d.node(key)
	d.touch()
	d.endSessionsOf(key, func(*Session) bool { return true })
	for _, s := range slices.Collect(servicesOf(d.t.services.Table, key)) {
		d.removeService(s)
	}
	for _, c := range slices.Collect(checksOf(d.t.checks.Table, key)) {
		d.removeCheck(c)
	}
	d.dropTied("n" + key)
	d.lastKey, d.last = "", nil
	d.t.nodes.Delete(e)
	if e.idKey != "" {
		d.t.nodeIDs.Delete(e)
	}
	d.t.nodeAges.Delete(e.node)
	d.leave(goneEntry{kind: goneNode, name: e.node.Name})
	d.ix.nodes, d.ix.nodeGone = d.at, d.at
	d.changes.Nodes = append(d.changes.Nodes, Change[Node]{e.node, nil, d.at})
}
