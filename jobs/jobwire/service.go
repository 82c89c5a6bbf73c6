package jobwire

// Service is NO-14.
type Service struct {
	Name     string
	Provider string
	Cluster  string `json:",omitempty"`
	TaskName string `hcl:"task"`
	OnUpdate string
	ServiceAddress
	Tags              []string
	CanaryTags        []string
	EnableTagOverride bool
	Meta              map[string]string
	CanaryMeta        map[string]string
	Checks            []*ServiceCheck `hcl:"check"`
	CheckRestart      *CheckRestart
	Connect           *Connect
	ServiceMore
}

// ServiceAddress is where a service is reached.
type ServiceAddress struct {
	PortLabel       string `hcl:"port"`
	AddressMode     string
	Address         string
	TaggedAddresses map[string]string
}

// ServiceMore is what newer clients know.
type ServiceMore struct {
	Weights  *ServiceWeights   `json:",omitempty"`
	Identity *WorkloadIdentity `json:",omitempty"`
	Kind     string            `json:",omitempty"`
}

// ServiceWeights are weights of DNS answers.
type ServiceWeights struct{ Passing, Warning int }

// CheckRestart is when a failing check restarts its task.
type CheckRestart struct {
	Limit          int
	Grace          *Duration `def:"1s"`
	IgnoreWarnings bool
}

// ServiceCheck is NO-15.
type ServiceCheck struct {
	Name     string
	Type     string
	TaskName string `hcl:"task"`
	CheckCommand
	CheckHTTP
	CheckAddress
	CheckTiming
	CheckRestart *CheckRestart
	OnUpdate     string
	Notes        string `json:",omitempty"`
}

// CheckCommand is a check by a program.
type CheckCommand struct {
	Command string
	Args    []string
}

// CheckHTTP is a check by HTTP or gRPC.
type CheckHTTP struct {
	Path, Protocol, Method, Body string
	Header                       map[string][]string
	TLSSkipVerify                bool
	TLSServerName                string `json:",omitempty"`
	GRPCService                  string
	GRPCUseTLS                   bool `hcl:"grpc_use_tls"`
}

// CheckAddress is where a check goes.
type CheckAddress struct {
	PortLabel   string `hcl:"port"`
	Expose      bool
	AddressMode string
	Advertise   string
}

// CheckTiming is when a check runs and what counts.
type CheckTiming struct {
	Interval, Timeout      Duration
	InitialStatus          string
	SuccessBeforePassing   int
	FailuresBeforeCritical int
	FailuresBeforeWarning  int `json:",omitempty"`
}

// Connect is NO-18.
type Connect struct {
	Native         bool
	Gateway        *Gateway
	SidecarService *SidecarService
	SidecarTask    *SidecarTask
}

// SidecarService is the proxy's own service.
type SidecarService struct {
	Tags                   []string
	Port                   string
	Proxy                  *Proxy
	DisableDefaultTCPCheck bool              `hcl:"disable_default_tcp_check"`
	Meta                   map[string]string `json:",omitempty"`
}

// SidecarTask changes the task that runs the proxy.
type SidecarTask struct {
	Name          string
	Driver        string
	User          string
	Config        map[string]any
	Env           map[string]string
	Resources     *Resources
	Meta          map[string]string
	KillTimeout   *Duration  `def:"5s"`
	LogConfig     *LogConfig `hcl:"logs" def:"made"`
	ShutdownDelay *Duration  `def:"0s"`
	KillSignal    string
	VolumeMounts  []*VolumeMount      `hcl:"volume_mount" json:",omitempty"`
	Identities    []*WorkloadIdentity `hcl:"identity" json:",omitempty"`
}

// Proxy is what the sidecar proxies.
type Proxy struct {
	LocalServiceAddress string
	LocalServicePort    int
	Expose              *Expose
	ExposeConfig        *Expose     `hcl:"-" json:",omitempty"` // older clients
	Upstreams           []*Upstream `hcl:"upstreams"`
	Config              map[string]any
	TransparentProxy    *TransparentProxy `json:",omitempty"`
}

