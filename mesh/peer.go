package mesh

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/chain"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/catalog/peered"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
)

// Peered is how a service of a peer is reached. Without Roots it is not, and the Problem says why.
type Peered struct {
	Peer      string
	Roots     []string   `json:",omitempty"` // of the peer, in PEM
	SNI       string     `json:",omitempty"` // what its proxies are asked for; its gateways choose by it
	Identity  string     `json:",omitempty"` // the SPIFFE id of its proxies
	Endpoints []Endpoint `json:",omitempty"` // some may have names in place of addresses
	Problem   string     `json:",omitempty"`
}

// Reached tells whether there is a way to it.
func (p *Peered) Reached() bool { return p != nil && len(p.Roots) > 0 && p.SNI != "" }

// Trusted is a peer that a service is exported to: its proxies may come, as far as intentions let them.
type Trusted struct {
	Peer, Domain string
	Roots        []string // in PEM
}

// Passages is what a mesh gateway lets through, by the names that TLS asks for. It ends no TLS.
type Passages struct {
	Datacenter string
	Services   []Passage // in order
	Onward     []Onward  `json:",omitempty"` // in order
	// Servers are this cluster's servers, where peers come to them through mesh gateways.
	Servers *Onward `json:",omitempty"`
}

// Passage is a service of this cluster.
type Passage struct {
	Service string
	Names   []string // in lower case
}

// Onward is a peer whose services this cluster's proxies reach through their own gateways.
type Onward struct {
	Peer, Cluster string
	Names         []string
	Endpoints     []Endpoint `json:",omitempty"` // the peer's gateways
}

// Encode is what ReadPassages reads.
func (v *Passages) Encode() ([]byte, error) { return encodeValue("passages", v) }

// ReadPassages reads the value of the subject of passages.
func ReadPassages(body []byte) (*Passages, error) {
	v := &Passages{}
	if err := json.Unmarshal(body, v); err != nil {
		return nil, badValue("passages", err)
	}
	if v.Datacenter == "" {
		return nil, badValue("passages", errkind.New(errkind.Corrupt, "the datacenter is missing"))
	}
	return v, nil
}

func (m *Maker) trust(peer string) *peered.Trust {
	if m.Trust != nil {
		return m.Trust(peer)
	}
	if m.State == nil {
		return nil
	}
	return peered.Of(m.State, peer)
}

func (m *Maker) imported(peer, service string) (st *statestore.State, protocol string, ok bool) {
	if m.Imported == nil {
		return nil, "", false
	}
	return m.Imported(peer, service)
}

// externalName is what the proxies of an exported service are asked for by those of a peer; as is how the cluster of
// the service calls that peer, and domain its own.
func externalName(service, as, domain string) string {
	return strings.ToLower(service + ".default.default." + as + ".external." + domain)
}

// fromPeer compiles the chain of an upstream of a peer: config entries of this cluster say nothing about it.
func (m *Maker) fromPeer(s Subject) *Upstream {
	_, protocol, _ := m.imported(s.Peer, s.Service)
	u := &Upstream{Name: s.Service, Datacenter: s.Datacenter,
		Virtual: &Virtual{Service: s.Service, Addresses: m.manualIPs(s.Peer, s.Service)}}
	var err error
	u.Chain, err = chain.Compile(chain.Request{Service: s.Service, Datacenter: s.Datacenter, TrustDomain: m.TrustDomain,
		Protocol: s.Protocol, ConnectTimeout: entry.Duration(s.ConnectTimeout), MeshGateway: s.MeshGateway,
		Get: func(kind, name string) entry.Entry {
			switch {
			case name != s.Service:
			case kind == entry.ServiceDefaults:
				return &entry.Service{Protocol: protocol}
			case kind == entry.ServiceResolver:
				return &entry.Resolver{Redirect: &entry.Redirect{Peer: s.Peer}}
			}
			return nil
		}})
	if err != nil {
		u.Chain, u.Problem = nil, err.Error()
	}
	return u
}

