package config

import (
	"net/netip"
	"time"

	"corbel.dev/corbel/kit/notify"
)

// Style says whose defaults hold.
type Style uint8

const (
	// Corbel means TLS and default-deny, as `corbel server` and `corbel agent` start.
	Corbel Style = iota
	// Consul means that contract's defaults, for hosts that start under its name.
	Consul
)

// Config is everything a process of Corbel is told. Ports are TCP/UDP port numbers
// where -1 is off and 0 lets the system choose.
type Config struct {
	Process
	Warnings []string // what Load accepted but wants known, one line each

	Node      Node
	Addresses Addresses
	Ports     Ports `key:"ports"`
	TLS       TLS
	ACL       ACL `key:"acl"`
	Cluster
	Connect Connect
	Enrolment
	DNS         DNS
	HTTP        HTTP `key:"http_config"`
	UI          UI   `key:"ui_config"`
	Limits      Limits
	Checks      Checks
	Queries     Queries
	Leave       Leave
	Telemetry   Telemetry `key:"telemetry"`
	Monitor     Monitor   `key:"monitor"`
	Logging     Logging
	Definitions Definitions

	// Secrets is the secrets plane's configuration, whose keys are Vault's: node/vaultconf reads them.
	Secrets []map[string]any `key:"secrets" opt:"secret" doc:"the secrets plane of this server, in the words of Vault's configuration: storage, listener, seal, api_addr and so on (docs/secrets.md)"`

	// Listen and Advertise are worked out from Addresses and Ports.
	Listen    Listen
	Advertise Advertise

	loaded loaded
}

// DevToken has all rights of the catalog that `corbel dev` serves, on loopback.
const DevToken = "root"

// Process is how the process was started, and the files that it has.
type Process struct {
	Style Style
	Dev   bool // `corbel dev`: loopback only, one server, token root
	// ScriptCommand starts the child that runs operators' JavaScript; the command line sets it, and empty runs it in
	// this process, as in tests.
	ScriptCommand []string
	Sockets       *notify.Sockets // that the service manager holds; nil holds none
	Server        bool            `key:"server" doc:"be a member of the control-plane cluster; the commands set it"`
	DataDir       string          `key:"data_dir" doc:"directory for state that must survive a restart; required except in dev"`
	PIDFile       string          `key:"pid_file" doc:"file that receives the process id"`
}

// Cluster is how servers find each other and agree.
type Cluster struct {
	Gossip    Gossip
	Raft      Raft
	Autopilot Autopilot `key:"autopilot"`
	Peering   Peering
}

// Enrolment is how agents get their certificates and settings.
type Enrolment struct {
	AutoEncrypt AutoEncrypt `key:"auto_encrypt"`
	AutoConfig  AutoConfig  `key:"auto_config"`
}

// Node is who this host is.
type Node struct {
	Name              string            `key:"node_name" doc:"name of this host in the catalog; default the host name"`
	ID                string            `key:"node_id" doc:"UUID of this host; default one kept in data_dir"`
	Meta              map[string]string `key:"node_meta" doc:"up to 64 pairs that describe the node"`
	Region            string            `key:"locality.region" doc:"region this host is in; services registered here are in it unless they say another"`
	Zone              string            `key:"locality.zone" doc:"zone of the region this host is in"`
	Datacenter        string            `key:"datacenter" def:"dc1" doc:"datacenter this process belongs to"`
	PrimaryDatacenter string            `key:"primary_datacenter" doc:"datacenter that owns the ACLs; default this one"`
	DisableHostID     bool              `key:"disable_host_node_id" def:"true" doc:"do not derive node_id from the machine"`
}

