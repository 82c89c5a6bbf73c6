package proxy

import (
	"encoding/json"
	"fmt"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh"
)

// Registration is what a proxy's own registration says.
type Registration struct {
	Kind    string `json:"-"` // catalog.KindConnectProxy ...
	ID      string `json:"-"`
	Name    string `json:"-"` // of the proxy itself
	Address string `json:"-"` // where it is reached; "" for every address of its host
	Port    int    `json:"-"`
	Socket  string `json:"-"`

	DestinationServiceName string
	DestinationServiceID   string
	LocalServiceAddress    string
	LocalServicePort       int
	LocalServiceSocketPath string
	mesh.ProxySettings     // they go over those of the service
	Upstreams              []Upstream
	ExposedChecks          *entry.ExposedChecks // what the agent's checks go through; not what users set

	tagged map[string]catalog.ServiceAddress // of the registration, by what they are for
}

// Upstream is a service that the proxy's application calls.
type Upstream struct {
	DestinationType     string // service, prepared_query; "" is service
	DestinationName     string
	DestinationPeer     string
	Datacenter          string
	LocalBindAddress    string
	LocalBindPort       int
	LocalBindSocketPath string
	LocalBindSocketMode string // octal digits
	Config              map[string]any
	MeshGateway         entry.MeshGateway

	listener int // of an ingress gateway, counted from 1; 0: none, it is a registration's
}

// ReadRegistration reads the registration of a proxy.
func ReadRegistration(s *catalog.Service) (*Registration, error) {
	r := &Registration{}
	if len(s.Proxy) > 0 {
		if err := json.Unmarshal(s.Proxy, r); err != nil {
			return nil, errkind.E(errkind.Invalid, fmt.Sprintf("Proxy of %q", s.ID), err)
		}
	}
	r.Kind, r.ID, r.Name, r.Address, r.Port, r.Socket = s.Kind, s.ID, s.Name, s.Address, s.Port, s.SocketPath
	r.tagged = s.TaggedAddresses
	switch s.Kind {
	case catalog.KindConnectProxy:
		if r.DestinationServiceName == "" {
			return nil, errkind.Errorf(errkind.Invalid, "Proxy.DestinationServiceName of %q is required", s.ID)
		}
	case catalog.KindIngressGateway, catalog.KindTerminatingGateway, catalog.KindAPIGateway, catalog.KindMeshGateway:
	default:
		return nil, errkind.Errorf(errkind.Invalid, "%q is no proxy: its Kind is %q", s.ID, s.Kind)
	}
	return r, nil
}

// Service is the service whose certificate the proxy carries: the one that it
// stands before; a gateway is a service itself.
func (r *Registration) Service() string {
	if r.DestinationServiceName != "" {
		return r.DestinationServiceName
	}
	return r.Name
}
