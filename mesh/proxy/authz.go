package proxy

import (
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/mesh/envoy"
)

// authzCluster is the cluster of who judges requests where that is no service of the mesh.
const authzCluster = "local_ext_authz"

// judgedRoutes ends the names of routes whose listener has the filter: a listener that has not got it yet, and refuses
// what is to be judged, never sees them.
const judgedRoutes = ":judged"

// judgeBehindAPI is the service that judges the requests to an api gateway, "" where none does.
func (p *profile) judgeBehindAPI() string {
	a, err := entry.ExtAuthzOf(p.service.Extensions, entry.APIGateway)
	if a == nil || err != nil || len(p.service.API.Listeners) == 0 {
		return ""
	}
	if s := a.Config.Target().Service; s != nil {
		return s.Name
	}
	return ""
}

// judging is what holds for the requests to an api gateway.
type judging struct {
	authz  *envoy.Authz // nil: nobody judges, or nobody can be asked
	routes string       // what the names of its routes end with
	wanted bool         // by what holds for all routes
}

// judging finds out who judges requests; what leads there is kept.
func (p *Proxy) judging(keep func(*mesh.Resource, error) bool) (j judging) {
	authz, cluster, wanted, err := p.judge()
	if p.problem(err); cluster != nil && !keep(cluster, nil) {
		authz = nil
	}
	if j = (judging{authz: authz, wanted: wanted}); authz != nil {
		j.routes = judgedRoutes
	}
	return j
}

// judge is who judges the requests to an api gateway, with the cluster that leads there where it is no service. Wanted
// and nil: nobody can be asked, and the problem says why.
func (p *Proxy) judge() (v *envoy.Authz, cluster *mesh.Resource, wanted bool, err error) {
	off := p.service.API.ExtAuthz != nil && !p.service.API.ExtAuthz.Enabled
	a, err := entry.ExtAuthzOf(p.service.Extensions, entry.APIGateway)
	if a == nil {
		return nil, nil, false, nil
	}
	if err != nil {
		return nil, nil, !off, errkind.E(errkind.Invalid, "", err)
	}
	target := a.Config.Target()
	v = &envoy.Authz{Timeout: target.Within(), Off: off, AuthzConfig: a.Config}
	if target.Service == nil {
		host, port, err := target.HostPort()
		if err != nil {
			return nil, nil, !off, err
		}
		protocol := "http"
		if a.Config.GrpcService != nil {
			protocol = "grpc"
		}
		v.Cluster = authzCluster
		cluster, err = envoy.LocalCluster(&envoy.Local{Name: v.Cluster, Address: host, Port: port, Protocol: protocol,
			ConnectTimeout: envoy.DefaultConnectTimeout})
		if err != nil {
			return nil, nil, !off, err
		}
		return v, cluster, !off, nil
	}
	built := p.upstreams.builtBehind(0, target.Service.Name)
	if built == nil {
		return nil, nil, !off, nil // not known yet, or named among the problems of what is called
	}
	if a.Config.GrpcService != nil && built.Chain.Protocol != "grpc" && built.Chain.Protocol != "http2" {
		return nil, nil, !off, errkind.Errorf(errkind.Invalid, "EnvoyExtensions: %s: Target.Service %q: its protocol is %s; "+
			"GrpcService needs grpc: set Protocol in its service-defaults", entry.ExtAuthzExtension, target.Service.Name,
			built.Chain.Protocol)
	}
	n := built.Chain.Nodes[built.Chain.StartNode]
	if n.Resolver == nil {
		return nil, nil, !off, errkind.Errorf(errkind.Invalid, "EnvoyExtensions: %s: Target.Service %q: a service with a "+
			"router or splitter cannot be asked", entry.ExtAuthzExtension, target.Service.Name)
	}
	v.Cluster = envoy.ClusterName(built.Chain, built.Chain.Targets[n.Resolver.Target])
	return v, nil, !off, nil
}

// of is what holds for a rule: its own word, else the gateway's.
func (j *judging) of(rule *mesh.APIRule) envoy.Judge {
	there := j.authz != nil
	switch on := rule.ExtAuthz; {
	case on == nil && !j.wanted, on != nil && !on.Enabled && !there:
		return envoy.JudgeAsListener
	case !there:
		return envoy.JudgeRefuse
	case on == nil:
		return envoy.JudgeAsListener
	case on.Enabled:
		return envoy.JudgeOn
	}
	return envoy.JudgeOff
}