// Addresses are as written; Listen and Advertise hold what follows from them.
type Addresses struct {
	Bind         string `key:"bind_addr" def:"0.0.0.0" doc:"address for RPC, Raft and gossip; go-sockaddr templates work"`
	Client       string `key:"client_addr" def:"127.0.0.1" doc:"addresses for HTTP, HTTPS, DNS and gRPC, separated by spaces"`
	Advertise    string `key:"advertise_addr" doc:"address by which others reach this host; default bind_addr or the private address"`
	AdvertiseWAN string `key:"advertise_addr_wan" doc:"the same from other datacenters; default advertise_addr"`
	ClientAddresses
	SerfLAN      string `key:"serf_lan" doc:"overrides bind_addr for gossip"`
	Monitor      string `key:"addresses.monitor" doc:"overrides client_addr for the monitor's HTTP API"`
	MonitorAgent string `key:"addresses.monitor_agents" doc:"overrides client_addr for the port of monitoring agents"`
	SerfWAN      string `key:"serf_wan" doc:"overrides bind_addr for gossip between datacenters"`
	UnixSockets
	TranslateWAN bool              `key:"translate_wan_addrs" doc:"answer with WAN addresses for nodes of other datacenters"`
	Tagged       map[string]string `key:"tagged_addresses" doc:"further addresses of the node by tag"`
}

// ClientAddresses override client_addr for one protocol each.
type ClientAddresses struct {
	DNS     string `key:"addresses.dns" doc:"overrides client_addr for DNS"`
	HTTP    string `key:"addresses.http" doc:"overrides client_addr for HTTP; unix:///path serves a socket"`
	HTTPS   string `key:"addresses.https" doc:"overrides client_addr for HTTPS"`
	GRPC    string `key:"addresses.grpc" doc:"overrides client_addr for gRPC"`
	GRPCTLS string `key:"addresses.grpc_tls" doc:"overrides client_addr for gRPC over TLS"`
}

// UnixSockets is how the files of unix sockets are made.
type UnixSockets struct {
	SocketUser  string `key:"unix_sockets.user" doc:"owner of unix sockets"`
	SocketGroup string `key:"unix_sockets.group" doc:"group of unix sockets"`
	SocketMode  string `key:"unix_sockets.mode" doc:"mode of unix sockets, in octal"`
}

// Ports by service.
type Ports struct {
	DNS     int `key:"dns" def:"8600" doc:"DNS over UDP and TCP"`
	HTTP    int `key:"http" def:"8500" doc:"HTTP API"`
	HTTPS   int `key:"https" def:"-1" doc:"HTTP API over TLS"`
	GRPC    int `key:"grpc" def:"-1" doc:"gRPC; 8502 in dev"`
	GRPCTLS int `key:"grpc_tls" def:"-1" doc:"gRPC over TLS"`
	SerfLAN int `key:"serf_lan" def:"8301" doc:"gossip over UDP and TCP"`
	SerfWAN int `key:"serf_wan" def:"8302" doc:"gossip between the servers of all datacenters; -1 joins none"`
	Server  int `key:"server" def:"8300" doc:"server RPC and Raft"`
	Secrets int `key:"secrets" def:"-1" doc:"HTTP API of the secrets plane, on the loopback address; only in dev, default 8200 there"`
	Monitor int `key:"monitor" def:"8080" doc:"HTTP API of the monitor plane, if monitor.enabled"`
	// MonitorAgents is the contract's agent port.
	MonitorAgents int `key:"monitor_agents" def:"8081" doc:"WebSocket port for monitoring agents, if monitor.enabled"`
	SidecarMin    int `key:"sidecar_min_port" def:"21000" doc:"first port for sidecars"`
	SidecarMax    int `key:"sidecar_max_port" def:"21255" doc:"last port for sidecars"`
	ExposeMin     int `key:"expose_min_port" def:"21500" doc:"first port of listeners for checks that go through proxies"`
	ExposeMax     int `key:"expose_max_port" def:"21755" doc:"last port of listeners for checks that go through proxies"`
}

// TLS holds one block per protocol. After Load the protocol blocks are complete:
// what they leave unset came from Defaults.
type TLS struct {
	Disabled   bool   `key:"tls.disabled" doc:"serve plain text on the network although Corbel's own defaults forbid it; also -allow-plaintext"`
	ServerName string `key:"server_name" doc:"name under which this process presents itself; default node_name"`

	Defaults    TLSBlock `key:"tls.defaults"`
	InternalRPC TLSBlock `key:"tls.internal_rpc"`
	HTTPS       TLSBlock `key:"tls.https"`
	GRPC        TLSBlock `key:"tls.grpc"`
	Monitor     TLSBlock `key:"tls.monitor"`
}

