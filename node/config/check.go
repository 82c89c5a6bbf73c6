package config

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/monitor/eventstore/pgevents"
	"corbel.dev/corbel/node/cloudjoin"
)

// access checks who may do what, and the limits of the doors.
func (l *loader) access() {
	c := l.cfg
	l.word("acl.default_policy", &c.ACL.DefaultPolicy, "allow", "deny")
	l.word("acl.down_policy", &c.ACL.DownPolicy, "allow", "deny", "extend-cache", "async-cache")
	if c.Connect.DefaultIntentionPolicy != "" {
		l.word("default_intention_policy", &c.Connect.DefaultIntentionPolicy, "allow", "deny")
	}
	if c.Connect.RotationWindow <= 0 {
		l.fail("connect.test_ca_leaf_root_change_spread must be more than 0s")
	}
	l.word("dns_config.recursor_strategy", &c.DNS.RecursorStrategy, "sequential", "random")
	l.word("limits.request_limits.mode", &c.Limits.RequestMode, "disabled", "permissive", "enforcing")
	c.Logging.Level = strings.ToUpper(c.Logging.Level)
	if c.Logging.Level == "WARNING" || c.Logging.Level == "ERR" {
		c.Logging.Level = strings.TrimSuffix(strings.Replace(c.Logging.Level, "ERR", "ERROR", 1), "ING")
	}
	l.word("log_level", &c.Logging.Level, "TRACE", "DEBUG", "INFO", "WARN", "ERROR")
	for _, text := range c.HTTP.AllowWriteFrom {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			l.fail(fmt.Sprintf("http_config.allow_write_http_from %q is not a network such as 10.0.0.0/8", text))
		}
		c.HTTP.AllowWritePrefixes = append(c.HTTP.AllowWritePrefixes, p)
	}
	for _, rule := range c.Telemetry.PrefixFilter {
		if rule == "" || rule[0] != '+' && rule[0] != '-' {
			l.fail(fmt.Sprintf("telemetry.prefix_filter %q must begin with + or -", rule))
		}
	}
	l.collector("otlp_endpoint", c.Telemetry.OTLPEndpoint)
	l.collector("otlp_traces_endpoint", c.Telemetry.OTLPTracesEndpoint)
	l.autoEncrypt()
	l.autoConfig()
	if len(c.Listen.HTTPS) > 0 && !c.TLS.HTTPS.Enabled() && !c.AutoEncrypt.TLS {
		// Harnesses of the contract name the port without certificates and use the plain one.
		l.warn("ports.https is on but tls.https (or tls.defaults) has no cert_file and key_file: HTTPS stays off")
		c.Listen.HTTPS = nil
	}
	if len(c.Listen.GRPCTLS) > 0 && !c.TLS.GRPC.Enabled() && !c.AutoEncrypt.TLS {
		l.warn("ports.grpc_tls is on but tls.grpc (or tls.defaults) has no cert_file and key_file: gRPC over TLS stays off")
		c.Listen.GRPCTLS = nil
	}
	if !strings.HasSuffix(c.DNS.Domain, ".") {
		c.DNS.Domain += "."
	}
	if c.DNS.AltDomain != "" && !strings.HasSuffix(c.DNS.AltDomain, ".") {
		c.DNS.AltDomain += "."
	}
	if c.DNS.Domain == "." {
		l.fail("domain must not be empty")
	}
}

// collector checks the address of an OTLP collector, of telemetry.key.
func (l *loader) collector(key, address string) {
	u, err := url.Parse(address)
	if address != "" && (err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "") {
		l.fail(fmt.Sprintf("telemetry.%s: address %q is not http://host:port or https://host:port", key, address))
	}
}

