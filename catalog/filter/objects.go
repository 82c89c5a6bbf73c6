package filter

import "corbel.dev/corbel/catalog"

// ServiceNode is the flat view of an instance with its node.
type ServiceNode struct {
	Node    *catalog.Node
	Service *catalog.Service
}

// Entry is an instance with its node and the checks of both.
type Entry struct {
	Node    *catalog.Node
	Service *catalog.Service
	Checks  []*catalog.Check
}

// The schemas. Match takes a pointer to the type named.
var (
	Nodes        = &Schema{nodeFields}        // *catalog.Node
	Services     = &Schema{serviceFields}     // *catalog.Service
	Checks       = &Schema{checkFields}       // *catalog.Check
	ServiceNodes = &Schema{serviceNodeFields} // *ServiceNode
	Entries      = &Schema{entryFields}       // *Entry
)

var (
	localityFields = map[string]*field{
		"Region": str(func(l *catalog.Locality) string { return l.Region }),
		"Zone":   str(func(l *catalog.Locality) string { return l.Zone }),
	}
	addressFields = map[string]*field{
		"Address": str(func(a *catalog.ServiceAddress) string { return a.Address }),
		"Port":    num(func(a *catalog.ServiceAddress) int { return a.Port }),
	}
	weightFields = map[string]*field{
		"Passing": num(func(w *catalog.Weights) int { return w.Passing }),
		"Warning": num(func(w *catalog.Weights) int { return w.Warning }),
	}
	connectFields = map[string]*field{
		"Native": flag(func(s *catalog.Service) bool { return s.Native }),
	}
)

var nodeFields = map[string]*field{
	"ID":              str(func(n *catalog.Node) string { return n.ID }),
	"Node":            str(func(n *catalog.Node) string { return n.Name }),
	"Address":         str(func(n *catalog.Node) string { return n.Address }),
	"Datacenter":      str(func(n *catalog.Node) string { return n.Datacenter }),
	"TaggedAddresses": strMap(func(n *catalog.Node) map[string]string { return n.TaggedAddresses }),
	"Meta":            strMap(func(n *catalog.Node) map[string]string { return n.Meta }),
	"Partition":       str(func(*catalog.Node) string { return "" }),
	"PeerName":        str(func(n *catalog.Node) string { return n.Peer }),
	"Locality":        sub(&Schema{localityFields}, func(n *catalog.Node) *catalog.Locality { return n.Locality }),
	"CreateIndex":     num(func(n *catalog.Node) uint64 { return n.CreateIndex }),
	"ModifyIndex":     num(func(n *catalog.Node) uint64 { return n.ModifyIndex }),
}

var serviceFields = map[string]*field{
	"Kind":       str(func(s *catalog.Service) string { return s.Kind }),
	"ID":         str(func(s *catalog.Service) string { return s.ID }),
	"Service":    str(func(s *catalog.Service) string { return s.Name }),
	"Tags":       strs(func(s *catalog.Service) []string { return s.Tags }),
	"Address":    str(func(s *catalog.Service) string { return s.Address }),
	"Meta":       strMap(func(s *catalog.Service) map[string]string { return s.Meta }),
	"Port":       num(func(s *catalog.Service) int { return s.Port }),
	"SocketPath": str(func(s *catalog.Service) string { return s.SocketPath }),
	"TaggedAddresses": mapOf(&Schema{addressFields},
		func(s *catalog.Service) map[string]catalog.ServiceAddress { return s.TaggedAddresses }),
	"Weights":           sub(&Schema{weightFields}, func(s *catalog.Service) *catalog.Weights { return &s.Weights }),
	"EnableTagOverride": flag(func(s *catalog.Service) bool { return s.EnableTagOverride }),
	"Connect":           sub(&Schema{connectFields}, func(s *catalog.Service) *catalog.Service { return s }),
	"Proxy":             free(func(s *catalog.Service) []byte { return s.Proxy }),
	"Locality":          sub(&Schema{localityFields}, func(s *catalog.Service) *catalog.Locality { return s.Locality }),
	"PeerName":          str(func(*catalog.Service) string { return "" }),
	"CreateIndex":       num(func(s *catalog.Service) uint64 { return s.CreateIndex }),
	"ModifyIndex":       num(func(s *catalog.Service) uint64 { return s.ModifyIndex }),
}

