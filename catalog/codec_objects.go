package catalog

import (
	"maps"
	"slices"
	"time"

	"corbel.dev/corbel/kit/pack"
)

// The objects' encodings, shared by commands, snapshots and events. Each is one
// pack record, so that fields can be added at its end. Maps are written in key
// order: equal objects have equal bytes.

func packStringMap(b []byte, m map[string]string) []byte {
	b = pack.Uint(b, uint64(len(m)))
	if len(m) == 0 {
		return b
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		b = pack.String(pack.String(b, k), m[k])
	}
	return b
}

func readStringMap(r *pack.Reader) map[string]string {
	n := r.Count()
	if n == 0 {
		return nil
	}
	m := make(map[string]string, min(n, 64))
	for range n {
		if r.Err() != nil {
			return nil
		}
		k := r.String()
		m[k] = r.String()
	}
	return m
}

func packLocality(b []byte, l *Locality) []byte {
	b = pack.Bool(b, l != nil)
	if l != nil {
		b = pack.String(pack.String(b, l.Region), l.Zone)
	}
	return b
}

func readLocality(r *pack.Reader) *Locality {
	if !r.Bool() {
		return nil
	}
	return &Locality{Region: r.String(), Zone: r.String()}
}

// AppendNode appends n's record.
func AppendNode(b []byte, n *Node) []byte {
	b, mark := pack.Begin(b)
	b = pack.String(b, n.ID)
	b = pack.String(b, n.Name)
	b = pack.String(b, n.Address)
	b = pack.String(b, n.Datacenter)
	b = packStringMap(b, n.TaggedAddresses)
	b = packStringMap(b, n.Meta)
	b = packLocality(b, n.Locality)
	b = pack.Uint(b, n.CreateIndex)
	b = pack.Uint(b, n.ModifyIndex)
	return pack.End(b, mark)
}

// ReadNode reads what AppendNode wrote; damage shows in r.Err.
func ReadNode(r *pack.Reader) *Node {
	in := r.Record()
	n := &Node{
		ID: in.String(), Name: in.String(), Address: in.String(), Datacenter: in.String(),
		TaggedAddresses: readStringMap(in), Meta: readStringMap(in), Locality: readLocality(in),
		CreateIndex: in.Uint(), ModifyIndex: in.Uint(),
	}
	r.Merge(in)
	return n
}

func packAddresses(b []byte, m map[string]ServiceAddress) []byte {
	b = pack.Uint(b, uint64(len(m)))
	if len(m) == 0 {
		return b
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		b = pack.String(pack.String(b, k), m[k].Address)
		b = pack.Int(b, int64(m[k].Port))
	}
	return b
}

func readAddresses(r *pack.Reader) map[string]ServiceAddress {
	n := r.Count()
	if n == 0 {
		return nil
	}
	m := make(map[string]ServiceAddress, min(n, 64))
	for range n {
		if r.Err() != nil {
			return nil
		}
		k := r.String()
		m[k] = ServiceAddress{Address: r.String(), Port: int(r.Int())}
	}
	return m
}

// AppendService appends s's record.
func AppendService(b []byte, s *Service) []byte {
	b, mark := pack.Begin(b)
	b = pack.String(b, s.Node)
	b = pack.String(b, s.Kind)
	b = pack.String(b, s.ID)
	b = pack.String(b, s.Name)
	b = pack.Strings(b, s.Tags)
	b = pack.String(b, s.Address)
	b = packAddresses(b, s.TaggedAddresses)
	b = packStringMap(b, s.Meta)
	b = pack.Int(b, int64(s.Port))
	b = pack.String(b, s.SocketPath)
	b = pack.Int(b, int64(s.Weights.Passing))
	b = pack.Int(b, int64(s.Weights.Warning))
	b = pack.Bool(b, s.EnableTagOverride)
	b = pack.Bool(b, s.Native)
	b = pack.Bytes(b, s.Proxy)
	b = pack.String(b, s.ProxyDestination)
	b = packLocality(b, s.Locality)
	b = pack.Uint(b, s.CreateIndex)
	b = pack.Uint(b, s.ModifyIndex)
	return pack.End(b, mark)
}

// ReadService reads what AppendService wrote; damage shows in r.Err.
func ReadService(r *pack.Reader) *Service {
	in := r.Record()
	s := &Service{
		Node: in.String(), Kind: readKind(in), ID: in.String(), Name: in.String(), Tags: in.Strings(),
		Address: in.String(), TaggedAddresses: readAddresses(in), Meta: readStringMap(in),
		Port: int(in.Int()), SocketPath: in.String(),
		Weights:           Weights{Passing: int(in.Int()), Warning: int(in.Int())},
		EnableTagOverride: in.Bool(), Connect: Connect{Native: in.Bool(),
			Proxy: readBytes(in), ProxyDestination: in.String()}, Locality: readLocality(in),
		Indexes: Indexes{CreateIndex: in.Uint(), ModifyIndex: in.Uint()},
	}
	r.Merge(in)
	return s
}

