package entry

import (
	"errors"
	"fmt"
	"strings"
)

// MeshGateway says whether traffic to other datacenters goes through gateways.
type MeshGateway struct {
	Mode string `json:",omitempty"`
}

// TransparentProxy configures proxies that traffic is redirected to.
type TransparentProxy struct {
	OutboundListenerPort int  `json:",omitempty"`
	DialedDirectly       bool `json:",omitempty"`
}

// Expose lets paths through the proxy without mutual TLS.
type Expose struct {
	Checks bool         `json:",omitempty"`
	Paths  []ExposePath `json:",omitempty"`
}

// ExposePath is one such path.
type ExposePath struct {
	ListenerPort    int    `json:",omitempty"`
	Path            string `json:",omitempty"`
	LocalPathPort   int    `json:",omitempty"`
	Protocol        string `json:",omitempty"`
	ParsedFromCheck bool   `json:",omitempty"`
}

// ExposedChecks are the paths by which a proxy lets the agent's checks through, and where these may come from. They are
// in no entry: the agent adds them to what a proxy is made of.
type ExposedChecks struct {
	Paths []ExposePath
	From  []string // networks
}

// EnvoyExtension names an extension and its arguments.
type EnvoyExtension struct {
	Name          string
	Required      bool           `json:",omitempty"`
	Arguments     map[string]any `json:",omitempty"`
	ConsulVersion string         `json:",omitempty"`
	EnvoyVersion  string         `json:",omitempty"`
}

// UpstreamLimits bound what one proxy sends to an upstream.
type UpstreamLimits struct {
	MaxConnections        *int `json:",omitempty"`
	MaxPendingRequests    *int `json:",omitempty"`
	MaxConcurrentRequests *int `json:",omitempty"`
}

// PassiveHealthCheck ejects instances that fail.
type PassiveHealthCheck struct {
	Interval                Duration  `json:",omitempty"`
	MaxFailures             uint32    `json:",omitempty"`
	EnforcingConsecutive5xx *uint32   `json:",omitempty"`
	MaxEjectionPercent      *uint32   `json:",omitempty"`
	BaseEjectionTime        *Duration `json:",omitempty"`
}

// UpstreamConfig is what holds for a service's upstreams.
type UpstreamConfig struct {
	Name                       string              `json:",omitempty"`
	Partition                  string              `json:",omitempty"`
	Namespace                  string              `json:",omitempty"`
	Peer                       string              `json:",omitempty"`
	EnvoyListenerJSON          string              `json:",omitempty"`
	EnvoyClusterJSON           string              `json:",omitempty"`
	Protocol                   string              `json:",omitempty"`
	ConnectTimeoutMs           int                 `json:",omitempty"`
	Limits                     *UpstreamLimits     `json:",omitempty"`
	PassiveHealthCheck         *PassiveHealthCheck `json:",omitempty"`
	MeshGateway                MeshGateway         `json:",omitzero"`
	BalanceOutboundConnections string              `json:",omitempty"`
}

// Upstreams is defaults and overrides of upstream configurations.
type Upstreams struct {
	Overrides []*UpstreamConfig `json:",omitempty"`
	Defaults  *UpstreamConfig   `json:",omitempty"`
}

// Destination is where a service outside of the mesh is found.
type Destination struct {
	Addresses []string `json:",omitempty"`
	Port      int      `json:",omitempty"`
}

// RateLimits bound the requests to an instance.
type RateLimits struct {
	InstanceLevel InstanceRateLimits
}

// InstanceRateLimits are enforced by each instance's proxy.
type InstanceRateLimits struct {
	RequestsPerSecond int              `json:",omitempty"`
	RequestsMaxBurst  int              `json:",omitempty"`
	Routes            []RouteRateLimit `json:",omitempty"`
}

// RouteRateLimit is one path's own limit.
type RouteRateLimit struct {
	PathExact         string `json:",omitempty"`
	PathPrefix        string `json:",omitempty"`
	PathRegex         string `json:",omitempty"`
	RequestsPerSecond int    `json:",omitempty"`
	RequestsMaxBurst  int    `json:",omitempty"`
}

// Service is service-defaults.
type Service struct {
	Common
	Protocol         string            `json:",omitempty"`
	Mode             string            `json:",omitempty"`
	TransparentProxy *TransparentProxy `json:",omitempty"`
	MutualTLSMode    string            `json:",omitempty"`
	MeshGateway      MeshGateway
	Expose           Expose
	ExternalSNI      string       `json:",omitempty"`
	UpstreamConfig   *Upstreams   `json:",omitempty"`
	Destination      *Destination `json:",omitempty"`
	Inbound
	EnvoyExtensions []EnvoyExtension `json:",omitempty"`
}

// Inbound bounds what a service's proxies take in and pass on to it.
type Inbound struct {
	MaxInboundConnections     int         `json:",omitempty"`
	LocalConnectTimeoutMs     int         `json:",omitempty"`
	LocalRequestTimeoutMs     int         `json:",omitempty"`
	BalanceInboundConnections string      `json:",omitempty"`
	RateLimits                *RateLimits `json:",omitempty"`
}