// autoEncrypt checks who gives certificates and who gets them.
func (l *loader) autoEncrypt() {
	c, rpc, say := &l.cfg.AutoEncrypt, &l.cfg.TLS.InternalRPC, l.failIf
	say(c.AllowTLS && !l.cfg.Server, "auto_encrypt.allow_tls is for servers; client agents have auto_encrypt.tls")
	say(c.AllowTLS && l.cfg.Server && !rpc.Enabled(),
		"auto_encrypt.allow_tls needs tls.defaults (or tls.internal_rpc) with ca_file, cert_file and key_file")
	say(c.AllowTLS && !l.cfg.Connect.Enabled, "auto_encrypt.allow_tls needs connect.enabled: the mesh's authority signs")
	say(c.TLS && l.cfg.Server, "auto_encrypt.tls is for client agents; servers have auto_encrypt.allow_tls")
	say(c.TLS && rpc.Enabled(), "auto_encrypt.tls and tls.internal_rpc.cert_file (or tls.defaults.cert_file) exclude "+
		"each other: remove one of them")
	say(c.TLS && rpc.CAFile == "" && rpc.CAPath == "",
		"auto_encrypt.tls needs tls.defaults.ca_file (or ca_path), to know the servers")
	l.areIPs("auto_encrypt.ip_san", c.IPSAN)
}

func (l *loader) failIf(bad bool, text string) {
	if bad {
		l.fail(text)
	}
}

func (l *loader) areIPs(key string, list []string) {
	for _, text := range list {
		_, err := netip.ParseAddr(text)
		l.failIf(err != nil, fmt.Sprintf("%s %q is not an IP address", key, text))
	}
}

// autoConfig checks who is introduced and who introduces. An agent that is introduced gets its certificate as with
// auto_encrypt.
func (l *loader) autoConfig() {
	c, rpc, say := &l.cfg.AutoConfig, &l.cfg.TLS.InternalRPC, l.failIf
	l.areIPs("auto_config.ip_sans", c.IPSANs)
	c.ServerAddresses = slices.DeleteFunc(c.ServerAddresses, func(addr string) bool {
		if !cloudjoin.Is(addr) {
			return false
		}
		_, err := cloudjoin.Parse(addr)
		if err != nil {
			l.warn(fmt.Sprintf("auto_config.server_addresses: an entry for a cloud has no effect: %v", err))
		}
		return err != nil
	})
	if c.Authorize {
		say(!l.cfg.Server, "auto_config.authorization is for servers; client agents have auto_config.enabled")
		say(l.cfg.Server && !rpc.Enabled(), "auto_config.authorization needs tls.defaults (or tls.internal_rpc) with "+
			"ca_file, cert_file and key_file")
		say(!l.cfg.Connect.Enabled, "auto_config.authorization needs connect.enabled: the mesh's authority signs")
	}
	if !c.Enabled {
		return
	}
	say(l.cfg.Server, "auto_config.enabled is for client agents; servers have auto_config.authorization")
	say(l.cfg.AutoEncrypt.TLS, "auto_config.enabled and auto_encrypt.tls exclude each other: remove one of them")
	say(c.IntroToken == "" && c.IntroTokenFile == "", "auto_config.enabled needs intro_token or intro_token_file")
	say(len(c.ServerAddresses) == 0, "auto_config.enabled needs server_addresses")
	say(rpc.Enabled(), "auto_config.enabled and tls.internal_rpc.cert_file (or tls.defaults.cert_file) exclude each "+
		"other: remove one of them")
	say(rpc.CAFile == "" && rpc.CAPath == "",
		"auto_config.enabled needs tls.defaults.ca_file (or ca_path), to know the servers")
	say(!l.cfg.Connect.Enabled, "auto_config.enabled needs connect.enabled: the mesh's authority signs")
	l.cfg.AutoEncrypt = AutoEncrypt{TLS: true, DNSSAN: c.DNSSANs, IPSAN: c.IPSANs}
}

func (l *loader) word(key string, v *string, allowed ...string) {
	if !slices.Contains(allowed, *v) {
		l.fail(fmt.Sprintf("%s %q must be one of %s", key, *v, strings.Join(allowed, ", ")))
	}
}

