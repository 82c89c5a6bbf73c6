package vaultconf

import (
	"fmt"
	"maps"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-sockaddr/template"
)

// top reads the keys that stand in no stanza, and the stanzas.
func (r *reader) top(k *Keys) {
	c := r.cfg
	r.storage(k)
	for _, b := range k.Labelled("listener") {
		r.listener(b)
	}
	if len(c.Listeners) == 0 {
		r.fail("listener: at least one is needed, as in listener \"tcp\" { address = \"127.0.0.1:8200\" }")
	}
	c.Seals = k.Labelled("seal")
	if len(c.Seals) > 2 {
		r.fail("seal: two stanzas at most, one of them with disabled = true")
	}
	c.APIAddr = r.resolved("api_addr", k.String("api_addr", k.String("redirect_addr", "")))
	c.ClusterAddr, c.ClusterName = r.resolved("cluster_addr", k.String("cluster_addr", "")), k.String("cluster_name", "")
	c.DisableClustering = k.Bool("disable_clustering", false)
	r.registrations(k)
	c.UI = k.Bool("ui", k.Bool("enable_ui", true))
	c.LogLevel, c.LogFile, c.PIDFile = k.String("log_level", ""), k.String("log_file", ""), k.String("pid_file", "")
	c.LogRotateBytes, c.LogRotateAfter, c.LogRotateFiles = k.Int("log_rotate_bytes", 0),
		k.Duration("log_rotate_duration", 24*time.Hour), k.Int("log_rotate_max_files", 0)
	c.LogRequestsLevel = k.String("log_requests_level", "")
	c.HostnameHeader, c.RaftNodeIDHeader = k.Bool("enable_response_header_hostname", false),
		k.Bool("enable_response_header_raft_node_id", false)
	switch form := k.String("log_format", "standard"); strings.ToLower(form) {
	case "json":
		c.LogJSON = true
	case "standard", "":
	default:
		k.Fail("log_format", "must be standard or json")
	}
	c.DefaultLeaseTTL, c.MaxLeaseTTL = k.Duration("default_lease_ttl", 0), k.Duration("max_lease_ttl", 0)
	if c.MaxLeaseTTL != 0 && c.DefaultLeaseTTL > c.MaxLeaseTTL {
		k.Fail("default_lease_ttl", "is greater than max_lease_ttl")
	}
	c.MaxRequestDuration = k.Duration("default_max_request_duration", 90*time.Second)
	c.Limits.RequestMemory, c.Limits.MaxConns = k.Int("request_memory", 0), k.Int("max_conns_per_client", 50_000)
	c.DisableCache, c.DisableMlock = k.Bool("disable_cache", false), k.Bool("disable_mlock", false)
	// OpenBao's word for the contrary counts where it is said: without either, standbys hand reads on as Vault's do.
	c.StandbyReads = k.Bool("standby_reads", k.Has("disable_standby_reads") && !k.Bool("disable_standby_reads", false))
	if c.StandbyReads && c.Storage.Type != "raft" {
		r.warn("standby_reads: has no effect: standbys have a copy to read with storage \"raft\" alone")
	}
	c.AuditDir = k.String("audit_dir", "")
	c.AuditAnywhere, c.AuditPrefix = k.Bool("unsafe_allow_api_audit_creation", false),
		k.Bool("allow_audit_log_prefixing", false)
	c.RawStorageEndpoint, c.Introspection = k.Bool("raw_storage_endpoint", false), k.Bool("introspection_endpoint", false)
	c.PluginDir, c.PluginTmp = k.String("plugin_directory", ""), k.String("plugin_tmpdir", "")
	r.audits(k)
	r.lockouts(k)
	r.telemetry(k)
	k.Ignore("cache_size", "disable_performance_standby", "disable_sealwrap", "disable_printable_check", "license_path",
		"experiments",
		"detect_deadlocks", "imprecise_lease_role_tracking",
		"plugin_file_uid", "plugin_file_permissions", "enable_post_unseal_trace",
		"post_unseal_trace_directory", "reporting")
	k.Warn("plugin", "plugin_auto_download", "plugin_auto_register",
		"plugin_download_behavior", "initialize",
		"administrative_namespace_path", "request_limiter", "kms_library", "entropy", "sentinel")
	k.Done()
}

