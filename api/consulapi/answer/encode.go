package answer

import (
	"corbel.dev/corbel/catalog"
)

// What the contract prints for a service without a Proxy or a Definition.
const (
	emptyProxy      = `{"Mode":"","MeshGateway":{},"Expose":{}}`
	emptyDefinition = `{}`
)

// AppendKVPair appends a pair, its value in base64.
func AppendKVPair(b []byte, p *catalog.KVPair) []byte {
	b = UintField(b, `{"LockIndex":`, p.LockIndex)
	b = StringField(b, `,"Key":`, p.Key)
	b = UintField(b, `,"Flags":`, p.Flags)
	b = append(b, `,"Value":`...)
	b = appendBase64(b, p.Value)
	if p.Session != "" {
		b = StringField(b, `,"Session":`, p.Session)
	}
	b = UintField(b, `,"CreateIndex":`, p.CreateIndex)
	b = UintField(b, `,"ModifyIndex":`, p.ModifyIndex)
	return append(b, '}')
}

func appendLocality(b []byte, key string, l *catalog.Locality) []byte {
	if l == nil {
		return b
	}
	b = append(b, key...)
	b = StringField(b, `{"Region":`, l.Region)
	b = StringField(b, `,"Zone":`, l.Zone)
	return append(b, '}')
}

// AppendNode appends a node.
func AppendNode(b []byte, n *catalog.Node) []byte {
	b = StringField(b, `{"ID":`, n.ID)
	b = StringField(b, `,"Node":`, n.Name)
	b = StringField(b, `,"Address":`, n.Address)
	b = StringField(b, `,"Datacenter":`, n.Datacenter)
	b = append(b, `,"TaggedAddresses":`...)
	b = appendStringMap(b, n.TaggedAddresses)
	b = append(b, `,"Meta":`...)
	b = appendStringMap(b, n.Meta)
	b = appendLocality(b, `,"Locality":`, n.Locality)
	b = appendPeer(b, n.Peer)
	b = UintField(b, `,"CreateIndex":`, n.CreateIndex)
	b = UintField(b, `,"ModifyIndex":`, n.ModifyIndex)
	return append(b, '}')
}

// appendPeer appends the peer that an object was imported from; nothing for one of this cluster's.
func appendPeer(b []byte, peer string) []byte {
	if peer == "" {
		return b
	}
	return StringField(b, `,"PeerName":`, peer)
}

func appendServiceAddress(b []byte, a catalog.ServiceAddress) []byte {
	b = StringField(b, `{"Address":`, a.Address)
	b = intField(b, `,"Port":`, a.Port)
	return append(b, '}')
}

// appendPorts appends the named ports, nothing when there are none.
func appendPorts(b []byte, key string, ports []catalog.NamedPort) []byte {
	if len(ports) == 0 {
		return b
	}
	b = append(b, key...)
	for i, p := range ports {
		if i > 0 {
			b = append(b, ',')
		}
		b = StringField(b, `{"Name":`, p.Name)
		b = intField(b, `,"Port":`, p.Port)
		b = BoolField(b, `,"Default":`, p.Default)
		b = append(b, '}')
	}
	return append(b, ']')
}

func appendWeights(b []byte, key string, w catalog.Weights) []byte {
	b = append(b, key...)
	b = intField(b, `{"Passing":`, w.Passing)
	b = intField(b, `,"Warning":`, w.Warning)
	return append(b, '}')
}

func appendConnect(b []byte, key string, native bool) []byte {
	b = append(b, key...)
	if native {
		return append(b, `{"Native":true}`...)
	}
	return append(b, '{', '}')
}

// AppendService appends the catalog's view of an instance: Proxy and Connect are always there.
func AppendService(b []byte, s *catalog.Service) []byte { return appendServiceOf(b, s, "") }

