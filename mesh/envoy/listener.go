package envoy

import (
	"net/netip"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	netrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh"
)

// Bind is where a listener listens: an address and a port, or the path of a unix socket.
type Bind struct {
	Address string
	Port    int
	Socket  string
	Mode    uint32 // of the socket
}

func (b *Bind) name(of string) string {
	if b.Socket != "" {
		return of + ":" + b.Socket
	}
	if addr, err := netip.ParseAddr(b.Address); err == nil && addr.Is6() {
		return of + ":[" + b.Address + "]:" + strconv.Itoa(b.Port)
	}
	return of + ":" + b.Address + ":" + strconv.Itoa(b.Port)
}

// Public is the listener that other proxies connect to.
type Public struct {
	Bind             Bind
	Protocol         string
	Balance          bool // connections evenly over the proxy's threads
	HandshakeTimeout time.Duration
	RequestTimeout   time.Duration // 0: Envoy's own
	IdleTimeout      time.Duration // 0: Envoy's own
	MaxConnections   int
	TLS              *entry.TLSDirection
	Roots            string // the secret that callers are verified with; "" for that of the mesh
	HTTP             *entry.MeshHTTP
	Logs             *entry.AccessLogs
	Tracing          string // a tracing object in JSON
	JSON             string // a whole listener, in place of all but TLS and rules
}

// PublicListener is the listener that other proxies connect to.
func PublicListener(v *Public) (*mesh.Resource, error) {
	name := v.Bind.name("public_listener")
	var p packer
	if v.JSON != "" {
		return p.customPublic(v, name)
	}
	address, err := bindAddress("the proxy's Address (or Proxy.Config.bind_address)", v.Bind.Address, "Port", v.Bind.Port,
		v.Bind.Socket, v.Bind.Mode)
	if err != nil {
		return nil, named(mesh.TypeListener, name, err)
	}
	m := &listenerv3.Listener{Name: name, Address: address, TrafficDirection: corev3.TrafficDirection_INBOUND,
		AccessLog: p.listenerLogs(v.Logs)}
	if v.Balance {
		m.ConnectionBalanceConfig = exactBalance()
	}
	chain := &listenerv3.FilterChain{TransportSocket: p.downstreamTLS(LeafSecret, v.Roots, v.TLS, alpn(v.Protocol))}
	if entry.IsHTTP(v.Protocol) {
		chain.Filters = []*listenerv3.Filter{p.publicHTTP(v)}
	} else {
		chain.Filters = []*listenerv3.Filter{networkRules(mesh.NetworkRules), p.tcpProxy("public_listener", LocalApp, v.Logs,
			v.IdleTimeout)}
	}
	if v.HandshakeTimeout > 0 {
		chain.TransportSocketConnectTimeout = duration(v.HandshakeTimeout)
	}
	m.FilterChains = []*listenerv3.FilterChain{chain}
	return p.encode(mesh.TypeListener, name, m)
}

// customPublic is an operator's listener, with our TLS and our rules in every chain.
func (p *packer) customPublic(v *Public, name string) (*mesh.Resource, error) {
	var m listenerv3.Listener
	if err := fromJSON("Proxy.Config.envoy_public_listener_json", v.JSON, &m); err != nil {
		return nil, err
	}
	if m.Name == "" {
		m.Name = name
	}
	if len(m.FilterChains) == 0 {
		return nil, errkind.New(errkind.Invalid, "Proxy.Config.envoy_public_listener_json: filter_chains is required")
	}
	for _, chain := range m.FilterChains {
		chain.TransportSocket = p.downstreamTLS(LeafSecret, v.Roots, v.TLS, alpn(v.Protocol))
		secured := false
		for _, f := range chain.Filters {
			if f.GetTypedConfig().GetTypeUrl() == urlOf(httpManager()) {
				p.secure(f)
				secured = true
			}
		}
		if !secured {
			chain.Filters = append([]*listenerv3.Filter{networkRules(mesh.NetworkRules)}, chain.Filters...)
		}
	}
	m.TrafficDirection = corev3.TrafficDirection_INBOUND
	return p.encode(mesh.TypeListener, m.Name, &m)
}

func alpn(protocol string) []string {
	switch {
	case isHTTP2(protocol):
		return []string{"h2", "http/1.1"}
	case entry.IsHTTP(protocol):
		return []string{"http/1.1"}
	}
	return nil
}

func exactBalance() *listenerv3.Listener_ConnectionBalanceConfig {
	return &listenerv3.Listener_ConnectionBalanceConfig{
		BalanceType: &listenerv3.Listener_ConnectionBalanceConfig_ExactBalance_{
			ExactBalance: &listenerv3.Listener_ConnectionBalanceConfig_ExactBalance{}}}
}

// networkRules refers to the rules, so that a change of them changes no listener and ends no connection.
func networkRules(name string) *listenerv3.Filter {
	return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_ConfigDiscovery{
		ConfigDiscovery: &corev3.ExtensionConfigSource{ConfigSource: overADS(),
			TypeUrls: []string{urlOf(&netrbacv3.RBAC{})}}}}
}

