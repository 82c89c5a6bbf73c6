package mesh

import (
	"cmp"
	"slices"
	"strings"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/chain"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/catalog/gateway"
	"corbel.dev/corbel/catalog/peered"
	"corbel.dev/corbel/catalog/statestore"
)

// Maker makes the views of one State. It changes nothing and is made anew for each.
type Maker struct {
	State       *statestore.State
	Datacenter  string // of the servers, whose State it is
	TrustDomain string
	// Get finds config entries; nil reads them from the State. What it returns is not changed.
	Get entry.Getter
	// Has tells whether there is a config entry, whatever it says; nil asks Get.
	Has func(kind, name string) bool
	// Routes lists the routes of api gateways; nil reads them from the State.
	Routes func() *gateway.Routes
	// Names is told that a view was made of the list of all services' names; nil: nobody wants to know.
	Names func()
	// Looks is told whose instances a view was made of, beside those of its subject; nil: nobody wants to know.
	Looks func(service string)
	// Trust is what a peer has said of its mesh; nil reads it from the State. "" asks for nothing: the view depends on
	// all peers.
	Trust func(peer string) *peered.Trust
	// Imported is a service of a peer, as a State of its own, and the protocol of its proxies; ok tells that the peer
	// exports it. nil: no peer exports anything.
	Imported func(peer, service string) (st *statestore.State, protocol string, ok bool)
	// ServerName is what the certificates of this cluster's servers show.
	ServerName string
	// DefaultAllow is what holds for those whom no intention speaks of.
	DefaultAllow bool
}

func (m *Maker) get(kind, name string) entry.Entry {
	if m.Get != nil {
		return m.Get(kind, name)
	}
	return entry.Stored(m.State, kind, name)
}

func (m *Maker) looksAtNames() {
	if m.Names != nil {
		m.Names()
	}
}

func (m *Maker) looksAt(service string) {
	if m.Looks != nil {
		m.Looks(service)
	}
}

func (m *Maker) has(kind, name string) bool {
	if m.Has != nil {
		return m.Has(kind, name)
	}
	return m.get(kind, name) != nil
}

// find is get for an entry of a known type; an empty one stands for none.
func find[E any](m *Maker, kind, name string) *E {
	var found any = m.get(kind, name)
	if e, ok := found.(*E); ok && e != nil {
		return e
	}
	return new(E)
}

// Service is how the proxies of a service are to be set up.
func (m *Maker) Service(name string) *Service {
	all := find[entry.Proxy](m, entry.ProxyDefaults, entry.Global)
	own := find[entry.Service](m, entry.ServiceDefaults, name)
	mesh := find[entry.MeshConfig](m, entry.Mesh, "mesh")
	s := &Service{
		Name: name, Datacenter: m.Datacenter, TrustDomain: m.TrustDomain, Protocol: entry.Protocol(m.get, name),
		ProxySettings: ProxySettings{Config: entry.CentralConfig(all, own), Mode: cmp.Or(own.Mode, all.Mode),
			MutualTLSMode:    cmp.Or(own.MutualTLSMode, all.MutualTLSMode),
			TransparentProxy: transparent(own.TransparentProxy, all.TransparentProxy), Expose: expose(own.Expose, all.Expose),
			MeshGateway: entry.MeshGateway{Mode: cmp.Or(own.MeshGateway.Mode, all.MeshGateway.Mode)},
			AccessLogs:  all.AccessLogs},
		Extensions: slices.Concat(all.EnvoyExtensions, own.EnvoyExtensions), RateLimits: own.RateLimits,
		Upstreams: own.UpstreamConfig,
		MeshSettings: MeshSettings{TLS: mesh.TLS, HTTP: mesh.HTTP, ValidateClusters: mesh.ValidateClusters,
			MeshDestinationsOnly: mesh.TransparentProxy.MeshDestinationsOnly},
		OwnRules: name != "*" && m.has(entry.ServiceIntentions, name),
		Trusted:  m.trusted(name),
	}
	if e, ok := m.get(entry.IngressGateway, name).(*entry.Ingress); ok {
		s.Ingress = e
	}
	if e, ok := m.get(entry.TerminatingGateway, name).(*entry.Terminating); ok {
		s.Linked = m.linked(e)
	}
	if e, ok := m.get(entry.APIGateway, name).(*entry.API); ok {
		s.API = m.api(e)
	}
	return s
}