// appendServiceOf is AppendService for an instance that was imported from a peer, or from none.
func appendServiceOf(b []byte, s *catalog.Service, peer string) []byte {
	b = append(b, '{')
	if s.Kind != "" {
		b = StringField(b, `"Kind":`, s.Kind)
		b = append(b, ',')
	}
	b = StringField(b, `"ID":`, s.ID)
	b = StringField(b, `,"Service":`, s.Name)
	b = append(b, `,"Tags":`...)
	b = AppendStrings(b, s.Tags)
	b = StringField(b, `,"Address":`, s.Address)
	if len(s.TaggedAddresses) > 0 {
		b = append(b, `,"TaggedAddresses":`...)
		b = appendObject(b, s.TaggedAddresses, appendServiceAddress)
	}
	b = append(b, `,"Meta":`...)
	b = appendStringMap(b, s.Meta)
	b = intField(b, `,"Port":`, s.Port)
	b = appendPorts(b, `,"Ports":[`, s.Ports)
	if s.SocketPath != "" {
		b = StringField(b, `,"SocketPath":`, s.SocketPath)
	}
	b = appendWeights(b, `,"Weights":`, s.Weights)
	b = BoolField(b, `,"EnableTagOverride":`, s.EnableTagOverride)
	b = rawField(b, `,"Proxy":`, s.Proxy, emptyProxy)
	b = appendConnect(b, `,"Connect":`, s.Native)
	b = appendLocality(b, `,"Locality":`, s.Locality)
	b = StringField(b, `,"PeerName":`, peer)
	b = UintField(b, `,"CreateIndex":`, s.CreateIndex)
	b = UintField(b, `,"ModifyIndex":`, s.ModifyIndex)
	return append(b, '}')
}

// AppendAgentService appends the agent's view of its own instance; hash is left out when empty.
func AppendAgentService(b []byte, s *catalog.Service, datacenter, hash string) []byte {
	b = append(b, '{')
	if s.Kind != "" {
		b = StringField(b, `"Kind":`, s.Kind)
		b = append(b, ',')
	}
	b = StringField(b, `"ID":`, s.ID)
	b = StringField(b, `,"Service":`, s.Name)
	b = append(b, `,"Tags":`...)
	b = AppendStrings(b, s.Tags)
	b = append(b, `,"Meta":`...)
	b = appendMeta(b, s.Meta)
	b = intField(b, `,"Port":`, s.Port)
	b = appendPorts(b, `,"Ports":[`, s.Ports)
	b = StringField(b, `,"Address":`, s.Address)
	if s.SocketPath != "" {
		b = StringField(b, `,"SocketPath":`, s.SocketPath)
	}
	if len(s.TaggedAddresses) > 0 {
		b = append(b, `,"TaggedAddresses":`...)
		b = appendObject(b, s.TaggedAddresses, appendServiceAddress)
	}
	b = appendWeights(b, `,"Weights":`, s.Weights)
	b = BoolField(b, `,"EnableTagOverride":`, s.EnableTagOverride)
	if hash != "" {
		b = StringField(b, `,"ContentHash":`, hash)
	}
	if len(s.Proxy) > 0 {
		b = rawField(b, `,"Proxy":`, s.Proxy, emptyProxy)
	}
	if s.Native {
		b = appendConnect(b, `,"Connect":`, true)
	}
	if datacenter != "" {
		b = StringField(b, `,"Datacenter":`, datacenter)
	}
	b = appendLocality(b, `,"Locality":`, s.Locality)
	return append(b, '}')
}

// AppendServiceNode appends the flat view of catalog/service.
func AppendServiceNode(b []byte, n *catalog.Node, s *catalog.Service) []byte {
	b = StringField(b, `{"ID":`, n.ID)
	b = StringField(b, `,"Node":`, n.Name)
	b = StringField(b, `,"Address":`, n.Address)
	b = StringField(b, `,"Datacenter":`, n.Datacenter)
	b = append(b, `,"TaggedAddresses":`...)
	b = appendStringMap(b, n.TaggedAddresses)
	b = append(b, `,"NodeMeta":`...)
	b = appendStringMap(b, n.Meta)
	b = StringField(b, `,"ServiceKind":`, s.Kind)
	b = StringField(b, `,"ServiceID":`, s.ID)
	b = StringField(b, `,"ServiceName":`, s.Name)
	b = append(b, `,"ServiceTags":`...)
	b = AppendStrings(b, s.Tags)
	b = StringField(b, `,"ServiceAddress":`, s.Address)
	if len(s.TaggedAddresses) > 0 {
		b = append(b, `,"ServiceTaggedAddresses":`...)
		b = appendObject(b, s.TaggedAddresses, appendServiceAddress)
	}
	b = appendWeights(b, `,"ServiceWeights":`, s.Weights)
	b = append(b, `,"ServiceMeta":`...)
	b = appendMeta(b, s.Meta)
	b = intField(b, `,"ServicePort":`, s.Port)
	b = appendPorts(b, `,"ServicePorts":[`, s.Ports)
	b = StringField(b, `,"ServiceSocketPath":`, s.SocketPath)
	b = BoolField(b, `,"ServiceEnableTagOverride":`, s.EnableTagOverride)
	b = rawField(b, `,"ServiceProxy":`, s.Proxy, emptyProxy)
	b = appendConnect(b, `,"ServiceConnect":`, s.Native)
	b = appendLocality(b, `,"ServiceLocality":`, s.Locality)
	b = appendPeer(b, n.Peer)
	b = UintField(b, `,"CreateIndex":`, s.CreateIndex)
	b = UintField(b, `,"ModifyIndex":`, s.ModifyIndex)
	return append(b, '}')
}

