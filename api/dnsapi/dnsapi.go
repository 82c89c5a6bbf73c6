// Package dnsapi answers DNS questions about the catalog's nodes and services, over UDP
// and TCP, and passes on those about other names.
//
// There are two paths to the same answer. The slow path reads the question with
// miekg/dns, looks the catalog up and builds a message: it defines what is right. The fast
// path takes questions that were asked before: it reads the name from the wire, finds
// the answer's records encoded in a cache, checks that the catalog's index for that name has
// not moved, and writes the reply in a new order. Both are tested against each other.
//
// Invariants:
//   - A cached answer is used only while its service's or node's index, the settings and the
//     access rules are those it was made from. The cache is bounded; a full part is emptied.
//   - A UDP reply fits the size that the client gave; answers are cut from the end and their
//     Additional records with them.
//   - Nothing a client sends makes the process panic, and no client waits for another: questions that
//     need the network (recursion, forwarding) leave the socket loop for a bounded number of
//     goroutines; past the bound they are answered SERVFAIL and counted in dns.shed.
//   - A reply leaves from the address that was asked.
//
// Concurrency: Server's methods are safe from any goroutine; Run owns all goroutines.
package dnsapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"corbel.dev/corbel/catalog/peering"
	"corbel.dev/corbel/catalog/statestore"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/telemetry"
)

// Settings is what operators write in dns_config, recursors, domain and alt_domain. The
// zero value is the contract's default. A Reload takes all of it.
type Settings struct {
	Domain       string // domain; "" means "consul."
	AltDomain    string // alt_domain; "" means none
	RequireFresh bool   // allow_stale = false: only the leader answers
	MaxStale     time.Duration
	NodeTTL      time.Duration
	ServiceTTL   map[string]time.Duration // by name, "prefix*" or "*"; the longest that fits
	Limits
	OnlyPassing bool
	Recursion
	OmitNodeMeta bool // enable_additional_node_meta_txt = false
	// UseCache lets an agent give a server's answer again until it is CacheMaxAge old.
	UseCache    bool
	CacheMaxAge time.Duration
	SOA         SOA
}

// Recursion is who is asked for names that are not ours.
type Recursion struct {
	Recursors        []string
	RecursorTimeout  time.Duration // 0 means 2 s
	RecursorStrategy string        // sequential or random; "" means sequential
}

// Limits bounds an answer's size.
type Limits struct {
	EnableTruncate     bool
	UDPAnswerLimit     int // 0 means 3
	ARecordLimit       int // 0 means none
	DisableCompression bool
}

// SOA is the zone's timers in seconds; the zero value means 3600, 600, 86400 and 0.
type SOA struct{ Refresh, Retry, Expire, MinTTL uint32 }

// Source is the catalog as this process sees it.
type Source interface {
	State() *statestore.State
	// Lag is how old that view may be: the time since a leader was heard, 0 on the leader.
	Lag() time.Duration
}

// Asked is a question on its way to another process.
type Asked struct {
	Query   []byte // a DNS message, as is the answer to it
	TCP     bool   // the answer's size is not limited
	Token   string // in whose name
	Domain  string // the zone where it was asked: it is answered whatever zones the other side has; "" for reverse names
	Crossed bool   // it comes from another datacenter, and goes to no third one
	// Agent is the node whose client asks, Source that client; for prepared queries that sort by distance.
	Agent  string
	Source netip.Addr
}

// Forwarder asks a server: any from a client agent, the leader from a server that is too stale.
type Forwarder interface {
	ForwardDNS(ctx context.Context, a Asked) ([]byte, error)
}

// Remote is the way to the servers of other datacenters.
type Remote interface {
	// Knows tells whether that datacenter exists, whether it can be reached or not.
	Knows(dc string) bool
	ForwardDNSTo(ctx context.Context, dc string, a Asked) ([]byte, error)
}