func transparent(own, all *entry.TransparentProxy) *entry.TransparentProxy {
	if own == nil || all == nil {
		if own == nil {
			return all
		}
		return own
	}
	t := *own
	if t.OutboundListenerPort == 0 {
		t.OutboundListenerPort = all.OutboundListenerPort
	}
	t.DialedDirectly = own.DialedDirectly || all.DialedDirectly
	return &t
}

func expose(own, all entry.Expose) entry.Expose {
	if own.Checks || len(own.Paths) > 0 {
		return own
	}
	return all
}

// Rules is who may reach a service; "" stands for all that no intention names.
func (m *Maker) Rules(service string) *Rules {
	r := &Rules{Service: service, TrustDomain: m.TrustDomain, Intentions: m.intentions(service),
		DefaultAllow: m.DefaultAllow, Peers: map[string]string{}}
	for _, i := range r.Intentions {
		if i.Peer == "" {
			continue
		}
		if t := m.trust(i.Peer); t != nil {
			r.Peers[i.Peer] = t.Domain
		}
	}
	return r
}

// intentions lists those for a destination, if it is one, and those for every one, in the order in which they are
// looked at.
func (m *Maker) intentions(service string) []Intention {
	destinations := []string{"*"}
	if service != "" {
		destinations = []string{service, "*"}
	}
	var list []Intention
	for _, destination := range destinations {
		e := find[entry.Intentions](m, entry.ServiceIntentions, destination)
		for _, s := range e.Sources {
			list = append(list, Intention{Source: s.Name, Peer: s.Peer, Precedence: s.Precedence, Action: s.Action,
				Permissions: s.Permissions, JWT: e.JWT})
		}
	}
	slices.SortStableFunc(list, func(a, b Intention) int { return b.Precedence - a.Precedence })
	return list
}

// Upstream compiles the chain of an upstream's subject. Entries that do not work together
// are told as the Problem, and the chain is that of a service without routes: what else
// holds for the service is kept, and its clients keep a way to it.
func (m *Maker) Upstream(s Subject) *Upstream {
	if s.Peer != "" {
		return m.peers(m.fromPeer(s))
	}
	return m.peers(m.upstream(s))
}

func (m *Maker) upstream(s Subject) *Upstream {
	u := &Upstream{Name: s.Service, Datacenter: s.Datacenter}
	r := chain.Request{Service: s.Service, Datacenter: s.Datacenter, TrustDomain: m.TrustDomain, Get: m.get,
		Protocol: s.Protocol, ConnectTimeout: entry.Duration(s.ConnectTimeout), MeshGateway: s.MeshGateway}
	var err error
	if u.Chain, err = chain.Compile(r); err == nil {
		if err = u.sound(); err == nil {
			return u
		}
	}
	u.Problem = err.Error()
	r.Get = func(kind, name string) entry.Entry {
		if kind == entry.ProxyDefaults || kind == entry.ServiceDefaults {
			return m.get(kind, name)
		}
		return nil
	}
	if u.Chain, err = chain.Compile(r); err != nil { // one resolver with one target always compiles
		u.Chain = nil
	}
	return u
}

// Cluster is the name of the resource of an endpoints subject, as chain.Target.Name.
func (m *Maker) Cluster(s Subject) string {
	name := s.Service + ".default." + s.Datacenter + ".internal." + m.TrustDomain
	if s.Subset != "" {
		name = s.Subset + "." + name
	}
	return name
}

// isDrained tells whether one of the checks marks an instance as draining.
func isDrained(c *catalog.Check) bool {
	return c.Status != catalog.Passing && strings.HasPrefix(c.ID, catalog.ServiceDrainPrefix)
}