// audits reads stanzas as in audit "file" "to-disk" { options = { file_path = "..." } }.
func (r *reader) audits(k *Keys) {
	for _, kind := range k.Labelled("audit") {
		for _, named := range kind.Keys.labels() {
			b := named.Keys
			a := Audit{Type: kind.Type, Path: strings.Trim(named.Type, "/") + "/", Description: b.String("description", ""),
				Local: b.Bool("local", false), Options: map[string]string{}}
			for _, o := range b.Blocks("options") {
				for name := range maps.Clone(o.values) {
					a.Options[name] = o.String(name, "")
				}
			}
			b.Done()
			r.cfg.Audits = append(r.cfg.Audits, a)
		}
	}
}

// registrations reads stanzas as in service_registration "consul" { address = "127.0.0.1:8500" }.
func (r *reader) registrations(k *Keys) {
	for _, b := range k.Labelled("service_registration") {
		if b.Type != "consul" && b.Type != "kubernetes" {
			r.warn("service_registration %q: has no effect: the type is consul or kubernetes", b.Type)
			continue
		}
		r.cfg.Registrations = append(r.cfg.Registrations, b)
	}
	if len(r.cfg.Registrations) > 1 {
		r.fail("service_registration: is given %d times", len(r.cfg.Registrations))
	}
}

// lockouts reads stanzas as in user_lockout "userpass" { lockout_threshold = 10 }.
func (r *reader) lockouts(k *Keys) {
	for _, b := range k.Labelled("user_lockout") {
		name := strings.ToLower(b.Type)
		switch name {
		case "all", "userpass", "approle", "ldap":
		default:
			r.fail("user_lockout: the type %q is unknown: all, userpass, approle or ldap", b.Type)
		}
		l := Lockout{Threshold: b.Keys.Int("lockout_threshold", 0), Duration: b.Keys.Duration("lockout_duration", 0),
			CounterReset: b.Keys.Duration("lockout_counter_reset", 0)}
		if b.Keys.Has("disable_lockout") {
			off := b.Keys.Bool("disable_lockout", false)
			l.Disable = &off
		}
		b.Keys.Done()
		if r.cfg.Lockouts == nil {
			r.cfg.Lockouts = map[string]Lockout{}
		}
		r.cfg.Lockouts[name] = l
	}
}

// storage reads where records are kept. A stanza of its own for the lock changes nothing: the epoch of the lock is
// part of each write, and two stores cannot agree on one.
func (r *reader) storage(k *Keys) {
	blocks := append(k.Labelled("storage"), k.Labelled("backend")...)
	switch len(blocks) {
	case 1:
		r.cfg.Storage = blocks[0]
	case 0:
		r.fail("storage: is missing, as in storage \"raft\" { path = \"/var/lib/vault\" }")
	default:
		r.fail("storage: is given %d times", len(blocks))
	}
	for _, name := range []string{"ha_storage", "ha_backend"} {
		for _, b := range k.Labelled(name) {
			r.warn("%s %q: has no effect: the lock of the active server is in the storage itself (%s), where it fences each "+
				"write", name, b.Type, r.cfg.Storage.Type)
		}
	}
}

// resolved fills in a template such as {{ GetInterfaceIP "eth0" }}:8201; it may stand amid an address.
func (r *reader) resolved(key, text string) string {
	if !strings.Contains(text, "{{") {
		return text
	}
	out, err := template.Parse(text)
	if err != nil {
		r.fail("%s: template %q: %w", key, text, err)
		return ""
	}
	before, port, _ := strings.Cut(strings.TrimSpace(out), "://")
	if port == "" {
		before, port = "", before
	} else {
		before += "://"
	}
	if port != "" && port[0] != ':' {
		return before + port
	}
	// Nothing in front of a port would be every address: this host's own is the narrower reading.
	r.warn("%s: template %q finds no address on this host: 127.0.0.1 is used", key, text)
	return before + "127.0.0.1" + port
}

