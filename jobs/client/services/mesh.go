package services

import (
	"encoding/json"

	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/client/taskenv"
	"corbel.dev/corbel/jobs/client/workload"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/jobs/meshtask"
)

// Mesh is a service's part in the mesh.
type Mesh struct {
	Native  bool
	Sidecar *Sidecar // nil: none
}

// Sidecar is the proxy beside a service, as it is to be registered.
type Sidecar struct {
	Address string
	Port    int
	Tags    []string // nil: those of the service
	Meta    map[string]string
	Proxy   []byte // JSON in the catalog's field names
	// Unchecked has nobody try the proxy's port.
	Unchecked bool
}

// proxy is what the catalog is told of a sidecar.
type proxy struct {
	LocalServiceAddress string         `json:",omitempty"`
	LocalServicePort    int            `json:",omitempty"`
	Config              map[string]any `json:",omitempty"`
	Upstreams           []upstream     `json:",omitempty"`
	Expose              *expose        `json:",omitempty"`
}

type upstream struct {
	DestinationType     string `json:",omitempty"`
	DestinationName     string
	DestinationPeer     string               `json:",omitempty"`
	Datacenter          string               `json:",omitempty"`
	LocalBindAddress    string               `json:",omitempty"`
	LocalBindPort       int                  `json:",omitempty"`
	LocalBindSocketPath string               `json:",omitempty"`
	LocalBindSocketMode string               `json:",omitempty"`
	MeshGateway         *jobwire.MeshGateway `json:",omitempty"`
	Config              map[string]any       `json:",omitempty"`
}

type expose struct{ Paths []exposedPath }

type exposedPath struct {
	Path          string
	Protocol      string `json:",omitempty"`
	LocalPathPort int
	ListenerPort  int
}

// mesh reads the connect block of a service.
func mesh(of *Service, s *jobwire.Service, env *taskenv.Env, ports []driver.Port) (m Mesh) {
	if s.Connect == nil || of.Native {
		return m
	}
	m.Native = s.Connect.Native
	from := s.Connect.SidecarService
	if from == nil {
		return m
	}
	m.Sidecar = &Sidecar{Unchecked: from.DisableDefaultTCPCheck}
	m.Sidecar.Address, m.Sidecar.Port = address(meshtask.PortLabel(s), "", "", env, ports)
	for _, tag := range from.Tags {
		m.Sidecar.Tags = append(m.Sidecar.Tags, env.Replace(tag))
	}
	for name, value := range from.Meta {
		if m.Sidecar.Meta == nil {
			m.Sidecar.Meta = map[string]string{"external-source": "nomad"}
		}
		m.Sidecar.Meta[name] = env.Replace(value)
	}
	// In the host's network the task may listen on the address that it was given only.
	p := proxy{LocalServiceAddress: of.Address, LocalServicePort: of.Port}
	if env.Inside.Address != "" {
		p.LocalServiceAddress = "127.0.0.1"
		_, p.LocalServicePort = address(s.PortLabel, "alloc", "", env, ports)
	}
	if given := from.Proxy; given != nil {
		p.fill(given, env, ports)
	}
	if env.Inside.Address != "" {
		p.within(meshtask.PortLabel(s), env, ports)
	}
	m.Sidecar.Proxy, _ = json.Marshal(p) // what came as JSON goes as JSON
	return m
}

// within has a proxy listen inside of the allocation's network: at the port that the registered one leads to.
func (p *proxy) within(label string, env *taskenv.Env, ports []driver.Port) {
	_, port := address(label, "alloc", "", env, ports)
	all := map[string]any{"bind_address": "0.0.0.0", "bind_port": port}
	for name, value := range p.Config {
		all[name] = value
	}
	p.Config = all
}

// fill takes what a job says of a proxy.
func (p *proxy) fill(given *jobwire.Proxy, env *taskenv.Env, ports []driver.Port) {
	if given.LocalServiceAddress != "" {
		p.LocalServiceAddress = env.Replace(given.LocalServiceAddress)
	}
	if given.LocalServicePort > 0 {
		p.LocalServicePort = given.LocalServicePort
	}
	p.Config, _ = env.ReplaceAny(given.Config).(map[string]any)
	for _, u := range given.Upstreams {
		config, _ := env.ReplaceAny(u.Config).(map[string]any)
		to := upstream{DestinationType: u.DestinationType, DestinationName: env.Replace(u.DestinationName),
			DestinationPeer: u.DestinationPeer, Datacenter: env.Replace(u.Datacenter),
			LocalBindAddress: env.Replace(u.LocalBindAddress), LocalBindPort: u.LocalBindPort,
			LocalBindSocketPath: env.Replace(u.LocalBindSocketPath), LocalBindSocketMode: u.LocalBindSocketMode,
			Config: config}
		if u.MeshGateway != nil && u.MeshGateway.Mode != "" {
			to.MeshGateway = u.MeshGateway
		}
		p.Upstreams = append(p.Upstreams, to)
	}
	for _, given := range []*jobwire.Expose{given.Expose, given.ExposeConfig} {
		if given == nil || p.Expose != nil {
			continue
		}
		for _, path := range append(given.Paths[:len(given.Paths):len(given.Paths)], given.Path...) {
			_, port := address(path.ListenerPort, "alloc", "", env, ports)
			if p.Expose == nil {
				p.Expose = &expose{}
			}
			p.Expose.Paths = append(p.Expose.Paths, exposedPath{Path: path.Path, Protocol: path.Protocol,
				LocalPathPort: path.LocalPathPort, ListenerPort: port})
		}
	}
}

// IDOf is the id under which a service of the group is registered.
func IDOf(load *workload.Workload, s *jobwire.Service, env *taskenv.Env) string {
	return id(load, "group-"+load.Alloc.Group, env.Replace(s.Name), s.PortLabel)
}