func (p *packer) tcpProxy(stat, cluster string, logs *entry.AccessLogs, idle time.Duration) *listenerv3.Filter {
	m := &tcpproxyv3.TcpProxy{StatPrefix: stat, ClusterSpecifier: &tcpproxyv3.TcpProxy_Cluster{Cluster: cluster},
		AccessLog: p.logs(logs, false)}
	if idle > 0 {
		m.IdleTimeout = duration(idle)
	}
	return p.filter("envoy.filters.network.tcp_proxy", m)
}

func (p *packer) filter(name string, m message) *listenerv3.Filter {
	return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: p.any(m)}}
}

// Outbound is the listener where an application reaches an upstream.
type Outbound struct {
	Name     string // the upstream's
	Bind     Bind
	Protocol string
	Stat     string // the prefix of its figures
	Cluster  string // where connections go, or all requests; "" with Routes
	Routes   string // the resource that says where requests go
	Balancer *entry.LoadBalancer
	Timeout  time.Duration // of requests to Cluster; 0: Envoy's own
	Balance  bool
	Logs     *entry.AccessLogs
	Tracing  string
	Server   bool                // of a gateway: it shows its certificate, and asks for none
	TLS      *entry.TLSDirection // with Server
	Authz    *Authz              // nil: nobody judges requests
	JSON     string              // a whole listener, in place of all the above
}

// OutboundListener is the listener where an application reaches an upstream.
func OutboundListener(v *Outbound) (*mesh.Resource, error) {
	name := v.Bind.name(v.Name)
	if v.JSON != "" {
		var m listenerv3.Listener
		if err := fromJSON("Upstream.Config.envoy_listener_json", v.JSON, &m); err != nil {
			return nil, err
		}
		if m.Name == "" {
			m.Name = name
		}
		m.TrafficDirection = corev3.TrafficDirection_OUTBOUND
		return encode(mesh.TypeListener, m.Name, &m)
	}
	var p packer
	address, err := bindAddress("Upstream.LocalBindAddress", v.Bind.Address, "Upstream.LocalBindPort", v.Bind.Port,
		v.Bind.Socket, v.Bind.Mode)
	if err != nil {
		return nil, named(mesh.TypeListener, name, err)
	}
	m := &listenerv3.Listener{Name: name, Address: address, TrafficDirection: corev3.TrafficDirection_OUTBOUND,
		AccessLog: p.listenerLogs(v.Logs)}
	if v.Balance {
		m.ConnectionBalanceConfig = exactBalance()
	}
	m.FilterChains = []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{p.outboundFilter(v)}}}
	if v.Server {
		m.FilterChains[0].TransportSocket = p.serverTLS(v.TLS, alpn(v.Protocol))
	}
	return p.encode(mesh.TypeListener, name, m)
}

// Exposed is a listener that lets one path of the application be reached without a certificate.
type Exposed struct {
	Path     string
	Bind     Bind
	Protocol string
	Cluster  string
	Logs     *entry.AccessLogs
	From     []string // the networks that connections may come from; nil is all
}

// ExposedListener is a listener that lets one path of the application be reached without a certificate.
func ExposedListener(v *Exposed) (*mesh.Resource, error) {
	label := exposedLabel(v.Path)
	name := v.Bind.name("exposed_path_" + label)
	var p packer
	address, err := bindAddress("the proxy's Address (or Proxy.Config.bind_address)", v.Bind.Address,
		"Proxy.Expose.Paths.ListenerPort", v.Bind.Port, "", 0)
	if err != nil {
		return nil, named(mesh.TypeListener, name, err)
	}
	m := &listenerv3.Listener{Name: name, Address: address, TrafficDirection: corev3.TrafficDirection_INBOUND,
		AccessLog: p.listenerLogs(v.Logs)}
	m.FilterChains = []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{p.exposedHTTP(v, "exposed_path_filter_"+
		label+"_"+strconv.Itoa(v.Bind.Port))}}}
	if len(v.From) > 0 {
		match := &listenerv3.FilterChainMatch{}
		for _, text := range v.From {
			net, err := netip.ParsePrefix(text)
			if err != nil {
				return nil, named(mesh.TypeListener, name, err)
			}
			match.SourcePrefixRanges = append(match.SourcePrefixRanges, &corev3.CidrRange{AddressPrefix: net.Addr().String(),
				PrefixLen: u32(uint32(net.Bits()))})
		}
		m.FilterChains[0].FilterChainMatch = match
	}
	return p.encode(mesh.TypeListener, name, m)
}

// exposedLabel is the path without what names may not hold.
func exposedLabel(path string) string {
	b := []byte(path)
	out := b[:0]
	for _, c := range b {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			out = append(out, c)
		}
	}
	return string(out)
}
