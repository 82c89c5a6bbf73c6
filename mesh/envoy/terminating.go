package envoy

import (
	"slices"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh"
)

// Stood is a service, or a subset of one, that a terminating gateway stands for.
type Stood struct {
	Service  string
	Cluster  string // that of its instances, which is also the name that callers ask for (SNI)
	Protocol string
	Stat     string
	Names    []string // of a mesh gateway: what callers ask for
}

// Gateway is a listener of a terminating or mesh gateway.
type Gateway struct {
	Bind    Bind
	Label   string // the first part of its name
	Stat    string // of connections for nobody
	Stood   []Stood
	TLS     *entry.TLSDirection
	HTTP    *entry.MeshHTTP
	Logs    *entry.AccessLogs
	Tracing string
}

// RulesOf is the name of the rules of a service that a gateway stands for; base is that of a proxy's own.
func RulesOf(base, service string) string { return base + ":" + service }

// TerminatingListener is where a terminating gateway takes what callers in the mesh send to services outside of it.
// Callers say whom they mean by the name that they ask for; the gateway shows that service's certificate, and its
// rules decide.
func TerminatingListener(v *Gateway) (*mesh.Resource, error) {
	var p packer
	m, err := p.byName(v)
	if err != nil {
		return nil, err
	}
	for i := range v.Stood {
		s := &v.Stood[i]
		name := strings.ToLower(s.Cluster) // Envoy compares with what was asked for in lower case
		chain := &listenerv3.FilterChain{FilterChainMatch: &listenerv3.FilterChainMatch{ServerNames: []string{name}},
			TransportSocket: p.downstreamTLS(LeafSecretOf(s.Service), "", v.TLS, alpn(s.Protocol))}
		if entry.IsHTTP(s.Protocol) {
			h := p.guarded(s.Stat, s.Protocol, RulesOf(mesh.HTTPRules, s.Service), v.HTTP, v.Logs, v.Tracing)
			h.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: s.Cluster,
				ConfigSource: overADS()}}
			chain.Filters = []*listenerv3.Filter{p.filter(managerName, h)}
		} else {
			chain.Filters = []*listenerv3.Filter{networkRules(RulesOf(mesh.NetworkRules, s.Service)),
				p.tcpProxy(s.Stat, s.Cluster, v.Logs, 0)}
		}
		m.FilterChains = append(m.FilterChains, chain)
	}
	m.FilterChains = append(m.FilterChains, p.nobody(v))
	return p.encode(mesh.TypeListener, m.Name, m)
}

// byName is a listener that chooses by the name that TLS asks for.
func (p *packer) byName(v *Gateway) (*listenerv3.Listener, error) {
	name := v.Bind.name(v.Label)
	address, err := bindAddress("the gateway's Address (or Proxy.Config.bind_address)", v.Bind.Address, "Port",
		v.Bind.Port, v.Bind.Socket, v.Bind.Mode)
	if err != nil {
		return nil, named(mesh.TypeListener, name, err)
	}
	return &listenerv3.Listener{Name: name, Address: address, TrafficDirection: corev3.TrafficDirection_UNSPECIFIED,
		AccessLog:       p.listenerLogs(v.Logs),
		ListenerFilters: []*listenerv3.ListenerFilter{p.tlsInspector()}}, nil
}

// tlsInspector finds out what TLS asks for before a filter chain is chosen.
func (p *packer) tlsInspector() *listenerv3.ListenerFilter {
	return &listenerv3.ListenerFilter{Name: "envoy.filters.listener.tls_inspector",
		ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: p.any(&tlsinspectorv3.TlsInspector{})}}
}

// nobody ends connections that ask for a name that is not served. It is there also where no name is, so that the
// listener is.
func (p *packer) nobody(v *Gateway) *listenerv3.FilterChain {
	return &listenerv3.FilterChain{Filters: []*listenerv3.Filter{p.tcpProxy(v.Stat, nobodyCluster, v.Logs, 0)}}
}

// nobodyCluster is the name of no cluster: connections to it are reset.
const nobodyCluster = "nobody"

// External is a cluster of instances outside of the mesh.
type External struct {
	Name     string
	Protocol string
	// Named are the instances by their names, which Envoy resolves; without any they come as endpoints of the cluster's
	// name.
	Named []mesh.Endpoint
	// Strict asks all addresses of all names in turn; else one address of the first name at a time.
	Strict         bool
	ConnectTimeout time.Duration
	Balancer       *entry.LoadBalancer
	// With CAFile the gateway speaks TLS to it, as who CertFile says if there is one, and wants the name SNI, if there
	// is one.
	CAFile, CertFile, KeyFile, SNI string
}

