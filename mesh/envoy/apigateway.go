package envoy

import (
	"math"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"corbel.dev/corbel/catalog/chain"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/mesh"
)

// Entrance is one port of an api gateway.
type Entrance struct {
	Label   string // the first part of the listener's name
	Bind    Bind
	Doors   []Door
	Logs    *entry.AccessLogs
	Tracing string
}

// Door is one of the listeners that share a port: by the name that TLS asks for, "" being all others.
type Door struct {
	ServerName   string
	Protocol     string
	Stat         string
	Cluster      string   // where connections go
	Routes       string   // where requests go
	Certificates []string // names of secrets; with any it speaks TLS
	TLS          *entry.TLSDirection
	Authz        *Authz // nil: nobody judges requests
}

// EntranceListener is one port of an api gateway.
func EntranceListener(v *Entrance) (*mesh.Resource, error) {
	name := v.Bind.name(v.Label)
	var p packer
	address, err := bindAddress("the gateway's Address (or Proxy.Config.bind_address)", v.Bind.Address, "Listeners.Port",
		v.Bind.Port, "", 0)
	if err != nil {
		return nil, named(mesh.TypeListener, name, err)
	}
	m := &listenerv3.Listener{Name: name, Address: address, TrafficDirection: corev3.TrafficDirection_OUTBOUND,
		AccessLog: p.listenerLogs(v.Logs)}
	for i := range v.Doors {
		d := &v.Doors[i]
		f := p.tcpProxy(d.Stat, d.Cluster, v.Logs, 0)
		if entry.IsHTTP(d.Protocol) {
			f = p.upstreamHTTP(&Outbound{Name: v.Label, Protocol: d.Protocol, Stat: d.Stat, Routes: d.Routes, Logs: v.Logs,
				Tracing: v.Tracing, Authz: d.Authz})
		}
		c := &listenerv3.FilterChain{Filters: []*listenerv3.Filter{f}}
		if len(d.Certificates) > 0 {
			c.TransportSocket = p.entranceTLS(d)
		}
		if d.ServerName != "" {
			c.FilterChainMatch = &listenerv3.FilterChainMatch{ServerNames: []string{d.ServerName}}
			if len(m.ListenerFilters) == 0 {
				m.ListenerFilters = []*listenerv3.ListenerFilter{p.tlsInspector()}
			}
		}
		m.FilterChains = append(m.FilterChains, c)
	}
	return p.encode(mesh.TypeListener, name, m)
}

func (p *packer) entranceTLS(d *Door) *corev3.TransportSocket {
	protocols := alpn(d.Protocol)
	if entry.IsHTTP(d.Protocol) {
		protocols = []string{"h2", "http/1.1"}
	}
	common := &tlsv3.CommonTlsContext{TlsParams: tlsParameters(d.TLS), AlpnProtocols: protocols}
	for _, name := range d.Certificates {
		common.TlsCertificateSdsSecretConfigs = append(common.TlsCertificateSdsSecretConfigs, secret(name))
	}
	return p.socket(&tlsv3.DownstreamTlsContext{CommonTlsContext: common})
}

// CertificateFiles is a certificate and its key in files of the proxy's host.
func CertificateFiles(name, cert, key string) (*mesh.Resource, error) {
	file := func(path string) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: path}}
	}
	return encode(mesh.TypeSecret, name, &tlsv3.Secret{Name: name,
		Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
			CertificateChain: file(cert), PrivateKey: file(key)}}})
}

// EntranceRule sends requests that Match fits to Targets, by their weights.
type EntranceRule struct {
	Match       *entry.RouteMatch
	Destination *entry.RouteDestination
	Targets     []EntranceTarget
	Judge       Judge
}

// EntranceTarget is a service behind a rule. Of its own routes only what holds for all requests counts.
type EntranceTarget struct {
	Chain           *chain.Chain
	Weight          int
	RequestHeaders  *entry.HeaderModifiers
	ResponseHeaders *entry.HeaderModifiers
}

// EntranceRoutes says where requests go, by host. The rules of a host are looked at in their order.
func EntranceRoutes(name string, hosts map[string][]EntranceRule, port string) (*mesh.Resource, error) {
	m := &routev3.RouteConfiguration{Name: name, ValidateClusters: truth(false)}
	for _, host := range sortedHosts(hosts) {
		v := &routev3.VirtualHost{Name: host, Domains: []string{host}}
		if host != "*" {
			v.Domains = append(v.Domains, host+":"+port)
		}
		for _, rule := range hosts[host] {
			r, err := entranceRoute(&rule)
			if err != nil {
				return nil, named(mesh.TypeRoute, name, err)
			}
			v.Routes = append(v.Routes, r)
		}
		m.VirtualHosts = append(m.VirtualHosts, v)
	}
	return encode(mesh.TypeRoute, name, m)
}