func (r *reader) listener(b Block) {
	k := b.Keys
	l := Listener{Type: b.Type}
	switch b.Type {
	case "tcp":
		l.Address = r.resolved("listener.tcp.address", k.String("address", "127.0.0.1:8200"))
		if _, _, err := net.SplitHostPort(l.Address); err != nil {
			l.Address = net.JoinHostPort(strings.Trim(l.Address, "[]"), "8200")
		}
		r.listenerTLS(k, &l.TLS)
	case "unix":
		l.Address = k.String("address", "")
		if l.Address == "" {
			k.Fail("address", "is missing: the path of the socket")
		}
		l.Address, l.TLS.Disable = "unix://"+strings.TrimPrefix(l.Address, "unix://"), true
		l.SocketMode, l.SocketUser, l.SocketGroup = k.String("socket_mode", ""), k.String("socket_user", ""),
			k.String("socket_group", "")
		k.Ignore("tls_disable")
	default:
		r.fail("listener: the type %q is unknown: tcp or unix", b.Type)
		return
	}
	l.ClusterAddress = r.resolved("listener.tcp.cluster_address", k.String("cluster_address", ""))
	l.IdleTimeout, l.ReadHeaderTimeout = k.Duration("http_idle_timeout", 5*time.Minute),
		k.Duration("http_read_header_timeout", 10*time.Second)
	l.MaxRequestSize, l.MaxRequestDuration = int64(k.Int("max_request_size", 32<<20)),
		k.Duration("max_request_duration", 0)
	l.OpenRekey = !k.Bool("disable_unauthed_rekey_endpoints", true)
	l.OpenGenerateRoot = !k.Bool("disable_unauthed_generate_root_endpoints", true)
	r.forwardedFor(k, &l.ForwardedFor)
	l.ReadTimeout, l.WriteTimeout = k.Duration("http_read_timeout", 30*time.Second), k.Duration("http_write_timeout", 0)
	switch role := k.String("role", "default"); role {
	case "default", "":
	case "metrics_only":
		l.MetricsOnly = true
	default:
		k.Fail("role", "must be default or metrics_only")
	}
	l.ProxyProtocol, l.ProxyAuthorized = k.String("proxy_protocol_behavior", ""),
		k.Strings("proxy_protocol_authorized_addrs")
	for _, t := range k.Blocks("telemetry") {
		l.UnauthenticatedMetrics, l.MetricsOnly, l.NoMetrics = t.Bool("unauthenticated_metrics_access", false),
			l.MetricsOnly || t.Bool("metrics_only", false), t.Bool("disallow_metrics", false)
		l.UnauthenticatedDoctor = t.Bool("unauthenticated_doctor_access", false)
		t.Done()
	}
	for _, t := range k.Blocks("profiling") {
		l.UnauthenticatedPprof = t.Bool("unauthenticated_pprof_access", false)
		t.Done()
	}
	for _, t := range k.Blocks("inflight_requests_logging") {
		l.UnauthenticatedInFlight = t.Bool("unauthenticated_in_flight_requests_access", false)
		t.Done()
	}
	r.responseHeaders(k, &l)
	k.Ignore("max_request_json_memory", "max_request_json_strings", "max_json_depth", "max_json_string_value_length",
		"max_json_object_entry_count", "max_json_array_element_count", "chroot_namespace")
	k.Warn("agent_api", "proxy_api", "redact_addresses", "redact_cluster_name", "redact_version",
		"disable_replication_status_endpoints", "disable_request_limiter")
	k.Done()
	r.cfg.Listeners = append(r.cfg.Listeners, l)
}

func (r *reader) forwardedFor(k *Keys, f *ForwardedFor) {
	f.Authorized, f.HopSkips = k.Strings("x_forwarded_for_authorized_addrs"), k.Int("x_forwarded_for_hop_skips", 0)
	f.CertHeader, f.CertDecoders = k.String("x_forwarded_for_client_cert_header", ""),
		k.Strings("x_forwarded_for_client_cert_header_decoders")
	if k.Has("x_forwarded_for_client_cert_decoders") { // OpenBao's spelling
		f.CertDecoders = k.Strings("x_forwarded_for_client_cert_decoders")
	}
	f.RejectNotPresent, f.RejectNotAuthorized = k.Bool("x_forwarded_for_reject_not_present", true),
		k.Bool("x_forwarded_for_reject_not_authorized", true)
}

