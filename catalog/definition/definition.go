// Package definition is how users write services and health checks: in request bodies, and in
// definition files as JSON or HCL.
//
// Invariants:
//   - Keys match in any case, with or without underscores. Bodies may have unknown keys, files may not.
//   - What Validate accepts can be registered and run; its errors are in the contract's words.
//   - A Definition object and a Proxy object become canonical JSON: equal ones have equal bytes.
//
// Everything here is a pure function of its input and is for any number of goroutines.
package definition

import (
	"maps"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/check"
)

// Service is a service as users register it, over HTTP or in a file.
// Treat it as immutable once it was handed to the agent.
type Service struct {
	Kind string
	ID   string // Name when empty
	Name string
	Tags []string
	Meta map[string]string
	Endpoint
	Check             *Check
	Checks            []*Check
	Weights           *catalog.Weights // nil means 1, 1
	Token             string
	EnableTagOverride bool
	Locality          *catalog.Locality
	Mesh
	// FromFile: a definition file brought it.
	FromFile bool `json:"-"`
}

// Endpoint is where a service is reached: at Port or at SocketPath.
type Endpoint struct {
	Address         string
	TaggedAddresses map[string]catalog.ServiceAddress
	Port            int
	catalog.Sockets
}

// Mesh is a service's part in the mesh.
type Mesh struct {
	// Proxy is canonical JSON in the contract's field names, nil when absent.
	Proxy   []byte
	Connect *Connect
	// AutoSidecar marks the proxy that another service's registration asked for; not decoded.
	AutoSidecar bool `json:",omitempty"`
}

// Connect is the Connect stanza of a service.
type Connect struct {
	Native         bool
	SidecarService *Service
}

// Check is a health check as users register it. Treat it as immutable
// once it was handed to the agent.
type Check struct {
	ID        string // CheckID; derived by NormaliseChecks when empty
	Name      string
	Notes     string
	ServiceID string
	Token     string
	Status    string // initial; empty means critical
	Probe
	Interval time.Duration
	Timeout  time.Duration
	TTL      time.Duration
	check.Thresholds
	DeregisterCriticalServiceAfter time.Duration
	OutputMaxSize                  int // bytes; 0 means the agent's default

	// Maintenance marks the checks that maintenance mode makes; not decoded.
	Maintenance bool
	// FromFile: a definition file brought it.
	FromFile bool `json:"-"`
}

// Probe is what a check looks at, and how. Kind tells which of the fields decides. Its
// fields are in the order of the contract's Definition object, which is stored.
type Probe struct {
	HTTP string `json:",omitempty"`
	check.HTTPRequest
	TLS
	TCP          string `json:",omitempty"`
	TCPUseTLS    bool   `json:",omitempty"`
	UDP          string `json:",omitempty"`
	H2PING       string `json:",omitempty"`
	H2PingUseTLS *bool  `json:",omitempty"` // nil means true
	GRPC         string `json:",omitempty"`
	GRPCUseTLS   bool   `json:",omitempty"`
	OSService    string `json:",omitempty"`
	Command
	Alias
	SessionName string `json:",omitempty"`
}

// TLS says how a probe judges the certificate of what it reaches.
type TLS struct {
	TLSServerName string `json:",omitempty"`
	TLSSkipVerify bool   `json:",omitempty"`
}

// Command is what a probe starts, on the host or in a container.
type Command struct {
	ScriptArgs        []string `json:",omitempty"`
	DockerContainerID string   `json:",omitempty"`
	Shell             string   `json:",omitempty"`
}

// Alias names the node or the service whose state a check takes over.
type Alias struct {
	AliasNode    string `json:",omitempty"`
	AliasService string `json:",omitempty"`
}

// Kind tells how the check is run, as Type shows it; "" when nothing says so.
func (d *Check) Kind() check.Kind {
	switch {
	case d.Maintenance:
		return check.KindMaintenance
	case d.AliasNode != "" || d.AliasService != "":
		return check.KindAlias
	case d.TTL > 0:
		return check.KindTTL
	case d.HTTP != "":
		return check.KindHTTP
	case d.GRPC != "":
		return check.KindGRPC
	case d.TCP != "":
		return check.KindTCP
	case d.UDP != "":
		return check.KindUDP
	case d.H2PING != "":
		return check.KindH2Ping
	case d.DockerContainerID != "":
		return check.KindDocker
	case d.OSService != "":
		return check.KindOSService
	case len(d.ScriptArgs) > 0:
		return check.KindScript
	}
	return ""
}

