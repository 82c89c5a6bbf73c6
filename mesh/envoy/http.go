package envoy

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	bridgev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_http1_bridge/v3"
	grpcstatsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_stats/v3"
	metadatav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_to_metadata/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/mesh"
)

type manager = hcmv3.HttpConnectionManager

func httpManager() *manager { return &manager{} }

const managerName = "envoy.filters.network.http_connection_manager"

// newManager has what the connection managers of all listeners have in common.
func (p *packer) newManager(stat, protocol string, logs *entry.AccessLogs, tracing string) *manager {
	m := &manager{StatPrefix: stat, CodecType: hcmv3.HttpConnectionManager_AUTO, AccessLog: p.logs(logs, false),
		Tracing: p.tracing(tracing)}
	if isHTTP2(protocol) {
		m.Http2ProtocolOptions = &corev3.Http2ProtocolOptions{}
	} else { // unless it is named an upgrade is answered with 403
		m.UpgradeConfigs = []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}}
	}
	return m
}

// tracing samples what others have begun to trace and nothing by itself, unless told otherwise.
func (p *packer) tracing(text string) *hcmv3.HttpConnectionManager_Tracing {
	m := &hcmv3.HttpConnectionManager_Tracing{}
	if text != "" {
		p.keep(fromJSON("Proxy.Config.envoy_listener_tracing_json", text, m))
		return m
	}
	m.RandomSampling = percent(0)
	return m
}

func (p *packer) httpFilter(name string, m message) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: p.any(m)}}
}

// tail are the filters at the end: what gRPC needs, and the router.
func (p *packer) tail(protocol string) []*hcmv3.HttpFilter {
	var list []*hcmv3.HttpFilter
	if protocol == "grpc" {
		list = append(list, p.httpFilter("envoy.filters.http.grpc_stats", &grpcstatsv3.FilterConfig{
			PerMethodStatSpecifier: &grpcstatsv3.FilterConfig_StatsForAllMethods{StatsForAllMethods: truth(true)}}),
			p.httpFilter("envoy.filters.http.grpc_http1_bridge", &bridgev3.Config{}))
	}
	return append(list, p.httpFilter("envoy.filters.http.router", &routerv3.Router{}))
}

func httpRules(name string) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{
		ConfigDiscovery: &corev3.ExtensionConfigSource{ConfigSource: overADS(),
			TypeUrls: []string{urlOf(&httprbacv3.RBAC{})}}}}
}

// secure puts the rules before all filters of an operator's connection manager.
func (p *packer) secure(f *listenerv3.Filter) {
	m := httpManager()
	p.keep(f.GetTypedConfig().UnmarshalTo(m))
	m.HttpFilters = append([]*hcmv3.HttpFilter{httpRules(mesh.HTTPRules)}, m.HttpFilters...)
	f.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: p.any(m)}
}

func (p *packer) publicHTTP(v *Public) *listenerv3.Filter {
	m := p.guarded("public_listener", v.Protocol, mesh.HTTPRules, v.HTTP, v.Logs, v.Tracing)
	action := toCluster(LocalApp)
	if v.RequestTimeout > 0 {
		action.Timeout = duration(v.RequestTimeout)
	}
	if v.IdleTimeout > 0 {
		action.IdleTimeout = duration(v.IdleTimeout)
	}
	m.RouteSpecifier = inlineRoutes("public_listener",
		&routev3.Route{Match: prefix("/"), Action: &routev3.Route_Route{Route: action}})
	return p.filter(managerName, m)
}

// guarded is a connection manager of requests that came through the mesh: it tells who the caller is, and the rules
// decide.
func (p *packer) guarded(stat, protocol, rules string, http *entry.MeshHTTP, logs *entry.AccessLogs,
	tracing string) *manager {
	m := p.newManager(stat, protocol, logs, tracing)
	m.ForwardClientCertDetails = hcmv3.HttpConnectionManager_APPEND_FORWARD
	if http != nil && http.SanitizeXForwardedClientCert {
		m.ForwardClientCertDetails = hcmv3.HttpConnectionManager_SANITIZE
	} else {
		m.SetCurrentClientCertDetails = &hcmv3.HttpConnectionManager_SetCurrentClientCertDetails{Subject: truth(true),
			Cert: true, Chain: true, Dns: true, Uri: true}
	}
	normalize(m, http)
	m.HttpFilters = append([]*hcmv3.HttpFilter{httpRules(rules), p.callerMetadata()}, p.tail(protocol)...)
	return m
}

