package mesh

import (
	"encoding/json"
	"slices"
	"time"

	"corbel.dev/corbel/catalog/chain"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
)

// The bodies of the subjects' values. That of endpoints is the Body of its
// resource, which ReadResource reads; those of upstreams and roots are JSON; that of
// a service is its JSON and the bodies of its resources. Equal views give equal bytes.

// maxAuthorization bounds how many resources are read with a service.
const maxAuthorization = 64

// AppendService appends what ReadService reads.
func AppendService(b []byte, v *Service, authorization []*Resource) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, errkind.E(errkind.Internal, "encode service "+v.Name, err)
	}
	b = pack.Uint(pack.Bytes(b, text), uint64(len(authorization)))
	for _, r := range authorization {
		b = pack.Bytes(b, r.Body)
	}
	return b, nil
}

// ReadService reads the value of a service's subject. The resources keep body; changed is
// when the write that made it was applied.
func ReadService(body []byte, changed time.Time) (*ServiceValue, error) {
	return ReadServiceAfter(nil, body, changed)
}

// ReadServiceAfter is ReadService for a follower that holds the value before this one (nil: none): a change
// of intentions alters the rules of every service that it names, and nothing else of them.
func ReadServiceAfter(before *ServiceValue, body []byte, changed time.Time) (*ServiceValue, error) {
	r := pack.Read(body)
	text := r.Bytes()
	whole := r.More()
	n := r.Count()
	if !whole || r.Err() != nil || n > maxAuthorization {
		return nil, badValue("service", pack.ErrDamaged)
	}
	v := &ServiceValue{text: text}
	if v.SameSettings(before) {
		v.Service = before.Service
	} else if err := json.Unmarshal(text, &v.Service); err != nil {
		return nil, badValue("service", err)
	}
	for range n {
		one, err := ReadResource(r.Bytes(), changed)
		if err != nil {
			return nil, badValue("service", err)
		}
		v.Authorization = append(v.Authorization, one)
	}
	if r.Err() != nil || v.Name == "" {
		return nil, badValue("service", pack.ErrDamaged)
	}
	return v, nil
}

// Encode is what ReadUpstream reads.
func (u *Upstream) Encode() ([]byte, error) { return encodeValue("upstream", u) }

// ReadUpstream reads the value of an upstream's subject. Its chain holds together: each
// step leads to one that is there, and each resolver to a target that is there.
func ReadUpstream(body []byte) (*Upstream, error) {
	u := &Upstream{}
	if err := json.Unmarshal(body, u); err != nil {
		return nil, badValue("upstream", err)
	}
	if err := u.sound(); err != nil {
		return nil, badValue("upstream", err)
	}
	return u, nil
}

var errUnsound = errkind.New(errkind.Corrupt, "the chain is incomplete or goes in a circle")

// sound keeps those who walk the chain from finding nothing where something must be, and
// from walking in circles: routers lead to splitters and resolvers, splitters to resolvers.
func (u *Upstream) sound() error {
	if u.Name == "" || u.Chain == nil || u.Chain.Nodes[u.Chain.StartNode] == nil {
		return errUnsound
	}
	for id, n := range u.Chain.Nodes {
		if n == nil || n.ID() != id || !u.soundNode(n) {
			return errUnsound
		}
	}
	for id, t := range u.Chain.Targets {
		if t == nil || t.ID != id {
			return errUnsound
		}
	}
	return nil
}

func (u *Upstream) soundNode(n *chain.Node) bool {
	leads := func(id string, kinds ...string) bool {
		next := u.Chain.Nodes[id]
		return next != nil && slices.Contains(kinds, next.Type)
	}
	switch n.Type {
	case chain.KindRouter:
		return !slices.ContainsFunc(n.Routes, func(r *chain.Route) bool {
			return r == nil || r.Definition == nil || !leads(r.NextNode, chain.KindSplitter, chain.KindResolver)
		})
	case chain.KindSplitter:
		return !slices.ContainsFunc(n.Splits, func(s *chain.Split) bool {
			return s == nil || s.Definition == nil || !leads(s.NextNode, chain.KindResolver)
		})
	case chain.KindResolver:
		if n.Resolver == nil || u.Chain.Targets[n.Resolver.Target] == nil {
			return false
		}
		f := n.Resolver.Failover
		return f == nil || !slices.ContainsFunc(f.Targets, func(id string) bool { return u.Chain.Targets[id] == nil })
	}
	return false
}

// Encode is what ReadRoots reads.
func (v *Roots) Encode() ([]byte, error) { return encodeValue("roots", v) }

// ReadRoots reads the value of the subject of the roots.
func ReadRoots(body []byte) (*Roots, error) {
	v := &Roots{}
	if err := json.Unmarshal(body, v); err != nil {
		return nil, badValue("roots", err)
	}
	if v.TrustDomain == "" {
		return nil, badValue("roots", errkind.New(errkind.Corrupt, "the trust domain is missing"))
	}
	return v, nil
}

func encodeValue(kind string, v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, errkind.E(errkind.Internal, "encode "+kind, err)
	}
	return b, nil
}

func badValue(kind string, err error) error {
	return errkind.E(errkind.Corrupt, "read the value of a "+kind, err)
}