// readKind gives the constants' own strings, so that 60,000 services share them.
func readKind(r *pack.Reader) string {
	switch b := r.Bytes(); string(b) {
	case KindTypical:
		return KindTypical
	case KindConnectProxy:
		return KindConnectProxy
	case KindMeshGateway:
		return KindMeshGateway
	default:
		return string(b)
	}
}

// readBytes reads a byte field into memory of its own; nil when empty.
func readBytes(r *pack.Reader) []byte {
	if b := r.Bytes(); len(b) > 0 {
		return append(make([]byte, 0, len(b)), b...)
	}
	return nil
}

// AppendCheck appends c's record.
func AppendCheck(b []byte, c *Check) []byte {
	b, mark := pack.Begin(b)
	b = pack.String(b, c.Node)
	b = pack.String(b, c.ID)
	b = pack.String(b, c.Name)
	b = pack.Uint(b, uint64(c.Status))
	b = pack.String(b, c.Notes)
	b = pack.String(b, c.Output)
	b = pack.String(b, c.ServiceID)
	b = pack.String(b, c.ServiceName)
	b = pack.Strings(b, c.ServiceTags)
	b = pack.String(b, c.Type)
	b = pack.String(b, c.Interval)
	b = pack.String(b, c.Timeout)
	b = pack.Int(b, int64(c.ExposedPort))
	b = pack.Bytes(b, c.Definition)
	b = pack.Uint(b, c.CreateIndex)
	b = pack.Uint(b, c.ModifyIndex)
	return pack.End(b, mark)
}

// ReadCheck reads what AppendCheck wrote; damage shows in r.Err.
func ReadCheck(r *pack.Reader) *Check {
	in := r.Record()
	c := &Check{
		Node: in.String(), ID: in.String(), Name: in.String(), Status: Health(min(in.Uint(), uint64(Critical))),
		Notes: in.String(), Output: in.String(), ServiceID: in.String(), ServiceName: in.String(),
		ServiceTags: in.Strings(), Type: in.String(), Interval: in.String(), Timeout: in.String(),
		ExposedPort: int(in.Int()), Definition: readBytes(in),
		Indexes: Indexes{CreateIndex: in.Uint(), ModifyIndex: in.Uint()},
	}
	r.Merge(in)
	return c
}

// AppendKVPair appends p's record.
func AppendKVPair(b []byte, p *KVPair) []byte {
	b, mark := pack.Begin(b)
	b = pack.String(b, p.Key)
	b = pack.Bytes(b, p.Value)
	b = pack.Uint(b, p.Flags)
	b = pack.String(b, p.Session)
	b = pack.Uint(b, p.LockIndex)
	b = pack.Uint(b, p.CreateIndex)
	b = pack.Uint(b, p.ModifyIndex)
	return pack.End(b, mark)
}

// ReadKVPair reads what AppendKVPair wrote; damage shows in r.Err.
func ReadKVPair(r *pack.Reader) *KVPair {
	p := &KVPair{}
	readKVPair(r, p)
	return p
}

func readKVPair(r *pack.Reader, p *KVPair) {
	in := r.Record()
	*p = KVPair{
		Key: in.String(), Value: readBytes(in), Flags: in.Uint(), Session: in.String(),
		LockIndex: in.Uint(), CreateIndex: in.Uint(), ModifyIndex: in.Uint(),
	}
	r.Merge(in)
}

// AppendSession appends s's record.
func AppendSession(b []byte, s *Session) []byte {
	b, mark := pack.Begin(b)
	b = pack.String(b, s.ID)
	b = pack.String(b, s.Name)
	b = pack.String(b, s.Node)
	b = pack.Int(b, int64(s.LockDelay))
	b = pack.String(b, s.Behavior)
	b = pack.String(b, s.TTL)
	b = pack.Strings(b, s.NodeChecks)
	b = pack.Uint(b, uint64(len(s.ServiceChecks)))
	for _, c := range s.ServiceChecks {
		b = pack.String(pack.String(b, c.ID), c.Namespace)
	}
	b = pack.Uint(b, s.CreateIndex)
	b = pack.Uint(b, s.ModifyIndex)
	return pack.End(b, mark)
}

// ReadSession reads what AppendSession wrote; damage shows in r.Err.
func ReadSession(r *pack.Reader) *Session {
	in := r.Record()
	s := &Session{
		ID: in.String(), Name: in.String(), Node: in.String(), LockDelay: time.Duration(in.Int()),
		Behavior: in.String(), TTL: in.String(), NodeChecks: in.Strings(),
	}
	for range in.Count() {
		if in.Err() != nil {
			break
		}
		s.ServiceChecks = append(s.ServiceChecks, ServiceCheckRef{ID: in.String(), Namespace: in.String()})
	}
	s.CreateIndex, s.ModifyIndex = in.Uint(), in.Uint()
	r.Merge(in)
	return s
}
