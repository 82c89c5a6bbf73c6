package proxy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/mesh/envoy"
)

// behindAPI are the services behind the routes of an api gateway, as what it calls.
func (p *profile) behindAPI() []Upstream {
	var list []Upstream
	if p.service.API == nil {
		return nil
	}
	limits := ingressLimits(&entry.IngressService{}, p.service.API.Defaults)
	judge := p.judgeBehindAPI()
	for i := range p.service.API.Listeners {
		l := &p.service.API.Listeners[i]
		seen := map[string]bool{}
		add := func(name string, config map[string]any) {
			if name != "" && !seen[name] {
				seen[name] = true
				list = append(list, Upstream{DestinationName: name, listener: i + 1, Config: config})
			}
		}
		add(l.Service, map[string]any{"protocol": "tcp", "limits": limits})
		if i == 0 {
			add(judge, map[string]any{"limits": limits})
		}
		for _, r := range l.Routes {
			for _, rule := range r.Rules {
				for _, s := range rule.Services {
					add(s.Name, map[string]any{"limits": limits})
				}
			}
		}
	}
	return list
}

// api builds what an api gateway has beside the clusters of its services.
func (p *Proxy) api() []*mesh.Resource {
	e := p.service.API
	if e == nil {
		p.problem(noEntry(entry.APIGateway, p.reg.Service(), "has no listeners"))
		return nil
	}
	p.problems = append(p.problems, e.Problems...)
	var list []*mesh.Resource
	keep := func(r *mesh.Resource, err error) bool {
		if err != nil {
			p.problem(err)
			return false
		}
		list = append(list, p.cache.one(r))
		return true
	}
	good := map[string]bool{}
	for i := range e.Certificates {
		good[e.Certificates[i].Name] = keep(apiCertificate(&e.Certificates[i]))
	}
	judging := p.judging(keep)
	bind := p.publicBind(p.config())
	doors := map[int]*envoy.Entrance{}
	plain := map[int]map[string][]envoy.EntranceRule{} // of listeners without TLS that share a port
	for i := range e.Listeners {
		l := &e.Listeners[i]
		if slices.ContainsFunc(l.Certificates, func(name string) bool { return !good[name] }) {
			continue
		}
		d, label, hosts := p.door(i, l, &judging)
		if label == "" {
			continue // nothing is behind it, or not yet
		}
		v := doors[l.Port]
		if v == nil {
			v = &envoy.Entrance{Label: label, Bind: envoy.Bind{Address: bind.Address, Port: l.Port}, Logs: p.logs(),
				Tracing: p.tracing()}
			doors[l.Port] = v
		}
		switch {
		case l.Protocol == "http" && len(l.Certificates) == 0:
			if plain[l.Port] == nil {
				plain[l.Port], v.Doors = map[string][]envoy.EntranceRule{}, append(v.Doors, *d)
			}
			for host, rules := range hosts {
				plain[l.Port][host] = append(plain[l.Port][host], rules...)
			}
		case l.Protocol == "http":
			if keep(entranceRoutes(d.Routes, hosts, l.Port)) {
				v.Doors = append(v.Doors, *d)
			}
		default:
			v.Doors = append(v.Doors, *d)
		}
	}
	for _, port := range slices.Sorted(maps.Keys(plain)) {
		keep(entranceRoutes(strconv.Itoa(port)+judging.routes, plain[port], port))
	}
	for _, port := range slices.Sorted(maps.Keys(doors)) {
		if v := doors[port]; len(v.Doors) > 0 {
			keep(envoy.EntranceListener(v))
		}
	}
	return list
}

func apiCertificate(c *mesh.APICertificate) (*mesh.Resource, error) {
	if c.Files {
		return envoy.CertificateFiles(c.Name, c.Cert, c.Key)
	}
	return envoy.Certificate(c.Name, c.Cert, c.Key)
}

// entranceRoutes orders the rules of each host.
func entranceRoutes(name string, hosts map[string][]envoy.EntranceRule, port int) (*mesh.Resource, error) {
	for _, rules := range hosts {
		slices.SortStableFunc(rules, func(a, b envoy.EntranceRule) int { return a.Precedes(&b) })
	}
	return envoy.EntranceRoutes(name, hosts, strconv.Itoa(port))
}

// door is a listener's part of its port, with its rules by host. Without a label there is none.
func (p *Proxy) door(at int, l *mesh.APIListener, j *judging) (d *envoy.Door, label string,
	hosts map[string][]envoy.EntranceRule) {
	d = &envoy.Door{Authz: j.authz, Protocol: l.Protocol, Certificates: l.Certificates, TLS: l.TLS}
	if len(l.Certificates) > 0 && l.Hostname != "*" {
		d.ServerName = l.Hostname
	}
	if l.Protocol == "tcp" {
		v := p.upstreams.builtBehind(at, l.Service)
		if v == nil {
			return d, "", nil
		}
		start := v.Chain.Nodes[v.Chain.StartNode]
		if start.Resolver == nil {
			return d, "", nil
		}
		d.Cluster, d.Stat = envoy.ClusterName(v.Chain, v.Chain.Targets[start.Resolver.Target]), statOf(v)
		return d, v.Name, nil
	}
	port := strconv.Itoa(l.Port)
	d.Stat, d.Routes = "ingress_upstream_"+port, port
	if len(l.Certificates) > 0 {
		d.Routes = port + ":" + l.Name
	}
	d.Routes += j.routes
	hosts = map[string][]envoy.EntranceRule{}
	for i := range l.Routes {
		r := &l.Routes[i]
		for k := range r.Rules {
			rule := envoy.EntranceRule{Match: r.Rules[k].Match, Destination: r.Rules[k].Destination,
				Targets: p.targetsBehind(at, &r.Rules[k]), Judge: j.of(&r.Rules[k])}
			for _, host := range r.Hosts {
				hosts[host] = append(hosts[host], rule)
			}
		}
	}
	return d, "http", hosts
}

// targetsBehind are the services of a rule that can be reached; what cannot is named.
func (p *Proxy) targetsBehind(at int, rule *mesh.APIRule) []envoy.EntranceTarget {
	var list []envoy.EntranceTarget
	for i := range rule.Services {
		s := &rule.Services[i]
		v := p.upstreams.builtBehind(at, s.Name)
		if v == nil {
			continue
		}
		if !entry.IsHTTP(v.Chain.Protocol) {
			p.problem(errkind.Errorf(errkind.Invalid, "service %q: its protocol is %s, and a route for requests leads to it",
				s.Name, v.Chain.Protocol))
			continue
		}
		list = append(list, envoy.EntranceTarget{Chain: v.Chain, Weight: s.Weight, RequestHeaders: s.RequestHeaders,
			ResponseHeaders: s.ResponseHeaders})
	}
	return list
}

// listenerOf is where a gateway names a service, in words.
func (p *profile) listenerOf(d *Upstream) string {
	if p.service.API != nil {
		return fmt.Sprintf("api-gateway %q: listener %q, service %q", p.reg.Service(),
			p.service.API.Listeners[d.listener-1].Name, d.DestinationName)
	}
	return fmt.Sprintf("ingress-gateway %q: Listeners[%d], service %q", p.reg.Service(), d.listener-1, d.DestinationName)
}