// normalize cleans paths before rules see them. It is on also without rules about
// paths: were it not, the first such rule would change the listener and end its connections.
func normalize(m *manager, v *entry.MeshHTTP) {
	m.NormalizePath = truth(true)
	if v == nil || v.Incoming == nil || v.Incoming.RequestNormalization == nil {
		return
	}
	n := v.Incoming.RequestNormalization
	m.NormalizePath, m.MergeSlashes = truth(!n.InsecureDisablePathNormalization), n.MergeSlashes
	escaped := hcmv3.HttpConnectionManager_PathWithEscapedSlashesAction_value
	m.PathWithEscapedSlashesAction = hcmv3.HttpConnectionManager_PathWithEscapedSlashesAction(
		escaped[n.PathWithEscapedSlashesAction])
	if action, ok := corev3.HttpProtocolOptions_HeadersWithUnderscoresAction_value[n.HeadersWithUnderscoresAction]; ok {
		m.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{
			HeadersWithUnderscoresAction: corev3.HttpProtocolOptions_HeadersWithUnderscoresAction(action),
		}
	}
}

// callerPatterns find parts of the last caller's identity in x-forwarded-client-cert.
// Each is small: what Envoy lets an expression cost is little, unless its bootstrap says otherwise.
var callerPatterns = []struct{ key, pattern string }{
	{"trust-domain", `.*URI=spiffe://([^/;,]+)/.*`},
	{"partition", `.*URI=spiffe://[^/;,]+(?:/ap/([^/]+))?/ns/.*`},
	{"namespace", `.*URI=spiffe://[^;,]*/ns/([^/]+)/.*`},
	{"datacenter", `.*URI=spiffe://[^;,]*/dc/([^/]+)/.*`},
	{"service", `.*URI=spiffe://[^;,]*/svc/([^/;,]+).*`},
}

// callerMetadata makes the caller's identity known to filters and logs, under "consul".
func (p *packer) callerMetadata() *hcmv3.HttpFilter {
	m := &metadatav3.Config{}
	for _, part := range callerPatterns {
		m.RequestRules = append(m.RequestRules, &metadatav3.Config_Rule{Header: "x-forwarded-client-cert",
			OnHeaderPresent: &metadatav3.Config_KeyValuePair{MetadataNamespace: "consul", Key: part.key,
				Type:              metadatav3.Config_STRING,
				RegexValueRewrite: &matcherv3.RegexMatchAndSubstitute{Pattern: regex(part.pattern), Substitution: `\1`}}})
	}
	return p.httpFilter("envoy.filters.http.header_to_metadata", m)
}

func (p *packer) upstreamHTTP(v *Outbound) *listenerv3.Filter {
	m := p.newManager(v.Stat, v.Protocol, v.Logs, v.Tracing)
	if v.Routes != "" {
		m.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: v.Routes,
			ConfigSource: overADS()}}
	} else {
		action := toCluster(v.Cluster)
		action.HashPolicy = hashPolicies(v.Balancer)
		if v.Timeout > 0 {
			action.Timeout = duration(v.Timeout)
		}
		m.RouteSpecifier = inlineRoutes(v.Name,
			&routev3.Route{Match: prefix("/"), Action: &routev3.Route_Route{Route: action}})
	}
	m.HttpFilters = p.tail(v.Protocol)
	if v.Authz != nil {
		m.HttpFilters = append([]*hcmv3.HttpFilter{p.authz(v.Authz)}, m.HttpFilters...)
	}
	return p.filter(managerName, m)
}

func (p *packer) exposedHTTP(v *Exposed, stat string) *listenerv3.Filter {
	m := p.newManager(stat, v.Protocol, v.Logs, "")
	m.NormalizePath = truth(true)
	match := &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Path{Path: v.Path}}
	m.RouteSpecifier = inlineRoutes(stat, &routev3.Route{Match: match,
		Action: &routev3.Route_Route{Route: toCluster(v.Cluster)}})
	m.HttpFilters = p.tail("")
	return p.filter(managerName, m)
}

func inlineRoutes(name string, routes ...*routev3.Route) *hcmv3.HttpConnectionManager_RouteConfig {
	return &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{Name: name,
		VirtualHosts: []*routev3.VirtualHost{{Name: name, Domains: []string{"*"}, Routes: routes}}}}
}

func toCluster(name string) *routev3.RouteAction {
	return &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: name}}
}

func prefix(path string) *routev3.RouteMatch {
	return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: path}}
}