// numbers checks ports and counts.
func (l *loader) numbers() {
	c := l.cfg
	p := &c.Ports
	used := map[int]string{}
	if p.Secrets >= 0 && !c.Dev {
		l.fail("ports.secrets: the secrets plane keeps its records in memory only so far, and runs in dev alone")
	}
	for _, port := range []struct {
		key  string
		v    int
		must bool // cannot be off
	}{
		{"ports.dns", p.DNS, false}, {"ports.http", p.HTTP, false}, {"ports.https", p.HTTPS, false},
		{"ports.grpc", p.GRPC, false},
		{"ports.grpc_tls", p.GRPCTLS, false}, {"ports.serf_lan", p.SerfLAN, true}, {"ports.serf_wan", p.SerfWAN, false},
		{"ports.server", p.Server, c.Server},
		{"ports.secrets", p.Secrets, false}, {"ports.monitor", monitorPort(c, p.Monitor), false},
		{"ports.monitor_agents", monitorPort(c, p.MonitorAgents), false},
	} {
		switch {
		case port.v < -1 || port.v > 65535:
			l.fail(fmt.Sprintf("%s %d must be 1 to 65535, -1 for off or 0 for any free port", port.key, port.v))
		case port.v == -1 && port.must:
			l.fail(fmt.Sprintf("%s cannot be switched off", port.key))
		case port.v > 0 && used[port.v] != "":
			l.fail(fmt.Sprintf("%s and %s are both %d", used[port.v], port.key, port.v))
		case port.v > 0:
			used[port.v] = port.key
		}
	}
	// The ranges are for processes beside this one: what listens here may stand at their ends or within.
	for key, v := range map[string]int{"ports.sidecar_min_port": p.SidecarMin, "ports.sidecar_max_port": p.SidecarMax,
		"ports.expose_min_port": p.ExposeMin, "ports.expose_max_port": p.ExposeMax} {
		if v < -1 || v > 65535 {
			l.fail(fmt.Sprintf("%s %d must be 1 to 65535, -1 for off or 0 for any free port", key, v))
		}
	}
	if p.SidecarMin > p.SidecarMax || p.ExposeMin > p.ExposeMax {
		l.fail("ports: a min_port is above its max_port")
	}
	for _, n := range []struct {
		key string
		v   int
		low int
	}{
		{"retry_max", c.Gossip.RetryMax, 0}, {"retry_max_wan", c.Gossip.RetryMaxWAN, 0},
		{"raft_snapshot_threshold", c.Raft.SnapshotThreshold, 1}, {"raft_trailing_logs", c.Raft.TrailingLogs, 1},
		{"limits.http_max_conns_per_client", c.Limits.HTTPMaxConns, 0},
		{"limits.max_conns_per_client", c.Limits.MaxConns, 0},
		{"limits.max_strangers_per_client", c.Limits.MaxStrangers, 0},
		{"limits.dns_max_conns_per_client", c.Limits.DNSMaxConns, 0},
		{"limits.rpc_max_burst", c.Limits.RPCMaxBurst, 1}, {"limits.request_memory", c.Limits.RequestMemory, -1},
		{"limits.kv_max_value_size", c.Limits.KVMaxValueBytes, 1}, {"limits.txn_max_req_len", c.Limits.TxnMaxBytes, 1},
		{"check_output_max_size", c.Checks.OutputMaxBytes, 1}, {"http_config.max_header_bytes", c.HTTP.MaxHeaderBytes, 4096},
		{"dns_config.udp_answer_limit", c.DNS.UDPAnswerLimit, 0}, {"dns_config.a_record_limit", c.DNS.ARecordLimit, 0},
		{"autopilot.max_trailing_logs", c.Autopilot.MaxTrailingLogs, 1}, {"autopilot.min_quorum", c.Autopilot.MinQuorum, 0},
		{"log_rotate_bytes", c.Logging.RotateBytes, 0}, {"log_rotate_max_files", c.Logging.RotateMaxFiles, -1},
	} {
		if n.v < n.low {
			l.fail(fmt.Sprintf("%s %d must be at least %d", n.key, n.v, n.low))
		}
	}
	if c.Queries.DefaultTime > c.Queries.MaxTime {
		l.fail(fmt.Sprintf("default_query_time %s is longer than max_query_time %s", c.Queries.DefaultTime,
			c.Queries.MaxTime))
	}
}

