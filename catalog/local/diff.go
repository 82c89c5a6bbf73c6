package local

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"corbel.dev/corbel/catalog"
)

// Own is what the agent holds, as the catalog should.
type Own struct {
	Node     *catalog.Node
	Services map[string]*catalog.Service
	Checks   map[string]*catalog.Check
	// HeldBack names the checks whose output is to be told later: it is not compared.
	HeldBack map[string]bool
}

// Stored is what the catalog holds for the node. Node is nil when it has none.
type Stored struct {
	Node     *catalog.Node
	Services []*catalog.Service
	Checks   []*catalog.Check
}

// Plan makes Stored equal to Own: what to register, what to remove, which tags
// to take over. Ids are sorted.
type Plan struct {
	Node           bool
	Services       []string
	Checks         []string
	RemoveServices []string
	RemoveChecks   []string // without those that go with their service
	Tags           map[string][]string
	ServicesInSync []string
	ChecksInSync   []string
}

// Diff compares. It is pure, and leaves alone what others own: the gossip check,
// what the monitor plane found, and the servers' own service.
func Diff(own Own, stored Stored) Plan {
	var p Plan
	p.Node = stored.Node == nil || !sameNode(own.Node, stored.Node)
	removed := map[string]bool{}
	services := make(map[string]*catalog.Service, len(stored.Services))
	for _, s := range stored.Services {
		services[s.ID] = s
		if own.Services[s.ID] == nil && s.ID != catalog.ServerServiceID {
			p.RemoveServices = append(p.RemoveServices, s.ID)
			removed[s.ID] = true
		}
	}
	for _, id := range sorted(own.Services) {
		s, there := own.Services[id], services[id]
		if there != nil && s.EnableTagOverride && !slices.Equal(s.Tags, there.Tags) {
			if p.Tags == nil {
				p.Tags = map[string][]string{}
			}
			p.Tags[id] = there.Tags
		}
		if there == nil || !sameService(s, there) {
			p.Services = append(p.Services, id)
		} else {
			p.ServicesInSync = append(p.ServicesInSync, id)
		}
	}
	checks := make(map[string]*catalog.Check, len(stored.Checks))
	for _, c := range stored.Checks {
		checks[c.ID] = c
		if own.Checks[c.ID] == nil && c.ID != catalog.SerfHealthID && !strings.HasPrefix(c.ID, catalog.MonitorPrefix) &&
			!removed[c.ServiceID] &&
			c.ServiceID != catalog.ServerServiceID {
			p.RemoveChecks = append(p.RemoveChecks, c.ID)
		}
	}
	for _, id := range sorted(own.Checks) {
		if there := checks[id]; there == nil || removed[there.ServiceID] ||
			!sameCheck(own.Checks[id], there, own.HeldBack[id]) {
			p.Checks = append(p.Checks, id)
		} else {
			p.ChecksInSync = append(p.ChecksInSync, id)
		}
	}
	slices.Sort(p.RemoveServices)
	slices.Sort(p.RemoveChecks)
	return p
}

// sameNode ignores tagged addresses and meta that are empty on either side in a different way.
func sameNode(a, b *catalog.Node) bool {
	return a.ID == b.ID && a.Address == b.Address && maps.Equal(a.TaggedAddresses, b.TaggedAddresses) &&
		maps.Equal(a.Meta, b.Meta) && sameLocality(a.Locality, b.Locality)
}

func sameLocality(a, b *catalog.Locality) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// sameService ignores the tags when the catalog's tags win.
func sameService(own, there *catalog.Service) bool {
	return own.Kind == there.Kind && own.Name == there.Name && own.Address == there.Address &&
		(own.EnableTagOverride || slices.Equal(own.Tags, there.Tags)) &&
		maps.Equal(own.TaggedAddresses, there.TaggedAddresses) && maps.Equal(own.Meta, there.Meta) &&
		own.Port == there.Port && own.SocketPath == there.SocketPath &&
		slices.Equal(own.Ports, there.Ports) && own.Weights == there.Weights &&
		own.EnableTagOverride == there.EnableTagOverride && own.Native == there.Native &&
		bytes.Equal(own.Proxy, there.Proxy) && sameLocality(own.Locality, there.Locality)
}

// sameCheck ignores ServiceTags: the catalog derives them from the service.
func sameCheck(own, there *catalog.Check, heldBack bool) bool {
	return own.Name == there.Name && own.Status == there.Status && own.Notes == there.Notes &&
		(heldBack || own.Output == there.Output) && own.ServiceID == there.ServiceID &&
		own.ServiceName == there.ServiceName && own.Type == there.Type && own.Interval == there.Interval &&
		own.Timeout == there.Timeout && own.ExposedPort == there.ExposedPort && bytes.Equal(own.Definition, there.Definition)
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