// peers adds to a chain how those of its targets are reached that are peers'.
func (m *Maker) peers(u *Upstream) *Upstream {
	if u.Chain == nil {
		return u
	}
	for id, t := range u.Chain.Targets {
		if t.Peer != "" {
			if u.Peers == nil {
				u.Peers = map[string]*Peered{}
			}
			u.Peers[id] = m.peered(t)
		}
	}
	return u
}

func (m *Maker) peered(t *chain.Target) *Peered {
	p := &Peered{Peer: t.Peer}
	trust := m.trust(t.Peer)
	imported, _, ok := m.imported(t.Peer, t.Service)
	switch {
	case trust == nil:
		p.Problem = fmt.Sprintf("the peer %q has told nothing of its mesh: is there such a peer, and is it of a release "+
			"that exchanges trust?", t.Peer)
		return p
	case !ok:
		p.Problem = fmt.Sprintf("the peer %q exports no service %q", t.Peer, t.Service)
		return p
	case t.ServiceSubset != "": // all instances would be others than those that are meant
		p.Problem = fmt.Sprintf("the subset %q of %q: subsets of a service of a peer cannot be reached; have the peer "+
			"export them as services", t.ServiceSubset, t.Service)
		return p
	}
	p.Roots, p.SNI = trust.Roots, externalName(t.Service, trust.As, trust.Domain)
	p.Identity = "spiffe://" + trust.Domain + "/ns/default/dc/" + url.PathEscape(trust.Datacenter) + "/svc/" +
		url.PathEscape(t.Service)
	from := &Maker{State: imported}
	direct := Collect("", from.withChecks(imported.ConnectInstances(t.Service)), Subset{}, false).List
	switch t.MeshGateway.Mode {
	case "none":
		p.Endpoints = direct
	case "local":
		p.Endpoints = m.Gateways(false)
	default:
		p.Endpoints = gatewaysOf(trust)
	}
	switch {
	case len(direct) == 0:
		p.Endpoints, p.Problem = nil, fmt.Sprintf("no instance of %q has a proxy at the peer %q", t.Service, t.Peer)
	case len(p.Endpoints) == 0 && t.MeshGateway.Mode == "local":
		p.Problem = "MeshGateway.Mode \"local\": this cluster has no mesh gateway"
	case len(p.Endpoints) == 0:
		p.Problem = fmt.Sprintf("the peer %q has no mesh gateway", t.Peer)
	case !slices.ContainsFunc(direct, func(e Endpoint) bool { return e.Health == Healthy }):
		for i := range p.Endpoints { // gateways may be well, and what is behind them not
			p.Endpoints[i].Health = max(p.Endpoints[i].Health, Unhealthy)
		}
	}
	return p
}

func gatewaysOf(t *peered.Trust) (list []Endpoint) {
	for _, g := range t.Gateways {
		list = append(list, Endpoint{Address: g.Address, Port: g.Port, Health: min(Health(g.Health), Unhealthy),
			Weight: min(max(g.Weight, MinWeight), MaxWeight)})
	}
	return list
}

// Gateways lists the mesh gateways of this cluster, those that have names last; wan asks for the addresses that others
// reach them by.
func (m *Maker) Gateways(wan bool) []Endpoint {
	m.looksAtNames()
	var list []*catalog.Service
	for s := range m.State.ServiceNames() {
		for first := range m.State.Instances(s.Name) {
			if first.Kind == catalog.KindMeshGateway {
				m.looksAt(s.Name)
				for i := range m.State.Instances(s.Name) {
					if i.Kind == catalog.KindMeshGateway {
						list = append(list, i)
					}
				}
			}
			break
		}
	}
	all := m.withChecks(slices.Values(list))
	return append(Collect("", all, Subset{}, wan).List, collectNamed(all, Subset{}, wan)...)
}

