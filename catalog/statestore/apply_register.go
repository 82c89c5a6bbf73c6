package statestore

import (
	"slices"

	"corbel.dev/corbel/catalog"
)

func (d *draft) registerBatch(c *catalog.RegisterBatch, r *catalog.Result) {
	saved := *d
	if c.Atomic {
		d.fork()
	}
	for i, one := range c.Registrations {
		d.begin()
		if err := d.register(one); err != nil {
			r.TxnErrors = append(r.TxnErrors, catalog.TxnError{OpIndex: i, What: err.Error()})
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
func (d *draft) register(c *catalog.Register) error {
	if c.Node.Name == "" {
		return refuse("Must provide node")
	}
	key := lower(c.Node.Name)
	if err := d.refuseBarred(key, &c.Node); err != nil {
		return err
	}
	writeNode := d.t.nodes.get(key) == nil || !c.SkipNodeUpdate
	if writeNode {
		if err := d.refuseNode(key, &c.Node); err != nil {
			return err
		}
	}
	for _, check := range c.Checks {
		if check.ServiceID == "" || c.Service != nil && check.ServiceID == c.Service.ID {
			continue
		}
		if findService(d.t.services.byNode.Table, key, check.ServiceID) == nil {
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
func (d *draft) refuseNode(key string, n *catalog.Node) error {
	if n.ID == "" {
		return nil
	}
	if old := d.t.nodes.get(key); old != nil && old.node.ID != "" && lower(old.node.ID) != lower(n.ID) && d.alive(key) {
		return refuse("Node name %s is reserved by node %s with name %s (%s)", n.Name, old.node.ID, old.node.Name,
			old.node.Address)
	}
	if e := findNodeID(d.t.nodes.byID.Table, lower(n.ID)); e != nil && e.key != key && d.alive(e.key) {
		old := e.node
		return refuse("Node name %s is reserved by node %s with name %s (%s)", n.Name, old.ID, old.Name, old.Address)
	}
	return nil
}

// alive tells whether gossip vouches for the node.
func (d *draft) alive(key string) bool {
	c := findCheck(d.t.checks.byNode.Table, key, catalog.SerfHealthID)
	return c != nil && c.Status != catalog.Critical
}

func (d *draft) deregister(c *catalog.Deregister) {
	key := lower(c.Node)
	if d.t.nodes.get(key) == nil {
		return
	}
	switch {
	case c.ServiceID != "":
		if s := findService(d.t.services.byNode.Table, key, c.ServiceID); s != nil {
			d.removeService(s)
		}
	case c.CheckID != "":
		if check := findCheck(d.t.checks.byNode.Table, key, c.CheckID); check != nil {
			d.removeCheck(check)
		}
	default:
		d.removeNode(key)
	}
}

func (d *draft) setNode(key string, n *catalog.Node) {
	e := d.t.nodes.get(key)
	next := *n
	if e == nil {
		d.evict(lower(n.ID), key) // renamed: refuseNode saw that the old one is dead
		d.touch()
		next.CreateIndex, next.ModifyIndex = d.at, d.at
		d.t.nodes.share(key, &next)
		d.t.nodes.put(&nodeEntry{epoch: d.epoch, key: lower(next.Name), idKey: lower(next.ID), node: &next, index: d.at,
			checksIndex: d.at})
		d.t.gone.back(goneEntry{kind: goneNode, name: next.Name})
	} else {
		old := e.node
		next.Name = old.Name // the case stays as first registered: services and checks carry it too
		if next.ID == "" {
			next.ID = old.ID // a registration by name alone keeps the identity
		}
		if old.Same(&next) {
			return
		}
		idKey := lower(next.ID)
		d.evict(idKey, key)
		d.touch()
		if e.idKey != "" && e.idKey != idKey {
			d.t.nodes.byID.Delete(e)
		}
		next.CreateIndex, next.ModifyIndex = old.CreateIndex, d.at
		shareNodeStrings(&next, old)
		d.t.nodes.byAge.Delete(old)
		own := *e
		own.epoch, own.idKey, own.node, own.index = d.epoch, idKey, &next, d.at
		d.t.nodes.put(&own)
		d.t.services.touchAllOf(key)
	}
	d.t.nodes.byAge.Set(&next)
	d.ix.nodes = d.at
	var before *catalog.Node
	if e != nil {
		before = e.node
	}
	d.changes.Nodes = append(d.changes.Nodes, catalog.Change[catalog.Node]{Before: before, After: &next, Index: d.at})
}

// evict removes the node that has an ID which is now key's.
func (d *draft) evict(id, key string) {
	if id == "" {
		return
	}
	if e := findNodeID(d.t.nodes.byID.Table, id); e != nil && e.key != key {
		d.removeNode(e.key)
	}
}

func (d *draft) removeNode(key string) {
	e := d.t.nodes.get(key)
	d.touch()
	d.endSessionsOf(key, func(*catalog.Session) bool { return true })
	for _, s := range slices.Collect(servicesOf(d.t.services.byNode.Table, key)) {
		d.removeService(s)
	}
	for _, c := range slices.Collect(checksOf(d.t.checks.byNode.Table, key)) {
		d.removeCheck(c)
	}
	d.dropTied("n" + key)
	d.t.nodes.drop(e)
	d.t.gone.leave(goneEntry{kind: goneNode, name: e.node.Name})
	d.ix.nodes, d.ix.nodeGone = d.at, d.at
	d.changes.Nodes = append(d.changes.Nodes, catalog.Change[catalog.Node]{Before: e.node, After: nil, Index: d.at})
}