// monitorPort is a port of the monitor plane where that is on.
func monitorPort(c *Config, port int) int {
	if c.Monitor.Enabled {
		return port
	}
	return -1
}

// monitor checks the monitor plane's keys.
func (l *loader) monitor() {
	c := l.cfg
	m := &c.Monitor
	l.failIf(m.Enabled && !c.Server, "monitor.enabled is for servers: a host runs checks with monitor.agent.enabled, "+
		"or sensu-agent")
	l.failIf((m.AdminName == "") != (m.AdminSecret == ""),
		"monitor needs cluster_admin_username and cluster_admin_password together")
	l.failIf((m.AgentAuthCert == "") != (m.AgentAuthKey == ""),
		"monitor needs agent_auth_cert_file and agent_auth_key_file together")
	l.failIf(m.AgentAuthCA == "" && len(m.AgentAuthCRL) > 0,
		"monitor.agent_auth_crl_urls needs agent_auth_trusted_ca_file")
	l.failIf(m.AgentAuthCA != "" && m.AgentAuthCert == "" && !c.TLS.Monitor.Enabled(),
		"monitor.agent_auth_trusted_ca_file needs TLS: agent_auth_cert_file and agent_auth_key_file, or those of tls.monitor")
	l.failIf((m.Agent.CertFile == "") != (m.Agent.KeyFile == ""), "monitor.agent needs cert_file and key_file together")
	l.failIf(m.AdminKey != "" && m.AdminName == "", "monitor.cluster_admin_api_key needs cluster_admin_username")
	l.failIf(m.AdminKey != "" && !uuidForm.MatchString(m.AdminKey), "monitor.cluster_admin_api_key is not a UUID")
	for key, d := range map[string]time.Duration{"agent_write_timeout": m.AgentWrite - time.Second,
		"api_write_timeout": m.WriteTime - time.Second, "agent_serve_wait_time": m.AgentWait} {
		l.failIf(d < 0, "monitor."+key+" is too short")
	}
	for key, n := range map[string]int{"agent_message_max_size": m.MessageMax, "event_pending_max_size": m.PendingMax,
		"api_request_limit": m.RequestMax} {
		l.failIf(n < 64<<10, fmt.Sprintf("monitor.%s %d must be at least %d", key, n, 64<<10))
	}
	for key, n := range map[string]int{"pipelined_buffer_size": m.HandlerBuffer, "pipelined_workers": m.HandlerWorkers,
		"assets_burst_limit": m.AssetsBurst, "event_log_buffer_size": m.EventLogBuffer} {
		l.failIf(n < 1, fmt.Sprintf("monitor.%s %d must be at least 1", key, n))
	}
	l.failIf(m.HistoryRuns < 1 || m.HistoryRuns > 1000, fmt.Sprintf("monitor.history_max_runs %d must be 1 to 1000",
		m.HistoryRuns))
	l.failIf(m.HistoryAge < time.Minute, fmt.Sprintf("monitor.history_max_age %s must be at least 1m", m.HistoryAge))
	l.monitorStore()
	l.failIf(m.SilenceTime < 0 || m.SilenceTime%time.Second != 0,
		"monitor.default_silenced_expiry_time must be 0 or whole seconds")
	l.failIf(m.SilenceMost < 0 || m.SilenceMost%time.Second != 0,
		"monitor.max_silenced_expiry_time_allowed must be 0 or whole seconds")
	l.failIf(m.SilenceMost > 0 && m.SilenceTime > m.SilenceMost,
		"monitor.default_silenced_expiry_time is longer than monitor.max_silenced_expiry_time_allowed")
	l.failIf(m.AssetsRate <= 0, "monitor.assets_rate_limit must be more than 0")
	if !l.cfg.Given("monitor.catalog.failures") {
		m.Catalog.Failures = []string{"serfHealth"}
	}
	for _, id := range m.Catalog.Failures {
		l.failIf(!checkID.MatchString(id) || strings.HasPrefix(id, "monitor:"), fmt.Sprintf("monitor.catalog.failures: %q "+
			"is no ID of a check in the catalog that events can be named after: letters, digits and _.-: and none of the "+
			"monitor's own", id))
	}
	l.failIf(m.Catalog.Namespace == "", "monitor.catalog.namespace is empty")
	l.monitorAgent()
}

