package statestore

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"corbel.dev/corbel/catalog"
)

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

func shareNodeStrings(n, with *catalog.Node) {
	share(&n.ID, with.ID)
	share(&n.Name, with.Name)
	share(&n.Address, with.Address)
	share(&n.Datacenter, with.Datacenter)
	shareMap(&n.TaggedAddresses, with.TaggedAddresses)
	shareMap(&n.Meta, with.Meta)
}

// share shares with any neighbour: its datacenter and metadata are often the same.
func (t *nodeEdits) share(key string, n *catalog.Node) {
	e, ok := t.byName.FindNext(func(e *nodeEntry) int { return strings.Compare(key, e.key) })
	if !ok {
		e, ok = t.byName.Max()
	}
	if ok {
		shareNodeStrings(n, e.node)
	}
}

func shareServiceStrings(s, with *catalog.Service) {
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
	if len(s.Ports) == 0 {
		s.Ports = nil
	} else if slices.Equal(s.Ports, with.Ports) {
		s.Ports = with.Ports
	}
	shareMap(&s.Meta, with.Meta)
	shareBytes(&s.Proxy, with.Proxy)
}

// share shares with an instance of the same service, and returns the stored string of the name's key.
func (t *serviceEdits) share(name string, s *catalog.Service) string {
	e := t.get(name)
	if e == nil {
		return name
	}
	if e.service != nil {
		shareServiceStrings(s, &e.service.Service)
	}
	return e.key
}

func shareCheckStrings(c, with *catalog.Check) {
	share(&c.ID, with.ID)
	share(&c.Name, with.Name)
	share(&c.Notes, with.Notes)
	share(&c.Output, with.Output)
	share(&c.Type, with.Type)
	share(&c.Interval, with.Interval)
	share(&c.Timeout, with.Timeout)
	shareBytes(&c.Definition, with.Definition)
}

var serfHealth = &catalog.Check{ID: catalog.SerfHealthID, Name: catalog.SerfHealthName, Output: catalog.SerfAliveOutput}

// shareCheck shares with a check of the same service on another node, or with the constants.
func (t *serviceEdits) shareCheck(c *checkEntry, owner *serviceEntry) {
	if owner == nil {
		shareCheckStrings(&c.Check, serfHealth)
		return
	}
	e := t.ownName(owner.nameKey)
	if e.check != nil {
		shareCheckStrings(&c.Check, &e.check.Check)
	}
	e.check = c
}