func sortedHosts(hosts map[string][]EntranceRule) []string {
	list := make([]string, 0, len(hosts))
	for h := range hosts {
		list = append(list, h)
	}
	slices.Sort(list)
	return list
}

func entranceRoute(rule *EntranceRule) (*routev3.Route, error) {
	route := &routev3.Route{Match: routeMatch(&entry.Route{Match: rule.Match})}
	if err := judged(route, rule.Judge); err != nil {
		return nil, err
	}
	if rule.Judge == JudgeRefuse {
		route.Action = &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 403}}
		return route, nil
	}
	action := &routev3.RouteAction{}
	weighted := &routev3.WeightedCluster{}
	for i := range rule.Targets {
		if err := rule.Targets[i].add(action, weighted); err != nil {
			return nil, err
		}
	}
	switch {
	case len(weighted.Clusters) == 0: // nobody is behind it
		route.Action = &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 500}}
		return route, nil
	case len(weighted.Clusters) == 1 && len(weighted.Clusters[0].RequestHeadersToAdd)+
		len(weighted.Clusters[0].RequestHeadersToRemove)+
		len(weighted.Clusters[0].ResponseHeadersToAdd)+len(weighted.Clusters[0].ResponseHeadersToRemove) == 0:
		action.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: weighted.Clusters[0].Name}
	default:
		action.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: weighted}
	}
	route.Action = &routev3.Route_Route{Route: action}
	if rule.Destination != nil {
		direct(route, action, rule.Destination)
	}
	return route, nil
}

// add takes the target's clusters with their shares. The weights of all targets together fit into 32 bits.
func (t *EntranceTarget) add(action *routev3.RouteAction, weighted *routev3.WeightedCluster) error {
	n := t.Chain.Nodes[t.Chain.StartNode]
	if n.Type == chain.KindRouter { // its last route is that for all requests
		n = t.Chain.Nodes[n.Routes[len(n.Routes)-1].NextNode]
	}
	one, err := actionOf(t.Chain, n)
	if err != nil {
		return err
	}
	if action.Timeout == nil {
		action.Timeout = one.Timeout
	}
	if action.HashPolicy == nil {
		action.HashPolicy = one.HashPolicy
	}
	clusters := one.GetWeightedClusters().GetClusters()
	if clusters == nil {
		clusters = []*routev3.WeightedCluster_ClusterWeight{{Name: one.GetCluster(), Weight: u32(totalWeight)}}
	}
	for _, c := range clusters {
		share := uint64(t.Weight) * uint64(c.GetWeight().GetValue())
		if share == 0 {
			continue
		}
		c.Weight = u32(uint32(min(max(share/100, 1), math.MaxUint32)))
		add, remove := modify(t.RequestHeaders)
		c.RequestHeadersToAdd, c.RequestHeadersToRemove = append(add, c.RequestHeadersToAdd...),
			append(slices.Clone(remove), c.RequestHeadersToRemove...)
		add, remove = modify(t.ResponseHeaders)
		c.ResponseHeadersToAdd, c.ResponseHeadersToRemove = append(add, c.ResponseHeadersToAdd...),
			append(slices.Clone(remove), c.ResponseHeadersToRemove...)
		weighted.Clusters = append(weighted.Clusters, c)
	}
	return nil
}

// Precedes tells whether a rule is looked at before another: exact paths first, then longer ones, then who asks for
// more.
func (r *EntranceRule) Precedes(o *EntranceRule) int {
	a, b := r.rank(), o.rank()
	return slices.Compare(b[:], a[:])
}

func (r *EntranceRule) rank() (rank [5]int) {
	if r.Match == nil || r.Match.HTTP == nil {
		return rank
	}
	h := r.Match.HTTP
	if h.PathExact != "" {
		rank[0] = 1
	}
	rank[1] = len(strings.TrimRight(h.PathPrefix, "/")) + len(h.PathRegex) + len(h.PathExact)
	rank[2], rank[3], rank[4] = len(h.Methods), len(h.Header), len(h.QueryParam)
	return rank
}
