package catalog

import (
	"bytes"
	"maps"
	"slices"
)

// Two registrations are the same when they differ in nothing that a reader sees
// but the indexes. An empty map or list equals a missing one.

func sameLocality(a, b *Locality) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// Same tells whether the two differ in nothing that a reader sees but the indexes.
func (a *Node) Same(b *Node) bool {
	return a.ID == b.ID && a.Name == b.Name && a.Address == b.Address && a.Datacenter == b.Datacenter &&
		maps.Equal(a.TaggedAddresses, b.TaggedAddresses) && maps.Equal(a.Meta, b.Meta) &&
		sameLocality(a.Locality, b.Locality)
}

// Same tells whether the two differ in nothing that a reader sees but the indexes.
func (a *Service) Same(b *Service) bool {
	return a.Node == b.Node && a.Kind == b.Kind && a.ID == b.ID && a.Name == b.Name && slices.Equal(a.Tags, b.Tags) &&
		a.Address == b.Address && maps.Equal(a.TaggedAddresses, b.TaggedAddresses) && maps.Equal(a.Meta, b.Meta) &&
		a.Port == b.Port && a.SocketPath == b.SocketPath && slices.Equal(a.Ports, b.Ports) &&
		a.Weights == b.Weights &&
		a.EnableTagOverride == b.EnableTagOverride && a.Native == b.Native && bytes.Equal(a.Proxy, b.Proxy) &&
		a.ProxyDestination == b.ProxyDestination && sameLocality(a.Locality, b.Locality)
}

// Same tells whether the two differ in nothing that a reader sees but the indexes.
func (a *Check) Same(b *Check) bool {
	return a.Node == b.Node && a.ID == b.ID && a.Name == b.Name && a.Status == b.Status && a.Notes == b.Notes &&
		a.Output == b.Output && a.ServiceID == b.ServiceID && a.ServiceName == b.ServiceName &&
		slices.Equal(a.ServiceTags, b.ServiceTags) && a.Type == b.Type && a.Interval == b.Interval &&
		a.Timeout == b.Timeout && a.ExposedPort == b.ExposedPort && bytes.Equal(a.Definition, b.Definition)
}
