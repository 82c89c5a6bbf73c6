package peering

import (
	"fmt"
	"slices"
	"strings"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/pack"
)

// What one peer may send, whatever it says.
const (
	MaxServices      = 10_000
	MaxServiceBytes  = 1 << 20  // one service, as it travels and as it is stored
	MaxImportedBytes = 64 << 20 // all services of a peer
	MaxBatchBytes    = 1 << 20  // beside the one service that passes it
	maxInstances     = 10_000
	maxServiceName   = 255
	maxFieldBytes    = 8 << 10
)

// Service is a service as it goes from one cluster to another: its instances and what connects to them, with their
// nodes, each with the worst of the checks that count for it. Outputs of checks and indexes stay at home.
type Service struct {
	Name      string
	Instances []Instance
	Protocol  string // that proxies speak; "" from a release that does not tell: tcp
}

// Instance is one of them.
type Instance struct {
	Node    *catalog.Node
	Service *catalog.Service
	Status  catalog.Health
}

func (s *Service) pass(c *pack.Coder) {
	c.String(&s.Name)
	pack.List(c, &s.Instances, maxInstances, func(i *Instance) { c.Record(i.pass) })
	c.String(&s.Protocol)
}

func (i *Instance) pass(c *pack.Coder) {
	var node, service []byte
	status := uint64(i.Status)
	if !c.Reads() {
		node, service = catalog.AppendNode(nil, i.Node), catalog.AppendService(nil, i.Service)
	}
	c.Bytes(&node, &service)
	pack.Unsigned(c, &status)
	if !c.Reads() {
		return
	}
	n, s := pack.Read(node), pack.Read(service)
	i.Node, i.Service = catalog.ReadNode(n), catalog.ReadService(s)
	i.Status = catalog.Health(min(status, uint64(catalog.Critical)))
	if err := n.Err(); err != nil {
		c.Fail(err)
	}
	if err := s.Err(); err != nil {
		c.Fail(err)
	}
}

// Encode appends nothing to nothing: equal services have equal bytes.
func (s *Service) Encode() []byte { return pack.AppendRecord(nil, s.pass) }

// ReadService reads what Encode wrote, and refuses what no cluster has: it may come from anybody.
func ReadService(b []byte) (*Service, error) {
	if len(b) > MaxServiceBytes {
		return nil, errkind.Errorf(errkind.TooLarge, "a service of %d bytes: at most %d are taken", len(b), MaxServiceBytes)
	}
	s := &Service{}
	r := pack.Read(b)
	pack.ReadRecord(r, s.pass)
	if err := r.Err(); err != nil {
		return nil, errkind.E(errkind.Invalid, "read a service of a peer", err)
	}
	if err := s.check(); err != nil {
		return nil, errkind.E(errkind.Invalid, "read a service of a peer", err)
	}
	return s, nil
}

func (s *Service) check() error {
	if s.Name == "" || len(s.Name) > maxServiceName {
		return fmt.Errorf("the name %q has not 1 to %d bytes", clip(s.Name), maxServiceName)
	}
	if len(s.Protocol) > MaxNameBytes {
		return fmt.Errorf("%s: a protocol of more than %d bytes", clip(s.Name), MaxNameBytes)
	}
	for i := range s.Instances {
		in := &s.Instances[i]
		switch {
		case in.Node.Name == "" || len(in.Node.Name) > maxServiceName || len(in.Node.ID) > MaxNameBytes:
			return fmt.Errorf("%s: a node without a name, or with one of more than %d bytes", clip(s.Name), maxServiceName)
		case !strings.EqualFold(in.Service.Name, s.Name) && in.Service.ConnectsTo() != strings.ToLower(s.Name):
			return fmt.Errorf("%s: an instance of another service (%q)", clip(s.Name), clip(in.Service.Name))
		case in.Service.ID == "" || len(in.Service.ID) > maxServiceName || len(in.Service.Name) > maxServiceName:
			return fmt.Errorf("%s: an instance without an ID, or with one of more than %d bytes", clip(s.Name),
				maxServiceName)
		case len(in.Service.Address) > maxFieldBytes || len(in.Node.Address) > maxFieldBytes:
			return fmt.Errorf("%s: an address of more than %d bytes", clip(s.Name), maxFieldBytes)
		case in.Service.Port < 0 || in.Service.Port > 65535:
			return fmt.Errorf("%s: the port %d", clip(s.Name), in.Service.Port)
		}
	}
	return nil
}

// ServiceOf gathers a service of a State for a peer; nil when it has no instance.
func ServiceOf(st *statestore.State, name string) *Service {
	out := &Service{Name: name}
	add := func(s *catalog.Service) {
		n := st.Node(s.Node)
		if n == nil || len(out.Instances) == maxInstances {
			return
		}
		node, service := *n, *s
		node.CreateIndex, node.ModifyIndex, service.Indexes = 0, 0, catalog.Indexes{}
		in := Instance{Node: &node, Service: &service}
		for c := range st.NodeChecks(s.Node) {
			in.Status = max(in.Status, c.Status)
		}
		for c := range st.InstanceChecks(s.Node, s.ID) {
			in.Status = max(in.Status, c.Status)
		}
		out.Instances = append(out.Instances, in)
	}
	for s := range st.Instances(name) {
		out.Name = s.Name
		add(s)
	}
	for s := range st.ConnectInstances(name) {
		if !strings.EqualFold(s.Name, name) { // else it was one of the instances
			add(s)
		}
	}
	if len(out.Instances) == 0 {
		return nil
	}
	out.Protocol = entry.Protocol(func(kind, name string) entry.Entry { return entry.Stored(st, kind, name) }, out.Name)
	return out
}

// overall is the one check of an imported instance: what its peer makes of all that count.
func (i *Instance) overall() *catalog.Check {
	return &catalog.Check{Node: i.Node.Name, ID: i.Service.ID + ":overall-check", Name: "overall-check",
		Status: i.Status, ServiceID: i.Service.ID, ServiceName: i.Service.Name, ServiceTags: i.Service.Tags}
}

// registrations are the service as commands for an empty catalog.
func (s *Service) registrations(peer string) []*catalog.Register {
	list := make([]*catalog.Register, 0, len(s.Instances))
	for i := range s.Instances {
		in := &s.Instances[i]
		node := *in.Node
		node.Peer = peer
		in.Service.Node = node.Name
		list = append(list, &catalog.Register{Node: node, Service: in.Service, Checks: []*catalog.Check{in.overall()}})
	}
	return list
}

// sorted keeps a list of names in order and free of repetition.
func sorted(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}
