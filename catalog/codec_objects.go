package catalog

import "corbel.dev/corbel/kit/pack"

// The objects' encodings, shared by commands, snapshots and events. Each is one
// pack record, so that fields can be added at its end. Maps are written in key
// order: equal objects have equal bytes.

func passMap(c *pack.Coder, m *map[string]string) {
	pack.Map(c, m, maxCommandItems, func(text *string) { c.String(text) })
}

func passLocality(c *pack.Coder, l **Locality) {
	pack.Optional(c, l, func(l *Locality) { c.String(&l.Region, &l.Zone) })
}

func (i *Indexes) pass(c *pack.Coder) { pack.Unsigned(c, &i.CreateIndex, &i.ModifyIndex) }

// AppendNode appends n's record.
func AppendNode(b []byte, n *Node) []byte { return pack.AppendRecord(b, n.pass) }

// ReadNode reads what AppendNode wrote; damage shows in r.Err.
func ReadNode(r *pack.Reader) *Node {
	n := &Node{}
	pack.ReadRecord(r, n.pass)
	return n
}

func (n *Node) pass(c *pack.Coder) {
	c.String(&n.ID, &n.Name, &n.Address, &n.Datacenter)
	passMap(c, &n.TaggedAddresses)
	passMap(c, &n.Meta)
	passLocality(c, &n.Locality)
	pack.Unsigned(c, &n.CreateIndex, &n.ModifyIndex)
}

// AppendService appends s's record.
func AppendService(b []byte, s *Service) []byte { return pack.AppendRecord(b, s.pass) }

// ReadService reads what AppendService wrote; damage shows in r.Err.
func ReadService(r *pack.Reader) *Service {
	s := &Service{}
	pack.ReadRecord(r, s.pass)
	return s
}

func (s *Service) pass(c *pack.Coder) {
	c.String(&s.Node)
	passKind(c, &s.Kind)
	c.String(&s.ID, &s.Name)
	c.Strings(&s.Tags)
	c.String(&s.Address)
	pack.Map(c, &s.TaggedAddresses, maxCommandItems, func(a *ServiceAddress) {
		c.String(&a.Address)
		pack.Signed(c, &a.Port)
	})
	passMap(c, &s.Meta)
	pack.Signed(c, &s.Port)
	c.String(&s.SocketPath)
	pack.Signed(c, &s.Weights.Passing, &s.Weights.Warning)
	c.Bool(&s.EnableTagOverride, &s.Native)
	c.Copy(&s.Proxy)
	c.String(&s.ProxyDestination)
	passLocality(c, &s.Locality)
	s.Indexes.pass(c)
	pack.List(c, &s.Ports, maxCommandItems, func(p *NamedPort) {
		c.String(&p.Name)
		pack.Signed(c, &p.Port)
		c.Bool(&p.Default)
	})
}

// passKind reads the constants' own strings, so that 60,000 services share them.
func passKind(c *pack.Coder, kind *string) {
	if !c.Reads() {
		c.String(kind)
		return
	}
	var b []byte
	c.Bytes(&b)
	switch string(b) {
	case KindTypical:
		*kind = KindTypical
	case KindConnectProxy:
		*kind = KindConnectProxy
	case KindMeshGateway:
		*kind = KindMeshGateway
	default:
		*kind = string(b)
	}
}

// AppendCheck appends c's record.
func AppendCheck(b []byte, c *Check) []byte { return pack.AppendRecord(b, c.pass) }

// ReadCheck reads what AppendCheck wrote; damage shows in r.Err.
func ReadCheck(r *pack.Reader) *Check {
	c := &Check{}
	pack.ReadRecord(r, c.pass)
	return c
}

func (x *Check) pass(c *pack.Coder) {
	c.String(&x.Node, &x.ID, &x.Name)
	passHealth(c, &x.Status)
	c.String(&x.Notes, &x.Output, &x.ServiceID, &x.ServiceName)
	c.Strings(&x.ServiceTags)
	c.String(&x.Type, &x.Interval, &x.Timeout)
	pack.Signed(c, &x.ExposedPort)
	c.Copy(&x.Definition)
	x.Indexes.pass(c)
}

// passHealth reads what a later version may have added as critical.
func passHealth(c *pack.Coder, h *Health) {
	n := uint64(*h)
	pack.Unsigned(c, &n)
	if c.Reads() {
		*h = Health(min(n, uint64(Critical)))
	}
}

// AppendKVPair appends p's record.
func AppendKVPair(b []byte, p *KVPair) []byte { return pack.AppendRecord(b, p.pass) }

// ReadKVPair reads what AppendKVPair wrote; damage shows in r.Err.
func ReadKVPair(r *pack.Reader) *KVPair {
	p := &KVPair{}
	pack.ReadRecord(r, p.pass)
	return p
}

func (p *KVPair) pass(c *pack.Coder) {
	c.String(&p.Key)
	c.Copy(&p.Value)
	pack.Unsigned(c, &p.Flags)
	c.String(&p.Session)
	pack.Unsigned(c, &p.LockIndex, &p.CreateIndex, &p.ModifyIndex)
	p.By.pass(c)
}

func (a *Author) pass(c *pack.Coder) {
	var id []byte
	if a.Accessor != [16]byte{} {
		id = a.Accessor[:]
	}
	c.Bytes(&id)
	if c.Reads() {
		copy(a.Accessor[:], id)
	}
	pack.Signed(c, &a.At)
}

// AppendSession appends s's record.
func AppendSession(b []byte, s *Session) []byte { return pack.AppendRecord(b, s.pass) }

// ReadSession reads what AppendSession wrote; damage shows in r.Err.
func ReadSession(r *pack.Reader) *Session {
	s := &Session{}
	pack.ReadRecord(r, s.pass)
	return s
}

func (s *Session) pass(c *pack.Coder) {
	c.String(&s.ID, &s.Name, &s.Node)
	pack.Signed(c, &s.LockDelay)
	c.String(&s.Behavior, &s.TTL)
	c.Strings(&s.NodeChecks)
	pack.List(c, &s.ServiceChecks, maxCommandItems, func(check *ServiceCheckRef) { c.String(&check.ID, &check.Namespace) })
	pack.Unsigned(c, &s.CreateIndex, &s.ModifyIndex)
}