// TLSBlock is the TLS of one protocol. It is on when it has a certificate.
type TLSBlock struct {
	CAFile               string   `key:"ca_file" opt:"reload" doc:"CA certificates to trust, PEM"`
	CAPath               string   `key:"ca_path" opt:"reload" doc:"folder of such files"`
	CertFile             string   `key:"cert_file" opt:"reload" doc:"own certificate, PEM"`
	KeyFile              string   `key:"key_file" opt:"reload" doc:"its private key, PEM"`
	VerifyIncoming       bool     `key:"verify_incoming" opt:"reload" doc:"demand a client certificate"`
	VerifyOutgoing       bool     `key:"verify_outgoing" opt:"reload" doc:"call others over TLS and check their certificate"`
	VerifyServerHostname bool     `key:"verify_server_hostname" opt:"reload" doc:"servers must present server.<datacenter>.<domain>; default true in Corbel's own style"`
	MinVersion           string   `key:"tls_min_version" opt:"reload" doc:"TLSv1_2 or TLSv1_3; default TLSv1_2"`
	CipherSuites         []string `key:"tls_cipher_suites" opt:"reload" doc:"TLS 1.2 cipher suites by their Go names"`
}

// Enabled tells whether the block has a certificate to serve with.
func (b *TLSBlock) Enabled() bool { return b.CertFile != "" && b.KeyFile != "" }

// ACL is who may do what.
type ACL struct {
	Enabled           bool          `key:"enabled" doc:"check tokens; default true in Corbel's own style"`
	DefaultPolicy     string        `key:"default_policy" doc:"allow or deny what no rule names; default deny in Corbel's own style"`
	DownPolicy        string        `key:"down_policy" def:"extend-cache" doc:"allow, deny, extend-cache or async-cache while no server answers"`
	TokenTTL          time.Duration `key:"token_ttl" def:"30s" doc:"how long agents trust a resolved token"`
	PolicyTTL         time.Duration `key:"policy_ttl" def:"30s" doc:"how long agents trust a resolved policy"`
	RoleTTL           time.Duration `key:"role_ttl" def:"30s" doc:"how long agents trust a resolved role"`
	KeyListPolicy     bool          `key:"enable_key_list_policy" doc:"reading a key prefix needs the list right"`
	TokenPersistence  bool          `key:"enable_token_persistence" doc:"keep tokens given through the API in data_dir"`
	InitialManagement string        `key:"tokens.initial_management" opt:"secret" doc:"token with all rights that servers create at first start"`
	Agent             string        `key:"tokens.agent" opt:"secret,reload" doc:"token for the agent's own requests"`
	Default           string        `key:"tokens.default" opt:"secret,reload" doc:"token for requests that carry none"`
	AgentRecovery     string        `key:"tokens.agent_recovery" opt:"secret,reload" doc:"token that this agent accepts while no server answers"`
	Replication       string        `key:"tokens.replication" opt:"secret,reload" doc:"token for replication between datacenters"`
	DNSToken          string        `key:"tokens.dns" opt:"secret,reload" doc:"token for DNS answers; default tokens.default"`
	ConfigFileService string        `key:"tokens.config_file_service_registration" opt:"secret,reload" doc:"token for services and checks defined in files"`
}

// Policy is allow or deny, for what no rule names.
func (a *ACL) Policy() string {
	if !a.Enabled || a.DefaultPolicy == "allow" {
		return "allow"
	}
	return "deny"
}

// Gossip is the membership of agents and servers.
type Gossip struct {
	Encrypt          string        `key:"encrypt" opt:"secret" doc:"base64 key of 16, 24 or 32 bytes; see corbel keygen"`
	AllowPlain       bool          `key:"allow_unencrypted_gossip" doc:"start beyond loopback without encrypt: whoever reaches the gossip port reads it and can claim to be a member"`
	VerifyIncoming   bool          `key:"encrypt_verify_incoming" def:"true" doc:"refuse gossip that is not encrypted"`
	VerifyOutgoing   bool          `key:"encrypt_verify_outgoing" def:"true" doc:"encrypt what is sent"`
	RetryJoin        []string      `key:"retry_join" doc:"addresses to join, or provider=..., tried until one answers"`
	RetryInterval    time.Duration `key:"retry_interval" def:"30s" doc:"pause between tries to join"`
	RetryMax         int           `key:"retry_max" def:"0" doc:"attempts before the process gives up; 0 is unlimited"`
	StartJoin        []string      `key:"start_join" doc:"addresses to join at start; failing is an error"`
	RetryJoinWAN     []string      `key:"retry_join_wan" doc:"servers of other datacenters to join, or provider=..., tried until one answers"`
	RetryIntervalWAN time.Duration `key:"retry_interval_wan" def:"30s" doc:"pause between those tries"`
	RetryMaxWAN      int           `key:"retry_max_wan" def:"0" doc:"attempts before a server gives up; 0 is unlimited"`
	StartJoinWAN     []string      `key:"start_join_wan" doc:"servers of other datacenters to join at start; failing is an error"`
	ReconnectTimeout time.Duration `key:"reconnect_timeout" def:"72h" doc:"when a failed node is dropped from the catalog; at least 8h"`

	EncryptKey []byte // Encrypt decoded
}

