package config

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/node/cloudjoin"
	"github.com/hashicorp/go-sockaddr/template"
)

// complete works out what follows from the values and checks all of them.
func (l *loader) complete(o Options) {
	c := l.cfg
	l.identity(o)
	l.agentPort()
	l.addresses(o)
	l.tls()
	l.cluster(o)
	l.access()
	l.numbers()
	l.monitor()
	if c.Cautious() {
		l.exposure()
	}
	if o.Style == Corbel && o.Dev {
		l.loopbackOnly()
	}
	if c.DataDir == "" && !c.Dev {
		l.fail("data_dir is missing: give a folder with -data-dir, or try `corbel dev`, which needs none")
	}
	if !c.given("drain_wait") && !c.Server {
		c.Leave.DrainWait = agentDrain
	}
	if !c.given("leave_on_terminate") {
		c.Leave.OnTerminate = !c.Server
	}
	if !c.given("skip_leave_on_interrupt") {
		c.Leave.SkipOnInterrupt = c.Server && !c.Dev
	}
}

// agentDrain is for how long an agent that leaves drains its services at most: proxies hear of a mark within a
// second, and service managers grant a process ten seconds or more to end.
const agentDrain = 5 * time.Second

func (c *Config) given(key string) bool { _, ok := c.loaded.origins[key]; return ok }

// Given tells whether a source set the key, so that it is no default.
func (c *Config) Given(key string) bool { return c.given(key) }

// Counted repetitions take long to compile, at each start of the program: the first who needs one does it.
var (
	uuidForm       = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	datacenterForm = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)
	})
	metaKeyForm = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)
	})
)

func (l *loader) identity(o Options) {
	c := l.cfg
	n := &c.Node
	if n.Name == "" {
		name, err := hostname(o)
		if err != nil || name == "" {
			l.fail("node_name is missing and the host has no name: give one with -node")
		}
		n.Name = name
	}
	if strings.ContainsAny(n.Name, "/ \t\n") || len(n.Name) > 255 {
		l.fail(fmt.Sprintf("node_name %q must have at most 255 characters, without spaces and slashes", n.Name))
	}
	if n.ID != "" && !uuidForm.MatchString(n.ID) {
		l.fail(fmt.Sprintf("node_id %q is not a UUID", n.ID))
	}
	n.ID = strings.ToLower(n.ID)
	n.Datacenter = strings.ToLower(n.Datacenter)
	if n.PrimaryDatacenter == "" {
		n.PrimaryDatacenter = n.Datacenter
	}
	for _, dc := range [][2]string{{"datacenter", n.Datacenter}, {"primary_datacenter", n.PrimaryDatacenter}} {
		if !datacenterForm().MatchString(dc[1]) {
			l.fail(fmt.Sprintf("%s %q must have 1 to 64 of a-z, 0-9, _ and -", dc[0], dc[1]))
		}
	}
	if len(n.Meta) > 64 {
		l.fail(fmt.Sprintf("node_meta has %d pairs; 64 are allowed", len(n.Meta)))
	}
	for name, value := range n.Meta {
		if !metaKeyForm().MatchString(name) || len(value) > 512 || strings.HasPrefix(name, "consul-") {
			l.fail(fmt.Sprintf("node_meta %q: names have 1 to 128 of A-Z, a-z, 0-9, _ and -, do not begin with consul-; "+
				"values have at most 512 bytes", name))
		}
	}
	if n.Zone != "" && n.Region == "" {
		l.fail("locality.zone is set without locality.region: a zone is part of a region, name both")
	}
	if c.TLS.ServerName == "" {
		c.TLS.ServerName = n.Name
	}
}

// agentPort is for configurations whose client agents have no RPC port.
func (l *loader) agentPort() {
	if c := l.cfg; !c.Server && c.Ports.Server == -1 {
		c.Ports.Server = 0
		l.warn("ports.server = -1: servers reach their agents there too, so any free port is taken")
	}
}