// Access is what a token may read. Version differs between rights that could give different
// answers. A nil function allows everything.
type Access struct {
	Version       uint64
	Node, Service func(name string) bool
}

// Config makes a Server.
type Config struct {
	Addresses  []string // host:port, each for UDP and TCP
	Datacenter string   // "" means dc1
	NodeName   string
	Settings   Settings
	Source     Source                    // nil on a client agent: zone questions are forwarded
	Forward    Forwarder                 // nil: what cannot be answered here is SERVFAIL
	Remote     Remote                    // nil: names of other datacenters do not exist
	Queries    Queries                   // nil: there are no prepared queries
	Token      func() string             // whose rights this process's clients have; nil is nobody's in particular
	Access     func(token string) Access // nil allows everything
	Metrics    *telemetry.Registry
	Logger     *slog.Logger // nil discards
	// SocketCount is how many UDP sockets share an address; 0 means one per core, at most 8.
	SocketCount int
	// NetworkLimit bounds the questions that wait for the network; 0 means 1,024.
	NetworkLimit int
	// ConnLimit bounds TCP connections; 0 means 1,024.
	ConnLimit int
	// Conns bounds them by address, too; nil does not.
	Conns *limit.Conns
	// ConnIdle is how long a TCP connection may take for its next question, and for one; 0 means 10 s.
	ConnIdle time.Duration
	// Bytes is the budget of what TCP connections hold beyond a few kB each; nil has no end.
	Bytes *limit.Bytes
}

// zone is a domain that we answer for, in both its forms.
type zone struct {
	name   string   // "consul."
	labels []string // lower case
	wire   int      // length of its encoding
}

// settled is a Settings made ready; immutable.
type settled struct {
	Settings
	zones     []zone
	recursors []string // host:port
}

// Server answers DNS.
type Server struct {
	cfg       Config
	settings  atomic.Pointer[settled]
	cache     *cache
	aged      *agedCache
	reverse   reverseIndex
	peerNodes peering.NodeIndex
	network   chan struct{} // a slot for each question that waits for the network
	metrics   metrics
	// responders are those of Resolve, which has no loop to keep one.
	responders sync.Pool

	bindMu    sync.Mutex
	endpoints []endpoint // nil before Bind
}

type metrics struct {
	domain, ptr *telemetry.Timing
	types       map[uint16]*telemetry.Timing
	other       *telemetry.Timing
	stale, shed *telemetry.Counter
	fast, slow  *telemetry.Counter
	malformed   *telemetry.Counter
}

// New checks the configuration; it opens nothing.
func New(cfg Config) (*Server, error) {
	if cfg.Datacenter == "" {
		cfg.Datacenter = "dc1"
	}
	cfg.Datacenter = strings.ToLower(cfg.Datacenter)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if !sharesPorts {
		cfg.SocketCount = 1
	}
	if cfg.SocketCount <= 0 {
		cfg.SocketCount = min(runtime.GOMAXPROCS(0), 8)
	}
	if cfg.NetworkLimit <= 0 {
		cfg.NetworkLimit = 1024
	}
	if cfg.ConnLimit <= 0 {
		cfg.ConnLimit = 1024
	}
	if cfg.ConnIdle <= 0 {
		cfg.ConnIdle = 10 * time.Second
	}
	if cfg.Access == nil {
		cfg.Access = func(string) Access { return Access{} }
	}
	if cfg.Token == nil {
		cfg.Token = func() string { return "" }
	}
	s := &Server{cfg: cfg, cache: newCache(), aged: newAgedCache(), network: make(chan struct{}, cfg.NetworkLimit),
		metrics: newMetrics(cfg.Metrics)}
	if err := s.Reload(cfg.Settings); err != nil {
		return nil, err
	}
	return s, nil
}