// protocols are what service-defaults and proxy-defaults may name.
var protocols = []string{"tcp", "http", "http2", "grpc", "redis"}

var (
	proxyModes   = []string{"", "direct", "transparent"}
	gatewayModes = []string{"", "none", "local", "remote"}
	mutualModes  = []string{"", "default", "strict", "permissive"}
	balanceModes = []string{"", "exact_balance"}
)

// Normalize implements Entry.
func (e *Service) Normalize() {
	e.Protocol = strings.ToLower(e.Protocol)
	if e.UpstreamConfig == nil {
		return
	}
	for _, u := range append([]*UpstreamConfig{e.UpstreamConfig.Defaults}, e.UpstreamConfig.Overrides...) {
		if u != nil {
			u.Protocol = strings.ToLower(u.Protocol)
		}
	}
}

// Validate implements Entry.
func (e *Service) Validate() error {
	errs := []error{e.validate(""), oneOf("Mode", e.Mode, proxyModes...), oneOf("MeshGateway.Mode", e.MeshGateway.Mode,
		gatewayModes...),
		oneOf("MutualTLSMode", e.MutualTLSMode, mutualModes...),
		oneOf("BalanceInboundConnections", e.BalanceInboundConnections, balanceModes...)}
	if e.Protocol != "" {
		errs = append(errs, oneOf("Protocol", e.Protocol, protocols...))
	}
	if e.Name == "*" {
		errs = append(errs, errors.New("wildcard name (\"*\") is not supported"))
	}
	for field, n := range map[string]int{"MaxInboundConnections": e.MaxInboundConnections,
		"LocalConnectTimeoutMs": e.LocalConnectTimeoutMs,
		"LocalRequestTimeoutMs": e.LocalRequestTimeoutMs} {
		if n < 0 {
			errs = append(errs, fmt.Errorf("invalid %s %d: must not be below zero", field, n))
		}
	}
	if d := e.Destination; d != nil {
		if len(d.Addresses) == 0 || d.Port < 1 || d.Port > 65535 {
			errs = append(errs, errors.New("invalid Destination: Addresses must not be empty and Port must be 1 to 65535"))
		}
	}
	if u := e.UpstreamConfig; u != nil {
		errs = append(errs, u.validate())
	}
	return errors.Join(append(errs, e.Expose.validate())...)
}

func (u *Upstreams) validate() error {
	var errs []error
	if u.Defaults != nil {
		if u.Defaults.Name != "" {
			errs = append(errs, errors.New("invalid UpstreamConfig.Defaults: Name must be empty"))
		}
		errs = append(errs, u.Defaults.validate("UpstreamConfig.Defaults"))
	}
	for i, o := range u.Overrides {
		path := fmt.Sprintf("UpstreamConfig.Overrides[%d]", i)
		if o.Name == "" {
			errs = append(errs, fmt.Errorf("invalid %s: Name is required", path))
		}
		errs = append(errs, o.validate(path))
	}
	return errors.Join(errs...)
}

func (u *UpstreamConfig) validate(path string) error {
	errs := []error{oneOf(path+".MeshGateway.Mode", u.MeshGateway.Mode, gatewayModes...),
		oneOf(path+".BalanceOutboundConnections", u.BalanceOutboundConnections, balanceModes...)}
	if u.Protocol != "" {
		errs = append(errs, oneOf(path+".Protocol", u.Protocol, protocols...))
	}
	if u.ConnectTimeoutMs < 0 {
		errs = append(errs, fmt.Errorf("invalid %s.ConnectTimeoutMs %d: must not be below zero", path, u.ConnectTimeoutMs))
	}
	return errors.Join(errs...)
}

func (e *Expose) validate() error {
	var errs []error
	for i, p := range e.Paths {
		if !strings.HasPrefix(p.Path, "/") {
			errs = append(errs, fmt.Errorf("invalid Expose.Paths[%d].Path %q: must begin with a slash", i, p.Path))
		}
		if p.Protocol != "" {
			errs = append(errs, oneOf(fmt.Sprintf("Expose.Paths[%d].Protocol", i), p.Protocol, "http", "http2"))
		}
		for field, port := range map[string]int{"ListenerPort": p.ListenerPort, "LocalPathPort": p.LocalPathPort} {
			if port < 0 || port > 65535 {
				errs = append(errs, fmt.Errorf("invalid Expose.Paths[%d].%s %d", i, field, port))
			}
		}
	}
	return errors.Join(errs...)
}

// AccessLogs are what proxies log of connections.
type AccessLogs struct {
	Enabled             bool   `json:",omitempty"`
	DisableListenerLogs bool   `json:",omitempty"`
	Type                string `json:",omitempty"`
	Path                string `json:",omitempty"`
	JSONFormat          string `json:",omitempty"`
	TextFormat          string `json:",omitempty"`
}

// FailoverPolicy says how failover targets are tried.
type FailoverPolicy struct {
	Mode    string   `json:",omitempty"`
	Regions []string `json:",omitempty"`
}