// Raft is the replicated log of the servers.
type Raft struct {
	Bootstrap         bool          `key:"bootstrap" doc:"start a cluster of this one server"`
	BootstrapExpect   int           `key:"bootstrap_expect" doc:"start the cluster once so many servers see each other"`
	Multiplier        int           `key:"performance.raft_multiplier" def:"1" doc:"1 to 10: scales all Raft timeouts"`
	LeaveDrain        time.Duration `key:"performance.leave_drain_time" def:"5s" doc:"how long a leaving server keeps answering"`
	RPCHold           time.Duration `key:"performance.rpc_hold_timeout" def:"7s" doc:"how long a request waits for a leader"`
	SnapshotThreshold int           `key:"raft_snapshot_threshold" def:"16384" doc:"log entries between snapshots"`
	SnapshotInterval  time.Duration `key:"raft_snapshot_interval" def:"30s" doc:"how often that is looked at"`
	TrailingLogs      int           `key:"raft_trailing_logs" def:"10240" doc:"log entries kept behind a snapshot"`
	ReadReplica       bool          `key:"read_replica" doc:"serve reads without a vote"`
}

// Autopilot holds the first settings of a new cluster; later ones come through the API.
type Autopilot struct {
	CleanupDeadServers      bool          `key:"cleanup_dead_servers" def:"true" doc:"remove failed servers once they are replaced"`
	LastContactThreshold    time.Duration `key:"last_contact_threshold" def:"200ms" doc:"time without contact after which a server counts as unhealthy"`
	MaxTrailingLogs         int           `key:"max_trailing_logs" def:"250" doc:"lag at which a server counts as unhealthy"`
	MinQuorum               int           `key:"min_quorum" def:"0" doc:"minimum number of servers that clean-up keeps"`
	ServerStabilizationTime time.Duration `key:"server_stabilization_time" def:"10s" doc:"how long a new server must be healthy before it votes"`
}

// DNS is what the DNS front door answers.
type DNS struct {
	Domain     string                   `key:"domain" def:"consul." doc:"zone that is answered"`
	AltDomain  string                   `key:"alt_domain" doc:"second zone with the same content"`
	Recursors  []string                 `key:"recursors" opt:"reload" doc:"servers for all other names"`
	AllowStale bool                     `key:"dns_config.allow_stale" def:"true" opt:"reload" doc:"any server may answer"`
	MaxStale   time.Duration            `key:"dns_config.max_stale" def:"87600h" opt:"reload" doc:"how old such answers may be"`
	NodeTTL    time.Duration            `key:"dns_config.node_ttl" def:"0s" opt:"reload" doc:"TTL of node answers"`
	ServiceTTL map[string]time.Duration `key:"dns_config.service_ttl" opt:"reload" doc:"TTL by service; \"*\" and \"prefix*\" match many"`
	DNSAnswers
	RecursorTimeout    time.Duration `key:"dns_config.recursor_timeout" def:"2s" opt:"reload" doc:"wait for a recursor"`
	RecursorStrategy   string        `key:"dns_config.recursor_strategy" def:"sequential" opt:"reload" doc:"sequential or random"`
	DisableCompression bool          `key:"dns_config.disable_compression" opt:"reload" doc:"write names in full"`
	UseCache           bool          `key:"dns_config.use_cache" opt:"reload" doc:"answer from the agent's view"`
	CacheMaxAge        time.Duration `key:"dns_config.cache_max_age" def:"0s" opt:"reload" doc:"how old that view may be"`
	NodeMetaTXT        bool          `key:"dns_config.enable_additional_node_meta_txt" def:"true" opt:"reload" doc:"add the node's meta as TXT"`
	SOA
}

