package catalog

import (
	"strings"
	"time"
)

// Health is a check's status.
type Health uint8

// The statuses, best first: aggregation takes the largest.
const (
	Passing Health = iota
	Warning
	Critical
)

// String returns the status as clients spell it.
func (h Health) String() string {
	switch h {
	case Passing:
		return "passing"
	case Warning:
		return "warning"
	}
	return "critical"
}

// ParseHealth reads a status word; ok is false for any other word.
func ParseHealth(s string) (h Health, ok bool) {
	switch s {
	case "passing":
		return Passing, true
	case "warning":
		return Warning, true
	case "critical":
		return Critical, true
	}
	return Critical, false
}

// Check identifiers with a meaning of their own.
const (
	SerfHealthID             = "serfHealth"
	SerfHealthName           = "Serf Health Status"
	SerfAliveOutput          = "Agent alive and reachable"
	SerfFailedOutput         = "Agent not live or unreachable"
	NodeMaintenanceID        = "_node_maintenance"
	ServiceMaintenancePrefix = "_service_maintenance:"
	// ServiceDrainPrefix begins the ID of the check that marks an instance as draining: it is
	// to get no new work, and what it has is to end in its own time.
	ServiceDrainPrefix = "_service_drain:"
	// MonitorPrefix begins the IDs of checks that have the status of a check of the monitor plane: no agent's
	// anti-entropy removes them.
	MonitorPrefix     = "monitor:"
	ServerServiceName = "consul"
	ServerServiceID   = "consul"
)

// Node is a host of the fleet.
type Node struct {
	ID                        string // UUID, may be empty for nodes registered by hand
	Name, Address, Datacenter string
	TaggedAddresses           map[string]string
	Meta                      map[string]string
	Locality                  *Locality
	CreateIndex               uint64
	ModifyIndex               uint64
	// Peer is the peer that the node was imported from, "" for one of this cluster's. It is in memory alone: no command
	// and no snapshot has it.
	Peer string
}

// Locality is where a node or instance runs.
type Locality struct{ Region, Zone string }

// ServiceAddress is an address under a tag (lan, wan, virtual ...).
type ServiceAddress struct {
	Address string
	Port    int
}

// Weights are the DNS SRV and load-balancing weights by health.
type Weights struct{ Passing, Warning int }

// Kinds of service. The empty string is a plain service.
const (
	KindTypical            = ""
	KindConnectProxy       = "connect-proxy"
	KindMeshGateway        = "mesh-gateway"
	KindTerminatingGateway = "terminating-gateway"
	KindIngressGateway     = "ingress-gateway"
	KindAPIGateway         = "api-gateway"
)

// Service is one instance of a service on a node.
type Service struct {
	Node            string // the node's name
	Kind, ID, Name  string
	Tags            []string
	Address         string
	TaggedAddresses map[string]ServiceAddress
	Meta            map[string]string
	Port            int
	Sockets
	Weights           Weights
	EnableTagOverride bool
	Connect
	Locality *Locality
	Indexes
}

// Sockets are the further ways to reach an instance: a path, or named ports of which one is Port.
type Sockets struct {
	SocketPath string
	Ports      []NamedPort
}

// NamedPort is one of several ports of an instance. Exactly one of them is the default.
type NamedPort struct {
	Name    string
	Port    int
	Default bool
}

// PortNamed is the port of that name in any case; the empty name is Port. ok is false when there is none.
func (s *Service) PortNamed(name string) (port int, ok bool) {
	if name == "" {
		return s.Port, true
	}
	for i := range s.Ports {
		if strings.EqualFold(s.Ports[i].Name, name) {
			return s.Ports[i].Port, true
		}
	}
	return 0, false
}

// ConnectsTo is the name, in lower case, under which the instances that connect to a service are
// found; "" when this one does not take part in the mesh.
func (s *Service) ConnectsTo() string {
	switch {
	case s.Kind == KindConnectProxy:
		return lower(s.ProxyDestination)
	case s.Native:
		return lower(s.Name)
	}
	return ""
}

func lower(name string) string { return strings.ToLower(name) }

// Connect is what an instance is in the mesh.
type Connect struct {
	Native bool // Connect.Native
	// Proxy is the registered Proxy object as canonical JSON in the contract's
	// field names, nil when there is none. The mesh plane gives it types.
	Proxy []byte
	// ProxyDestination is Proxy.DestinationServiceName: the index of health/connect.
	ProxyDestination string
}

// Check is the health check of a node (ServiceID empty) or of a service instance.
type Check struct {
	Node, ID, Name         string
	Status                 Health
	Notes, Output          string
	ServiceID, ServiceName string
	ServiceTags            []string
	Type                   string // http, tcp, ttl, script, grpc, ...
	Interval, Timeout      string
	ExposedPort            int
	// Definition is the contract's Definition object as canonical JSON, nil when unset.
	Definition []byte
	Indexes
}

// Indexes are the catalog's indexes of a record: when it came and when it last changed.
type Indexes struct {
	CreateIndex, ModifyIndex uint64
}

// KVPair is one key of the key-value store.
type KVPair struct {
	Key         string
	Value       []byte
	Flags       uint64
	Session     string
	LockIndex   uint64
	CreateIndex uint64
	ModifyIndex uint64
	// By wrote the value, the flags or the lock last. Who loses a lock with its session changes nothing of it.
	By Author
}

// Author tells who asked for a change, and when. People read it; no command compares it, and the catalog's API does not
// answer it. What an older release wrote has none.
type Author struct {
	// Accessor is the token's; zero for the anonymous token and where access control is off.
	Accessor [16]byte
	// At is in seconds since 1970, by the clock of the server that took the request.
	At int64
}

// Session behaviours.
const (
	BehaviorRelease = "release"
	BehaviorDelete  = "delete"
)

// Session is a lease on locks, bound to checks and optionally to a TTL.
type Session struct {
	ID            string
	Name          string
	Node          string
	LockDelay     time.Duration
	Behavior      string
	TTL           string // as given; "" is none
	NodeChecks    []string
	ServiceChecks []ServiceCheckRef
	CreateIndex   uint64
	ModifyIndex   uint64
}

// ServiceCheckRef names a service check that a session depends on.
type ServiceCheckRef struct{ ID, Namespace string }