// Own is what this cluster says of its mesh to a peer.
func (m *Maker) Own(peer string, roots []string) *peered.Trust {
	t := &peered.Trust{Domain: m.TrustDomain, Datacenter: m.Datacenter, As: peer, Roots: roots}
	for _, e := range m.Gateways(true) {
		t.Gateways = append(t.Gateways, peered.Gateway{Address: e.Address, Port: e.Port, Health: uint8(e.Health),
			Weight: e.Weight})
	}
	return t
}

// consumers yields the peers that a service is exported to, by the entry's words.
func (m *Maker) consumers(service string) []string {
	var list []string
	for _, s := range find[entry.Exported](m, entry.ExportedServices, "default").Services {
		if s.Name != "*" && !strings.EqualFold(s.Name, service) || service == catalog.ServerServiceName {
			continue
		}
		for _, c := range s.Consumers {
			if c.Peer != "" {
				list = append(list, c.Peer)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// trusted lists the peers whose proxies may come to a service.
func (m *Maker) trusted(service string) (list []Trusted) {
	if service == "*" {
		return nil
	}
	for _, peer := range m.consumers(service) {
		if t := m.trust(peer); t != nil {
			list = append(list, Trusted{Peer: peer, Domain: t.Domain, Roots: t.Roots})
		}
	}
	return list
}

// Passages lists what a mesh gateway lets through: to the services of this datacenter that have proxies, by their own
// names and by those that peers ask for, and onward to peers.
func (m *Maker) Passages() *Passages {
	m.looksAtNames()
	v := &Passages{Datacenter: m.Datacenter}
	consumers := map[string][]string{}
	for _, s := range find[entry.Exported](m, entry.ExportedServices, "default").Services {
		name := strings.ToLower(s.Name)
		for _, c := range s.Consumers {
			if c.Peer != "" {
				consumers[name] = append(consumers[name], c.Peer)
			}
		}
	}
	for s := range m.State.ServiceNames() {
		for range m.State.ConnectInstances(s.Name) {
			own := m.Cluster(Subject{Service: s.Name, Datacenter: m.Datacenter})
			p := Passage{Service: s.Name, Names: []string{strings.ToLower(own)}}
			for _, peer := range slices.Concat(consumers["*"], consumers[strings.ToLower(s.Name)]) {
				p.Names = append(p.Names, externalName(s.Name, peer, m.TrustDomain))
			}
			slices.Sort(p.Names)
			p.Names = slices.Compact(p.Names)
			v.Services = append(v.Services, p)
			break
		}
	}
	known := map[string]*peered.Trust{}
	for r := range m.State.Records(catalog.RecordTrust, "") {
		known[r.Key] = m.trust(r.Key)
	}
	m.trust("") // there may be others
	for _, peer := range slices.Sorted(maps.Keys(known)) {
		if t := known[peer]; t != nil {
			v.Onward = append(v.Onward, Onward{Peer: peer, Cluster: peer + ".external." + m.TrustDomain,
				Names: []string{"*" + externalName("", t.As, t.Domain)}, Endpoints: gatewaysOf(t)})
		}
	}
	slices.SortFunc(v.Services, func(a, b Passage) int { return cmp.Compare(a.Service, b.Service) })
	v.Servers = m.servers()
	return v
}

// ThroughGateways tells whether peers come to this cluster's servers through its mesh gateways.
func (m *Maker) ThroughGateways() bool {
	e := find[entry.MeshConfig](m, entry.Mesh, "mesh")
	return e.Peering != nil && e.Peering.PeerThroughMeshGateways
}

// servers are the servers of this cluster as peers come to them, by the name that their certificates show; nil where
// they do not come through gateways.
func (m *Maker) servers() *Onward {
	if m.ServerName == "" || !m.ThroughGateways() {
		return nil
	}
	m.looksAt(catalog.ServerServiceName)
	list := Collect("", m.withChecks(m.State.Instances(catalog.ServerServiceName)), Subset{}, false).List
	return &Onward{Peer: "servers", Cluster: "server." + strings.ToLower(m.Datacenter) + ".peering." + m.TrustDomain,
		Names: []string{strings.ToLower(m.ServerName)}, Endpoints: list}
}
