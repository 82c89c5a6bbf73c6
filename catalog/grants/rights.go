package grants

import (
	"maps"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
)

// MayRegister is nil when g may do the registration: write on the node where the node or a check of its own
// changes, and write on each service whose instance or check changes, also on one whose instance is replaced.
func MayRegister(g *acl.Grant, st *catalog.State, c *catalog.Register) error {
	node := c.Node.Name
	if changesNode(st.Node(node), c) {
		if err := g.Check(acl.Node, node, acl.Write); err != nil {
			return err
		}
	}
	if c.Service != nil {
		if err := g.Check(acl.Service, c.Service.Name, acl.Write); err != nil {
			return err
		}
		if old := st.Service(node, c.Service.ID); old != nil && old.Name != c.Service.Name {
			if err := g.Check(acl.Service, old.Name, acl.Write); err != nil {
				return err
			}
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

// mayWriteCheck asks for write on what the check belongs to; coming is a service that is registered with it.
func mayWriteCheck(g *acl.Grant, st *catalog.State, node string, c *catalog.Check, coming *catalog.Service) error {
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
	same := n.Name == old.Name && (n.ID == "" || n.ID == old.ID) && n.Address == old.Address && maps.Equal(n.TaggedAddresses, old.TaggedAddresses) &&
		maps.Equal(n.Meta, old.Meta) && (n.Locality == nil) == (old.Locality == nil) && (n.Locality == nil || *n.Locality == *old.Locality)
	return !same
}

// MayDeregister is nil when g may remove what c names: write on the service for an instance or its check, else on the node.
func MayDeregister(g *acl.Grant, st *catalog.State, c *catalog.Deregister) error {
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
