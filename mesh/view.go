package mesh

import (
	"corbel.dev/corbel/catalog/chain"
	"corbel.dev/corbel/catalog/entry"
)

// Health is what a proxy is told of an instance.
type Health uint8

// The states.
const (
	Healthy Health = iota
	Draining
	Unhealthy
)

// String is Envoy's word.
func (h Health) String() string {
	switch h {
	case Healthy:
		return "HEALTHY"
	case Draining:
		return "DRAINING"
	}
	return "UNHEALTHY"
}

// The least and the greatest weight of an instance.
const (
	MinWeight = 1
	MaxWeight = 128
)

// Endpoint is one instance as others reach it through the mesh.
type Endpoint struct {
	Address string // an IP address: Envoy takes no names here
	Port    uint16
	Health  Health
	Weight  uint32 // MinWeight to MaxWeight
}

// Endpoints is what one encoded ClusterLoadAssignment says: the instances of a
// service (or a subset of them) that can be connected to, in the order of their addresses, each address once.
type Endpoints struct {
	Cluster string // the resource's name: the target's name in the mesh, as chain.Target.Name
	List    []Endpoint
	// LeftOut counts the instances that proxies cannot be given, since their address is no IP address or their port is
	// none.
	LeftOut int
}

// Service is how the proxies of a service are to be set up: what all instances
// have in common. What a registration says for itself goes over it.
type Service struct {
	Name        string
	Datacenter  string
	TrustDomain string
	Protocol    string // tcp, http, http2, grpc, redis
	// ProxySettings are those of proxy-defaults and service-defaults; their Config as entry.CentralConfig merges it.
	ProxySettings
	Extensions []entry.EnvoyExtension `json:",omitempty"`
	RateLimits *entry.RateLimits      `json:",omitempty"`
	// Upstreams is what service-defaults says about what this service calls.
	Upstreams *entry.Upstreams `json:",omitempty"`
	MeshSettings
	// Ingress is what the service lets in from outside of the mesh, when it is an ingress gateway.
	Ingress *entry.Ingress `json:",omitempty"`
	// Linked are the services outside of the mesh that the service stands for, when it is a terminating gateway.
	Linked []Linked `json:",omitempty"`
	// API is what the service lets in from outside of the mesh, when it is an api gateway.
	API *API `json:",omitempty"`
	// OwnRules says that intentions name the service: the rules of its proxies are then the value of a
	// subject of its own (RulesSubject), else that of all services that none names.
	OwnRules bool `json:",omitempty"`
	// Trusted are the peers that the service is exported to, in order.
	Trusted []Trusted `json:",omitempty"`
}

// ProxySettings is what both the config entries and a proxy's own registration may set. Its JSON is that of the
// struct that embeds it.
type ProxySettings struct {
	// Config has free keys: protocol, max_inbound_connections, local_connect_timeout_ms ...
	Config           map[string]any          `json:",omitempty"`
	Mode             string                  `json:",omitempty"`
	MutualTLSMode    string                  `json:",omitempty"`
	TransparentProxy *entry.TransparentProxy `json:",omitempty"`
	MeshGateway      entry.MeshGateway       `json:",omitzero"`
	Expose           entry.Expose            `json:",omitzero"`
	AccessLogs       *entry.AccessLogs       `json:",omitempty"`
}

// MeshSettings is what the config entry mesh sets for all proxies.
type MeshSettings struct {
	TLS                  *entry.MeshTLS  `json:",omitempty"`
	HTTP                 *entry.MeshHTTP `json:",omitempty"`
	MeshDestinationsOnly bool            `json:",omitempty"`
	ValidateClusters     bool            `json:",omitempty"`
}

// RulesSubject is where the rules of the service's proxies are.
func (v *Service) RulesSubject() Subject {
	s := Subject{Kind: SubjectRules}
	if v.OwnRules {
		s.Service = v.Name
	}
	return s
}

// Rules is who may reach a service, or all services that no intention names.
type Rules struct {
	Service     string // "" for those that none names
	TrustDomain string
	// Intentions are in the order in which they are looked at; what none matches is allowed when DefaultAllow.
	Intentions   []Intention
	DefaultAllow bool
	Peers        map[string]string // the trust domains of those that intentions name, as far as they are known
}

// The names of the resources that a value of rules holds. They are the same for all services, as those of secrets
// are: so services with the same rules share the resources, and a listener's reference never changes.
const (
	NetworkRules = "connect_authz:tcp"
	HTTPRules    = "connect_authz:http"
)

// RulesValue is the value of a rules subject as agents get it: encoded extension configs.
type RulesValue struct {
	Network, HTTP *Resource
	// Owners are, in the value that services share, those that it is not for: intentions name them.
	Owners Owners
}

// Get returns the resource with the name, or nil.
func (v *RulesValue) Get(name string) *Resource {
	switch name {
	case NetworkRules:
		return v.Network
	case HTTPRules:
		return v.HTTP
	}
	return nil
}

// Intention is one rule of who may reach a service.
type Intention struct {
	Source      string // a service, "*" for all
	Peer        string
	Precedence  int
	Action      string             // allow, deny, "" when Permissions decide
	Permissions []entry.Permission // of requests, first match wins
	JWT         *entry.IntentionJWT
}

// Upstream is how a service is reached by those who set the same override for it.
type Upstream struct {
	Name       string
	Datacenter string
	// Chain is the compiled discovery chain; each of its targets has a subject, EndpointsOf.
	Chain *chain.Chain
	// Problem says why the config entries cannot be compiled; Chain is then the service's default one.
	Problem string `json:",omitempty"`
	// Peers is how those of the chain's targets are reached that are peers', by their IDs.
	Peers map[string]*Peered `json:",omitempty"`
	// Virtual is by which addresses redirected traffic means it, of a peer's service; that of others is a subject.
	Virtual *Virtual `json:",omitempty"`
}

// Roots is what certificates are verified with.
type Roots struct {
	TrustDomain string
	ActiveID    string // of the root that signs now
	List        []Root // the active one first
}

// Root is one root certificate.
type Root struct {
	ID     string
	PEM    string
	Active bool
}
