package consulapi

import (
	"corbel.dev/corbel/catalog"
)

// What the contract prints for a service without a Proxy or a Definition.
const (
	emptyProxy      = `{"Mode":"","MeshGateway":{},"Expose":{}}`
	emptyDefinition = `{}`
)

func appendKVPair(b []byte, p *catalog.KVPair) []byte {
	b = uintField(b, `{"LockIndex":`, p.LockIndex)
	b = strField(b, `,"Key":`, p.Key)
	b = uintField(b, `,"Flags":`, p.Flags)
	b = append(b, `,"Value":`...)
	b = appendBase64(b, p.Value)
	if p.Session != "" {
		b = strField(b, `,"Session":`, p.Session)
	}
	b = uintField(b, `,"CreateIndex":`, p.CreateIndex)
	b = uintField(b, `,"ModifyIndex":`, p.ModifyIndex)
	return append(b, '}')
}

func appendLocality(b []byte, key string, l *catalog.Locality) []byte {
	if l == nil {
		return b
	}
	b = append(b, key...)
	b = strField(b, `{"Region":`, l.Region)
	b = strField(b, `,"Zone":`, l.Zone)
	return append(b, '}')
}

func appendNode(b []byte, n *catalog.Node) []byte {
	b = strField(b, `{"ID":`, n.ID)
	b = strField(b, `,"Node":`, n.Name)
	b = strField(b, `,"Address":`, n.Address)
	b = strField(b, `,"Datacenter":`, n.Datacenter)
	b = append(b, `,"TaggedAddresses":`...)
	b = appendStringMap(b, n.TaggedAddresses)
	b = append(b, `,"Meta":`...)
	b = appendStringMap(b, n.Meta)
	b = appendLocality(b, `,"Locality":`, n.Locality)
	b = uintField(b, `,"CreateIndex":`, n.CreateIndex)
	b = uintField(b, `,"ModifyIndex":`, n.ModifyIndex)
	return append(b, '}')
}