func (r *reader) responseHeaders(k *Keys, l *Listener) {
	for _, outer := range k.Blocks("custom_response_headers") {
		for name := range outer.values {
			for _, inner := range outer.Blocks(name) {
				if l.ResponseHeaders == nil {
					l.ResponseHeaders = map[string]map[string]string{}
				}
				set := map[string]string{}
				for header := range inner.values {
					set[header] = strings.Join(inner.Strings(header), ",")
				}
				l.ResponseHeaders[name] = set
			}
		}
	}
}

func (r *reader) listenerTLS(k *Keys, t *TLS) {
	t.Disable = k.Bool("tls_disable", false)
	t.CertFile, t.KeyFile, t.ClientCAFile = k.String("tls_cert_file", ""), k.String("tls_key_file", ""),
		k.String("tls_client_ca_file", "")
	t.MinVersion, t.MaxVersion = k.String("tls_min_version", "tls12"), k.String("tls_max_version", "")
	t.CipherSuites = k.Strings("tls_cipher_suites")
	t.RequireClientCert, t.DisableClientCerts = k.Bool("tls_require_and_verify_client_cert", false),
		k.Bool("tls_disable_client_certs", false)
	t.PreferServerCiphers = k.Bool("tls_prefer_server_cipher_suites", false)
	for _, name := range []string{"tls_acme_ca_directory", "tls_acme_domains", "tls_acme_email", "tls_acme_cache_path",
		"tls_acme_ca_root", "tls_acme_eab_key_id",
		"tls_acme_eab_mac_key", "tls_acme_disable_http_challenge", "tls_acme_disable_alpn_challenge"} {
		k.Warn(name)
	}
	if t.Disable {
		return
	}
	for name, v := range map[string]string{"tls_cert_file": t.CertFile, "tls_key_file": t.KeyFile} {
		if v == "" {
			k.Fail(name,
				"is missing; or say tls_disable = true, for a listener whose clients are on this host or behind a proxy")
		}
	}
	if t.RequireClientCert && t.DisableClientCerts {
		k.Fail("tls_require_and_verify_client_cert", "cannot be true beside tls_disable_client_certs")
	}
}

func (r *reader) telemetry(k *Keys) {
	t := &r.cfg.Telemetry
	t.Prefix, t.FilterDefault, t.PrometheusRetention = "vault", true, 24*time.Hour
	for _, k := range k.Blocks("telemetry") {
		t.StatsdAddress, t.StatsiteAddress, t.DogstatsdAddr = k.String("statsd_address", ""),
			k.String("statsite_address", ""), k.String("dogstatsd_addr", "")
		t.OTLPTracesEndpoint = k.String("otlp_traces_endpoint", "")
		t.DogstatsdTags, t.PrefixFilter = k.Strings("dogstatsd_tags"), k.Strings("prefix_filter")
		t.PrometheusRetention, t.DisableHostname = k.Duration("prometheus_retention_time", 24*time.Hour),
			k.Bool("disable_hostname", false)
		t.Prefix, t.FilterDefault = k.String("metrics_prefix", "vault"), k.Bool("filter_default", true)
		t.DisableDoctor = k.Bool("disable_doctor", false)
		t.HostnameLabel = k.Bool("enable_hostname_label", false)
		r.usage(k)
		k.Ignore("add_mount_point_rollback_metrics")
		for name := range k.values {
			if strings.HasPrefix(name, "circonus_") || strings.HasPrefix(name, "stackdriver_") {
				k.Warn(name)
			}
		}
		k.Done()
	}
}

// usageMost is how many series one name may have at most: that of the registry.
const usageMost = 1000