// Spec is what the check runner needs to know. fallback is the output size when
// the definition has none.
func (d *Check) Spec(fallback int) check.Spec {
	s := check.Spec{
		Kind: d.Kind(), Interval: d.Interval, Timeout: d.Timeout, TTL: d.TTL,
		HTTPRequest: d.HTTPRequest, TLSServerName: d.TLSServerName, TLSSkipVerify: d.TLSSkipVerify,
		Args: d.ScriptArgs, Thresholds: d.Thresholds, OutputMaxSizeBytes: d.OutputMaxSize,
	}
	if s.OutputMaxSizeBytes <= 0 || (fallback > 0 && s.OutputMaxSizeBytes > fallback) {
		s.OutputMaxSizeBytes = fallback
	}
	switch s.Kind {
	case check.KindHTTP:
		s.Target = d.HTTP
	case check.KindTCP:
		s.Target, s.UseTLS = d.TCP, d.TCPUseTLS
	case check.KindUDP:
		s.Target = d.UDP
	case check.KindGRPC:
		s.Target, s.UseTLS = d.GRPC, d.GRPCUseTLS
	case check.KindH2Ping:
		s.Target, s.UseTLS = d.H2PING, d.H2PingUseTLS == nil || *d.H2PingUseTLS
	case check.KindDocker:
		s.Target = d.DockerContainerID
	case check.KindOSService:
		s.Target = d.OSService
	}
	if h, ok := catalog.ParseHealth(d.Status); ok {
		s.Status = h
	} else {
		s.Status = catalog.Critical
	}
	return s
}

// ServiceID is the id under which the service is registered.
func (d *Service) ServiceID() string {
	if d.ID != "" {
		return d.ID
	}
	return d.Name
}

// NormaliseChecks returns the service's checks with id, name and service
// filled in as the contract names them. The definition itself is not changed.
func (d *Service) NormaliseChecks() []*Check {
	all := make([]*Check, 0, len(d.Checks)+1)
	if d.Check != nil && !d.Check.empty() {
		all = append(all, d.Check)
	}
	for _, c := range d.Checks {
		if c != nil && !c.empty() {
			all = append(all, c)
		}
	}
	id := d.ServiceID()
	for i, c := range all {
		n := *c
		n.ServiceID = id
		if n.ID == "" {
			n.ID = "service:" + id
			if len(all) > 1 {
				n.ID += ":" + strconv.Itoa(i+1)
			}
		}
		if strings.TrimSpace(n.Name) == "" {
			n.Name = "Service '" + d.Name + "' check"
		}
		if n.Token == "" {
			n.Token = d.Token
		}
		n.FromFile = d.FromFile
		all[i] = &n
	}
	return all
}

// CheckID is the id under which a check registered by itself is known.
func (d *Check) CheckID() string {
	if d.ID != "" {
		return d.ID
	}
	return d.Name
}

// empty reports whether nothing was said: clients send "Check": {}.
func (d *Check) empty() bool {
	return d.ID == "" && d.Name == "" && d.Status == "" && d.Interval == 0 && d.Kind() == ""
}

// CatalogService is the definition as the catalog stores it for a node.
func (d *Service) CatalogService(node string) *catalog.Service {
	s := &catalog.Service{
		Node: node, Kind: d.Kind, ID: d.ServiceID(), Name: d.Name, Tags: d.Tags, Address: d.Address,
		TaggedAddresses: d.TaggedAddresses, Meta: d.Meta, Port: d.Port, Sockets: d.Sockets,
		Weights: catalog.Weights{Passing: 1, Warning: 1}, EnableTagOverride: d.EnableTagOverride,
		Connect: catalog.Connect{Proxy: d.Proxy, ProxyDestination: proxyDestination(d.Proxy)}, Locality: d.Locality,
	}
	if s.Port == 0 {
		s.Port = DefaultPort(s.Ports)
	}
	s.TaggedAddresses = byFamily(s)
	if d.Weights != nil {
		s.Weights = *d.Weights
	}
	if d.Connect != nil {
		s.Native = d.Connect.Native
	}
	return s
}

// byFamily are the tagged addresses with those that follow from an address that is an IP.
func byFamily(s *catalog.Service) map[string]catalog.ServiceAddress {
	ip, err := netip.ParseAddr(s.Address)
	if err != nil {
		return s.TaggedAddresses
	}
	family := "_ipv4"
	if ip.Is6() {
		family = "_ipv6"
	}
	out := map[string]catalog.ServiceAddress{}
	for _, side := range []string{"lan", "wan"} {
		out[side+family] = catalog.ServiceAddress{Address: s.Address, Port: s.Port}
	}
	maps.Copy(out, s.TaggedAddresses)
	return out
}

// CatalogCheck is the definition as the catalog stores it. svc is nil for checks of the node.
func (d *Check) CatalogCheck(node string, svc *catalog.Service) *catalog.Check {
	status, ok := catalog.ParseHealth(d.Status)
	if !ok {
		status = catalog.Critical
	}
	c := &catalog.Check{
		Node: node, ID: d.CheckID(), Name: d.Name, Status: status, Notes: d.Notes,
		ServiceID: d.ServiceID, Type: string(d.Kind()),
	}
	if d.Interval > 0 {
		c.Interval = d.Interval.String()
	}
	if d.Timeout > 0 {
		c.Timeout = d.Timeout.String()
	}
	if svc != nil {
		c.ServiceName, c.ServiceTags = svc.Name, svc.Tags
	}
	return c
}

// InFile is the definition as one that a definition file brought; what was given stays as it is.
func (d *Service) InFile() *Service {
	copied := *d
	copied.FromFile = true
	return &copied
}

// InFile is the definition as one that a definition file brought; what was given stays as it is.
func (d *Check) InFile() *Check {
	copied := *d
	copied.FromFile = true
	return &copied
}