var checkFields = map[string]*field{
	"Node":        str(func(c *catalog.Check) string { return c.Node }),
	"CheckID":     str(func(c *catalog.Check) string { return c.ID }),
	"Name":        str(func(c *catalog.Check) string { return c.Name }),
	"Status":      str(func(c *catalog.Check) string { return c.Status.String() }),
	"Notes":       str(func(c *catalog.Check) string { return c.Notes }),
	"Output":      str(func(c *catalog.Check) string { return c.Output }),
	"ServiceID":   str(func(c *catalog.Check) string { return c.ServiceID }),
	"ServiceName": str(func(c *catalog.Check) string { return c.ServiceName }),
	"ServiceTags": strs(func(c *catalog.Check) []string { return c.ServiceTags }),
	"Type":        str(func(c *catalog.Check) string { return c.Type }),
	"Interval":    str(func(c *catalog.Check) string { return c.Interval }),
	"Timeout":     str(func(c *catalog.Check) string { return c.Timeout }),
	"ExposedPort": num(func(c *catalog.Check) int { return c.ExposedPort }),
	"Definition":  free(func(c *catalog.Check) []byte { return c.Definition }),
	"PeerName":    str(func(*catalog.Check) string { return "" }),
	"CreateIndex": num(func(c *catalog.Check) uint64 { return c.CreateIndex }),
	"ModifyIndex": num(func(c *catalog.Check) uint64 { return c.ModifyIndex }),
}

var serviceNodeFields = map[string]*field{
	"ID":              str(func(e *ServiceNode) string { return e.Node.ID }),
	"Node":            str(func(e *ServiceNode) string { return e.Node.Name }),
	"Address":         str(func(e *ServiceNode) string { return e.Node.Address }),
	"Datacenter":      str(func(e *ServiceNode) string { return e.Node.Datacenter }),
	"TaggedAddresses": strMap(func(e *ServiceNode) map[string]string { return e.Node.TaggedAddresses }),
	"NodeMeta":        strMap(func(e *ServiceNode) map[string]string { return e.Node.Meta }),
	"ServiceKind":     str(func(e *ServiceNode) string { return e.Service.Kind }),
	"ServiceID":       str(func(e *ServiceNode) string { return e.Service.ID }),
	"ServiceName":     str(func(e *ServiceNode) string { return e.Service.Name }),
	"ServiceTags":     strs(func(e *ServiceNode) []string { return e.Service.Tags }),
	"ServiceAddress":  str(func(e *ServiceNode) string { return e.Service.Address }),
	"ServiceTaggedAddresses": mapOf(&Schema{addressFields},
		func(e *ServiceNode) map[string]catalog.ServiceAddress { return e.Service.TaggedAddresses }),
	"ServiceWeights": sub(&Schema{weightFields},
		func(e *ServiceNode) *catalog.Weights { return &e.Service.Weights }),
	"ServiceMeta":              strMap(func(e *ServiceNode) map[string]string { return e.Service.Meta }),
	"ServicePort":              num(func(e *ServiceNode) int { return e.Service.Port }),
	"ServiceSocketPath":        str(func(e *ServiceNode) string { return e.Service.SocketPath }),
	"ServiceEnableTagOverride": flag(func(e *ServiceNode) bool { return e.Service.EnableTagOverride }),
	"ServiceProxy":             free(func(e *ServiceNode) []byte { return e.Service.Proxy }),
	"ServiceConnect":           sub(&Schema{connectFields}, func(e *ServiceNode) *catalog.Service { return e.Service }),
	"ServiceLocality": sub(&Schema{localityFields},
		func(e *ServiceNode) *catalog.Locality { return e.Service.Locality }),
	"CreateIndex": num(func(e *ServiceNode) uint64 { return e.Service.CreateIndex }),
	"ModifyIndex": num(func(e *ServiceNode) uint64 { return e.Service.ModifyIndex }),
}

var entryFields = map[string]*field{
	"Node":    sub(Nodes, func(e *Entry) *catalog.Node { return e.Node }),
	"Service": sub(Services, func(e *Entry) *catalog.Service { return e.Service }),
	"Checks":  list(Checks, func(e *Entry) []*catalog.Check { return e.Checks }),
}