func appendServiceAddress(b []byte, a catalog.ServiceAddress) []byte {
	b = strField(b, `{"Address":`, a.Address)
	b = intField(b, `,"Port":`, a.Port)
	return append(b, '}')
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

// appendService appends the catalog's view of an instance: Proxy and Connect are always there.
func appendService(b []byte, s *catalog.Service) []byte {
	b = append(b, '{')
	if s.Kind != "" {
		b = strField(b, `"Kind":`, s.Kind)
		b = append(b, ',')
	}
	b = strField(b, `"ID":`, s.ID)
	b = strField(b, `,"Service":`, s.Name)
	b = append(b, `,"Tags":`...)
	b = appendStrings(b, s.Tags)
	b = strField(b, `,"Address":`, s.Address)
	if len(s.TaggedAddresses) > 0 {
		b = append(b, `,"TaggedAddresses":`...)
		b = appendObject(b, s.TaggedAddresses, appendServiceAddress)
	}
	b = append(b, `,"Meta":`...)
	b = appendMeta(b, s.Meta)
	b = intField(b, `,"Port":`, s.Port)
	if s.SocketPath != "" {
		b = strField(b, `,"SocketPath":`, s.SocketPath)
	}
	b = appendWeights(b, `,"Weights":`, s.Weights)
	b = boolField(b, `,"EnableTagOverride":`, s.EnableTagOverride)
	b = rawField(b, `,"Proxy":`, s.Proxy, emptyProxy)
	b = appendConnect(b, `,"Connect":`, s.Native)
	b = appendLocality(b, `,"Locality":`, s.Locality)
	b = append(b, `,"PeerName":""`...)
	b = uintField(b, `,"CreateIndex":`, s.CreateIndex)
	b = uintField(b, `,"ModifyIndex":`, s.ModifyIndex)
	return append(b, '}')
}

// appendAgentService appends the agent's view of its own instance; hash is left out when empty.
func appendAgentService(b []byte, s *catalog.Service, datacenter, hash string) []byte {
	b = append(b, '{')
	if s.Kind != "" {
		b = strField(b, `"Kind":`, s.Kind)
		b = append(b, ',')
	}
	b = strField(b, `"ID":`, s.ID)
	b = strField(b, `,"Service":`, s.Name)
	b = append(b, `,"Tags":`...)
	b = appendStrings(b, s.Tags)
	b = append(b, `,"Meta":`...)
	b = appendMeta(b, s.Meta)
	b = intField(b, `,"Port":`, s.Port)
	b = strField(b, `,"Address":`, s.Address)
	if s.SocketPath != "" {
		b = strField(b, `,"SocketPath":`, s.SocketPath)
	}
	if len(s.TaggedAddresses) > 0 {
		b = append(b, `,"TaggedAddresses":`...)
		b = appendObject(b, s.TaggedAddresses, appendServiceAddress)
	}
	b = appendWeights(b, `,"Weights":`, s.Weights)
	b = boolField(b, `,"EnableTagOverride":`, s.EnableTagOverride)
	if hash != "" {
		b = strField(b, `,"ContentHash":`, hash)
	}
	if len(s.Proxy) > 0 {
		b = rawField(b, `,"Proxy":`, s.Proxy, emptyProxy)
	}
	if s.Native {
		b = appendConnect(b, `,"Connect":`, true)
	}
	if datacenter != "" {
		b = strField(b, `,"Datacenter":`, datacenter)
	}
	b = appendLocality(b, `,"Locality":`, s.Locality)
	return append(b, '}')
}

// appendServiceNode appends the flat view of catalog/service.
func appendServiceNode(b []byte, n *catalog.Node, s *catalog.Service) []byte {
	b = strField(b, `{"ID":`, n.ID)
	b = strField(b, `,"Node":`, n.Name)
	b = strField(b, `,"Address":`, n.Address)
	b = strField(b, `,"Datacenter":`, n.Datacenter)
	b = append(b, `,"TaggedAddresses":`...)
	b = appendStringMap(b, n.TaggedAddresses)
	b = append(b, `,"NodeMeta":`...)
	b = appendStringMap(b, n.Meta)
	b = strField(b, `,"ServiceKind":`, s.Kind)
	b = strField(b, `,"ServiceID":`, s.ID)
	b = strField(b, `,"ServiceName":`, s.Name)
	b = append(b, `,"ServiceTags":`...)
	b = appendStrings(b, s.Tags)
	b = strField(b, `,"ServiceAddress":`, s.Address)
	if len(s.TaggedAddresses) > 0 {
		b = append(b, `,"ServiceTaggedAddresses":`...)
		b = appendObject(b, s.TaggedAddresses, appendServiceAddress)
	}
	b = appendWeights(b, `,"ServiceWeights":`, s.Weights)
	b = append(b, `,"ServiceMeta":`...)
	b = appendMeta(b, s.Meta)
	b = intField(b, `,"ServicePort":`, s.Port)
	b = strField(b, `,"ServiceSocketPath":`, s.SocketPath)
	b = boolField(b, `,"ServiceEnableTagOverride":`, s.EnableTagOverride)
	b = rawField(b, `,"ServiceProxy":`, s.Proxy, emptyProxy)
	b = appendConnect(b, `,"ServiceConnect":`, s.Native)
	b = appendLocality(b, `,"ServiceLocality":`, s.Locality)
	b = uintField(b, `,"CreateIndex":`, s.CreateIndex)
	b = uintField(b, `,"ModifyIndex":`, s.ModifyIndex)
	return append(b, '}')
}

func appendCheck(b []byte, c *catalog.Check) []byte {
	b = strField(b, `{"Node":`, c.Node)
	b = strField(b, `,"CheckID":`, c.ID)
	b = strField(b, `,"Name":`, c.Name)
	b = strField(b, `,"Status":`, c.Status.String())
	b = strField(b, `,"Notes":`, c.Notes)
	b = strField(b, `,"Output":`, c.Output)
	b = strField(b, `,"ServiceID":`, c.ServiceID)
	b = strField(b, `,"ServiceName":`, c.ServiceName)
	b = append(b, `,"ServiceTags":`...)
	b = appendStrings(b, c.ServiceTags)
	b = strField(b, `,"Type":`, c.Type)
	b = strField(b, `,"Interval":`, c.Interval)
	b = strField(b, `,"Timeout":`, c.Timeout)
	b = intField(b, `,"ExposedPort":`, c.ExposedPort)
	b = rawField(b, `,"Definition":`, c.Definition, emptyDefinition)
	b = uintField(b, `,"CreateIndex":`, c.CreateIndex)
	b = uintField(b, `,"ModifyIndex":`, c.ModifyIndex)
	return append(b, '}')
}

func appendSession(b []byte, s *catalog.Session) []byte {
	b = strField(b, `{"ID":`, s.ID)
	b = strField(b, `,"Name":`, s.Name)
	b = strField(b, `,"Node":`, s.Node)
	b = intField(b, `,"LockDelay":`, int(s.LockDelay))
	b = strField(b, `,"Behavior":`, s.Behavior)
	b = strField(b, `,"TTL":`, s.TTL)
	b = append(b, `,"NodeChecks":`...)
	b = appendStrings(b, s.NodeChecks)
	b = append(b, `,"ServiceChecks":`...)
	b = appendServiceCheckRefs(b, s.ServiceChecks)
	b = uintField(b, `,"CreateIndex":`, s.CreateIndex)
	b = uintField(b, `,"ModifyIndex":`, s.ModifyIndex)
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
		b = strField(b, `{"ID":`, r.ID)
		b = strField(b, `,"Namespace":`, r.Namespace)
		b = append(b, '}')
	}
	return append(b, ']')
}