// addresses resolves templates, then fills Listen and Advertise.
func (l *loader) addresses(o Options) {
	c := l.cfg
	resolve := o.Template
	if resolve == nil {
		resolve = template.Parse
	}
	list := func(key, text string) []string {
		if strings.Contains(text, "{{") {
			out, err := resolve(text)
			if err != nil {
				l.fail(fmt.Sprintf("%s: template %q: %v", key, text, err))
				return nil
			}
			text = out
		}
		return strings.Fields(text)
	}
	one := func(key, text string) string {
		all := list(key, text)
		if len(all) == 1 && ipOf(all[0]).IsValid() {
			return ipOf(all[0]).String()
		}
		if strings.TrimSpace(text) != "" || key == "bind_addr" {
			l.fail(fmt.Sprintf("%s %q must be one IP address", key, text))
		}
		return ""
	}
	a := &c.Addresses
	bind := one("bind_addr", a.Bind)
	gossip := bind
	if a.SerfLAN != "" {
		gossip = one("serf_lan", a.SerfLAN)
	}
	c.Listen.RPC, c.Listen.Secrets = join(bind, c.Ports.Server), join("127.0.0.1", c.Ports.Secrets)
	c.Listen.Gossip = join(gossip, c.Ports.SerfLAN)
	if c.Server {
		wan := bind
		if a.SerfWAN != "" {
			wan = one("serf_wan", a.SerfWAN)
		}
		c.Listen.GossipWAN = join(wan, c.Ports.SerfWAN)
	}
	l.doors(list)
	l.advertise(bind, one, resolve)
}

// doors fills in where clients are served. list resolves the addresses of a key.
func (l *loader) doors(list func(key, text string) []string) {
	c := l.cfg
	a := &c.Addresses
	for _, door := range []struct {
		key, own string
		port     int
		out      *[]string
	}{
		{"addresses.http", a.HTTP, c.Ports.HTTP, &c.Listen.HTTP},
		{"addresses.https", a.HTTPS, c.Ports.HTTPS, &c.Listen.HTTPS},
		{"addresses.dns", a.DNS, c.Ports.DNS, &c.Listen.DNS},
		{"addresses.grpc", a.GRPC, c.Ports.GRPC, &c.Listen.GRPC},
		{"addresses.grpc_tls", a.GRPCTLS, c.Ports.GRPCTLS, &c.Listen.GRPCTLS},
		{"addresses.monitor", a.Monitor, c.Ports.Monitor, &c.Listen.Monitor},
		{"addresses.monitor_agents", a.MonitorAgent, c.Ports.MonitorAgents, &c.Listen.MonitorAgents},
	} {
		key, text := door.key, door.own
		if text == "" {
			key, text = "client_addr", a.Client
		}
		for _, addr := range list(key, text) {
			switch {
			case strings.HasPrefix(addr, "unix://") && key != "client_addr" && door.out != &c.Listen.MonitorAgents:
				*door.out = append(*door.out, addr)
			case !ipOf(addr).IsValid():
				l.fail(fmt.Sprintf("%s %q is not an IP address", key, addr))
			case door.port >= 0:
				*door.out = append(*door.out, join(ipOf(addr).String(), door.port))
			}
		}
	}
	if !c.Monitor.Enabled {
		c.Listen.Monitor, c.Listen.MonitorAgents = nil, nil
	}
}

func (l *loader) advertise(bind string, one func(key, text string) string, resolve func(string) (string, error)) {
	c := l.cfg
	adv := bind
	if c.Addresses.Advertise != "" {
		adv = one("advertise_addr", c.Addresses.Advertise)
		if ipOf(adv).IsValid() && ipOf(adv).IsUnspecified() {
			l.fail(fmt.Sprintf("advertise_addr %s cannot be dialled: give this host's address", adv))
		}
	} else if ipOf(bind).IsValid() && ipOf(bind).IsUnspecified() {
		kind := "{{ GetPrivateIP }}"
		if ipOf(bind).Is6() {
			kind = "{{ GetPublicIPs }}"
		}
		out, err := resolve(kind)
		first, _, _ := strings.Cut(strings.TrimSpace(out), " ")
		if adv = first; err != nil || !ipOf(first).IsValid() {
			adv = ""
			l.fail(
				"advertise_addr is missing and this host has no private address: give one with -advertise, or -bind 127.0.0.1")
		}
	}
	wan := adv
	if c.Addresses.AdvertiseWAN != "" {
		wan = one("advertise_addr_wan", c.Addresses.AdvertiseWAN)
	}
	c.Advertise = Advertise{Addr: adv, AddrWAN: wan, RPC: join(adv, c.Ports.Server), Gossip: join(adv, c.Ports.SerfLAN)}
}

func ipOf(s string) netip.Addr {
	a, _ := netip.ParseAddr(strings.Trim(s, "[]"))
	return a
}

