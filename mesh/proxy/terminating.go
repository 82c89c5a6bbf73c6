package proxy

import (
	"net/url"
	"strings"
	"time"

	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/mesh/envoy"
)

// leafPrefix begins the subjects of certificates of services that a gateway stands for.
const leafPrefix = LeafSubject + "/"

// LeafService is the service whose certificate a subject is, "" when it is no certificate's; own is the one that the
// proxy stands for.
func LeafService(subject, own string) string {
	if subject == LeafSubject {
		return own
	}
	name, ok := strings.CutPrefix(subject, leafPrefix)
	if !ok {
		return ""
	}
	service, err := url.PathUnescape(name)
	if err != nil {
		return ""
	}
	return service
}

// LeafSecret is the name of the resource that the certificate of a subject has in the proxy.
func LeafSecret(subject string) string {
	if subject == LeafSubject {
		return envoy.LeafSecret
	}
	return envoy.LeafSecretOf(LeafService(subject, ""))
}

// linkedSubjects are what a terminating gateway follows for one service: certificate, rules, and the instances of
// each subset.
func (p *profile) linkedSubjects(l *mesh.Linked) []string {
	list := []string{leafPrefix + url.PathEscape(l.Name), textOf(l.RulesSubject())}
	for _, subset := range append([]string{""}, l.Subsets...) {
		list = append(list, textOf(mesh.Subject{Kind: mesh.SubjectInstances, Datacenter: p.datacenter, Service: l.Name,
			Subset: subset}))
	}
	return list
}

// linked are the services that a terminating gateway stands for. One has rules of its own also when what is shared
// says that it is not for it, and stays with them as sidecars do (ownRules): until their value is there, its part is
// as it was.
func (g *gate) linked(by *mesh.Service) []*mesh.Linked {
	shared, _ := g.values[ownRules("")].(*mesh.RulesValue)
	list := make([]*mesh.Linked, len(by.Linked))
	for i := range by.Linked {
		l := &by.Linked[i]
		if !l.OwnRules && (g.wanted(ownRules(l.Name)) || shared != nil && shared.Owners.Have(l.Name)) {
			owner := *l
			owner.OwnRules, l = true, &owner
		}
		list[i] = l
	}
	return list
}

// terminating builds what a terminating gateway has.
func (p *Proxy) terminating() {
	if p.service.Linked == nil {
		p.problem(noEntry("terminating-gateway", p.reg.Service(), "stands for no service"))
	}
	want := map[string]wanted{}
	for _, l := range p.gateway.linked(p.service) {
		want[l.Name] = wanted{subjects: p.linkedSubjects(l), build: func(inputs []any) (*part, error) {
			return p.linkedPart(l, inputs)
		}}
	}
	p.gatewayParts("the gateway's token may not stand for it (it needs service:write)", want)
	p.gatewayListeners(envoy.TerminatingListener, "terminating_gateway.default")
}

// linkedPart builds what is there for one service outside of the mesh.
func (p *profile) linkedPart(l *mesh.Linked, inputs []any) (*part, error) {
	out := &part{resources: []*mesh.Resource{inputs[0].(*mesh.Resource)}}
	rules := inputs[1].(*mesh.RulesValue)
	base := mesh.NetworkRules
	if http := l.Protocol != "tcp"; http {
		base = mesh.HTTPRules
	}
	r, err := envoy.Renamed(rules.Get(base), envoy.RulesOf(base, l.Name))
	if err != nil {
		return nil, err
	}
	out.resources = append(out.resources, r)
	c := p.config()
	connect := c.millis("connect_timeout_ms", envoy.DefaultConnectTimeout)
	if l.ConnectTimeout > 0 {
		connect = time.Duration(l.ConnectTimeout)
	}
	strict := c.oneOf("envoy_dns_discovery_type", "logical_dns", "strict_dns") == "strict_dns"
	for at, subset := range append([]string{""}, l.Subsets...) {
		v := inputs[2+at].(*mesh.Instances)
		stat := l.Name
		if subset != "" {
			stat = subset + "." + l.Name
		}
		out.stood = append(out.stood, envoy.Stood{Service: l.Name, Cluster: v.Cluster, Protocol: l.Protocol,
			Stat: "upstream." + stat + ".default.default." + p.datacenter})
		r, err := envoy.ExternalCluster(&envoy.External{Name: v.Cluster, Protocol: l.Protocol, Named: v.Named, Strict: strict,
			ConnectTimeout: connect,
			Balancer:       l.Balancer, CAFile: l.CAFile, CertFile: l.CertFile, KeyFile: l.KeyFile, SNI: l.SNI})
		if err != nil {
			return nil, err
		}
		out.resources = append(out.resources, p.cache.one(r))
		if len(v.Named) == 0 {
			if r, err = envoy.Endpoints(&mesh.Endpoints{Cluster: v.Cluster, List: v.List}); err != nil {
				return nil, err
			}
			out.resources = append(out.resources, p.cache.one(r))
		}
		if base == mesh.HTTPRules {
			if r, err = envoy.ExternalRoutes(v.Cluster, l.Balancer, len(v.Named) > 0 && !l.KeepHost); err != nil {
				return nil, err
			}
			out.resources = append(out.resources, p.cache.one(r))
		}
	}
	return out, nil
}
