package mesh

import (
	"cmp"
	"encoding/json"
	"iter"
	"net/netip"
	"slices"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/catalog/filter"
)

// Endpoints lists what connects to the service of an endpoints subject in this datacenter. It is nil when the
// service's resolver has no such subset: no chain of the same State refers to it.
func (m *Maker) Endpoints(s Subject) *Endpoints {
	if s.Subset != "" {
		if _, ok := find[entry.Resolver](m, entry.ServiceResolver, s.Service).Subsets[s.Subset]; !ok {
			return nil
		}
	}
	return Collect(m.Cluster(s), m.withChecks(m.connecting(s.Service)), m.Subset(s), false)
}

// Subset is what the service's resolver says of the subject's subset; one that is not there holds nothing.
func (m *Maker) Subset(s Subject) (subset Subset) {
	if s.Subset == "" {
		return Subset{}
	}
	of, ok := find[entry.Resolver](m, entry.ServiceResolver, s.Service).Subsets[s.Subset]
	if !ok {
		return Subset{Nothing: true}
	}
	f, err := filter.Compile(filter.Entries, of.Filter)
	return Subset{Filter: f, OnlyPassing: of.OnlyPassing, Nothing: err != nil}
}

// Subset says which instances of a service count.
type Subset struct {
	Filter      *filter.Filter
	OnlyPassing bool // an instance with a warning gets no requests either
	// Nothing keeps all out: there is no such subset (any more), or nobody can tell what is in it.
	Nothing bool
}

// withChecks yields instances with nodes and checks. The yielded object is used again.
func (m *Maker) withChecks(list iter.Seq[*catalog.Service]) iter.Seq[*filter.Entry] {
	return func(yield func(*filter.Entry) bool) {
		var e filter.Entry
		for s := range list {
			if e.Node = m.State.Node(s.Node); e.Node == nil {
				continue
			}
			e.Service, e.Checks = s, e.Checks[:0]
			for c := range m.State.NodeChecks(s.Node) {
				e.Checks = append(e.Checks, c)
			}
			for c := range m.State.InstanceChecks(s.Node, s.ID) {
				e.Checks = append(e.Checks, c)
			}
			e.Checks = m.drainOf(s, e.Checks)
			if !yield(&e) {
				return
			}
		}
	}
}

// drainOf adds the check by which the instance behind a proxy is marked as draining: the
// proxy's own checks, which follow it, tell only that it is out of service. Only the
// checks of a proxy that is out of service anyway are looked at, since that costs reading its JSON.
func (m *Maker) drainOf(s *catalog.Service, checks []*catalog.Check) []*catalog.Check {
	if s.Kind != catalog.KindConnectProxy ||
		!slices.ContainsFunc(checks, func(c *catalog.Check) bool { return c.Status == catalog.Critical }) {
		return checks
	}
	var proxy struct{ DestinationServiceID string }
	if err := json.Unmarshal(s.Proxy, &proxy); err != nil || proxy.DestinationServiceID == "" {
		return checks
	}
	for c := range m.State.InstanceChecks(s.Node, proxy.DestinationServiceID) {
		if isDrained(c) {
			checks = append(checks, c)
		}
	}
	return checks
}

// Collect makes the endpoints of instances with their nodes and checks; wan asks for the
// addresses that other datacenters reach them by.
func Collect(cluster string, instances iter.Seq[*filter.Entry], subset Subset, wan bool) *Endpoints {
	v := &Endpoints{Cluster: cluster}
	if subset.Nothing {
		return v
	}
	for e := range instances {
		if subset.Filter != nil && !subset.Filter.Match(e) {
			continue
		}
		addr, port := addressOf(e.Node, e.Service, wan)
		if !addr.IsValid() || port < 1 || port > 65535 {
			v.LeftOut++
			continue
		}
		health, weight := healthOf(e, subset.OnlyPassing)
		v.List = append(v.List, Endpoint{Address: addr.String(), Port: uint16(port), Health: health, Weight: weight})
	}
	v.List = inOrder(v.List)
	return v
}

// inOrder sorts a list and takes each address once. Envoy takes the first of several with one address. Two
// registrations share one where an instance was replaced and the old one is not gone yet: the better one is the one
// that is there.
func inOrder(list []Endpoint) []Endpoint {
	slices.SortFunc(list, func(a, b Endpoint) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Health, b.Health),
			cmp.Compare(b.Weight, a.Weight))
	})
	return slices.CompactFunc(list, func(a, b Endpoint) bool { return a.Address == b.Address && a.Port == b.Port })
}

// healthOf is what the checks make of an instance (contract 30, ClusterLoadAssignment).
func healthOf(e *filter.Entry, onlyPassing bool) (Health, uint32) {
	w := e.Service.Weights
	if w == (catalog.Weights{}) {
		w = catalog.Weights{Passing: 1, Warning: 1} // registered without
	}
	health, weight, drained := Healthy, w.Passing, false
	for _, c := range e.Checks {
		drained = drained || isDrained(c)
		if c.Status == catalog.Critical || onlyPassing && c.Status != catalog.Passing {
			health = Unhealthy
		}
		if c.Status == catalog.Warning {
			weight = w.Warning
		}
	}
	if weight < MinWeight {
		health = Unhealthy // nobody wants requests there
	}
	if drained {
		health = Draining
	}
	return health, uint32(min(max(weight, MinWeight), MaxWeight))
}

// addressOf is where an instance is reached: by its own address, or else by its node's.
// From other datacenters: its wan address, its own, its node's wan address, its node's.
// The result is not valid where that is no IP address.
func addressOf(n *catalog.Node, s *catalog.Service, wan bool) (netip.Addr, int) {
	text, port := placeOf(n, s, wan)
	if addr, ok := parseAddr(text); ok {
		return addr, port
	}
	// A name: what was registered beside it as an address of the same thing will do.
	for _, tag := range lanTags {
		if wan {
			break
		}
		if tagged, ok := s.TaggedAddresses[tag]; ok && s.Address != "" {
			if addr, ok := parseAddr(tagged.Address); ok {
				return addr, cmp.Or(tagged.Port, port)
			}
		}
		if s.Address == "" {
			if addr, ok := parseAddr(n.TaggedAddresses[tag]); ok {
				return addr, port
			}
		}
	}
	return netip.Addr{}, port
}

// placeOf is addressOf as it was registered: a name, too.
func placeOf(n *catalog.Node, s *catalog.Service, wan bool) (text string, port int) {
	text, port = s.Address, s.Port
	if tagged, ok := s.TaggedAddresses["wan"]; wan && ok && tagged.Address != "" {
		text = tagged.Address
		if tagged.Port != 0 {
			port = tagged.Port
		}
	}
	if text == "" {
		text = n.Address
		if tagged := n.TaggedAddresses["wan"]; wan && tagged != "" {
			text = tagged
		}
	}
	return text, port
}

var lanTags = []string{"lan_ipv4", "lan_ipv6", "lan"}

// parseAddr reads an address that another host can use.
func parseAddr(text string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" || addr.IsUnspecified() {
		return netip.Addr{}, false
	}
	return addr.Unmap(), true
}
