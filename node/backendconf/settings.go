package backendconf

import "slices"

// kind is what a setting's text must be.
type kind uint8

const (
	text kind = iota
	number
	float
	boolean
	duration
	list
)

// Setting is an option of sensu-backend, by the name of its flag.
type Setting struct {
	Name, Short string
	Default     string
	Usage       string
	kind        kind
	// key is what it sets in Corbel's configuration; "" where it is used otherwise, or nowhere.
	key string
	// without says why it has no effect, where somebody who sets it should know.
	without string
}

// Bool tells whether the flag stands alone.
func (s *Setting) Bool() bool { return s.kind == boolean }

// List tells whether the flag may be repeated.
func (s *Setting) List() bool { return s.kind == list }

const (
	noEtcd  = "there is no etcd here: several servers are a cluster of `corbel server`"
	noSize  = "queues are sized by bytes here"
	noPanel = "what the web UI sends may take as long as its reader is there"
)

// Settings are the options of `sensu-backend start`, as 6.12 has them.
var Settings = settings()

// single are those that stand alone; settings adds the families.
var single = []Setting{
	{Name: "config-file", Short: "c", Usage: "configuration file, YAML", Default: "/etc/sensu/backend.yml"},
	{Name: "agent-host", Default: "[::]", Usage: "address for agents"},
	{Name: "agent-port", Default: "8081", Usage: "port for agents", kind: number, key: "ports.monitor_agents"},
	{Name: "api-listen-address", Default: "[::]:8080", Usage: "address of the API"},
	{Name: "api-url", Default: "http://localhost:8080", Usage: "URL of the API, for init"},
	{Name: "api-request-limit", Default: "512000", Usage: "largest body of a request, in bytes", kind: number,
		key: "monitor.api_request_limit"},
	{Name: "api-write-timeout", Default: "15s", Usage: "longest time for a request", kind: duration,
		key: "monitor.api_write_timeout"},
	{Name: "api-serve-wait-time", Default: "0s", Usage: "pause before the API answers", kind: duration,
		without: "the API answers 503 until it is ready"},
	{Name: "assets-rate-limit", Default: "1.39", Usage: "downloads of assets per second", kind: float,
		key: "monitor.assets_rate_limit"},
	{Name: "assets-burst-limit", Default: "100", Usage: "downloads of assets at once", kind: number,
		key: "monitor.assets_burst_limit"},
	{Name: "cache-dir", Usage: "folder of unpacked assets", Default: "/var/cache/sensu/sensu-backend",
		key: "monitor.cache_dir"},
	{Name: "state-dir", Short: "d", Usage: "folder for state that must survive a restart",
		Default: "/var/lib/sensu/sensu-backend", key: "data_dir"},
	{Name: "cert-file", Usage: "certificate, PEM", key: "tls.monitor.cert_file"},
	{Name: "key-file", Usage: "its private key, PEM", key: "tls.monitor.key_file"},
	{Name: "trusted-ca-file", Usage: "CA certificate to trust, PEM", key: "tls.monitor.ca_file"},
	{Name: "agent-auth-cert-file", Usage: "certificate of the agents' port, PEM", key: "monitor.agent_auth_cert_file"},
	{Name: "agent-auth-key-file", Usage: "its private key, PEM", key: "monitor.agent_auth_key_file"},
	{Name: "agent-auth-trusted-ca-file", Usage: "CA whose client certificates authenticate agents, PEM",
		key: "monitor.agent_auth_trusted_ca_file"},
	{Name: "agent-auth-crl-urls", Usage: "certificate revocation lists", kind: list, key: "monitor.agent_auth_crl_urls"},
	{Name: "insecure-skip-tls-verify", Usage: "do not verify the API's certificate in init", kind: boolean},
	{Name: "debug", Usage: "serve /debug/pprof, and Corbel's own HTTP API, at 127.0.0.1:6060", kind: boolean},
	{Name: "deregistration-handler", Usage: "handler of the deregistration event",
		key: "monitor.deregistration_handler"},
	{Name: "default-silenced-expiry-time",
		Usage: "lifetime of a silence without an end, such as 1440m; default unlimited", kind: duration,
		key: "monitor.default_silenced_expiry_time"},
	{Name: "max-silenced-expiry-time-allowed", Usage: "longest lifetime of a silence, such as 1440m; default unlimited",
		kind: duration, key: "monitor.max_silenced_expiry_time_allowed"},
	{Name: "log-level", Default: "warn", Usage: "panic, fatal, error, warn, info, debug or trace"},
	{Name: "log-millisecond-timestamps", Usage: "accepted: timestamps always have more digits", kind: boolean},
	{Name: "labels", Usage: "labels of the backend's entity", kind: list, without: "backends are no entities here"},
	{Name: "annotations", Usage: "annotations of it", kind: list, without: "backends are no entities here"},
	{Name: "jwt-private-key-file", Usage: "EC key in PEM that signs access tokens", key: "monitor.jwt_private_key_file"},
	{Name: "jwt-public-key-file", Usage: "its public half", key: "monitor.jwt_public_key_file"},
	{Name: "agent-write-timeout", Default: "15", Usage: "seconds that an agent may go without reading", kind: number},
	{Name: "agent-serve-wait-time", Default: "0s", Usage: "pause after the start before agents may connect",
		kind: duration, key: "monitor.agent_serve_wait_time"},
	{Name: "agent-burst-limit", Usage: "new sessions at once", kind: number,
		without: "passwords are checked in a fair queue"},
	{Name: "agent-rate-limit", Usage: "new sessions per second", kind: number,
		without: "passwords are checked in a fair queue"},
	{Name: "pipelined-buffer-size", Usage: "size of each handler's event queue", kind: number,
		key: "monitor.pipelined_buffer_size"},
	{Name: "pipelined-workers", Usage: "concurrent commands or connections per handler", kind: number,
		key: "monitor.pipelined_workers"},
	{Name: "event-log-file", Usage: "file that receives every stored event, one JSON line each",
		key: "monitor.event_log_file"},
	{Name: "event-log-buffer-size", Usage: "size of the event queue", kind: number,
		key: "monitor.event_log_buffer_size"},
	{Name: "event-log-buffer-wait", Usage: "accepted", kind: duration,
		without: "what does not fit is dropped at once, and counted"},
	{Name: "event-log-parallel-encoders", Usage: "accepted", kind: boolean, without: "one encoder keeps up"},
	{Name: "disable-platform-metrics", Usage: "accepted", kind: boolean,
		without: "no platform metrics are logged, /metrics shows them"},
	{Name: "platform-metrics-log-file", Usage: "accepted", without: "read /metrics"},
	{Name: "platform-metrics-logging-interval", Usage: "accepted", kind: duration, without: "read /metrics"},
	{Name: "metrics-refresh-interval", Usage: "accepted", kind: duration,
		without: "metrics are as they are when /metrics is read"},
	{Name: "enable-cert-revocation-check", Usage: "accepted", kind: boolean,
		without: "agent-auth-crl-urls names lists of revoked certificates; OCSP is not asked"},
	{Name: "require-fips", Usage: "accepted", kind: boolean, without: "this build makes no such promise"},
}