// DNSAnswers is what an answer holds.
type DNSAnswers struct {
	EnableTruncate bool `key:"dns_config.enable_truncate" opt:"reload" doc:"set TC on answers that were cut"`
	OnlyPassing    bool `key:"dns_config.only_passing" opt:"reload" doc:"leave out warning instances too"`
	UDPAnswerLimit int  `key:"dns_config.udp_answer_limit" def:"3" opt:"reload" doc:"answers in 512 bytes of UDP"`
	ARecordLimit   int  `key:"dns_config.a_record_limit" def:"0" opt:"reload" doc:"maximum number of addresses in an answer; 0 is no limit"`
}

// SOA is what the zones' SOA records say.
type SOA struct {
	SOARefresh int `key:"dns_config.soa.refresh" def:"3600" opt:"reload" doc:"SOA refresh in seconds"`
	SOARetry   int `key:"dns_config.soa.retry" def:"600" opt:"reload" doc:"SOA retry in seconds"`
	SOAExpire  int `key:"dns_config.soa.expire" def:"86400" opt:"reload" doc:"SOA expire in seconds"`
	SOAMinTTL  int `key:"dns_config.soa.min_ttl" def:"0" opt:"reload" doc:"SOA minimum TTL in seconds"`
}

// HTTP is the HTTP front door.
type HTTP struct {
	BlockEndpoints  []string          `key:"block_endpoints" doc:"path prefixes that answer 403"`
	ResponseHeaders map[string]string `key:"response_headers" doc:"headers added to each answer"`
	AllowWriteFrom  []string          `key:"allow_write_http_from" doc:"networks that may write, as CIDR; default all"`
	UseCache        bool              `key:"use_cache" def:"true" doc:"?cached may answer from the agent's view"`
	MaxHeaderBytes  int               `key:"max_header_bytes" def:"1048576" doc:"largest request header"`

	AllowWritePrefixes []netip.Prefix // AllowWriteFrom parsed
}

// UI is the web UI.
type UI struct {
	Enabled  bool   `key:"enabled" def:"true" doc:"servers: serve the web UI at /ui of all ports for HTTP"`
	Address  string `key:"address" doc:"host:port that serves the web UI alone, beside the other ports; default none"`
	CertFile string `key:"cert_file" doc:"certificate of ui_config.address, PEM; without one it speaks plain HTTP"`
	KeyFile  string `key:"key_file" doc:"its private key, PEM"`
}

// Limits bound what others may ask of this process.
type Limits struct {
	AllowUnprintable bool          `key:"disable_http_unprintable_char_filter" doc:"take request paths with characters that cannot be printed"`
	HTTPMaxConns     int           `key:"limits.http_max_conns_per_client" def:"200" opt:"reload" doc:"HTTP connections per source address; 0 is no limit"`
	MaxConns         int           `key:"limits.max_conns_per_client" def:"50000" opt:"reload" doc:"connections per source address on each of the ports for secrets, monitor_agents, gRPC and RPC; 0 is no limit"`
	MaxStrangers     int           `key:"limits.max_strangers_per_client" def:"10000" opt:"reload" doc:"of these, unauthenticated ones on the ports for agents, gRPC and enrolment; 0 is no limit"`
	DNSMaxConns      int           `key:"limits.dns_max_conns_per_client" def:"256" opt:"reload" doc:"DNS connections over TCP per source address, of 1,024 in all; 0 is no limit"`
	RPCHandshake     time.Duration `key:"limits.rpc_handshake_timeout" def:"5s" doc:"time for a TLS handshake on RPC"`
	RPCClient        time.Duration `key:"limits.rpc_client_timeout" def:"60s" doc:"time for an RPC that does not block"`
	RPCRate          float64       `key:"limits.rpc_rate" def:"-1" opt:"reload" doc:"RPCs per second an agent may send; -1 is no limit"`
	RPCMaxBurst      int           `key:"limits.rpc_max_burst" def:"1000" opt:"reload" doc:"burst above rpc_rate"`
	KVMaxValueBytes  int           `key:"limits.kv_max_value_size" def:"524288" doc:"largest KV value, as stored"`
	TxnMaxBytes      int           `key:"limits.txn_max_req_len" def:"524288" doc:"largest transaction body, its values counted as stored"`
	RequestMemory    int           `key:"limits.request_memory" def:"0" doc:"bytes that large requests and answers of all ports may hold at a time; 0 is a quarter of the memory that this process may use (64 MiB to 4 GiB), -1 is no limit"`
	RequestMode      string        `key:"limits.request_limits.mode" def:"disabled" opt:"reload" doc:"disabled, permissive or enforcing"`
	RequestReadRate  float64       `key:"limits.request_limits.read_rate" def:"-1" opt:"reload" doc:"reads per second a server accepts; -1 is no limit"`
	RequestWriteRate float64       `key:"limits.request_limits.write_rate" def:"-1" opt:"reload" doc:"writes per second a server accepts; -1 is no limit"`
}

