package local

import (
	"strings"
	"time"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/check"
)

// ServiceDefinition is a service as users register it, over HTTP or in a file.
// Treat it as immutable once it was handed to Local.
type ServiceDefinition struct {
	Kind              string
	ID                string // Name when empty
	Name              string
	Tags              []string
	Address           string
	TaggedAddresses   map[string]catalog.ServiceAddress
	Meta              map[string]string
	Port              int
	SocketPath        string
	Check             *CheckDefinition
	Checks            []*CheckDefinition
	Weights           *catalog.Weights // nil means 1, 1
	Token             string
	EnableTagOverride bool
	Locality          *catalog.Locality
	// Proxy is canonical JSON in the contract's field names, nil when absent.
	Proxy   []byte
	Connect *ConnectDefinition
	// AutoSidecar marks the proxy that another service's registration asked for; not decoded.
	AutoSidecar bool `json:",omitempty"`

	file bool // brought by a definition file
}

// ConnectDefinition is the Connect stanza of a service.
type ConnectDefinition struct {
	Native         bool
	SidecarService *ServiceDefinition
}

// CheckDefinition is a health check as users register it. Treat it as immutable
// once it was handed to Local.
type CheckDefinition struct {
	ID        string // CheckID; derived by NormaliseChecks when empty
	Name      string
	Notes     string
	ServiceID string
	Token     string
	Status    string // initial; empty means critical

	HTTP              string
	Header            map[string][]string
	Method            string
	Body              string
	DisableRedirects  bool
	TCP               string
	TCPUseTLS         bool
	UDP               string
	GRPC              string
	GRPCUseTLS        bool
	H2PING            string
	H2PingUseTLS      *bool // nil means true
	TLSServerName     string
	TLSSkipVerify     bool
	ScriptArgs        []string
	DockerContainerID string
	Shell             string
	OSService         string
	AliasNode         string
	AliasService      string
	SessionName       string

	Interval                       time.Duration
	Timeout                        time.Duration
	TTL                            time.Duration
	SuccessBeforePassing           int
	FailuresBeforeWarning          int // 0 means FailuresBeforeCritical
	FailuresBeforeCritical         int
	DeregisterCriticalServiceAfter time.Duration
	OutputMaxSize                  int // bytes; 0 means the agent's default

	// Maintenance marks the checks that maintenance mode makes; not decoded.
	Maintenance bool

	file bool // brought by a definition file
}

// Kind tells how the check is run, as Type shows it; "" when nothing says so.
func (d *CheckDefinition) Kind() check.Kind {
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
func (d *CheckDefinition) Spec(fallback int) check.Spec {
	s := check.Spec{
		Kind: d.Kind(), Interval: d.Interval, Timeout: d.Timeout, TTL: d.TTL,
		Method: d.Method, Header: d.Header, Body: d.Body, DisableRedirects: d.DisableRedirects,
		TLSServerName: d.TLSServerName, TLSSkipVerify: d.TLSSkipVerify, Args: d.ScriptArgs,
		SuccessBeforePassing: d.SuccessBeforePassing, FailuresBeforeWarning: d.FailuresBeforeWarning,
		FailuresBeforeCritical: d.FailuresBeforeCritical, OutputMaxSizeBytes: d.OutputMaxSize,
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
func (d *ServiceDefinition) ServiceID() string {
	if d.ID != "" {
		return d.ID
	}
	return d.Name
}

// NormaliseChecks returns the service's checks with id, name and service
// filled in as the contract names them. The definition itself is not changed.
func (d *ServiceDefinition) NormaliseChecks() []*CheckDefinition {
	all := make([]*CheckDefinition, 0, len(d.Checks)+1)
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
				n.ID += ":" + itoa(i+1)
			}
		}
		if strings.TrimSpace(n.Name) == "" {
			n.Name = "Service '" + d.Name + "' check"
		}
		if n.Token == "" {
			n.Token = d.Token
		}
		n.file = d.file
		all[i] = &n
	}
	return all
}

// CheckID is the id under which a check registered by itself is known.
func (d *CheckDefinition) CheckID() string {
	if d.ID != "" {
		return d.ID
	}
	return d.Name
}

// empty reports whether nothing was said: clients send "Check": {}.
func (d *CheckDefinition) empty() bool {
	return d.ID == "" && d.Name == "" && d.Status == "" && d.Interval == 0 && d.Kind() == ""
}

// CatalogService is the definition as the catalog stores it for a node.
func (d *ServiceDefinition) CatalogService(node string) *catalog.Service {
	s := &catalog.Service{
		Node: node, Kind: d.Kind, ID: d.ServiceID(), Name: d.Name, Tags: d.Tags, Address: d.Address,
		TaggedAddresses: d.TaggedAddresses, Meta: d.Meta, Port: d.Port, SocketPath: d.SocketPath,
		Weights: catalog.Weights{Passing: 1, Warning: 1}, EnableTagOverride: d.EnableTagOverride,
		Connect: catalog.Connect{Proxy: d.Proxy, ProxyDestination: proxyDestination(d.Proxy)}, Locality: d.Locality,
	}
	if d.Weights != nil {
		s.Weights = *d.Weights
	}
	if d.Connect != nil {
		s.Native = d.Connect.Native
	}
	return s
}

// CatalogCheck is the definition as the catalog stores it. svc is nil for checks of the node.
func (d *CheckDefinition) CatalogCheck(node string, svc *catalog.Service) *catalog.Check {
	status, ok := catalog.ParseHealth(d.Status)
	if !ok {
		status = catalog.Critical
	}
	c := &catalog.Check{
		Node: node, ID: d.CheckID(), Name: d.Name, Status: status, Notes: d.Notes,
		ServiceID: d.ServiceID, Type: string(d.Kind()), Definition: d.definitionJSON(),
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
