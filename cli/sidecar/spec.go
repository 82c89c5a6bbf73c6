package sidecar

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// Address is where something listens: network tcp or unix.
type Address struct{ Network, Text string }

// TCP is host:port as an Address.
func TCP(text string) Address { return Address{"tcp", text} }

// Spec is what a proxy does. The zero Public opens no door.
type Spec struct {
	Service   string // for which the proxy stands
	Public    Public
	Upstreams []Upstream
}

// Public is the door of the local service. It is comparable: what is equal is the same listener.
type Public struct {
	Bind, Local    Address
	ConnectTimeout time.Duration // to the local service
	Handshake      time.Duration
	MaxConnections int
}

// NewPublic is a door at bind that leads to local, both host:port, with the default times.
func NewPublic(bind, local string) Public {
	return Public{Bind: TCP(bind), Local: TCP(local), ConnectTimeout: defaultConnectTimeout,
		Handshake: defaultHandshakeTimeout}
}

// Upstream is a local port that leads to another service. It is comparable.
type Upstream struct {
	Query          bool // Name is a prepared query's
	Name           string
	Datacenter     string // "" is the agent's
	Bind           Address
	ConnectTimeout time.Duration
}

// The defaults of the contract, and a bound that it does not have.
const (
	defaultConnectTimeout   = 5 * time.Second
	defaultHandshakeTimeout = 10 * time.Second
	defaultMaxConnections   = 4096
)

// listening is what a listener needs to know of what it serves.
type listening interface {
	address() Address
	most() int
	String() string
}

func (p Public) address() Address   { return p.Bind }
func (p Public) most() int          { return cmp.Or(p.MaxConnections, defaultMaxConnections) }
func (p Public) String() string     { return "public listener" }
func (u Upstream) address() Address { return u.Bind }
func (u Upstream) most() int        { return defaultMaxConnections }
func (u Upstream) String() string   { return "upstream " + u.Name }

func (s *Spec) check() error {
	switch {
	case s.Service == "":
		return errors.New("a proxy needs the name of the service for which it stands")
	case s.Public.Bind.Text == "" && len(s.Upstreams) == 0:
		return errors.New("a proxy without a public listener and without upstreams does nothing")
	}
	seen := map[Address]string{}
	for _, u := range s.Upstreams {
		if other, taken := seen[u.Bind]; taken {
			return fmt.Errorf("the upstreams %s and %s both listen on %s", other, u.Name, u.Bind.Text)
		}
		seen[u.Bind] = u.Name
	}
	return nil
}

// ParseUpstream reads NAME:[HOST:]PORT; the host is 127.0.0.1 if it is left out.
func ParseUpstream(text string) (Upstream, error) {
	name, bind, _ := strings.Cut(text, ":")
	if !strings.Contains(bind, ":") {
		bind = "127.0.0.1:" + bind
	} else if strings.HasPrefix(bind, ":") {
		bind = "127.0.0.1" + bind
	}
	if name == "" || !isHostPort(bind) {
		return Upstream{}, fmt.Errorf("the upstream %q must be NAME:[HOST:]PORT, such as db:8181", text)
	}
	return Upstream{Name: name, Bind: TCP(bind)}, nil
}

func isHostPort(text string) bool {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

// registered is a proxy's registration as the agent tells it, with the parts that count here.
type registered struct {
	Kind, Address string
	Port          int
	Proxy         struct {
		DestinationServiceName                      string
		LocalServiceAddress, LocalServiceSocketPath string
		LocalServicePort                            int
		Config                                      ownConfig
		Upstreams                                   []struct {
			DestinationType, DestinationName, Datacenter, DestinationPeer string
			LocalBindAddress, LocalBindSocketPath                         string
			LocalBindPort                                                 int
			Config                                                        struct {
				ConnectTimeoutMs millis `json:"connect_timeout_ms"`
			}
		}
	}
}

// ownConfig are the keys of Proxy.Config that this proxy honours.
type ownConfig struct {
	BindAddress        string `json:"bind_address"`
	BindPort           int    `json:"bind_port"`
	LocalConnectMs     millis `json:"local_connect_timeout_ms"`
	HandshakeMs        millis `json:"handshake_timeout_ms"`
	MaxInboundSessions int    `json:"max_inbound_connections"`
}

// millis is a number of milliseconds.
type millis float64

func (m millis) or(d time.Duration) time.Duration {
	if m <= 0 {
		return d
	}
	return time.Duration(float64(m) * float64(time.Millisecond))
}

// specOf reads the registration of a proxy. What this proxy cannot do is an error that names it.
func specOf(text []byte) (s Spec, err error) {
	var r registered
	if err := json.Unmarshal(text, &r); err != nil {
		return s, fmt.Errorf("the proxy's registration: %w", err)
	}
	if r.Kind != "connect-proxy" {
		return s, fmt.Errorf("the service is no proxy: its kind is %q, not connect-proxy", r.Kind)
	}
	s.Service = r.Proxy.DestinationServiceName
	own := &r.Proxy.Config
	s.Public = Public{ConnectTimeout: own.LocalConnectMs.or(defaultConnectTimeout),
		Handshake: own.HandshakeMs.or(defaultHandshakeTimeout), MaxConnections: own.MaxInboundSessions,
		Bind: TCP(net.JoinHostPort(cmp.Or(own.BindAddress, r.Address, "0.0.0.0"),
			strconv.Itoa(cmp.Or(own.BindPort, r.Port))))}
	switch {
	case r.Proxy.LocalServiceSocketPath != "":
		s.Public.Local = Address{"unix", r.Proxy.LocalServiceSocketPath}
	case r.Proxy.LocalServicePort > 0:
		s.Public.Local = TCP(net.JoinHostPort(cmp.Or(r.Proxy.LocalServiceAddress, "127.0.0.1"),
			strconv.Itoa(r.Proxy.LocalServicePort)))
	default:
		s.Public = Public{} // a service that is only a client
	}
	for _, u := range r.Proxy.Upstreams {
		one := Upstream{Query: u.DestinationType == "prepared_query", Name: u.DestinationName, Datacenter: u.Datacenter,
			ConnectTimeout: u.Config.ConnectTimeoutMs.or(defaultConnectTimeout)}
		switch {
		case u.DestinationPeer != "":
			return s, fmt.Errorf("the upstream %s is a peer's, which this proxy does not reach", u.DestinationName)
		case u.LocalBindSocketPath != "":
			one.Bind = Address{"unix", u.LocalBindSocketPath}
		case u.LocalBindPort > 0:
			one.Bind = TCP(net.JoinHostPort(cmp.Or(u.LocalBindAddress, "127.0.0.1"), strconv.Itoa(u.LocalBindPort)))
		default:
			continue // of a transparent proxy: it has no port of its own
		}
		s.Upstreams = append(s.Upstreams, one)
	}
	return s, s.check()
}