// LocalityPolicy prefers instances nearby.
type LocalityPolicy struct {
	Mode string `json:",omitempty"`
}

// Proxy is proxy-defaults.
type Proxy struct {
	Common
	Config               map[string]any    `json:",omitempty"`
	Mode                 string            `json:",omitempty"`
	TransparentProxy     *TransparentProxy `json:",omitempty"`
	MutualTLSMode        string            `json:",omitempty"`
	MeshGateway          MeshGateway
	Expose               Expose
	AccessLogs           *AccessLogs      `json:",omitempty"`
	EnvoyExtensions      []EnvoyExtension `json:",omitempty"`
	FailoverPolicy       *FailoverPolicy  `json:",omitempty"`
	PrioritizeByLocality *LocalityPolicy  `json:",omitempty"`
}

// Normalize implements Entry.
func (e *Proxy) Normalize() {}

// Protocol is the protocol of services that name none, "" when it is not set.
func (e *Proxy) Protocol() string {
	p, _ := e.Config["protocol"].(string)
	return strings.ToLower(p)
}

// Validate implements Entry.
func (e *Proxy) Validate() error {
	errs := []error{e.validate(Global), oneOf("Mode", e.Mode, proxyModes...), oneOf("MeshGateway.Mode", e.MeshGateway.Mode,
		gatewayModes...),
		oneOf("MutualTLSMode", e.MutualTLSMode, mutualModes...), e.Expose.validate()}
	if p := e.Protocol(); p != "" {
		errs = append(errs, oneOf("Config.protocol", p, protocols...))
	}
	if l := e.AccessLogs; l != nil {
		errs = append(errs, oneOf("AccessLogs.Type", l.Type, "", "stdout", "stderr", "file"))
		if l.Type == "file" && l.Path == "" {
			errs = append(errs, errors.New("invalid AccessLogs: Path is required with Type \"file\""))
		}
		if l.JSONFormat != "" && l.TextFormat != "" {
			errs = append(errs, errors.New("invalid AccessLogs: only one of JSONFormat and TextFormat may be set"))
		}
	}
	return errors.Join(errs...)
}

// TLSDirection bounds TLS of one direction.
type TLSDirection struct {
	TLSMinVersion string   `json:",omitempty"`
	TLSMaxVersion string   `json:",omitempty"`
	CipherSuites  []string `json:",omitempty"`
}

// MeshTLS bounds TLS within the mesh.
type MeshTLS struct {
	Incoming *TLSDirection `json:",omitempty"`
	Outgoing *TLSDirection `json:",omitempty"`
}

// MeshHTTP are HTTP settings of all proxies.
type MeshHTTP struct {
	SanitizeXForwardedClientCert bool
	Incoming                     *IncomingHTTP `json:",omitempty"`
}

// IncomingHTTP are settings of public listeners.
type IncomingHTTP struct {
	RequestNormalization *RequestNormalization `json:",omitempty"`
}

// RequestNormalization is how paths are cleaned before rules see them.
type RequestNormalization struct {
	InsecureDisablePathNormalization bool   `json:",omitempty"`
	MergeSlashes                     bool   `json:",omitempty"`
	PathWithEscapedSlashesAction     string `json:",omitempty"`
	HeadersWithUnderscoresAction     string `json:",omitempty"`
}

// MeshTransparentProxy says where redirected traffic may go.
type MeshTransparentProxy struct{ MeshDestinationsOnly bool }

// MeshPeering is how peers are reached.
type MeshPeering struct {
	PeerThroughMeshGateways bool `json:",omitempty"`
}

// MeshConfig is the entry mesh.
type MeshConfig struct {
	Common
	TransparentProxy                 MeshTransparentProxy `json:",omitzero"`
	AllowEnablingPermissiveMutualTLS bool                 `json:",omitempty"`
	TLS                              *MeshTLS             `json:",omitempty"`
	HTTP                             *MeshHTTP            `json:",omitempty"`
	Peering                          *MeshPeering         `json:",omitempty"`
	ValidateClusters                 bool                 `json:",omitempty"`
}

// Normalize implements Entry.
func (e *MeshConfig) Normalize() {
	if e.Name == "" {
		e.Name = "mesh"
	}
}

// Validate implements Entry.
func (e *MeshConfig) Validate() error {
	errs := []error{e.validate("mesh")}
	if e.TLS != nil {
		for name, d := range map[string]*TLSDirection{"Incoming": e.TLS.Incoming, "Outgoing": e.TLS.Outgoing} {
			if d != nil {
				errs = append(errs, oneOf("TLS."+name+".TLSMinVersion", d.TLSMinVersion, tlsVersions...),
					oneOf("TLS."+name+".TLSMaxVersion", d.TLSMaxVersion, tlsVersions...))
			}
		}
	}
	return errors.Join(errs...)
}

// tlsVersions are the words for a bound of the version; "" is none.
var tlsVersions = []string{"", "TLS_AUTO", "TLSv1_0", "TLSv1_1", "TLSv1_2", "TLSv1_3"}