// Checks is how the agent runs health checks.
type Checks struct {
	EnableScript      bool          `key:"enable_script_checks" doc:"run scripts, also those registered through the API"`
	EnableLocalScript bool          `key:"enable_local_script_checks" doc:"run scripts defined in files"`
	UpdateInterval    time.Duration `key:"check_update_interval" def:"5m" doc:"how often a change of output alone is sent"`
	OutputMaxBytes    int           `key:"check_output_max_size" def:"4096" doc:"output kept per check, its end"`
	DiscardOutput     bool          `key:"discard_check_output" opt:"reload" doc:"keep no output"`
}

// Queries is time in requests and sessions.
type Queries struct {
	DefaultTime       time.Duration `key:"default_query_time" def:"300s" doc:"default wait of a blocking query"`
	MaxTime           time.Duration `key:"max_query_time" def:"600s" doc:"longest wait of a blocking query"`
	DiscoveryMaxStale time.Duration `key:"discovery_max_stale" def:"0s" opt:"reload" doc:"staleness for catalog and health reads that name no mode; 0 is none"`
	SessionTTLMin     time.Duration `key:"session_ttl_min" def:"10s" doc:"shortest session TTL"`
}

// Leave is how the process ends.
type Leave struct {
	OnTerminate     bool `key:"leave_on_terminate" doc:"leave on SIGTERM; default true on agents"`
	SkipOnInterrupt bool `key:"skip_leave_on_interrupt" doc:"do not leave on SIGINT; default true on servers"`
	// DrainWait bounds the drain of this host's services before the process ends. An agent that nobody set it for drains
	// only when it leaves: where it does not, its services stay in the catalog while it restarts.
	DrainWait        time.Duration `key:"drain_wait" opt:"reload" doc:"before the process ends: longest wait until the host's services are out of use; default 5s on agents that leave, else 0, which does not drain them"`
	RejoinAfterLeave bool          `key:"rejoin_after_leave" doc:"join again after a leave and restart"`
}

// Telemetry is where measurements go.
type Telemetry struct {
	StatsdAddress       string        `key:"statsd_address" opt:"reload" doc:"host:port of a statsd server"`
	StatsiteAddress     string        `key:"statsite_address" opt:"reload" doc:"host:port of a statsite server"`
	DogstatsdAddress    string        `key:"dogstatsd_addr" opt:"reload" doc:"host:port or unix:///path of a DogStatsD server"`
	DogstatsdTags       []string      `key:"dogstatsd_tags" opt:"reload" doc:"tags for all measurements"`
	OTLPEndpoint        string        `key:"otlp_endpoint" opt:"reload" doc:"http://host:port[/path] of an OTLP collector"`
	OTLPTracesEndpoint  string        `key:"otlp_traces_endpoint" doc:"http://host:port[/path] of an OTLP collector of traces: slow requests, and those whose callers sample them"`
	PrometheusRetention time.Duration `key:"prometheus_retention_time" def:"0s" doc:"switches /v1/agent/metrics?format=prometheus on; 0 is off"`
	DisableHostname     bool          `key:"disable_hostname" opt:"reload" doc:"leave the host name out of gauge names"`
	Prefix              string        `key:"metrics_prefix" def:"consul" opt:"reload" doc:"first part of every name"`
	PrefixFilter        []string      `key:"prefix_filter" opt:"reload" doc:"+name allows and -name blocks; the longest wins"`
	FilterDefault       bool          `key:"filter_default" def:"true" opt:"reload" doc:"what happens to names without a rule"`
	EnableHostMetrics   bool          `key:"enable_host_metrics" doc:"report the host's CPU, memory and disks"`
	RetryFailed         bool          `key:"retry_failed_connection" def:"true" doc:"start although a sink does not answer"`
	DisableDoctor       bool          `key:"disable_doctor" doc:"account for no stages of requests, take no profiles, watch no host: the doctor learns nothing about this process"`
}

