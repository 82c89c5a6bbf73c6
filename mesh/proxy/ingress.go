package proxy

import (
	"math"
	"strconv"

	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/mesh/envoy"
)

// behindIngress are the services of an ingress gateway's entry, as what it calls.
func (p *profile) behindIngress() []Upstream {
	var list []Upstream
	if p.service.Ingress == nil {
		return nil
	}
	for i := range p.service.Ingress.Listeners {
		l := &p.service.Ingress.Listeners[i]
		for j := range l.Services {
			s := &l.Services[j]
			list = append(list, Upstream{DestinationName: s.Name, listener: i + 1,
				Config: map[string]any{"protocol": l.Protocol, "limits": ingressLimits(s, p.service.Ingress.Defaults)}})
		}
	}
	return list
}

// ingressLimits are those of the service, else the gateway's defaults.
func ingressLimits(s *entry.IngressService, d *entry.IngressDefaults) map[string]any {
	if d == nil {
		d = &entry.IngressDefaults{}
	}
	m := map[string]any{}
	set := func(key string, own, otherwise *uint32) {
		if own == nil {
			own = otherwise
		}
		if own != nil {
			m[key] = float64(min(*own, math.MaxInt32))
		}
	}
	set("max_connections", s.MaxConnections, d.MaxConnections)
	set("max_pending_requests", s.MaxPendingRequests, d.MaxPendingRequests)
	set("max_concurrent_requests", s.MaxConcurrentRequests, d.MaxConcurrentRequests)
	return m
}

// ingress builds the listeners of an ingress gateway, of what is built behind them.
func (p *Proxy) ingress() []*mesh.Resource {
	e := p.service.Ingress
	if e == nil {
		p.problem(noEntry("ingress-gateway", p.reg.Service(), "has no listeners"))
		return nil
	}
	c := p.config()
	bind := p.publicBind(c)
	var list []*mesh.Resource
	for i := range e.Listeners {
		l := &e.Listeners[i]
		out := &envoy.Outbound{Bind: envoy.Bind{Address: bind.Address, Port: l.Port}, Protocol: l.Protocol, Logs: p.logs(),
			Tracing: p.tracing()}
		if out.Server = e.TLS.Enabled || l.TLS != nil && l.TLS.Enabled; out.Server {
			out.TLS = ingressTLS(&e.TLS, l.TLS)
		}
		var routes *mesh.Resource
		var err error
		if entry.IsHTTP(l.Protocol) {
			routes, err = p.ingressHTTP(i, l, out)
		} else {
			p.ingressTCP(i, l, out)
		}
		if err == nil && out.Name != "" {
			var r *mesh.Resource
			if r, err = envoy.OutboundListener(out); err == nil {
				list = append(list, p.cache.one(r))
				if routes != nil {
					list = append(list, p.cache.one(routes))
				}
			}
		}
		p.problem(err)
	}
	return list
}

func ingressTLS(gateway, listener *entry.GatewayTLS) *entry.TLSDirection {
	t := gateway
	if listener != nil && listener.Enabled {
		t = listener
	}
	return &entry.TLSDirection{TLSMinVersion: t.TLSMinVersion, TLSMaxVersion: t.TLSMaxVersion,
		CipherSuites: t.CipherSuites}
}

// noEntry says that a gateway waits for its config entry.
func noEntry(kind, name, so string) error {
	return errkind.Errorf(errkind.NotFound, "no config entry %s %q: the gateway %s until it is written", kind, name, so)
}

// builtBehind finds what is built of a listener's service.
func (l upstreams) builtBehind(listener int, service string) *mesh.Upstream {
	for i := range l {
		u := &l[i]
		if u.call.listener == listener+1 && u.call.DestinationName == service {
			return u.from()
		}
	}
	return nil
}

// ingressTCP leads a listener's connections to its one service. Without it the listener has no name and is left out.
func (p *Proxy) ingressTCP(at int, l *entry.IngressListener, out *envoy.Outbound) {
	v := p.upstreams.builtBehind(at, l.Services[0].Name)
	if v == nil {
		return
	}
	start := v.Chain.Nodes[v.Chain.StartNode]
	if start.Resolver == nil {
		return
	}
	out.Name, out.Stat = v.Name, statOf(v)
	out.Cluster = envoy.ClusterName(v.Chain, v.Chain.Targets[start.Resolver.Target])
}

// ingressHTTP leads a listener's requests to its services by host.
func (p *Proxy) ingressHTTP(at int, l *entry.IngressListener, out *envoy.Outbound) (*mesh.Resource, error) {
	port := strconv.Itoa(l.Port)
	var hosts []envoy.Host
	for i := range l.Services {
		s := &l.Services[i]
		if v := p.upstreams.builtBehind(at, s.Name); v != nil {
			hosts = append(hosts, envoy.Host{Name: s.Name, Domains: domains(s, port, p.datacenter), Chain: v.Chain,
				RequestHeaders: s.RequestHeaders, ResponseHeaders: s.ResponseHeaders})
		}
	}
	out.Name, out.Stat, out.Routes = "http", "ingress_upstream_"+port, port
	return envoy.HostRoutes(port, hosts)
}

// domains are the hosts that a request for the service may name.
func domains(s *entry.IngressService, port, datacenter string) []string {
	if len(s.Hosts) == 0 { // a wildcard at the end takes ports, too
		return []string{s.Name + ".ingress.*", s.Name + ".ingress." + datacenter + ".*"}
	}
	var list []string
	for _, h := range s.Hosts {
		list = append(list, h)
		if h != "*" {
			list = append(list, h+":"+port)
		}
	}
	return list
}