func newMetrics(r *telemetry.Registry) metrics {
	m := metrics{
		domain: r.Timing("dns.domain_query"), ptr: r.Timing("dns.ptr_query"),
		types: make(map[uint16]*telemetry.Timing), other: r.Timing("dns.query", "type", "other"),
		stale: r.Counter("dns.stale_queries"), shed: r.Counter("dns.shed"),
		fast: r.Counter("dns.answers", "path", "fast"), slow: r.Counter("dns.answers", "path", "slow"),
		malformed: r.Counter("dns.malformed"),
	}
	for _, t := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypeTXT, dns.TypePTR, dns.TypeSOA, dns.TypeNS,
		dns.TypeANY, dns.TypeCNAME} {
		m.types[t] = r.Timing("dns.query", "type", dns.TypeToString[t])
	}
	return m
}

// observe records one answer of a type that took that long.
func (m *metrics) observe(qtype uint16, took time.Duration) {
	if qtype == dns.TypePTR {
		m.ptr.Observe(took)
	} else {
		m.domain.Observe(took)
	}
	if t := m.types[qtype]; t != nil {
		t.Observe(took)
	} else {
		m.other.Observe(took)
	}
}

// Reload takes new settings: all or, on an error, none.
func (s *Server) Reload(settings Settings) error {
	next, err := settle(settings)
	if err != nil {
		return err
	}
	s.settings.Store(next)
	return nil
}

func settle(in Settings) (*settled, error) {
	c := &settled{Settings: in}
	var wrong []error
	if c.Domain == "" {
		c.Domain = "consul."
	}
	for _, domain := range []string{c.Domain, c.AltDomain} {
		if domain == "" {
			continue
		}
		z, err := newZone(domain)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		c.zones = append(c.zones, z)
	}
	c.ServiceTTL = make(map[string]time.Duration, len(in.ServiceTTL))
	for name, ttl := range in.ServiceTTL {
		c.ServiceTTL[strings.ToLower(name)] = ttl
	}
	if c.UDPAnswerLimit <= 0 {
		c.UDPAnswerLimit = 3
	}
	if c.RecursorTimeout <= 0 {
		c.RecursorTimeout = 2 * time.Second
	}
	if c.SOA == (SOA{}) {
		c.SOA = SOA{3600, 600, 86400, 0}
	}
	for _, r := range c.Recursors {
		address, err := recursorAddress(r)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		c.recursors = append(c.recursors, address)
	}
	switch c.RecursorStrategy {
	case "", "sequential", "random":
	default:
		wrong = append(wrong, fmt.Errorf("dns_config.recursor_strategy: %q is neither sequential nor random",
			c.RecursorStrategy))
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, errkind.E(errkind.Invalid, "dns", err)
	}
	return c, nil
}

func newZone(domain string) (zone, error) {
	name := strings.ToLower(dns.Fqdn(domain))
	if _, ok := dns.IsDomainName(name); !ok || name == "." {
		return zone{}, fmt.Errorf("domain: %q is not a domain name", domain)
	}
	z := zone{name: name, labels: dns.SplitDomainName(name), wire: 1}
	for _, l := range z.labels {
		z.wire += len(l) + 1
	}
	return z, nil
}

func recursorAddress(s string) (string, error) {
	if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return netip.AddrPortFrom(a, 53).String(), nil
	}
	if _, _, err := net.SplitHostPort(s); err == nil {
		return s, nil
	}
	return "", fmt.Errorf("recursors: %q is not an address", s)
}

// serviceTTL is the TTL in seconds that the settings give a service (in lower case).
func (c *settled) serviceTTL(name string) uint32 {
	if ttl, ok := c.ServiceTTL[name]; ok {
		return uint32(ttl / time.Second)
	}
	longest, found := -1, time.Duration(0)
	for pattern, ttl := range c.ServiceTTL {
		prefix, wild := strings.CutSuffix(pattern, "*")
		if wild && len(prefix) > longest && strings.HasPrefix(name, prefix) {
			longest, found = len(prefix), ttl
		}
	}
	return uint32(found / time.Second)
}
