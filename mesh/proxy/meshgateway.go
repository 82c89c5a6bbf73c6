package proxy

import (
	"strings"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/mesh/envoy"
)

const passagesSubject = "passages"

// passageWants lists what a mesh gateway follows: what it lets through, and where the services of that are.
func (p *Proxy) passageWants() []string {
	list := []string{passagesSubject}
	if v, _ := p.gateway.values[passagesSubject].(*mesh.Passages); v != nil {
		for i := range v.Services {
			list = append(list, passageEndpoints(v, i))
		}
	}
	return list
}

func passageEndpoints(v *mesh.Passages, at int) string {
	return textOf(mesh.Subject{Kind: mesh.SubjectEndpoints, Datacenter: v.Datacenter, Service: v.Services[at].Service})
}

// passages builds what a mesh gateway has.
func (p *Proxy) passages() {
	v, _ := p.gateway.values[passagesSubject].(*mesh.Passages)
	want := map[string]wanted{}
	if v == nil {
		p.problem(errkind.New(errkind.Denied, "a mesh gateway's token needs service:read for all services "+
			`(service_prefix "" { policy = "read" }): nothing is let through`))
		v = &mesh.Passages{}
	}
	for i := range v.Services {
		s := &v.Services[i]
		want[s.Service] = wanted{[]string{passageEndpoints(v, i)}, strings.Join(s.Names, " "),
			func(inputs []any) (*part, error) { return p.passage(s, v.Datacenter, inputs[0].(*mesh.Resource)) }}
	}
	for i := range v.Onward {
		o := &v.Onward[i]
		want["peer "+o.Peer] = wanted{nil, v, func([]any) (*part, error) { return p.onward(o) }}
	}
	if o := v.Servers; o != nil {
		want["the servers"] = wanted{nil, v, func([]any) (*part, error) { return p.onward(o) }}
	}
	p.gatewayParts("the gateway's token may not see it (it needs service:read)", want)
	p.gatewayListeners(envoy.MeshGatewayListener, "mesh_gateway_local.default")
}

// passage builds what is there for one service of this cluster.
func (p *profile) passage(s *mesh.Passage, datacenter string, instances *mesh.Resource) (*part, error) {
	r, err := envoy.PassageCluster(instances.Name, p.config().millis("connect_timeout_ms", envoy.DefaultConnectTimeout),
		nil)
	if err != nil {
		return nil, err
	}
	return &part{resources: []*mesh.Resource{p.cache.one(r), instances}, stood: []envoy.Stood{{Service: s.Service,
		Cluster: instances.Name, Names: s.Names, Stat: "upstream." + s.Service + ".default.default." + datacenter}}}, nil
}

// onward builds what is there for the services of one peer.
func (p *profile) onward(o *mesh.Onward) (*part, error) {
	connect := p.config().millis("connect_timeout_ms", envoy.DefaultConnectTimeout)
	out := &part{stood: []envoy.Stood{{Service: o.Peer, Cluster: o.Cluster, Names: o.Names,
		Stat: "mesh_gateway_remote.default." + o.Peer}}}
	var byName []mesh.Endpoint
	if envoy.Named(o.Endpoints) {
		byName = o.Endpoints
	} else {
		at, err := envoy.Endpoints(&mesh.Endpoints{Cluster: o.Cluster, List: o.Endpoints})
		if err != nil {
			return nil, err
		}
		out.resources = append(out.resources, p.cache.one(at))
	}
	r, err := envoy.PassageCluster(o.Cluster, connect, byName)
	if err != nil {
		return nil, err
	}
	out.resources = append(out.resources, p.cache.one(r))
	return out, nil
}
