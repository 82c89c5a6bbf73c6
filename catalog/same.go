package catalog

import (
	"bytes"
	"maps"
	"slices"
	"strings"
)

// Two registrations are the same when they differ in nothing that a reader sees
// but the indexes. An empty map or list equals a missing one.

func sameLocality(a, b *Locality) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

func sameNode(a, b *Node) bool {
	return a.ID == b.ID && a.Name == b.Name && a.Address == b.Address && a.Datacenter == b.Datacenter &&
		maps.Equal(a.TaggedAddresses, b.TaggedAddresses) && maps.Equal(a.Meta, b.Meta) &&
		sameLocality(a.Locality, b.Locality)
}

func sameService(a, b *Service) bool {
	return a.Node == b.Node && a.Kind == b.Kind && a.ID == b.ID && a.Name == b.Name && slices.Equal(a.Tags, b.Tags) &&
		a.Address == b.Address && maps.Equal(a.TaggedAddresses, b.TaggedAddresses) && maps.Equal(a.Meta, b.Meta) &&
		a.Port == b.Port && a.SocketPath == b.SocketPath && a.Weights == b.Weights &&
		a.EnableTagOverride == b.EnableTagOverride && a.Native == b.Native && bytes.Equal(a.Proxy, b.Proxy) &&
		a.ProxyDestination == b.ProxyDestination && sameLocality(a.Locality, b.Locality)
}

func sameCheck(a, b *Check) bool {
	return a.Node == b.Node && a.ID == b.ID && a.Name == b.Name && a.Status == b.Status && a.Notes == b.Notes &&
		a.Output == b.Output && a.ServiceID == b.ServiceID && a.ServiceName == b.ServiceName &&
		slices.Equal(a.ServiceTags, b.ServiceTags) && a.Type == b.Type && a.Interval == b.Interval &&
		a.Timeout == b.Timeout && a.ExposedPort == b.ExposedPort && bytes.Equal(a.Definition, b.Definition)
}

// The share functions replace parts of a new object by equal parts of one that
// is stored already, so that a fleet of like instances keeps one copy of each
// text, tag list and map. Nothing depends on it but memory.

func share(s *string, with string) {
	if *s == with {
		*s = with
	}
}

func shareMap(m *map[string]string, with map[string]string) {
	if len(*m) == 0 {
		*m = nil
	} else if maps.Equal(*m, with) {
		*m = with
	}
}

func shareBytes(b *[]byte, with []byte) {
	if len(*b) == 0 {
		*b = nil
	} else if bytes.Equal(*b, with) {
		*b = with
	}
}

func shareNodeStrings(n, with *Node) {
	share(&n.ID, with.ID)
	share(&n.Name, with.Name)
	share(&n.Address, with.Address)
	share(&n.Datacenter, with.Datacenter)
	shareMap(&n.TaggedAddresses, with.TaggedAddresses)
	shareMap(&n.Meta, with.Meta)
}

// shareNode shares with any neighbour: its datacenter and metadata are often the same.
func (d *draft) shareNode(key string, n *Node) {
	e, ok := d.t.nodes.FindNext(func(e *nodeEntry) int { return strings.Compare(key, e.key) })
	if !ok {
		e, ok = d.t.nodes.Max()
	}
	if ok {
		shareNodeStrings(n, e.node)
	}
}

func shareServiceStrings(s, with *Service) {
	share(&s.ID, with.ID)
	share(&s.Name, with.Name)
	share(&s.Kind, with.Kind)
	share(&s.Address, with.Address)
	share(&s.ProxyDestination, with.ProxyDestination)
	if len(s.Tags) == 0 {
		s.Tags = nil
	} else if slices.Equal(s.Tags, with.Tags) {
		s.Tags = with.Tags
	}
	if len(s.TaggedAddresses) == 0 {
		s.TaggedAddresses = nil
	} else if maps.Equal(s.TaggedAddresses, with.TaggedAddresses) {
		s.TaggedAddresses = with.TaggedAddresses
	}
	shareMap(&s.Meta, with.Meta)
	shareBytes(&s.Proxy, with.Proxy)
}

// shareService shares with an instance of the same service, and returns the stored string of the name's key.
func (d *draft) shareService(name string, s *Service) string {
	e := d.service(name)
	if e == nil {
		return name
	}
	if e.service != nil {
		shareServiceStrings(s, &e.service.Service)
	}
	return e.key
}

func shareCheckStrings(c, with *Check) {
	share(&c.ID, with.ID)
	share(&c.Name, with.Name)
	share(&c.Notes, with.Notes)
	share(&c.Output, with.Output)
	share(&c.Type, with.Type)
	share(&c.Interval, with.Interval)
	share(&c.Timeout, with.Timeout)
	shareBytes(&c.Definition, with.Definition)
}

var serfHealth = &Check{ID: SerfHealthID, Name: SerfHealthName, Output: SerfAliveOutput}

// shareCheck shares with a check of the same service on another node, or with the constants.
func (d *draft) shareCheck(c *checkEntry, owner *serviceEntry) {
	if owner == nil {
		shareCheckStrings(&c.Check, serfHealth)
		return
	}
	e := d.ownService(owner.nameKey)
	if e.check != nil {
		shareCheckStrings(&c.Check, &e.check.Check)
	}
	e.check = c
}
