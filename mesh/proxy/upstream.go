package proxy

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"time"

	"corbel.dev/corbel/catalog/chain"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/mesh/envoy"
)

// upstreams are those of a proxy, in the order of profile.calls.
type upstreams []upstream

// upstream is one of what the proxy calls.
type upstream struct {
	at      int // in profile.calls
	call    *Upstream
	place   place
	subject string         // "" when it cannot be reached at all: err says why
	value   *mesh.Upstream // the newest; nil: there is none
	known   bool           // the first value came
	stale   bool           // what is set for it may have changed
	built   *built         // what the proxy has of it
	err     error
}

// place is what tells upstreams of one registration apart.
type place struct {
	name, datacenter, peer, address, socket string
	port, listener                          int
}

func placeOf(d *Upstream) place {
	return place{d.DestinationName, d.Datacenter, d.DestinationPeer, d.LocalBindAddress,
		d.LocalBindSocketPath, d.LocalBindPort, d.listener}
}

// built is what came out of a chain all of whose targets are known.
type built struct {
	from      *mesh.Upstream
	resources []*mesh.Resource // clusters, listener, routes
	// Where it has no listener: what leads to it from that of redirected traffic, and the routes that this refers to.
	out    *envoy.Outbound
	routes *mesh.Resource
}

func (u *upstream) from() *mesh.Upstream {
	if u.built == nil {
		return nil
	}
	return u.built.from
}

// subjectOf is the subject of an upstream by what is set for it.
func (p *profile) subjectOf(d *Upstream) (string, error) {
	switch {
	case d.DestinationName == "":
		return "", errkind.New(errkind.Invalid, "DestinationName is required")
	case d.DestinationName == "*":
		return "", errkind.New(errkind.Invalid, "the service \"*\": name the services one by one")
	case d.DestinationType == "prepared_query":
		return "", errkind.New(errkind.Invalid,
			"DestinationType \"prepared_query\": proxies cannot follow queries; name the service instead")
	case d.DestinationPeer != "" && d.Datacenter != "" && d.Datacenter != p.datacenter:
		return "", errkind.New(errkind.Invalid, "DestinationPeer and Datacenter: a service is a peer's or a datacenter's")
	}
	c, _ := callingOf(d, "", p.service.Upstreams)
	s := mesh.Subject{Kind: mesh.SubjectUpstream, Datacenter: d.Datacenter, Service: d.DestinationName,
		Override: mesh.Override{Protocol: c.protocol, ConnectTimeout: c.connectTimeout, MeshGateway: c.gateway}}
	if s.Datacenter == "" {
		s.Datacenter = p.datacenter
	}
	if s.Peer = d.DestinationPeer; s.Peer != "" {
		// Whatever is set for the proxy's other upstreams holds for peers, too; what holds anyway is one with nothing.
		if s.MeshGateway = cmp.Or(c.gateway, p.reg.MeshGateway.Mode, p.service.MeshGateway.Mode); s.MeshGateway == "remote" {
			s.MeshGateway = ""
		}
	}
	return textOf(s), nil
}

func targetSubject(t *chain.Target) string { return textOf(mesh.EndpointsOf(t)) }

// targetsOf lists the subjects of a chain's targets.
func targetsOf(v *mesh.Upstream) []string {
	if v == nil || v.Chain == nil {
		return nil
	}
	list := make([]string, 0, len(v.Chain.Targets))
	for _, t := range v.Chain.Targets {
		if t.Peer == "" {
			list = append(list, targetSubject(t))
		}
	}
	slices.Sort(list)
	return list
}

// advance brings an upstream to its newest value, once all is known that it refers to.
func (p *Proxy) advance(u *upstream) {
	d := u.call
	if u.err != nil {
		u.built = nil
		p.problem(p.part(u, u.err))
		return
	}
	if !u.known {
		return
	}
	if u.value == nil || u.value.Chain == nil {
		u.built = nil
		p.problem(p.part(u, errkind.Errorf(errkind.NotFound, "DestinationName %q: the servers say nothing of it",
			d.DestinationName)))
		return
	}
	if u.value.Problem != "" {
		p.problem(p.part(u, errkind.Errorf(errkind.Invalid, "config entries of %q: %s", d.DestinationName,
			u.value.Problem)))
	}
	if slices.ContainsFunc(targetsOf(u.value), func(s string) bool { return !p.known(s) }) {
		return
	}
	for _, id := range sortedKeys(u.value.Peers) {
		if why := u.value.Peers[id].Problem; why != "" {
			p.problem(p.part(u, errkind.New(errkind.NotFound, why)))
		}
	}
	c, errs := callingOf(d, p.pathOf(u), p.service.Upstreams)
	for _, err := range errs {
		p.problem(err)
	}
	if u.built != nil && u.built.from == u.value && !u.stale {
		return
	}
	b, err := p.buildUpstream(d, u.value, &c)
	if err != nil {
		p.problem(p.part(u, err))
		return
	}
	u.built, u.stale = b, false
}