// usage reads how tokens, leases and secrets are counted for the gauges.
func (r *reader) usage(k *Keys) {
	u := &r.cfg.Telemetry.Usage
	switch text := k.String("usage_gauge_period", "10m"); text {
	case "none", "0", "0s":
		u.Every = -1
	default:
		d, err := ParseDuration(text)
		if err != nil || d < time.Second {
			k.Fail("usage_gauge_period", `must be a duration of a second at least, such as "10m", or "none"`)
		}
		u.Every = d
	}
	if u.Most = k.Int("maximum_gauge_cardinality", 500); u.Most < 1 || u.Most > usageMost {
		k.Fail("maximum_gauge_cardinality", "must be between 1 and "+strconv.Itoa(usageMost))
	}
	if u.Epsilon = k.Duration("lease_metrics_epsilon", time.Hour); u.Epsilon < time.Second {
		k.Fail("lease_metrics_epsilon", "must be a second at least")
	}
	if u.Buckets = k.Int("num_lease_metrics_buckets", 168); u.Buckets < 1 || u.Buckets > usageMost {
		k.Fail("num_lease_metrics_buckets", "must be between 1 and "+strconv.Itoa(usageMost))
	}
	u.Namespaces = k.Bool("add_lease_metrics_namespace_labels", false)
}

// environment lets the variables win that Vault's users set in containers.
func (r *reader) environment(getenv func(string) string) {
	c := r.cfg
	for name, dst := range map[string]*string{"API_ADDR": &c.APIAddr, "CLUSTER_ADDR": &c.ClusterAddr,
		"LOG_LEVEL": &c.LogLevel, "LOG_FILE": &c.LogFile} {
		if v := first(getenv, name); v != "" {
			*dst = v
		}
	}
	if v := first(getenv, "DISABLE_USER_LOCKOUT"); v != "" {
		off, err := strconv.ParseBool(v)
		if err != nil {
			r.fail("VAULT_DISABLE_USER_LOCKOUT: must be true or false, got %q", v)
		}
		c.NoLockout = off
	}
	if v := first(getenv, "REDIRECT_ADDR"); v != "" && first(getenv, "API_ADDR") == "" {
		c.APIAddr = v
	}
	if c.Storage.Keys == nil {
		return
	}
	names := map[string]map[string]string{
		"raft": {"RAFT_NODE_ID": "node_id", "RAFT_PATH": "path",
			"RAFT_RETRY_JOIN_AS_NON_VOTER": "retry_join_as_non_voter"},
		"postgresql": {"PG_CONNECTION_URL": "connection_url"},
	}
	for name, key := range names[c.Storage.Type] {
		if v := first(getenv, name); v != "" {
			c.Storage.Keys.values[key] = v
		}
	}
	r.sealFromEnvironment(getenv)
}

// sealVariables are the keys of seals that variables override, by the seal's type.
var sealVariables = map[string]map[string]string{
	"transit": {"TRANSIT_SEAL_KEY_NAME": "key_name", "TRANSIT_SEAL_MOUNT_PATH": "mount_path",
		"TRANSIT_SEAL_DISABLE_RENEWAL": "disable_renewal"},
	"awskms":        {"AWSKMS_SEAL_KEY_ID": "kms_key_id"},
	"gcpckms":       {"GCPCKMS_SEAL_KEY_RING": "key_ring", "GCPCKMS_SEAL_CRYPTO_KEY": "crypto_key"},
	"azurekeyvault": {"AZUREKEYVAULT_VAULT_NAME": "vault_name", "AZUREKEYVAULT_KEY_NAME": "key_name"},
}

// sealFromEnvironment is about the seal to use, not about the disabled one to come from.
func (r *reader) sealFromEnvironment(getenv func(string) string) {
	c, used := r.cfg, 0
	for _, s := range c.Seals {
		if off, _ := strconv.ParseBool(fmt.Sprint(s.Keys.values["disabled"])); off {
			continue
		}
		used++
		for name, key := range sealVariables[s.Type] {
			if v := first(getenv, name); v != "" {
				s.Keys.values[key] = v
			}
		}
	}
	if kind := first(getenv, "SEAL_TYPE"); kind != "" && used == 0 {
		c.Seals = append(c.Seals, Block{Type: kind, Keys: NewKeys(nil)})
		r.sealFromEnvironment(getenv)
	}
}

// NextPort is host:port with the port after it: where a cluster listens beside its clients' port.
func NextPort(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 0 || n > 65534 {
		return "", strconv.ErrRange
	}
	if n > 0 {
		n++
	}
	return net.JoinHostPort(host, strconv.Itoa(n)), nil
}