func settings() []Setting {
	all := slices.Clone(single)
	for _, name := range []string{"eventd-workers", "eventd-buffer-size", "keepalived-workers", "keepalived-buffer-size"} {
		all = append(all, Setting{Name: name, Usage: "accepted", kind: number, without: noSize})
	}
	all = append(all, Setting{Name: "dashboard-host", Default: "[::]", Usage: "address of the web UI, where named"},
		Setting{Name: "dashboard-port", Default: "3000", Usage: "port of the web UI, where named", kind: number},
		Setting{Name: "dashboard-cert-file", Usage: "its certificate, PEM", key: "ui_config.cert_file"},
		Setting{Name: "dashboard-key-file", Usage: "its private key, PEM", key: "ui_config.key_file"},
		Setting{Name: "dashboard-write-timeout", Usage: "accepted", without: noPanel})
	return append(all, ofEtcd()...)
}

// ofEtcd are the options of the store that the reference embeds.
func ofEtcd() (all []Setting) {
	for _, name := range []string{"etcd-advertise-client-urls", "etcd-cert-file", "etcd-cipher-suites",
		"etcd-client-cert-auth", "etcd-client-log-level", "etcd-client-password",
		"etcd-client-urls", "etcd-client-username", "etcd-discovery", "etcd-discovery-srv", "etcd-election-timeout",
		"etcd-heartbeat-interval",
		"etcd-initial-advertise-peer-urls", "etcd-initial-cluster", "etcd-initial-cluster-state",
		"etcd-initial-cluster-token", "etcd-key-file",
		"etcd-listen-client-urls", "etcd-listen-peer-urls", "etcd-log-level", "etcd-max-request-bytes", "etcd-name",
		"etcd-peer-cert-file",
		"etcd-peer-client-cert-auth", "etcd-peer-key-file", "etcd-peer-trusted-ca-file", "etcd-quota-backend-bytes",
		"etcd-trusted-ca-file",
		"etcd-unsafe-no-fsync", "no-embed-etcd"} {
		s := Setting{Name: name, Usage: "accepted, and ignored", without: noEtcd}
		switch name {
		case "etcd-client-cert-auth", "etcd-peer-client-cert-auth", "etcd-unsafe-no-fsync", "no-embed-etcd":
			s.kind = boolean
		case "etcd-cipher-suites", "etcd-client-urls", "etcd-advertise-client-urls", "etcd-listen-client-urls",
			"etcd-listen-peer-urls", "etcd-initial-advertise-peer-urls":
			s.kind = list
		}
		all = append(all, s)
	}
	return all
}
