package proxy

import (
	"cmp"
	"slices"
	"strings"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/mesh/envoy"
)

// outboundPort is where redirected traffic comes unless something else is set.
const outboundPort = 15001

// transparent tells whether traffic is redirected to the proxy.
func (p *profile) transparent() bool {
	return p.reg.Kind == catalog.KindConnectProxy && p.service != nil &&
		cmp.Or(p.reg.Mode, p.service.Mode) == "transparent"
}

// virtualSubject is what a transparent proxy follows of an upstream without a place of its own; "" for others.
func (p *profile) virtualSubject(u *upstream) string {
	d := u.call
	if u.err != nil || d.LocalBindPort != 0 || d.LocalBindSocketPath != "" || d.DestinationPeer != "" {
		return ""
	}
	return textOf(mesh.Subject{Kind: mesh.SubjectVirtual, Datacenter: cmp.Or(d.Datacenter, p.datacenter),
		Service: d.DestinationName})
}

// virtualWants lists what a transparent proxy follows beside what others do, and forgets the rest.
func (p *Proxy) virtualWants() []string {
	if !p.transparent() {
		p.virtual = nil
		return nil
	}
	var list []string
	for i := range p.upstreams {
		if s := p.virtualSubject(&p.upstreams[i]); s != "" {
			list = append(list, s)
		}
	}
	next := map[string]*mesh.Virtual{}
	for _, s := range list {
		if v, ok := p.virtual[s]; ok {
			next[s] = v
		}
	}
	p.virtual = next
	return list
}

// takeVirtual notes the addresses of an upstream; false: the value is of another kind.
func (p *Proxy) takeVirtual(c Change) bool {
	if p.virtual == nil || !strings.HasPrefix(c.Subject, "virtual/") || !slices.Contains(p.follows, c.Subject) {
		return false
	}
	v, _ := c.Value.(*mesh.Virtual)
	p.virtual[c.Subject] = v // nil: it may not be followed
	return true
}

// redirected builds the listener that traffic is redirected to.
func (p *Proxy) redirected() []*mesh.Resource {
	if !p.transparent() {
		return nil
	}
	v := &envoy.Redirect{Port: outboundPort, Elsewhere: !p.service.MeshDestinationsOnly, Logs: p.logs()}
	if t := p.service.TransparentProxy; t != nil && t.OutboundListenerPort > 0 {
		v.Port = t.OutboundListenerPort
	}
	if t := p.reg.TransparentProxy; t != nil && t.OutboundListenerPort > 0 {
		v.Port = t.OutboundListenerPort
	}
	taken := map[string]string{}
	var list []*mesh.Resource
	for i := range p.upstreams {
		u := &p.upstreams[i]
		virtual := p.virtual[p.virtualSubject(u)]
		if u.call.DestinationPeer != "" && u.built != nil {
			virtual = u.built.from.Virtual
		}
		if u.built == nil || u.built.out == nil || virtual == nil {
			continue
		}
		way := envoy.Way{Out: u.built.out}
		for _, a := range virtual.Addresses {
			if other := taken[a]; other != "" {
				p.problem(p.part(u, errkind.Errorf(errkind.Invalid, "the virtual address %s is that of %q, too", a, other)))
				continue
			}
			taken[a] = virtual.Service
			way.Addresses = append(way.Addresses, a)
		}
		if len(way.Addresses) > 0 {
			v.Ways = append(v.Ways, way)
			if u.built.routes != nil {
				list = append(list, u.built.routes)
			}
		}
	}
	if len(v.Ways) == 0 && !v.Elsewhere {
		return nil
	}
	keep := func(r *mesh.Resource, err error) {
		if err != nil {
			p.problem(err)
			return
		}
		list = append(list, p.cache.one(r))
	}
	if v.Elsewhere {
		keep(envoy.PassthroughCluster())
	}
	keep(envoy.RedirectListener(v))
	return list
}
