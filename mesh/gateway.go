package mesh

import (
	"encoding/json"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/catalog/filter"
	"corbel.dev/corbel/catalog/gateway"
	"corbel.dev/corbel/kit/errkind"
)

// Linked is a service outside of the mesh that a terminating gateway stands for.
type Linked struct {
	Name     string
	Protocol string
	// What the gateway proves itself with to the service, and verifies it by: files of the gateway's host. No CAFile: no
	// TLS.
	CAFile, CertFile, KeyFile, SNI string `json:",omitempty"`
	// KeepHost: requests to a service with a name keep the host that the caller named.
	KeepHost bool                `json:",omitempty"`
	OwnRules bool                `json:",omitempty"` // as Service.OwnRules
	Subsets  []string            `json:",omitempty"` // in order
	Balancer *entry.LoadBalancer `json:",omitempty"`
	// ConnectTimeout is that of the service's resolver; 0: none is set.
	ConnectTimeout entry.Duration `json:",omitempty"`
}

// RulesSubject is where the rules of who may reach the service are.
func (l *Linked) RulesSubject() Subject {
	return (&Service{Name: l.Name, OwnRules: l.OwnRules}).RulesSubject()
}

// linked lists the services of a terminating gateway's entry, those of its wildcard too, in the order of their names.
func (m *Maker) linked(e *entry.Terminating) []Linked {
	by := map[string]*entry.LinkedService{}
	for i := range e.Services {
		if s := &e.Services[i]; s.Name != "*" {
			by[s.Name] = s
		}
	}
	for i := range e.Services {
		if s := &e.Services[i]; s.Name == "*" && m.State != nil {
			for name := range m.outside() {
				if by[name] == nil {
					by[name] = s
				}
			}
		}
	}
	var list []Linked
	for _, name := range slices.Sorted(maps.Keys(by)) {
		s := by[name]
		r := find[entry.Resolver](m, entry.ServiceResolver, name)
		list = append(list, Linked{Name: name, Protocol: entry.Protocol(m.get, name), CAFile: s.CAFile, CertFile: s.CertFile,
			KeyFile: s.KeyFile, SNI: s.SNI,
			KeepHost: s.DisableAutoHostRewrite, OwnRules: m.has(entry.ServiceIntentions, name),
			Subsets:  slices.Sorted(maps.Keys(r.Subsets)),
			Balancer: r.LoadBalancer, ConnectTimeout: r.ConnectTimeout})
	}
	return list
}

// outside yields the names of services that nothing of the mesh stands before.
func (m *Maker) outside() map[string]bool {
	m.looksAtNames()
	names := map[string]bool{}
	for s := range m.State.ServiceNames() {
		if gateway.Outside(m.State, s.Name) {
			names[s.Name] = true
		}
	}
	return names
}

// Instances is where a service's own instances are, as a terminating gateway reaches them: without the mesh.
type Instances struct {
	Cluster string
	List    []Endpoint // those with an IP address, as in Endpoints
	Named   []Endpoint `json:",omitempty"` // those with a name as their Address, in order
}

// Encode is what ReadInstances reads.
func (v *Instances) Encode() ([]byte, error) { return encodeValue("instances", v) }

// ReadInstances reads the value of a subject of instances.
func ReadInstances(body []byte) (*Instances, error) {
	v := &Instances{}
	if err := json.Unmarshal(body, v); err != nil {
		return nil, badValue("instances", err)
	}
	if v.Cluster == "" {
		return nil, badValue("instances", errkind.New(errkind.Corrupt, "the cluster is missing"))
	}
	return v, nil
}

// Instances lists the instances of an instances subject in this datacenter.
func (m *Maker) Instances(s Subject) *Instances {
	v := &Instances{Cluster: m.Cluster(s)}
	subset := m.Subset(s)
	v.List = Collect(v.Cluster, m.withChecks(m.State.Instances(s.Service)), subset, false).List
	if subset.Nothing {
		return v
	}
	v.Named = collectNamed(m.withChecks(m.State.Instances(s.Service)), subset, false)
	return v
}

// collectNamed is Collect for the instances that Collect leaves out since they have a name as their address.
func collectNamed(instances iter.Seq[*filter.Entry], subset Subset, wan bool) (list []Endpoint) {
	for e := range instances {
		if subset.Filter != nil && !subset.Filter.Match(e) {
			continue
		}
		if addr, _ := addressOf(e.Node, e.Service, wan); addr.IsValid() {
			continue
		}
		name, port := placeOf(e.Node, e.Service, wan)
		if _, err := netip.ParseAddr(name); err == nil || name == "" || port < 1 || port > 65535 {
			continue
		}
		health, weight := healthOf(e, subset.OnlyPassing)
		list = append(list, Endpoint{Address: strings.ToLower(name), Port: uint16(port), Health: health, Weight: weight})
	}
	return inOrder(list)
}

// connecting yields what connects to a service through the mesh: its proxies, and the terminating gateways that stand
// for it.
func (m *Maker) connecting(service string) func(yield func(*catalog.Service) bool) {
	return func(yield func(*catalog.Service) bool) {
		for s := range m.State.ConnectInstances(service) {
			if !yield(s) {
				return
			}
		}
		for name := range gateway.Terminating(m.State, m.get, service) {
			for s := range m.State.Instances(name) {
				if s.Kind == catalog.KindTerminatingGateway && !yield(s) {
					return
				}
			}
		}
	}
}
