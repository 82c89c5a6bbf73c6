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
// resource, which ReadResource reads; that of rules is the bodies of its two, and behind them, as a tail, whom they are
// not for; the others are JSON. Equal views give equal bytes.

// Encode is what ReadService reads.
func (v *Service) Encode() ([]byte, error) { return encodeValue("service", v) }

// ReadService reads the value of a service's subject.
func ReadService(body []byte) (*Service, error) {
	v := &Service{}
	if err := json.Unmarshal(body, v); err != nil {
		return nil, badValue("service", err)
	}
	if v.Name == "" {
		return nil, badValue("service", errkind.New(errkind.Corrupt, "the name is missing"))
	}
	return v, nil
}

// Encode is what ReadRules reads. Agents that know of no owners read it without the tail, the last bytes.
func (v *RulesValue) Encode() (body []byte, tail int) {
	body = pack.Bytes(pack.Bytes(nil, v.Network.Body), v.HTTP.Body)
	plain := len(body)
	body = v.Owners.append(body)
	return body, len(body) - plain
}

// ReadRules reads the value of a subject of rules. The resources keep body; changed is
// when the write that made it was applied.
func ReadRules(body []byte, changed time.Time) (*RulesValue, error) {
	r := pack.Read(body)
	network, err := ReadResource(r.Bytes(), changed)
	if err != nil {
		return nil, badValue("rules", err)
	}
	http, err := ReadResource(r.Bytes(), changed)
	if err != nil {
		return nil, badValue("rules", err)
	}
	v := &RulesValue{Network: network, HTTP: http}
	sound := true
	if r.More() {
		v.Owners, sound = readOwners(r)
	}
	for _, name := range []string{NetworkRules, HTTPRules} {
		if one := v.Get(name); one.Name != name || one.Type != TypeExtension || !sound || r.Err() != nil {
			return nil, badValue("rules", pack.ErrDamaged)
		}
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