// AppendCheck appends a check.
func AppendCheck(b []byte, c *catalog.Check) []byte { return appendCheckOf(b, c, "") }

// appendCheckOf is AppendCheck for a check that was imported from a peer, or from none.
func appendCheckOf(b []byte, c *catalog.Check, peer string) []byte {
	b = StringField(b, `{"Node":`, c.Node)
	b = StringField(b, `,"CheckID":`, c.ID)
	b = StringField(b, `,"Name":`, c.Name)
	b = StringField(b, `,"Status":`, c.Status.String())
	b = StringField(b, `,"Notes":`, c.Notes)
	b = StringField(b, `,"Output":`, c.Output)
	b = StringField(b, `,"ServiceID":`, c.ServiceID)
	b = StringField(b, `,"ServiceName":`, c.ServiceName)
	b = append(b, `,"ServiceTags":`...)
	b = AppendStrings(b, c.ServiceTags)
	b = StringField(b, `,"Type":`, c.Type)
	b = StringField(b, `,"Interval":`, c.Interval)
	b = StringField(b, `,"Timeout":`, c.Timeout)
	b = intField(b, `,"ExposedPort":`, c.ExposedPort)
	b = rawField(b, `,"Definition":`, c.Definition, emptyDefinition)
	b = appendPeer(b, peer)
	b = UintField(b, `,"CreateIndex":`, c.CreateIndex)
	b = UintField(b, `,"ModifyIndex":`, c.ModifyIndex)
	return append(b, '}')
}

// AppendSession appends a session.
func AppendSession(b []byte, s *catalog.Session) []byte {
	b = StringField(b, `{"ID":`, s.ID)
	b = StringField(b, `,"Name":`, s.Name)
	b = StringField(b, `,"Node":`, s.Node)
	b = intField(b, `,"LockDelay":`, int(s.LockDelay))
	b = StringField(b, `,"Behavior":`, s.Behavior)
	b = StringField(b, `,"TTL":`, s.TTL)
	b = append(b, `,"NodeChecks":`...)
	b = AppendStrings(b, s.NodeChecks)
	b = append(b, `,"ServiceChecks":`...)
	b = appendServiceCheckRefs(b, s.ServiceChecks)
	b = UintField(b, `,"CreateIndex":`, s.CreateIndex)
	b = UintField(b, `,"ModifyIndex":`, s.ModifyIndex)
	return append(b, '}')
}

func appendServiceCheckRefs(b []byte, refs []catalog.ServiceCheckRef) []byte {
	if len(refs) == 0 {
		return append(b, "null"...)
	}
	b = append(b, '[')
	for i, r := range refs {
		if i > 0 {
			b = append(b, ',')
		}
		b = StringField(b, `{"ID":`, r.ID)
		b = StringField(b, `,"Namespace":`, r.Namespace)
		b = append(b, '}')
	}
	return append(b, ']')
}

// AppendEntry appends an instance with its node and its checks, as health/service has it.
func AppendEntry(b []byte, n *catalog.Node, s *catalog.Service, checks []*catalog.Check) []byte {
	b = append(b, `{"Node":`...)
	b = AppendNode(b, n)
	b = append(b, `,"Service":`...)
	b = appendServiceOf(b, s, n.Peer)
	list := List{Bytes: append(b, `,"Checks":`...)}
	for _, c := range checks {
		list.Bytes = appendCheckOf(list.Next(), c, n.Peer)
	}
	return append(list.End(), '}')
}