// ExternalCluster is the cluster of instances outside of the mesh.
func ExternalCluster(v *External) (*mesh.Resource, error) {
	var p packer
	m := &clusterv3.Cluster{Name: v.Name, ConnectTimeout: duration(v.ConnectTimeout), CommonLbConfig: noPanic(),
		OutlierDetection: &clusterv3.OutlierDetection{}}
	if len(v.Named) == 0 {
		m.ClusterDiscoveryType, m.EdsClusterConfig = discovery(clusterv3.Cluster_EDS), eds(&Upstream{})
	} else {
		kind, list := clusterv3.Cluster_STRICT_DNS, v.Named
		if !v.Strict {
			kind, list = clusterv3.Cluster_LOGICAL_DNS, v.Named[:1]
			for i := range v.Named {
				if v.Named[i].Health == mesh.Healthy {
					list = v.Named[i : i+1]
					break
				}
			}
		}
		if err := byDNS(m, kind, list); err != nil {
			return nil, err
		}
	}
	if isHTTP2(v.Protocol) {
		m.TypedExtensionProtocolOptions = p.http2()
	}
	balance(m, v.Balancer)
	if v.CAFile != "" {
		m.TransportSocket = p.originTLS(v)
	}
	return p.encode(mesh.TypeCluster, v.Name, m)
}

// byDNS has Envoy resolve the names of a cluster's instances itself, some of which may be addresses.
func byDNS(m *clusterv3.Cluster, kind clusterv3.Cluster_DiscoveryType, list []mesh.Endpoint) error {
	m.ClusterDiscoveryType, m.EdsClusterConfig = discovery(kind), nil
	m.DnsLookupFamily = clusterv3.Cluster_V4_PREFERRED
	m.LoadAssignment = &endpointv3.ClusterLoadAssignment{ClusterName: m.Name,
		Endpoints: []*endpointv3.LocalityLbEndpoints{{}}}
	for i := range list {
		e := &list[i]
		address, err := addressOf("Address", e.Address, "Port", int(e.Port), "", 0)
		if err != nil {
			return named(mesh.TypeCluster, m.Name, err)
		}
		m.LoadAssignment.Endpoints[0].LbEndpoints = append(m.LoadAssignment.Endpoints[0].LbEndpoints, &endpointv3.LbEndpoint{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address}},
			HealthStatus:   corev3.HealthStatus(healthStatus[e.Health]), LoadBalancingWeight: u32(uint32(weightOf(e)))})
	}
	return nil
}

// Named tells whether one of the instances has a name in place of an address: then endpoints cannot list them.
func Named(list []mesh.Endpoint) bool {
	return slices.ContainsFunc(list, func(e mesh.Endpoint) bool { return !isIP(e.Address) })
}

// originTLS is TLS to a service outside of the mesh.
func (p *packer) originTLS(v *External) *corev3.TransportSocket {
	file := func(path string) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: path}}
	}
	valid := &tlsv3.CertificateValidationContext{TrustedCa: file(v.CAFile)}
	if v.SNI != "" {
		valid.MatchTypedSubjectAltNames = []*tlsv3.SubjectAltNameMatcher{{SanType: tlsv3.SubjectAltNameMatcher_DNS,
			Matcher: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: v.SNI}}}}
	}
	common := &tlsv3.CommonTlsContext{
		ValidationContextType: &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: valid},
	}
	if isHTTP2(v.Protocol) {
		common.AlpnProtocols = []string{"h2"}
	}
	if v.CertFile != "" {
		common.TlsCertificates = []*tlsv3.TlsCertificate{{CertificateChain: file(v.CertFile), PrivateKey: file(v.KeyFile)}}
	}
	return p.socket(&tlsv3.UpstreamTlsContext{Sni: v.SNI, CommonTlsContext: common})
}

// ExternalRoutes sends all requests to a cluster outside of the mesh. rewrite: the host becomes the name that was
// resolved.
func ExternalRoutes(cluster string, balancer *entry.LoadBalancer, rewrite bool) (*mesh.Resource, error) {
	action := toCluster(cluster)
	action.HashPolicy = hashPolicies(balancer)
	if rewrite {
		action.HostRewriteSpecifier = &routev3.RouteAction_AutoHostRewrite{AutoHostRewrite: truth(true)}
	}
	return encode(mesh.TypeRoute, cluster, &routev3.RouteConfiguration{Name: cluster, ValidateClusters: truth(false),
		VirtualHosts: []*routev3.VirtualHost{{Name: cluster, Domains: []string{"*"},
			Routes: []*routev3.Route{{Match: prefix("/"), Action: &routev3.Route_Route{Route: action}}}}}})
}

// Renamed is an extension's configuration under another name, with the time of the one that it was.
func Renamed(r *mesh.Resource, name string) (*mesh.Resource, error) {
	var wrapped anypb.Any
	m := &corev3.TypedExtensionConfig{}
	err := proto.Unmarshal(r.Any, &wrapped)
	if err == nil {
		err = wrapped.UnmarshalTo(m)
	}
	if err != nil {
		return nil, errkind.E(errkind.Corrupt, "read the extension "+r.Name, err)
	}
	m.Name = name
	out, err := encode(mesh.TypeExtension, name, m)
	if err == nil {
		out.Changed = r.Changed
	}
	return out, err
}
