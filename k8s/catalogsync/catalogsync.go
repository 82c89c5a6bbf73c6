// Package catalogsync decides what the catalog and a Kubernetes cluster have to be told of each other.
//
// Both directions are pure: Desired reads the cluster's services and their EndpointSlices into instances, Plan compares
// these with what the catalog has and returns transactions; Mirrors does the same for services of the catalog that the
// cluster is to resolve. The same input gives the same output, in the same order.
//
// What always holds of Plan's transactions, carried out in order and stopped at the first that fails:
//   - an instance is deleted only after all that are wanted were written, so a service with instances on both sides of
//     a change, or under a new name, is never without one;
//   - a transaction has at most MaxOps operations;
//   - nothing is touched that this sync did not write: another node, or an instance without its mark;
//   - carried out, they lead to a state for which Plan returns nothing.
//
// Endpoints come from EndpointSlices alone. A node port leads to nodes that run an endpoint, a load balancer to its
// own addresses; whether they are ready is said by the slices too.
package catalogsync

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"corbel.dev/corbel/k8s"
)

// The marks of what comes from a cluster: as consul-k8s has them.
const (
	SourceKey   = "external-source"
	Source      = "kubernetes"
	namespaceOf = "external-k8s-ns"
	refKind     = "external-k8s-ref-kind"
	refName     = "external-k8s-ref-name"
	nodeOf      = "external-k8s-node-name"
	zoneOf      = "topology-zone"
)

// What NodePorts may say.
const (
	ExternalOnly  = "ExternalOnly"
	InternalOnly  = "InternalOnly"
	ExternalFirst = "ExternalFirst"
)

// Options are how a cluster is read. The zero value syncs no service that does not ask for it.
type Options struct {
	Node       string // of the catalog, to which all instances belong
	Tag        string // of each instance; what has it is not brought back to the cluster
	Prefix     string // before names in the catalog
	Suffix     bool   // "-" and the namespace after names
	Default    bool   // sync services without the annotation service-sync
	ClusterIPs bool   // sync services of type ClusterIP
	NodePorts  string // which address of a node; "" is ExternalOnly
	Allow      []string
	Deny       []string // namespaces; wins over Allow, in which "*" is all
}

// Cluster is what is known of a cluster. Each list is complete.
type Cluster struct {
	Services []k8s.Service
	Slices   []k8s.EndpointSlice
	Nodes    []k8s.Node
}

// Instance is one instance of a service, as the catalog is to have it.
type Instance struct {
	ID, Name, Address string
	Port              int
	Tags              []string
	Meta              map[string]string
	Weight            int
	CheckID           string
	Ready             bool
}

// Equal compares all that the catalog keeps.
func (i *Instance) Equal(o *Instance) bool {
	return i.ID == o.ID && i.Name == o.Name && i.Address == o.Address && i.Port == o.Port && i.Weight == o.Weight &&
		i.CheckID == o.CheckID && i.Ready == o.Ready && slices.Equal(i.Tags, o.Tags) && maps.Equal(i.Meta, o.Meta)
}

// Problem says why a service of the cluster is not as its owner may think.
type Problem struct{ Service, Why string }

