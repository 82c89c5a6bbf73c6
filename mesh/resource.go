package mesh

import (
	"slices"
	"strings"
	"time"
)

// Type is a kind of Envoy resource. The order of the constants is the order in
// which a proxy must learn new resources (what is referred to comes before
// what refers to it); removals go the other way (contract 30.3).
type Type uint8

// The types.
const (
	TypeSecret Type = iota
	TypeCluster
	TypeEndpoints
	TypeExtension
	TypeListener
	TypeRoute
	typeCount
)

var typeURLs = [typeCount]string{
	TypeSecret:    "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
	TypeCluster:   "type.googleapis.com/envoy.config.cluster.v3.Cluster",
	TypeEndpoints: "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
	TypeExtension: "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
	TypeListener:  "type.googleapis.com/envoy.config.listener.v3.Listener",
	TypeRoute:     "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
}

var typeNames = [typeCount]string{"secrets", "clusters", "endpoints", "extensions", "listeners", "routes"}

// Every lists all types in the order in which they are added.
var Every = []Type{TypeSecret, TypeCluster, TypeEndpoints, TypeExtension, TypeListener, TypeRoute}

// URL returns the type's URL in the discovery protocol.
func (t Type) URL() string { return typeURLs[t] }

// String returns the plural noun that operators see.
func (t Type) String() string { return typeNames[t] }

// TypeOf returns the type with the URL.
func TypeOf(url string) (Type, bool) {
	at := slices.Index(typeURLs[:], url)
	return Type(max(at, 0)), at >= 0
}

// Types is a set of types.
type Types uint8

// AllTypes holds every type.
const AllTypes Types = 1<<typeCount - 1

// Has reports whether t is in the set.
func (s Types) Has(t Type) bool { return s&(1<<t) != 0 }

// With returns the set and t.
func (s Types) With(t Type) Types { return s | 1<<t }

// Resource is one Envoy resource, built and encoded once for all who want it.
// It is shared by reference and never changed.
type Resource struct {
	Type    Type
	Name    string
	Version string    // hash of the content: equal content, equal version
	Body    []byte    // an encoded envoy.service.discovery.v3.Resource: name, version and Any
	Any     []byte    // the encoded google.protobuf.Any inside Body, a part of the same array
	Changed time.Time // when the write that made it was applied on the server; zero if unknown
}

// Set is an immutable set of resources of one type, in the order of their
// names. The zero value is empty. It is one pointer, so that the sets of all types of a proxy, of which a
// process may have 100,000, share a cache line.
type Set struct{ s *setList }

// setList holds the list; that of a single resource, which most are, in the same object.
type setList struct {
	list []*Resource
	only [1]*Resource
}

// Sets is a set of each type. One that is shared is not changed any more.
type Sets [typeCount]Set

func newSet(list []*Resource) Set {
	switch len(list) {
	case 0:
		return Set{}
	case 1:
		return setOf(list[0])
	}
	return Set{&setList{list: list}}
}

func setOf(r *Resource) Set {
	s := &setList{only: [1]*Resource{r}}
	s.list = s.only[:]
	return Set{s}
}

// NewSet makes a set. Of two resources with one name the later wins.
func NewSet(list ...*Resource) Set { return Set{}.With(list...) }

// Len returns how many resources the set holds.
func (s Set) Len() int { return len(s.All()) }

// All returns the resources in the order of their names. The caller must not change the slice.
func (s Set) All() []*Resource {
	if s.s == nil {
		return nil
	}
	return s.s.list
}

// Get returns the resource with the name, or nil.
func (s Set) Get(name string) *Resource {
	if at, ok := s.find(name); ok {
		return s.s.list[at]
	}
	return nil
}

func (s Set) find(name string) (int, bool) {
	return slices.BinarySearchFunc(s.All(), name, func(r *Resource, name string) int {
		return strings.Compare(r.Name, name)
	})
}

// With returns the set with the resources added or replaced.
func (s Set) With(list ...*Resource) Set {
	if len(list) == 1 {
		if at, ok := s.find(list[0].Name); ok {
			if s.Len() == 1 {
				return setOf(list[0])
			}
			next := slices.Clone(s.s.list)
			next[at] = list[0]
			return newSet(next)
		}
	}
	next := append(slices.Clone(s.All()), list...)
	slices.SortStableFunc(next, func(a, b *Resource) int { return strings.Compare(a.Name, b.Name) })
	out := next[:0]
	for i, r := range next {
		if i+1 == len(next) || next[i+1].Name != r.Name {
			out = append(out, r)
		}
	}
	return newSet(out)
}

// Without returns the set without the resources of the names.
func (s Set) Without(names ...string) Set {
	return newSet(slices.DeleteFunc(slices.Clone(s.All()),
		func(r *Resource) bool { return slices.Contains(names, r.Name) }))
}

// Waker is told that the sets of types are others. Wake never blocks.
type Waker interface{ Wake(changed Types) }
