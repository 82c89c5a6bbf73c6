package grants

import (
	"maps"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/statestore"
)

// MayRegister is nil when g may do the registration: write on the node where the node or a check of its own
// changes, and write on each service whose instance or check changes, also on one whose instance is replaced.
func MayRegister(g *acl.Grant, st *statestore.State, c *catalog.Register) error {
	node := c.Node.Name
	if changesNode(st.Node(node), c) {
		if err := g.Check(acl.Node, node, acl.Write); err != nil {
			return err
		}
	}
	if c.Service != nil {
		if err := mayWriteService(g, st, node, c.Service); err != nil {
			return err
		}
	}
	for _, check := range c.Checks {
		if err := mayWriteCheck(g, st, node, check, c.Service); err != nil {
			return err
		}
		if old := st.Check(node, check.ID); old != nil && old.ServiceID != check.ServiceID {
			if err := mayWriteCheck(g, st, node, old, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// MayOffer is nil when g may register s: write on its name, and for a proxy on the service that it stands for,
// since it is found as an instance of that.
func MayOffer(g *acl.Grant, s *catalog.Service) error {
	if err := g.Check(acl.Service, s.Name, acl.Write); err != nil {
		return err
	}
	if s.ProxyDestination != "" && s.ProxyDestination != s.Name {
		return g.Check(acl.Service, s.ProxyDestination, acl.Write)
	}
	return nil
}

// mayWriteService is MayOffer, and write on the service that is replaced.
func mayWriteService(g *acl.Grant, st *statestore.State, node string, s *catalog.Service) error {
	if err := MayOffer(g, s); err != nil {
		return err
	}
	if old := st.Service(node, s.ID); old != nil && old.Name != s.Name {
		return g.Check(acl.Service, old.Name, acl.Write)
	}
	return nil
}

// mayWriteCheck asks for write on what the check belongs to; coming is a service that is registered with it.
func mayWriteCheck(g *acl.Grant, st *statestore.State, node string, c *catalog.Check, coming *catalog.Service) error {
	switch {
	case c.ServiceID == "":
		return g.Check(acl.Node, node, acl.Write)
	case coming != nil && coming.ID == c.ServiceID:
		return g.Check(acl.Service, coming.Name, acl.Write)
	}
	if s := st.Service(node, c.ServiceID); s != nil {
		return g.Check(acl.Service, s.Name, acl.Write)
	}
	if c.ServiceName != "" {
		return g.Check(acl.Service, c.ServiceName, acl.Write)
	}
	return g.Check(acl.Node, node, acl.Write)
}

func changesNode(old *catalog.Node, c *catalog.Register) bool {
	n := &c.Node
	switch {
	case old == nil:
		return true
	case c.SkipNodeUpdate:
		return n.ID != "" && n.ID != old.ID
	}
	same := n.Name == old.Name && (n.ID == "" || n.ID == old.ID) && n.Address == old.Address &&
		maps.Equal(n.TaggedAddresses, old.TaggedAddresses) &&
		maps.Equal(n.Meta, old.Meta) && (n.Locality == nil) == (old.Locality == nil) && (n.Locality == nil ||
		*n.Locality == *old.Locality)
	return !same
}

// MayDeregister is nil when g may remove what c names: write on the service for an instance or its check, else on the
// node.
func MayDeregister(g *acl.Grant, st *statestore.State, c *catalog.Deregister) error {
	node := c.Node
	if n := st.Node(c.Node); n != nil {
		node = n.Name // as it is stored: names of nodes are found in any case
	}
	var service string
	switch {
	case c.ServiceID != "":
		if s := st.Service(node, c.ServiceID); s != nil {
			service = s.Name
		}
	case c.CheckID != "":
		if k := st.Check(node, c.CheckID); k != nil {
			service = k.ServiceName
		}
	}
	if service != "" && g.Allow(acl.Service, service, acl.Write) {
		return nil
	}
	return g.Check(acl.Node, node, acl.Write)
}

// MaySync is nil when g may do what an agent's anti-entropy asks for.
func MaySync(g *acl.Grant, st *statestore.State, c catalog.Command) error {
	switch c := c.(type) {
	case *catalog.Register:
		return MayRegister(g, st, c)
	case *catalog.RegisterBatch:
		for _, one := range c.Registrations {
			if err := MayRegister(g, st, one); err != nil {
				return err
			}
		}
		return nil
	case *catalog.Deregister:
		return MayDeregister(g, st, c)
	}
	return g.Check(acl.Operator, "", acl.Write)
}

// MayRun is nil when g may do one operation of a transaction. What a listing finds is left to the caller to
// filter; lister tells that listing needs a right of its own.
func MayRun(g *acl.Grant, st *statestore.State, op *catalog.TxnOp, lister bool) error {
	switch {
	case op.KV != nil:
		return mayRunKV(g, op.KV, lister)
	case op.Node != nil:
		level := levelOf(op)
		if old := nodeOf(st, op.Node); old != nil && old.Name != op.Node.Name {
			if err := g.Check(acl.Node, old.Name, level); err != nil || op.Node.Name == "" {
				return err
			}
		}
		return g.Check(acl.Node, op.Node.Name, level)
	case op.Service != nil:
		return mayRunService(g, st, op)
	}
	if op.Verb == catalog.TxnGet {
		return mayReadCheck(g, st, op.Check)
	}
	if old := st.Check(op.Check.Node, op.Check.ID); old != nil {
		if err := mayWriteCheck(g, st, old.Node, old, nil); err != nil {
			return err
		}
	}
	if op.Verb == catalog.TxnDelete || op.Verb == catalog.TxnDeleteCAS {
		return nil // what was there has been asked for; what is not there harms nobody
	}
	return mayWriteCheck(g, st, op.Check.Node, op.Check, nil)
}

func levelOf(op *catalog.TxnOp) acl.Level {
	if op.Verb == catalog.TxnGet {
		return acl.Read
	}
	return acl.Write
}

func nodeOf(st *statestore.State, n *catalog.Node) *catalog.Node {
	if n.ID != "" {
		return st.NodeByID(n.ID)
	}
	return st.Node(n.Name)
}

func mayRunKV(g *acl.Grant, c *catalog.KV, lister bool) error {
	key := c.Pair.Key
	switch c.Verb {
	case catalog.KVGetTree:
		if lister {
			return g.Check(acl.Key, key, acl.List)
		}
		return nil
	case catalog.KVGet, catalog.KVGetOrEmpty, catalog.KVCheckIndex, catalog.KVCheckSession, catalog.KVCheckNotExists:
		return g.Check(acl.Key, key, acl.Read)
	case catalog.KVDeleteTree:
		return g.CheckBelow(acl.Key, key, acl.Write)
	}
	return g.Check(acl.Key, key, acl.Write)
}

func mayRunService(g *acl.Grant, st *statestore.State, op *catalog.TxnOp) error {
	s := op.Service
	old := st.Service(s.Node, s.ID)
	switch op.Verb {
	case catalog.TxnGet:
		if old == nil {
			return g.Check(acl.Service, s.Name, acl.Read)
		}
		if err := g.Check(acl.Service, old.Name, acl.Read); err != nil {
			return err
		}
		return g.Check(acl.Node, old.Node, acl.Read)
	case catalog.TxnDelete, catalog.TxnDeleteCAS:
		if old == nil {
			return g.Check(acl.Service, s.Name, acl.Write)
		}
		return g.Check(acl.Service, old.Name, acl.Write)
	}
	return mayWriteService(g, st, s.Node, s)
}

func mayReadCheck(g *acl.Grant, st *statestore.State, c *catalog.Check) error {
	if old := st.Check(c.Node, c.ID); old != nil {
		c = old
	}
	if c.ServiceName != "" {
		if err := g.Check(acl.Service, c.ServiceName, acl.Read); err != nil {
			return err
		}
	}
	return g.Check(acl.Node, c.Node, acl.Read)
}