// Desired are the instances that the catalog is to have, in the order of their IDs.
func Desired(c *Cluster, o *Options) (list []Instance, problems []Problem) {
	bySvc := map[string][]*k8s.EndpointSlice{}
	for i := range c.Slices {
		s := &c.Slices[i]
		key := s.Metadata.Namespace + "/" + s.Metadata.Labels[k8s.ServiceOfSlice]
		bySvc[key] = append(bySvc[key], s)
	}
	nodes := map[string]*k8s.Node{}
	for i := range c.Nodes {
		nodes[c.Nodes[i].Metadata.Name] = &c.Nodes[i]
	}
	found := map[string]Instance{}
	for i := range c.Services {
		r := reading{svc: &c.Services[i], slices: bySvc[c.Services[i].Metadata.Key()], nodes: nodes, o: o, found: found}
		if err := r.read(); err != nil {
			problems = append(problems, Problem{r.svc.Metadata.Key(), err.Error()})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(found)) {
		list = append(list, found[id])
	}
	slices.SortFunc(problems, func(a, b Problem) int { return strings.Compare(a.Service+a.Why, b.Service+b.Why) })
	return list, problems
}

// reading is how one service is read.
type reading struct {
	svc    *k8s.Service
	slices []*k8s.EndpointSlice
	nodes  map[string]*k8s.Node
	o      *Options
	found  map[string]Instance
	base   Instance
}

// wanted says whether the service is for the catalog.
func (r *reading) wanted() (bool, error) {
	m := &r.svc.Metadata
	if slices.Contains(r.o.Deny, m.Namespace) ||
		!slices.Contains(r.o.Allow, "*") && !slices.Contains(r.o.Allow, m.Namespace) {
		return false, nil
	}
	if r.svc.Spec.Type == k8s.ExternalName || m.DeletionTimestamp != "" || m.Labels[MirrorLabel] == "true" {
		return false, nil
	}
	if kind := r.svc.Spec.Type; (kind == k8s.ClusterIP || kind == "") && !r.o.ClusterIPs {
		return false, nil
	}
	return k8s.Bool(m.Annotations, k8s.ServiceSync, r.o.Default)
}

func (r *reading) read() error {
	if yes, err := r.wanted(); !yes {
		return err
	}
	if err := r.describe(); err != nil {
		return err
	}
	port, err := r.port()
	if err != nil {
		return err
	}
	switch r.svc.Spec.Type {
	case k8s.LoadBalancer:
		return r.balancer(port)
	case k8s.NodePort:
		return r.onNodes(port)
	}
	return r.endpoints(port)
}

// describe fills base with what all instances share.
func (r *reading) describe() error {
	m := &r.svc.Metadata
	r.base = Instance{Name: m.Annotations[k8s.ServiceName], Weight: 1}
	if r.base.Name == "" {
		r.base.Name = r.o.Prefix + m.Name
		if r.o.Suffix {
			r.base.Name += "-" + m.Namespace
		}
	}
	if r.o.Tag != "" {
		r.base.Tags = append(r.base.Tags, r.o.Tag)
	}
	r.base.Tags = append(r.base.Tags, k8s.List(m.Annotations[k8s.ServiceTags])...)
	r.base.Meta = map[string]string{}
	for _, p := range r.svc.Spec.Ports {
		if p.Name != "" {
			r.base.Meta["port-"+p.Name] = strconv.Itoa(p.Port)
		}
	}
	for name, value := range m.Annotations {
		if key, ok := strings.CutPrefix(name, k8s.ServiceMeta); ok && key != "" {
			r.base.Meta[key] = value
		}
	}
	r.base.Meta[SourceKey], r.base.Meta[namespaceOf] = Source, m.Namespace
	if text, ok := m.Annotations[k8s.ServiceWeight]; ok {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 65535 {
			return fmt.Errorf("annotation %s is %q; it must be 1 to 65535", k8s.ServiceWeight, text)
		}
		r.base.Weight = n
	}
	return nil
}

// port is the port that the annotation chooses, or the first. One that only the annotation knows has a number alone.
func (r *reading) port() (k8s.PortOfSpec, error) {
	ports := r.svc.Spec.Ports
	text, ok := r.svc.Metadata.Annotations[k8s.ServicePort]
	if !ok {
		if len(ports) == 0 {
			return k8s.PortOfSpec{}, nil
		}
		return ports[0], nil
	}
	number, err := strconv.Atoi(text)
	for _, p := range ports {
		if p.Name == text && text != "" || err == nil && p.Port == number {
			return p, nil
		}
	}
	if err != nil || number < 1 || number > 65535 {
		return k8s.PortOfSpec{}, fmt.Errorf("annotation %s is %q; the service has no such port", k8s.ServicePort, text)
	}
	return k8s.PortOfSpec{Name: fixed, Port: number}, nil
}

// fixed is the name of a port that no slice has: its number is taken as it is. No port of Kubernetes has this name.
const fixed = "="

// add keeps an instance. One that is there already is ready when either is.
func (r *reading) add(address string, port int, ready bool, meta map[string]string) {
	i := r.base
	i.Address, i.Port, i.Ready = address, port, ready
	i.Meta = maps.Clone(r.base.Meta)
	for key, value := range meta {
		if value != "" {
			i.Meta[key] = value
		}
	}
	ns := r.svc.Metadata.Namespace
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%s/%d", ns, r.svc.Metadata.Name, address, port))
	i.ID = i.Name + "-" + hex.EncodeToString(sum[:6])
	i.CheckID = ns + "/" + i.ID
	if old, ok := r.found[i.ID]; ok {
		old.Ready = old.Ready || ready
		i = old
	}
	r.found[i.ID] = i
}

// each calls f with the endpoints of the service's first family, slice after slice, in the order of their names.
func (r *reading) each(f func(*k8s.EndpointSlice, *k8s.Endpoint)) {
	family := "IPv4"
	if len(r.svc.Spec.IPFamilies) > 0 {
		family = r.svc.Spec.IPFamilies[0]
	}
	slices.SortFunc(r.slices, func(a, b *k8s.EndpointSlice) int {
		return strings.Compare(a.Metadata.Name, b.Metadata.Name)
	})
	for _, s := range r.slices {
		if s.AddressType != family || s.Metadata.DeletionTimestamp != "" {
			continue
		}
		for i := range s.Endpoints {
			if e := &s.Endpoints[i]; len(e.Addresses) > 0 {
				f(s, e)
			}
		}
	}
}

func portOf(s *k8s.EndpointSlice, p k8s.PortOfSpec) (int, bool) {
	if p.Name == fixed {
		return p.Port, true
	}
	for _, of := range s.Ports {
		if of.Port != nil && (of.Name == nil && p.Name == "" || of.Name != nil && *of.Name == p.Name) {
			return *of.Port, true
		}
	}
	return 0, false
}

func (r *reading) endpoints(port k8s.PortOfSpec) error {
	lost := 0
	r.each(func(s *k8s.EndpointSlice, e *k8s.Endpoint) {
		number, ok := portOf(s, port)
		if !ok && port.Port != 0 {
			lost++
			return
		}
		meta := map[string]string{nodeOf: e.NodeName, zoneOf: e.Zone}
		if e.TargetRef != nil {
			meta[refKind], meta[refName] = e.TargetRef.Kind, e.TargetRef.Name
		}
		r.add(e.Addresses[0], number, e.Ready(), meta)
	})
	if lost > 0 {
		return fmt.Errorf("%d endpoints have no port %q", lost, port.Name)
	}
	return nil
}

func (r *reading) onNodes(port k8s.PortOfSpec) error {
	number := port.NodePort
	if port.Name == fixed {
		number = port.Port
	}
	if number == 0 {
		return fmt.Errorf("port %q has no node port yet", port.Name)
	}
	missing := map[string]bool{}
	r.each(func(_ *k8s.EndpointSlice, e *k8s.Endpoint) {
		n := r.nodes[e.NodeName]
		address := ""
		if n != nil {
			address = r.addressOf(n)
		}
		if address == "" {
			missing[e.NodeName] = true
			return
		}
		r.add(address, number, e.Ready(), map[string]string{nodeOf: e.NodeName})
	})
	if len(missing) > 0 {
		return fmt.Errorf("no address for nodes %s", strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
	}
	return nil
}

func (r *reading) addressOf(n *k8s.Node) string {
	switch r.o.NodePorts {
	case InternalOnly:
		return n.Address("InternalIP")
	case ExternalFirst:
		if a := n.Address("ExternalIP"); a != "" {
			return a
		}
		return n.Address("InternalIP")
	}
	return n.Address("ExternalIP")
}

func (r *reading) balancer(port k8s.PortOfSpec) error {
	ready := false
	r.each(func(_ *k8s.EndpointSlice, e *k8s.Endpoint) { ready = ready || e.Ready() })
	addresses := r.svc.Spec.ExternalIPs
	if len(addresses) == 0 {
		for _, in := range r.svc.Status.LoadBalancer.Ingress {
			if in.IP != "" {
				addresses = append(addresses, in.IP)
			} else if in.Hostname != "" {
				addresses = append(addresses, in.Hostname)
			}
		}
	}
	for _, a := range addresses {
		r.add(a, port.Port, ready, nil)
	}
	if len(addresses) == 0 {
		return fmt.Errorf("the load balancer has no address yet")
	}
	return nil
}