var checkID = regexp.MustCompile(`^[\w.:-]+$`)

// monitorStore checks where events are kept.
func (l *loader) monitorStore() {
	m := &l.cfg.Monitor
	switch m.Store {
	case "embedded":
		l.failIf(m.DSN != "", `monitor.dsn is for monitor.store = "postgresql"`)
	case "postgresql":
		l.failIf(m.DSN == "", `monitor.store = "postgresql" needs monitor.dsn`)
		if m.DSN != "" {
			if err := pgevents.CheckDSN(m.DSN); err != nil {
				l.fail("monitor." + err.Error())
			}
		}
	default:
		l.fail(fmt.Sprintf("monitor.store %q is neither embedded nor postgresql", m.Store))
	}
	l.failIf(m.StorePool < 2 || m.StorePool > 1000, fmt.Sprintf("monitor.store_pool_size %d must be from 2 to 1000",
		m.StorePool))
	l.failIf(m.HistoryRetention < 24*time.Hour, fmt.Sprintf("monitor.history_retention %s must be at least 24h",
		m.HistoryRetention))
}

// monitorAgent checks the keys of the host's agent; its own package names what else is wrong.
func (l *loader) monitorAgent() {
	c := l.cfg
	a := &c.Monitor.Agent
	if c.Dev && !c.Monitor.Enabled && !c.Given("monitor.agent.enabled") {
		a.Enabled = false // it was on for dev's own plane
	}
	if c.Dev && len(a.Subscriptions) == 0 {
		a.Subscriptions = []string{"linux", "system", "dev"}
	}
	for key, n := range map[string]int{"keepalive_interval": a.Interval, "keepalive_warning_timeout": a.Warning,
		"keepalive_critical_timeout": a.Critical} {
		l.failIf(n < 0 || n > math.MaxInt32, fmt.Sprintf("monitor.agent.%s %d is no number of seconds", key, n))
	}
	for key, addr := range map[string]string{"api": a.API, "sockets": a.Sockets, "statsd": a.Statsd} {
		if _, _, err := net.SplitHostPort(addr); addr != "" && err != nil {
			l.fail(fmt.Sprintf("monitor.agent.%s %q is not host:port", key, addr))
		}
	}
}

// loopbackOnly keeps `corbel dev` on the host: its token is known to everybody.
func (l *loader) loopbackOnly() {
	c := l.cfg
	for _, door := range []struct {
		key   string
		addrs []string
	}{{"client_addr", slices.Concat(c.Listen.HTTP, c.Listen.HTTPS, c.Listen.DNS, c.Listen.GRPC, c.Listen.GRPCTLS,
		c.Listen.Monitor, c.Listen.MonitorAgents)},
		{"bind_addr", []string{c.Listen.RPC, c.Listen.Gossip, c.Listen.GossipWAN}}} {
		for _, addr := range door.addrs {
			if !loopback(addr) {
				l.fail(fmt.Sprintf("%s: dev serves its own host only, not %s; use `corbel server` for others", door.key, addr))
				break
			}
		}
	}
}

func loopback(addr string) bool {
	if strings.HasPrefix(addr, "unix://") || addr == "" {
		return true
	}
	ap, err := netip.ParseAddrPort(addr)
	return err == nil && ap.Addr().IsLoopback()
}