func (p *profile) buildUpstream(d *Upstream, v *mesh.Upstream, c *calling) (*built, error) {
	b := &built{from: v}
	clusters, err := p.clusters(v, c)
	if err != nil {
		return nil, err
	}
	for _, r := range clusters {
		b.resources = append(b.resources, p.cache.one(r))
	}
	if d.listener > 0 { // the gateway's listener leads to it
		return b, nil
	}
	out, routes, err := p.outbound(d, v, c)
	if err != nil {
		return nil, err
	}
	if routes != nil {
		routes = p.cache.one(routes)
	}
	if out.Bind == (envoy.Bind{}) {
		b.out, b.routes = out, routes
		return b, nil
	}
	if routes != nil {
		b.resources = append(b.resources, routes)
	}
	listener, err := envoy.OutboundListener(out)
	if err != nil {
		return nil, err
	}
	b.resources = append(b.resources, p.cache.one(listener))
	return b, nil
}

// clusters are those of all resolvers of a chain, and those that they go on at.
func (p *profile) clusters(v *mesh.Upstream, c *calling) ([]*mesh.Resource, error) {
	ch := v.Chain
	var list []*mesh.Resource
	for _, id := range sortedKeys(ch.Nodes) {
		n := ch.Nodes[id]
		if n.Resolver == nil {
			continue
		}
		t := ch.Targets[n.Resolver.Target]
		name := envoy.ClusterName(ch, t)
		if n.Resolver.Failover == nil {
			one, err := p.leg(v, p.cluster(name, ch, t, n.LoadBalancer, c), t)
			if err != nil {
				return nil, err
			}
			list = append(list, one...)
			continue
		}
		var order []string
		for i, target := range append([]string{n.Resolver.Target}, n.Resolver.Failover.Targets...) {
			t := ch.Targets[target]
			if t.Peer != "" && !v.Peers[t.ID].Reached() {
				continue // nobody to go on at
			}
			spec := p.cluster(envoy.FailoverName(i, envoy.ClusterName(ch, t)), ch, t, n.LoadBalancer, c)
			spec.JSON = ""
			one, err := p.leg(v, spec, t)
			if err != nil {
				return nil, err
			}
			list, order = append(list, one...), append(order, spec.Name)
		}
		r, err := envoy.FailoverCluster(name, order, timeoutOf(t))
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}

// leg is the cluster of one target, with what nobody but it refers to.
func (p *profile) leg(v *mesh.Upstream, spec *envoy.Upstream, t *chain.Target) (list []*mesh.Resource, err error) {
	keep := func(r *mesh.Resource, failed error) {
		if list = append(list, r); err == nil {
			err = failed
		}
	}
	if t.Peer == "" {
		keep(envoy.UpstreamCluster(spec))
		return list, err
	}
	peer := v.Peers[t.ID]
	if !peer.Reached() {
		keep(envoy.UnreachableCluster(spec.Name, spec.ConnectTimeout))
		return list, err
	}
	spec.Endpoints = spec.Name // another mode of the gateways has other ones
	spec.SNI, spec.Identities, spec.Roots = peer.SNI, []string{peer.Identity}, envoy.PeerRootsSecret(t.Peer)
	keep(envoy.PeerRoots(t.Peer, peer.Roots))
	if envoy.Named(peer.Endpoints) {
		spec.Named = peer.Endpoints
	} else {
		keep(envoy.Endpoints(&mesh.Endpoints{Cluster: spec.Endpoints, List: peer.Endpoints}))
	}
	keep(envoy.UpstreamCluster(spec))
	return list, err
}

func timeoutOf(t *chain.Target) time.Duration {
	if t.ConnectTimeout > 0 {
		return time.Duration(t.ConnectTimeout)
	}
	return envoy.DefaultConnectTimeout
}

func (p *profile) cluster(name string, ch *chain.Chain, t *chain.Target, balancer *entry.LoadBalancer,
	c *calling) *envoy.Upstream {
	spec := &envoy.Upstream{Name: name, Endpoints: t.Name, SNI: t.SNI, Protocol: ch.Protocol, ConnectTimeout: timeoutOf(t),
		Limits:  c.limits,
		Passive: c.passive, Balancer: balancer, MaintenanceKey: c.maintenanceKey, TLS: p.outgoing(),
		Identities: []string{p.identity(t)}}
	if ch.Default {
		spec.JSON = c.clusterJSON
	}
	return spec
}

// outgoing are the bounds of TLS towards upstreams.
func (p *profile) outgoing() *entry.TLSDirection {
	if p.service.TLS == nil {
		return nil
	}
	return p.service.TLS.Outgoing
}

// identity is the SPIFFE id of a target's proxies.
func (p *profile) identity(t *chain.Target) string {
	return "spiffe://" + p.service.TrustDomain + "/ns/default/dc/" + url.PathEscape(t.Datacenter) + "/svc/" +
		url.PathEscape(t.Service)
}

// outbound is the listener of an upstream, without an address where it has none of its
// own, and the routes that it refers to, nil when it needs none.
func (p *profile) outbound(d *Upstream, v *mesh.Upstream, c *calling) (*envoy.Outbound, *mesh.Resource, error) {
	ch := v.Chain
	id := d.DestinationName
	if v.Datacenter != "" && v.Datacenter != p.datacenter {
		id += "?dc=" + v.Datacenter
	}
	if d.DestinationPeer != "" {
		id += "?peer=" + d.DestinationPeer
	}
	start := ch.Nodes[ch.StartNode]
	out := &envoy.Outbound{Name: id, Protocol: ch.Protocol, Stat: statOf(v),
		Balance: c.balance, Logs: p.logs(), JSON: c.listenerJSON, Tracing: p.tracing()}
	if d.DestinationPeer != "" {
		out.Stat = "upstream_peered." + v.Name + ".default." + d.DestinationPeer
	}
	var routes *mesh.Resource
	switch {
	case entry.IsHTTP(ch.Protocol):
		// By reference, also where it is one route to one cluster: a listener with its own routes would be replaced
		// with the first config entry, and connections on the old one lead to a cluster that is gone.
		out.Routes = id
		if ch.CustomizationHash != "" {
			out.Routes = ch.CustomizationHash + "~" + id
		}
		var err error
		if routes, err = envoy.Routes(out.Routes, ch); err != nil {
			return nil, nil, err
		}
	case start.Resolver != nil:
		out.Cluster = envoy.ClusterName(ch, ch.Targets[start.Resolver.Target])
		out.Balancer, out.Timeout = start.LoadBalancer, time.Duration(start.Resolver.RequestTimeout)
	default:
		return nil, nil, errkind.Errorf(errkind.Invalid,
			"the chain of %q begins with a %s, which needs a protocol of requests", v.Name, start.Type)
	}
	bind, err := bindOf(d)
	if err != nil || bind == nil {
		return out, routes, err
	}
	out.Bind = *bind
	return out, routes, nil
}

// statOf begins the names of an upstream's figures.
func statOf(v *mesh.Upstream) string {
	return "upstream." + v.Name + ".default.default." + v.Datacenter
}

// bindOf is where the application finds the upstream; nil when it has no place of its own.
func bindOf(d *Upstream) (*envoy.Bind, error) {
	b := &envoy.Bind{Address: d.LocalBindAddress, Port: d.LocalBindPort, Socket: d.LocalBindSocketPath}
	if b.Address == "" {
		b.Address = "127.0.0.1"
	}
	if b.Socket == "" && b.Port == 0 {
		return nil, nil
	}
	if d.LocalBindSocketMode != "" {
		mode, err := strconv.ParseUint(d.LocalBindSocketMode, 8, 16)
		if err != nil || mode > 0o777 {
			return nil, errkind.Errorf(errkind.Invalid, "LocalBindSocketMode %q: must be octal digits such as 0600",
				d.LocalBindSocketMode)
		}
		b.Mode = uint32(mode)
	}
	return b, nil
}

func sortedKeys[V any](m map[string]V) []string {
	list := make([]string, 0, len(m))
	for k := range m {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}