// Logging is where log lines go.
type Logging struct {
	Level          string        `key:"log_level" def:"INFO" opt:"reload" doc:"TRACE, DEBUG, INFO, WARN or ERROR"`
	JSON           bool          `key:"log_json" doc:"one JSON object per line"`
	File           string        `key:"log_file" doc:"file or folder that receives the lines too"`
	RotateBytes    int           `key:"log_rotate_bytes" def:"0" doc:"maximum size of the file before it is rotated; 0 is never"`
	RotateInterval time.Duration `key:"log_rotate_duration" def:"24h" doc:"maximum age of the file before it is rotated"`
	RotateMaxFiles int           `key:"log_rotate_max_files" def:"0" doc:"rotated files kept; 0 is all, -1 none"`
	Syslog         bool          `key:"enable_syslog" doc:"send lines to syslog too"`
	SyslogFacility string        `key:"syslog_facility" def:"LOCAL0" doc:"facility of those"`
	EnableDebug    bool          `key:"enable_debug" opt:"reload" doc:"serve /debug/pprof"`
}

// Connect is the service mesh and its certificate authority.
type Connect struct {
	Enabled    bool   `key:"connect.enabled" def:"true" doc:"have a certificate authority and serve what the mesh needs"`
	CAProvider string `key:"connect.ca_provider" def:"consul" doc:"certificate authority; only consul, the built-in one, is supported"`
	// CAConfig is checked by the package that runs the authority.
	CAConfig []map[string]any `key:"connect.ca_config" opt:"secret" doc:"what a new cluster's authority begins with: leaf_cert_ttl, intermediate_cert_ttl, root_cert_ttl, private_key, root_cert, private_key_type, private_key_bits, csr_max_per_second, csr_max_concurrent, cluster_id; later it is changed through the API"`
	// RotationWindow has the contract's name, which it has for tests.
	RotationWindow         time.Duration `key:"connect.test_ca_leaf_root_change_spread" def:"30s" doc:"period over which an agent renews its certificates after a rotation"`
	Hedge                  bool          `key:"connect.hedge" def:"false" doc:"client agents follow the mesh from two servers at once, so that a hanging one delays nothing"`
	DefaultIntentionPolicy string        `key:"default_intention_policy" doc:"allow or deny connections that no intention names; default acl.default_policy"`
}

// Peering joins the catalogs of clusters that trust each other in nothing else.
type Peering struct {
	Enabled bool `key:"peering.enabled" def:"true" doc:"servers make and take peering tokens, and connect to the clusters of those"`
}

// AutoEncrypt has client agents get their certificates from the servers.
type AutoEncrypt struct {
	AllowTLS bool     `key:"allow_tls" doc:"servers: give agents certificates of the mesh's authority, and let in agents that have one"`
	TLS      bool     `key:"tls" doc:"client agents: get the certificate for RPC, HTTPS and gRPC from a server; needs tls.defaults.ca_file alone"`
	DNSSAN   []string `key:"dns_san" doc:"additional DNS names for that certificate, besides localhost"`
	IPSAN    []string `key:"ip_san" doc:"additional addresses for it, besides 127.0.0.1 and ::1"`
}

// AutoConfig has client agents get certificate, gossip key and ACL token from the servers, in exchange for a JWT.
type AutoConfig struct {
	Enabled         bool     `key:"enabled" doc:"client agents: get certificate, gossip key, ACL settings and token from a server before the start; needs tls.defaults.ca_file"`
	IntroToken      string   `key:"intro_token" opt:"secret" doc:"the JWT that introduces this agent (also the variable CONSUL_INTRO_TOKEN)"`
	IntroTokenFile  string   `key:"intro_token_file" doc:"file that holds it, read at each use"`
	ServerAddresses []string `key:"server_addresses" doc:"servers to ask: host, or host:port of their RPC port"`
	DNSSANs         []string `key:"dns_sans" doc:"additional DNS names for the agent's certificate, besides localhost"`
	IPSANs          []string `key:"ip_sans" doc:"additional addresses for it, besides 127.0.0.1 and ::1"`
	// Authorize is checked by the package that judges tokens.
	Authorize bool       `key:"authorization.enabled" doc:"servers: introduce agents that show a JWT"`
	Static    IntroRules `key:"authorization.static"`
}