// TransparentProxy redirects all traffic of a group.
type TransparentProxy struct {
	UID                  string
	OutboundPort         uint16
	ExcludeInboundPorts  []string
	ExcludeOutboundPorts []uint16
	ExcludeOutboundCIDRs []string `hcl:"exclude_outbound_cidrs"`
	ExcludeUIDs          []string `hcl:"exclude_uids"`
	NoDNS                bool     `hcl:"no_dns"`
}

// Expose are paths that go past the proxy's authentication.
type Expose struct {
	Paths []*ExposePath `hcl:"path"`
	Path  []*ExposePath `hcl:"-" json:",omitempty"` // older clients
}

// ExposePath is one.
type ExposePath struct {
	Path          string
	Protocol      string
	LocalPathPort int
	ListenerPort  string
}

// Upstream is a service that a group uses.
type Upstream struct {
	DestinationName      string
	DestinationNamespace string
	DestinationPeer      string `json:",omitempty"`
	DestinationPartition string `json:",omitempty"`
	DestinationType      string `json:",omitempty"`
	LocalBindPort        int
	LocalBindAddress     string
	LocalBindSocketPath  string `json:",omitempty"`
	LocalBindSocketMode  string `json:",omitempty"`
	Datacenter           string
	MeshGateway          *MeshGateway
	Config               map[string]any `json:",omitempty"`
}

// MeshGateway is how other datacenters are reached.
type MeshGateway struct{ Mode string }

// Gateway is a service that is a gateway of the mesh.
type Gateway struct {
	Proxy       *GatewayProxy
	Ingress     *IngressGateway
	Terminating *TerminatingGateway
	Mesh        *MeshEntry
}

// MeshEntry is a mesh gateway, which has no settings.
type MeshEntry struct{}

// GatewayProxy is a gateway's Envoy.
type GatewayProxy struct {
	ConnectTimeout                  *Duration `def:"5s"`
	EnvoyGatewayBindTaggedAddresses bool
	EnvoyGatewayBindAddresses       map[string]*BindAddress
	EnvoyGatewayNoDefaultBind       bool
	EnvoyDNSDiscoveryType           string
	Config                          map[string]any
}

// BindAddress is where a gateway listens.
type BindAddress struct {
	Name    string `hcl:",label"`
	Address string
	Port    int
}

// GatewayTLS is how a gateway speaks TLS.
type GatewayTLS struct {
	Enabled       bool
	TLSMinVersion string
	TLSMaxVersion string
	CipherSuites  []string
	SDS           *SDS `hcl:"sds" json:",omitempty"`
}

// SDS is where certificates come from.
type SDS struct{ ClusterName, CertResource string }

// IngressGateway lets traffic in.
type IngressGateway struct {
	TLS       *GatewayTLS
	Listeners []*IngressListener `hcl:"listener"`
}

// IngressListener is a port of one.
type IngressListener struct {
	Port     int
	Protocol string
	Services []*IngressService `hcl:"service"`
}

// IngressService is a service behind one.
type IngressService struct {
	Name  string
	Hosts []string
	TLS   *GatewayTLS `json:",omitempty"`

	RequestHeaders        *HeaderChange `json:",omitempty"`
	ResponseHeaders       *HeaderChange `json:",omitempty"`
	MaxConnections        *uint32       `def:"-" json:",omitempty"`
	MaxPendingRequests    *uint32       `def:"-" json:",omitempty"`
	MaxConcurrentRequests *uint32       `def:"-" json:",omitempty"`
}

// HeaderChange is how headers of HTTP are changed on their way.
type HeaderChange struct {
	Add, Set map[string]string
	Remove   []string
}

// TerminatingGateway leads out of the mesh.
type TerminatingGateway struct {
	Services []*LinkedService `hcl:"service"`
}

// LinkedService is a service behind one.
type LinkedService struct{ Name, CAFile, CertFile, KeyFile, SNI string }