func join(host string, port int) string {
	if host == "" || port < 0 {
		return ""
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// tls lets each protocol inherit from tls.defaults what it does not set itself.
func (l *loader) tls() {
	c := l.cfg
	d := &c.TLS.Defaults
	if d.MinVersion == "" {
		d.MinVersion = "TLSv1_2"
	}
	for _, p := range []struct {
		key string
		b   *TLSBlock
	}{{"tls.internal_rpc", &c.TLS.InternalRPC}, {"tls.https", &c.TLS.HTTPS}, {"tls.grpc", &c.TLS.GRPC},
		{"tls.monitor", &c.TLS.Monitor}} {
		own := func(field string) bool { return c.given(p.key + "." + field) }
		inherit(&p.b.CAFile, d.CAFile, own("ca_file") || own("ca_path"))
		inherit(&p.b.CAPath, d.CAPath, own("ca_file") || own("ca_path"))
		inherit(&p.b.CertFile, d.CertFile, own("cert_file"))
		inherit(&p.b.KeyFile, d.KeyFile, own("key_file"))
		inherit(&p.b.VerifyIncoming, d.VerifyIncoming, own("verify_incoming"))
		inherit(&p.b.VerifyOutgoing, d.VerifyOutgoing, own("verify_outgoing"))
		inherit(&p.b.VerifyServerHostname, d.VerifyServerHostname, own("verify_server_hostname"))
		inherit(&p.b.MinVersion, d.MinVersion, own("tls_min_version"))
		inherit(&p.b.CipherSuites, d.CipherSuites, own("tls_cipher_suites"))
		l.tlsBlock(p.key, p.b)
	}
}

func inherit[T any](dst *T, from T, own bool) {
	if !own {
		*dst = from
	}
}

func (l *loader) tlsBlock(key string, b *TLSBlock) {
	if (b.CertFile == "") != (b.KeyFile == "") {
		l.fail(fmt.Sprintf("%s needs cert_file and key_file together", key))
	}
	if (b.VerifyIncoming || b.VerifyOutgoing) && b.CAFile == "" && b.CAPath == "" {
		l.fail(fmt.Sprintf("%s verifies certificates but has no ca_file or ca_path", key))
	}
	if b.VerifyIncoming && !b.Enabled() && !l.cfg.AutoEncrypt.TLS && !l.cfg.AutoConfig.Enabled {
		l.fail(fmt.Sprintf("%s.verify_incoming needs cert_file and key_file", key))
	}
	switch strings.ToLower(b.MinVersion) {
	case "tlsv1_2", "tls12", "tlsv1_3", "tls13", "tls_auto":
	case "tlsv1_0", "tlsv1_1", "tls10", "tls11":
		l.fail(fmt.Sprintf("%s.tls_min_version %q is too old to be safe: TLSv1_2 or TLSv1_3", key, b.MinVersion))
	default:
		l.fail(fmt.Sprintf("%s.tls_min_version %q must be TLSv1_2 or TLSv1_3", key, b.MinVersion))
	}
	if _, err := b.Suites(); err != nil {
		l.fail(fmt.Sprintf("%s.tls_cipher_suites: %v", key, err))
	}
}

// MinTLS is the lowest version as crypto/tls counts.
func (b *TLSBlock) MinTLS() uint16 {
	if v := strings.ToLower(b.MinVersion); v == "tlsv1_3" || v == "tls13" {
		return tls.VersionTLS13
	}
	return tls.VersionTLS12
}

// Suites are the cipher suites by number; nil leaves the choice to crypto/tls.
func (b *TLSBlock) Suites() ([]uint16, error) {
	var ids []uint16
next:
	for _, name := range b.CipherSuites {
		for _, s := range tls.CipherSuites() {
			if s.Name == name {
				ids = append(ids, s.ID)
				continue next
			}
		}
		return nil, fmt.Errorf("%q is not a cipher suite that Corbel uses", name)
	}
	return ids, nil
}

// federation checks how servers find those of other datacenters.
func (l *loader) federation() {
	c := l.cfg
	for _, list := range []struct {
		key   string
		addrs []string
	}{{"retry_join_wan", c.Gossip.RetryJoinWAN}, {"start_join_wan", c.Gossip.StartJoinWAN}} {
		switch {
		case len(list.addrs) == 0:
		case !c.Server:
			l.fail(list.key + " is for servers: an agent reaches other datacenters through its servers")
		case c.Ports.SerfWAN < 0:
			l.fail(list.key + " needs ports.serf_wan, which is -1 (off)")
		}
	}
}

// joinAddresses fills in templates. An entry for a cloud that nobody can ask is named and left out: stock takes it.
func (l *loader) joinAddresses(key string, all []string, o Options) []string {
	resolve := o.Template
	if resolve == nil {
		resolve = template.Parse
	}
	var out []string
	for _, addr := range all {
		switch {
		case cloudjoin.Is(addr):
			if _, err := cloudjoin.Parse(addr); err == nil {
				out = append(out, addr)
			} else {
				l.warn(fmt.Sprintf("%s: an entry for a cloud has no effect: %v", key, err))
			}
		case strings.Contains(addr, "{{"):
			text, err := resolve(addr)
			if err != nil {
				l.fail(fmt.Sprintf("%s: template %q: %v", key, addr, err))
			}
			out = append(out, strings.Fields(text)...)
		default:
			out = append(out, addr)
		}
	}
	return out
}

// cluster checks how servers find each other.
func (l *loader) cluster(o Options) {
	c := l.cfg
	r := &c.Raft
	switch {
	case r.Bootstrap && r.BootstrapExpect > 0:
		l.fail("bootstrap and bootstrap_expect exclude each other: keep bootstrap_expect")
	case (r.Bootstrap || r.BootstrapExpect > 0) && !c.Server:
		l.fail("bootstrap and bootstrap_expect are for servers: start with `corbel server`")
	case r.BootstrapExpect < 0:
		l.fail(fmt.Sprintf("bootstrap_expect %d must not be negative", r.BootstrapExpect))
	case r.BootstrapExpect == 1:
		r.Bootstrap, r.BootstrapExpect = true, 0
	case r.BootstrapExpect == 2:
		l.warn("bootstrap_expect is 2: a cluster of two servers fails when either does; use 3")
	case r.BootstrapExpect > 0 && r.BootstrapExpect%2 == 0:
		l.warn(fmt.Sprintf("bootstrap_expect is %d: an even number of servers tolerates no more failures than one fewer",
			r.BootstrapExpect))
	}
	l.federation()
	if c.Dev && c.Raft.BootstrapExpect > 0 {
		l.fail("bootstrap_expect: dev is a cluster of its own")
	}
	if r.Multiplier < 1 || r.Multiplier > 10 {
		l.fail(fmt.Sprintf("performance.raft_multiplier %d must be 1 to 10", r.Multiplier))
	}
	c.Gossip.RetryJoin = l.joinAddresses("retry_join", c.Gossip.RetryJoin, o)
	c.Gossip.StartJoin = l.joinAddresses("start_join", c.Gossip.StartJoin, o)
	c.Gossip.RetryJoinWAN = l.joinAddresses("retry_join_wan", c.Gossip.RetryJoinWAN, o)
	c.Gossip.StartJoinWAN = l.joinAddresses("start_join_wan", c.Gossip.StartJoinWAN, o)
	if c.Gossip.Encrypt != "" {
		key, err := base64.StdEncoding.DecodeString(c.Gossip.Encrypt)
		if n := len(key); err != nil || n != 16 && n != 24 && n != 32 {
			l.fail("encrypt must be 16, 24 or 32 bytes in base64: make a key with `corbel keygen`")
		}
		c.Gossip.EncryptKey = key
	}
	for _, d := range []struct {
		key  string
		v    time.Duration
		want time.Duration
	}{
		{"retry_interval", c.Gossip.RetryInterval, time.Second}, {"retry_interval_wan", c.Gossip.RetryIntervalWAN,
			time.Second}, {"reconnect_timeout", c.Gossip.ReconnectTimeout, 8 * time.Hour},
		{"raft_snapshot_interval", r.SnapshotInterval, time.Second}, {"default_query_time", c.Queries.DefaultTime,
			time.Second},
		{"max_query_time", c.Queries.MaxTime, time.Second}, {"session_ttl_min", c.Queries.SessionTTLMin, time.Second},
		{"check_update_interval", c.Checks.UpdateInterval, 0}, {"drain_wait", c.Leave.DrainWait, 0},
		{"performance.leave_drain_time", r.LeaveDrain, 0},
		{"performance.rpc_hold_timeout", r.RPCHold, time.Second}, {"limits.rpc_client_timeout", c.Limits.RPCClient,
			time.Second},
		{"limits.rpc_handshake_timeout", c.Limits.RPCHandshake, time.Millisecond},
		{"telemetry.prometheus_retention_time", c.Telemetry.PrometheusRetention, 0},
		{"dns_config.recursor_timeout", c.DNS.RecursorTimeout, time.Millisecond},
		{"autopilot.last_contact_threshold", c.Autopilot.LastContactThreshold, time.Millisecond},
		{"autopilot.server_stabilization_time", c.Autopilot.ServerStabilizationTime, 0},
		{"acl.token_ttl", c.ACL.TokenTTL, 0}, {"acl.policy_ttl", c.ACL.PolicyTTL, 0}, {"acl.role_ttl", c.ACL.RoleTTL, 0},
		{"dns_config.node_ttl", c.DNS.NodeTTL, 0}, {"dns_config.max_stale", c.DNS.MaxStale, 0},
		{"discovery_max_stale", c.Queries.DiscoveryMaxStale, 0},
		{"dns_config.cache_max_age", c.DNS.CacheMaxAge, 0}, {"log_rotate_duration", c.Logging.RotateInterval, 0},
	} {
		if d.v < d.want {
			l.fail(fmt.Sprintf("%s %s must be at least %s", d.key, d.v, d.want))
		}
	}
}