// IntroRules are what a JWT must be to introduce an agent: the settings of an auth method of type jwt, and assertions.
type IntroRules struct {
	PubKeys             []string          `key:"jwt_validation_pub_keys" doc:"public keys, PEM, that sign JWTs; or jwks_url, or oidc_discovery_url"`
	JWKSURL             string            `key:"jwks_url" doc:"address of such keys"`
	JWKSCACert          string            `key:"jwks_ca_cert" doc:"authority of that address, PEM"`
	OIDCDiscoveryURL    string            `key:"oidc_discovery_url" doc:"address of an OIDC provider"`
	OIDCDiscoveryCACert string            `key:"oidc_discovery_ca_cert" doc:"its authority, PEM"`
	BoundIssuer         string            `key:"bound_issuer" doc:"required issuer of JWTs"`
	BoundAudiences      []string          `key:"bound_audiences" doc:"audiences; a JWT must name one of them"`
	Algs                []string          `key:"jwt_supported_algs" doc:"signatures that are taken; default RS256 and ES256"`
	ClaimMappings       map[string]string `key:"claim_mappings" doc:"claim to the name under which assertions see it, as value.NAME"`
	ListClaimMappings   map[string]string `key:"list_claim_mappings" doc:"the same of lists, as list.NAME"`
	Assertions          []string          `key:"claim_assertions" doc:"expressions that must all hold, such as value.node == \"${node}\"; ${node} is the agent's name"`
	ExpirationLeeway    time.Duration     `key:"expiration_leeway" doc:"how long a JWT is accepted after it expires"`
	NotBeforeLeeway     time.Duration     `key:"not_before_leeway" doc:"how long before it becomes valid"`
	ClockSkewLeeway     time.Duration     `key:"clock_skew_leeway" doc:"how far clocks may differ"`
}

// Definitions are services and checks from files, undecoded: the package that runs
// them knows their fields. Blocks are maps, lists are []any, numbers are
// json.Number. Each has been checked to be an object.
type Definitions struct {
	Services []map[string]any `key:"services" opt:"reload" doc:"services of this host; also as service { } blocks"`
	Checks   []map[string]any `key:"checks" opt:"reload" doc:"checks of this host; also as check { } blocks"`
	// ConfigEntries are as in the API, undecoded.
	ConfigEntries []map[string]any `key:"config_entries.bootstrap" doc:"config entries that the leader writes when they are not there; servers only"`
	Watches       []map[string]any `key:"watches" opt:"reload" doc:"questions that are asked on and on, each with a handler for changed answers"`
}

// Listen holds the sockets to open: host:port, or unix:///path. Empty is off.
type Listen struct {
	HTTP, HTTPS, DNS, GRPC, GRPCTLS []string
	RPC                             string // server RPC and Raft
	Gossip                          string
	Secrets                         string // HTTP of the secrets plane
	Monitor, MonitorAgents          []string
	GossipWAN                       string // "" on client agents and with ports.serf_wan = -1
}

// Advertise holds what others dial. Ports chosen by the system stay 0 here.
type Advertise struct {
	Addr, AddrWAN string // without port
	RPC, Gossip   string // host:port
}

// loaded is what a Load leaves beside the keys of Config.
type loaded struct {
	origins  map[string]string // canonical key -> the source that set it last
	sections map[string]any    // of planes, by name: pointers to structs with keys
}

// Section is the struct with the keys of a plane, as its Options.Sections made it; nil where there is none.
func (c *Config) Section(name string) any { return c.loaded.sections[name] }

// Origin tells which source set a key ("default" when none did): for error texts and `corbel validate`.
func (c *Config) Origin(key string) string {
	if from, ok := c.loaded.origins[key]; ok {
		return from
	}
	return "default"
}
