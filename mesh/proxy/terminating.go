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

// terminating builds what a terminating gateway has.
func (p *Proxy) terminating() {
	if p.service.Linked == nil {
		p.problem(noEntry("terminating-gateway", p.reg.Service(), "stands for no service"))
	}
	want := map[string]wanted{}
	for i := range p.service.Linked {
		l := &p.service.Linked[i]
		if _, own := p.gateway.values[ownRules(l.Name)]; own && !l.OwnRules {
			stays := *l
			stays.OwnRules, l = true, &stays
		}
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
