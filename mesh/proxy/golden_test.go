package proxy

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/test/fetch"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden is a proxy whose resources are in testdata, and accepted by real Envoys.
type golden struct {
	name      string
	entries   []string
	kind      string // of the registration; a sidecar when it is not said
	fields    string // of Proxy, beside the common ones
	allow     bool   // by default
	instances map[string][]mesh.Endpoint
	peers     []string // as "peer/service/protocol", and perhaps "/gateway": what they export
	problems  int
}

const httpForAll = `{"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http"}}`

var twoInstances = []mesh.Endpoint{{Address: "10.0.0.1", Port: 21000, Weight: 1},
	{Address: "10.0.0.2", Port: 21000, Weight: 100, Health: mesh.Unhealthy},
	{Address: "2001:db8::1", Port: 21000, Weight: 3, Health: mesh.Draining}}

const apiUpstream = `"Upstreams": [{"DestinationName": "api", "LocalBindPort": 9191}]`

var goldens = []golden{
	{name: "tcp", fields: `{` + apiUpstream + `}`,
		instances: map[string][]mesh.Endpoint{"endpoints/dc1/api/": twoInstances},
		entries: []string{`{"Kind": "service-intentions", "Name": "web", "Sources": [{"Name": "shop", "Action": ` +
			`"allow"}, {"Name": "bad", "Action": "deny"}, {"Name": "*", "Action": "allow"}]}`}},
	{name: "tcp-allow", allow: true, fields: `{"Config": {"max_inbound_connections": 100, "local_connect_timeout_ms": ` +
		`1000, "balance_inbound_connections": "exact_balance", "handshake_timeout_ms": 3000, "bind_address": "127.0.0.9", ` +
		`"bind_port": 20999}}`,
		entries: []string{`{"Kind": "service-intentions", "Name": "web", "Sources": [{"Name": "bad", "Action": "deny"}]}`}},
	{name: "http", fields: `{` + apiUpstream +
		`, "Config": {"local_request_timeout_ms": 2000, "local_idle_timeout_ms": 60000}}`, entries: []string{httpForAll}},
	{name: "grpc", fields: `{` + apiUpstream + `}`,
		entries: []string{`{"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "grpc"}}`}},
	{name: "http2-upstream-alone", fields: `{"Upstreams": [{"DestinationName": "api", "LocalBindPort": 9191, "Config": ` +
		`{"protocol": "http2"}}]}`},
	{name: "intentions-by-request", fields: `{}`,
		entries: []string{httpForAll, `{"Kind": "service-intentions", "Name": "web", "Sources": [
		{"Name": "shop", "Permissions": [
			{"Action": "deny", "HTTP": {"PathExact": "/admin"}},
			{"Action": "allow", "HTTP": {"PathPrefix": "/", "Methods": ["GET", "HEAD"], "Header": [{"Name": "x-team",
				"Exact": "red", "IgnoreCase": true}, {"Name": "x-debug", "Present": true, "Invert": true}]}},
			{"Action": "allow", "HTTP": {"PathRegex": "/v[0-9]+/.*", "Header": [{"Name": "a", "Prefix": "b"}, {"Name": "a",
				"Suffix": "c"}, {"Name": "a", "Contains": "d"}, {"Name": "a", "Regex": "e.*"}]}}]},
		{"Name": "*", "Action": "deny"}]}`}},
	{name: "redis", fields: `{"Upstreams": [{"DestinationName": "api", "LocalBindPort": 9191, "Config": ` +
		`{"redis_maintenance_key": "GOES"}}]}`,
		instances: map[string][]mesh.Endpoint{"endpoints/dc1/api/": twoInstances},
		entries:   []string{`{"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "redis"}}`}},
	{name: "splitter", fields: `{` + apiUpstream + `}`, entries: []string{httpForAll,
		`{"Kind": "service-resolver", "Name": "api", "DefaultSubset": "v1", "Subsets": {"v1": {"Filter": "Service.Meta.v ` +
			`== 1"}, "v2": {"Filter": "Service.Meta.v == 2", "OnlyPassing": true}}}`,
		`{"Kind": "service-splitter", "Name": "api", "Splits": [{"Weight": 90.5, "ServiceSubset": "v1", "RequestHeaders": ` +
			`{"Set": {"x-v": "1"}}}, {"Weight": 9.5, "ServiceSubset": "v2", "ResponseHeaders": {"Add": {"x-v": "2"}, ` +
			`"Remove": ["server"]}}]}`},
		instances: map[string][]mesh.Endpoint{"endpoints/dc1/api/v1": twoInstances}},
	{name: "router", fields: `{` + apiUpstream + `}`,
		entries: []string{httpForAll, `{"Kind": "service-router", "Name": "api", "Routes": [
		{"Match": {"HTTP": {"PathPrefix": "/admin", "CaseInsensitive": true}}, "Destination": {"Service": "admin",
			"PrefixRewrite": "/", "RequestTimeout": "3s", "IdleTimeout": "9s"}},
		{"Match": {"HTTP": {"PathExact": "/one", "Methods": ["GET", "PUT"], "QueryParam": [{"Name": "q", "Exact": "1"},
			{"Name": "r", "Present": true}, {"Name": "s", "Regex": "x.*"}]}}, "Destination": {"NumRetries": 3,
				"RetryOnConnectFailure": true, "RetryOnStatusCodes": [503, 504], "RetryOn": ["reset"]}},
		{"Match": {"HTTP": {"PathRegex": "/r.*", "CaseInsensitive": true, "Header": [{"Name": "x", "Exact": "1", "Invert": true}, {"Name": "y", "Regex": "z+"}]}}, "Destination": {"RequestHeaders": {"Add": {"b": "2", "a": "1"}, "Set": {"c": "3"}, "Remove": ["d"]}, "ResponseHeaders": {"Set": {"e": "5"}}}}]}`}},
	{name: "resolver-failover", fields: `{` + apiUpstream + `}`, entries: []string{httpForAll,
		`{"Kind": "service-resolver", "Name": "api", "ConnectTimeout": "2s", "RequestTimeout": "4s", "DefaultSubset": "v1", "Subsets": {"v1": {"Filter": "Service.Meta.v == 1"}}, "Failover": {"*": {"Targets": [{"Service": "spare"}, {"Datacenter": "dc2"}]}},
		  "LoadBalancer": {"Policy": "ring_hash", "RingHashConfig": {"MinimumRingSize": 100, "MaximumRingSize": 200}, "HashPolicies": [{"Field": "header", "FieldValue": "x-user"}, {"Field": "cookie", "FieldValue": "c", "CookieConfig": {"TTL": "10s", "Path": "/"}}, {"Field": "query_parameter", "FieldValue": "q", "Terminal": true}, {"SourceIP": true}]}}`},
		instances: map[string][]mesh.Endpoint{"endpoints/dc1/spare/": twoInstances}},
	{name: "tcp-failover", fields: `{` + apiUpstream + `}`, entries: []string{`{"Kind": "service-resolver", "Name": ` +
		`"api", "Failover": {"*": {"Service": "spare"}}, "LoadBalancer": {"Policy": "least_request", ` +
		`"LeastRequestConfig": {"ChoiceCount": 5}}}`}},
	{name: "application-by-name", fields: `{"LocalServiceAddress": "localhost", "MutualTLSMode": "strict"}`},
	{name: "ingress", kind: catalog.KindIngressGateway, entries: []string{
		`{"Kind": "service-defaults", "Name": "api", "Protocol": "http"}`,
		`{"Kind": "service-defaults", "Name": "admin", "Protocol": "http"}`,
		`{"Kind": "service-splitter", "Name": "api", "Splits": [{"Weight": 50, "Service": "api"}, {"Weight": 50, ` +
			`"Service": "spare"}]}`,
		`{"Kind": "service-defaults", "Name": "spare", "Protocol": "http"}`,
		`{"Kind": "ingress-gateway", "Name": "web-gateway", "Defaults": {"MaxConnections": 50}, "Listeners": [
			{"Port": 8080, "Protocol": "http", "Services": [{"Name": "api", "RequestHeaders": {"Set": {"x-from": "outside"}}},
				{"Name": "admin", "Hosts": ["admin.example", "*.admin.example"], "MaxConnections": 5}]},
			{"Port": 8443, "Protocol": "tcp", "TLS": {"Enabled": true, "TLSMinVersion": "TLSv1_2"}, "Services": [{"Name": "db"}]}]}`},
		instances: map[string][]mesh.Endpoint{"endpoints/dc1/api/": twoInstances}},
	{name: "terminating", kind: catalog.KindTerminatingGateway, fields: `{"Config": {"connect_timeout_ms": 2000, ` +
		`"envoy_gateway_bind_tagged_addresses": true, "envoy_gateway_bind_addresses": {"lan": {"address": "127.0.0.1", ` +
		`"port": 8445}}}}`, entries: []string{
		`{"Kind": "service-defaults", "Name": "legacy", "Protocol": "http"}`,
		`{"Kind": "service-defaults", "Name": "rpc", "Protocol": "grpc"}`,
		`{"Kind": "service-resolver", "Name": "legacy", "Subsets": {"v2": {"Filter": "Service.Meta.v == 2"}}, ` +
			`"LoadBalancer": {"Policy": "maglev", "HashPolicies": [{"Field": "header", "FieldValue": "x-user"}]}}`,
		`{"Kind": "service-intentions", "Name": "db", "Sources": [{"Name": "web", "Action": "allow"}]}`,
		`{"Kind": "service-intentions", "Name": "legacy", "Sources": [{"Name": "web", "Permissions": [{"Action": "allow", ` +
			`"HTTP": {"PathPrefix": "/v1"}}]}]}`,
		`{"Kind": "terminating-gateway", "Name": "web-gateway", "Services": [{"Name": "db"}, {"Name": "legacy", "CAFile": "ca.pem", "SNI": "legacy.example"},
			{"Name": "rpc", "CAFile": "ca.pem", "CertFile": "cert.pem", "KeyFile": "key.pem"}]}`},
		instances: map[string][]mesh.Endpoint{"instances/dc1/db/": twoInstances,
			"instances/dc1/legacy/": {{Address: "legacy.example", Port: 443, Weight: 1, Health: mesh.Unhealthy},
				{Address: "other.example", Port: 443, Weight: 1}}, "instances/dc1/rpc/": {{Address: "127.0.0.9", Port: 50051,
				Weight: 1}}}},
	{name: "terminating-strict-dns", kind: catalog.KindTerminatingGateway,
		fields: `{"Config": {"envoy_dns_discovery_type": "STRICT_DNS", "envoy_gateway_no_default_bind": true, ` +
			`"envoy_gateway_bind_addresses": {"all": {"address": "0.0.0.0", "port": 8445}}}}`, entries: []string{
			`{"Kind": "terminating-gateway", "Name": "web-gateway", "Services": [{"Name": "db"}]}`},
		instances: map[string][]mesh.Endpoint{"instances/dc1/db/": {{Address: "a.example", Port: 5432, Weight: 3},
			{Address: "b.example", Port: 5432, Weight: 1, Health: mesh.Draining}}}},
	{name: "terminating-without-services", kind: catalog.KindTerminatingGateway,
		entries: []string{`{"Kind": "terminating-gateway", "Name": "web-gateway", "Services": []}`}, problems: 1},
	{name: "api-gateway", kind: catalog.KindAPIGateway, entries: []string{
		`{"Kind": "service-defaults", "Name": "api", "Protocol": "http"}`,
		`{"Kind": "service-defaults", "Name": "rpc", "Protocol": "grpc"}`,
		`{"Kind": "service-defaults", "Name": "spare", "Protocol": "http"}`,
		`{"Kind": "service-splitter", "Name": "api", "Splits": [{"Weight": 50, "Service": "api"}, {"Weight": 50, ` +
			`"Service": "spare"}]}`,
		`{"Kind": "file-system-certificate", "Name": "files", "Certificate": "cert.pem", "PrivateKey": "key.pem"}`,
		`{"Kind": "api-gateway", "Name": "web-gateway", "Listeners": [
			{"Name": "plain", "Port": 8080, "Protocol": "http"}, {"Name": "shop", "Port": 8080, "Protocol": "http",
				"Hostname": "shop.example"},
			{"Name": "secure", "Port": 8443, "Protocol": "http", "Hostname": "*.example", "TLS": {"MinVersion": "TLSv1_2",
				"Certificates": [{"Kind": "file-system-certificate", "Name": "files"}]}},
			{"Name": "db", "Port": 5432, "Protocol": "tcp"}]}`,
		`{"Kind": "tcp-route", "Name": "db", "Parents": [{"Name": "web-gateway", "SectionName": "db"}], "Services": [{` +
			`"Name": "db"}]}`,
		`{"Kind": "http-route", "Name": "all", "Parents": [{"Name": "web-gateway"}], "Rules": [
			{"Services": [{"Name": "api"}]},
			{"Matches": [{"Path": {"Match": "prefix", "Value": "/v1"}, "Method": "GET", "Headers": [{"Match": "exact",
				"Name": "x-a", "Value": "1"}, {"Match": "present", "Name": "x-b"}], "Query": [{"Match": "regex", "Name": "q",
					"Value": "a+"}]},
				{"Path": {"Match": "exact", "Value": "/one"}}],
			 "Filters": {"URLRewrite": {"Path": "/"}, "Headers": [{"Set": {"x-from": "gateway"}, "Remove": ["x-gone"]}],
				"TimeoutFilter": {"RequestTimeout": "3s"}, "RetryFilter": {"NumRetries": 2, "RetryOnConnectFailure": true}},
			 "ResponseFilters": {"Headers": [{"Add": {"x-by": "gateway"}}]},
			 "Services": [{"Name": "api", "Weight": 3}, {"Name": "rpc", "Weight": 1, "Filters": {"Headers": [{"Add": {"x-to": "rpc"}}]}}]}]}`,
		`{"Kind": "http-route", "Name": "shop", "Hostnames": ["shop.example"], "Parents": [{"Name": "web-gateway", ` +
			`"SectionName": "shop"}], "Rules": [{"Matches": [{"Path": {"Match": "regex", "Value": "/s.*"}}], "Services": [{` +
			`"Name": "spare"}]}]}`},
		instances: map[string][]mesh.Endpoint{"endpoints/dc1/api/": twoInstances}},
	{name: "api-gateway-judged", kind: catalog.KindAPIGateway, entries: []string{
		`{"Kind": "service-defaults", "Name": "api", "Protocol": "http"}`,
		`{"Kind": "service-defaults", "Name": "web-gateway", "EnvoyExtensions": [{"Name": "builtin/ext-authz", "Arguments": {
			"ProxyType": "api-gateway", "Config": {"StatPrefix": "judge", "StatusOnError": 503, "WithRequestBody": {
				"MaxRequestBytes": 1024, "AllowPartialMessage": true}, "HttpService": {"Target": {"URI": "127.0.0.1:9000",
				"Timeout": "2s"}, "PathPrefix": "/judge", "AuthorizationRequest": {"AllowedHeaders": [{"Exact": "x-a"},
				{"Prefix": "x-b", "IgnoreCase": true}, {"SafeRegex": "x-c.*"}], "HeadersToAdd": [{"Key": "x-d", "Value": "1"}]},
				"AuthorizationResponse": {"AllowedUpstreamHeaders": [{"Suffix": "-e"}], "AllowedClientHeaders": [{
				"Contains": "f"}]}}}}}]}`,
		`{"Kind": "api-gateway", "Name": "web-gateway", "ExtAuthz": {"Enabled": false}, "Listeners": [
			{"Name": "plain", "Port": 8080, "Protocol": "http"}]}`,
		`{"Kind": "http-route", "Name": "all", "Parents": [{"Name": "web-gateway"}], "Rules": [
			{"Services": [{"Name": "api"}]},
			{"Matches": [{"Path": {"Match": "prefix", "Value": "/closed"}}], "Filters": {"ExtAuthz": {"Enabled": true}},
				"Services": [{"Name": "api"}]},
			{"Matches": [{"Path": {"Match": "prefix", "Value": "/open"}}], "Filters": {"ExtAuthz": {"Enabled": false}},
				"Services": [{"Name": "api"}]}]}`},
		instances: map[string][]mesh.Endpoint{"endpoints/dc1/api/": twoInstances}},
	{name: "transparent", fields: `{"Mode": "transparent", "TransparentProxy": {"OutboundListenerPort": 15009}, ` +
		`"Upstreams": [{"DestinationName": "api"}, {"DestinationName": "db"}, {"DestinationName": "cache", ` +
		`"LocalBindPort": 9191}, {"DestinationName": "unnumbered"}]}`,
		entries: []string{`{"Kind": "service-defaults", "Name": "api", "Protocol": "http"}`},
		instances: map[string][]mesh.Endpoint{"endpoints/dc1/api/": twoInstances,
			"virtual/dc1/api": {{Address: "240.0.0.1"}, {Address: "10.96.0.5"}}, "virtual/dc1/db": {{Address: "2001:db8::9"}}}},
	{name: "transparent-mesh-only", fields: `{"Upstreams": [{"DestinationName": "db"}]}`,
		entries: []string{`{"Kind": "service-defaults", "Name": "web", "Mode": "transparent"}`,
			`{"Kind": "mesh", "TransparentProxy": {"MeshDestinationsOnly": true}}`},
		instances: map[string][]mesh.Endpoint{"virtual/dc1/db": {{Address: "240.0.0.2"}}}},
	{name: "mesh-gateway", kind: catalog.KindMeshGateway, fields: `{"Config": {"connect_timeout_ms": 2000, ` +
		`"envoy_gateway_bind_tagged_addresses": true}}`, peers: []string{"east/db/tcp"}, entries: []string{
		`{"Kind": "exported-services", "Name": "default", "Services": [{"Name": "API", "Consumers": [{"Peer": "east"}, {` +
			`"Peer": "west"}]}, {"Name": "*", "Consumers": [{"Peer": "south"}]}]}`},
		instances: map[string][]mesh.Endpoint{"endpoints/dc1/api/": twoInstances, "endpoints/dc1/db/": nil}},
	{name: "mesh-gateway-without-services", kind: catalog.KindMeshGateway},
	{name: "peers", fields: `{"MeshGateway": {"Mode": "remote"}, "Upstreams": [
		{"DestinationName": "db", "DestinationPeer": "east", "LocalBindPort": 9191},
		{"DestinationName": "shop", "DestinationPeer": "east", "LocalBindPort": 9192, "Config": {"connect_timeout_ms": 900}},
		{"DestinationName": "flat", "DestinationPeer": "east", "LocalBindPort": 9193, "MeshGateway": {"Mode": "none"}},
		{"DestinationName": "api", "LocalBindPort": 9194}, {"DestinationName": "moved", "LocalBindPort": 9195}]}`,
		peers: []string{"east/db/tcp", "east/shop/http", "east/flat/tcp", "east/api/tcp", "east/elsewhere/tcp"},
		entries: []string{
			`{"Kind": "service-resolver", "Name": "api", "Failover": {"*": {"Targets": [{"Peer": "east"}, ` +
				`{"Peer": "nobody"}]}}}`,
			`{"Kind": "service-resolver", "Name": "moved", "Redirect": {"Service": "elsewhere", "Peer": "east"}}`},
		instances: map[string][]mesh.Endpoint{"endpoints/dc1/api/": twoInstances}, problems: 1},
	{name: "peers-with-names", fields: `{"Upstreams": [{"DestinationName": "db", "DestinationPeer": "east", ` +
		`"LocalBindPort": 9191}]}`, peers: []string{"east/db/tcp/gateway.example"}},
	{name: "mesh-gateway-to-names", kind: catalog.KindMeshGateway, peers: []string{"east/db/tcp/gateway.example"}},
	{name: "peers-that-are-not-there", fields: `{"Upstreams": [
		{"DestinationName": "db", "DestinationPeer": "east", "LocalBindPort": 9191},
		{"DestinationName": "db", "DestinationPeer": "nobody", "LocalBindPort": 9192}]}`,
		peers: []string{"east/other/tcp"}, problems: 2},
	{name: "exported", fields: `{}`, peers: []string{"east/db/tcp"}, entries: []string{
		`{"Kind": "exported-services", "Name": "default", "Services": [{"Name": "web", "Consumers": [{"Peer": "east"}, {` +
			`"Peer": "west"}]}]}`,
		`{"Kind": "service-intentions", "Name": "web", "Sources": [{"Name": "shop", "Peer": "east", "Action": "allow"}, ` +
			`{"Name": "*", "Peer": "east", "Action": "deny"}, {"Name": "shop", "Peer": "west", "Action": "allow"}, ` +
			`{"Name": "api", "Action": "allow"}]}`}},
	{name: "expose", fields: `{"Expose": {"Paths": [{"Path": "/health", "ListenerPort": 21500, "LocalPathPort": 8080, ` +
		`"Protocol": "http"}, {"Path": "/grpc.health.v1.Health/Check", "ListenerPort": 21501, "LocalPathPort": 9090, ` +
		`"Protocol": "http2"}]}}`},
	{name: "exposed-checks", fields: `{"Expose": {"Checks": true}, "ExposedChecks": {"Paths": [{"Path": "/health", ` +
		`"ListenerPort": 21500, "LocalPathPort": 8080, "Protocol": "http", "ParsedFromCheck": true}, {` +
		`"Path": "/grpc.health.v1.Health/Check", "ListenerPort": 21501, "LocalPathPort": 8080, "Protocol": "http2", ` +
		`"ParsedFromCheck": true}], "From": ["127.0.0.0/8", "::1/128", "10.0.0.1/32"]}}`},
	{name: "upstream-settings", fields: `{"Upstreams": [
		{"DestinationName": "api", "LocalBindAddress": "127.0.0.2", "LocalBindPort": 9191,
			"Config": {"connect_timeout_ms": "1500", "limits": {"max_connections": 10, "max_pending_requests": 20,
				"max_concurrent_requests": 30}, "passive_health_check": {"interval": "30s", "max_failures": 5,
					"enforcing_consecutive_5xx": 99, "max_ejection_percent": 50, "base_ejection_time": "20s"},
						"balance_outbound_connections": "exact_balance"}},
		{"DestinationName": "db", "LocalBindSocketPath": "/tmp/db.sock", "LocalBindSocketMode": "0600"},
		{"DestinationName": "far", "Datacenter": "dc2", "LocalBindPort": 9193}], "LocalServiceSocketPath": "/tmp/app.sock"}`,
		entries: []string{`{"Kind": "service-defaults", "Name": "web", "Protocol": "tcp", "MaxInboundConnections": 7, ` +
			`"UpstreamConfig": {"Defaults": {"ConnectTimeoutMs": 9000}, "Overrides": [{"Name": "db", "Limits": {` +
			`"MaxConnections": 3}}]}}`}},
	{name: "mesh-settings", fields: `{` + apiUpstream + `}`, entries: []string{
		`{"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http", "envoy_listener_tracing_json": "{` +
			`\"random_sampling\": {\"value\": 5}}"}, "AccessLogs": {"Enabled": true, "JSONFormat": "{\"path\": ` +
			`\"%REQ(:PATH)%\"}"}}`,
		`{"Kind": "mesh", "TLS": {"Incoming": {"TLSMinVersion": "TLSv1_2", "TLSMaxVersion": "TLSv1_3", "CipherSuites": ` +
			`["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"]}, "Outgoing": {"TLSMinVersion": "TLSv1_3"}}, "HTTP": {` +
			`"SanitizeXForwardedClientCert": true, "Incoming": {"RequestNormalization": {"MergeSlashes": true, ` +
			`"PathWithEscapedSlashesAction": "UNESCAPE_AND_FORWARD", "HeadersWithUnderscoresAction": "REJECT_REQUEST"}}}}`}},
	{name: "logs-to-file", fields: `{` + apiUpstream +
		`, "AccessLogs": {"Enabled": true, "Type": "file", "Path": "/tmp/access.log", "TextFormat": "%REQ(:PATH)%"}}`},
	{name: "escape-hatches", fields: `{"Config": {
		"envoy_local_cluster_json": "{\"@type\": \"type.googleapis.com/envoy.config.cluster.v3.Cluster\", \"name\": \"mine\", \"type\": \"STATIC\", \"connect_timeout\": \"1s\", \"load_assignment\": {\"cluster_name\": \"mine\", \"endpoints\": [{\"lb_endpoints\": [{\"endpoint\": {\"address\": {\"socket_address\": {\"address\": \"127.0.0.1\", \"port_value\": 8081}}}}]}]}}",
		"envoy_public_listener_json": "{\"@type\": \"type.googleapis.com/envoy.config.listener.v3.Listener\", \"name\": \"public_listener:custom\", \"address\": {\"socket_address\": {\"address\": \"127.0.0.1\", \"port_value\": 21001}}, \"filter_chains\": [{\"filters\": [{\"name\": \"envoy.filters.network.tcp_proxy\", \"typed_config\": {\"@type\": \"type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy\", \"stat_prefix\": \"mine\", \"cluster\": \"local_app\"}}]}]}"},
		"Upstreams": [{"DestinationName": "api", "LocalBindPort": 9191, "Config": {
		"envoy_cluster_json": "{\"name\": \"x\", \"type\": \"EDS\", \"connect_timeout\": \"7s\"}",
		"envoy_listener_json": "{\"name\": \"custom\", \"address\": {\"socket_address\": {\"address\": \"127.0.0.1\", \"port_value\": 9191}}, \"filter_chains\": [{\"filters\": [{\"name\": \"envoy.filters.network.tcp_proxy\", \"typed_config\": {\"@type\": \"type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy\", \"stat_prefix\": \"mine\", \"cluster\": \"api.default.dc1.internal.11111111-2222-3333-4444-555555555555.consul\"}}]}]}"}}]}`},
}

func (g *golden) build(t testing.TB) *Proxy {
	t.Helper()
	w := newWorld(t, g.entries...)
	w.allow = g.allow
	for subject, list := range g.instances {
		w.instances[subject] = list
	}
	for _, text := range g.peers {
		parts := strings.Split(text, "/")
		w.peer(parts[0], parts[1], parts[2])
		if len(parts) > 3 {
			w.trust[parts[0]].Gateways[0].Address = parts[3]
		}
	}
	r := sidecar(t, g.fields)
	if g.kind != "" {
		var err error
		if r, err = ReadRegistration(&catalog.Service{Kind: g.kind, ID: "gateway", Name: "web-gateway", Address: "127.0.0.1",
			Port: 8443, Connect: catalog.Connect{Proxy: []byte(g.fields)},
			TaggedAddresses: map[string]catalog.ServiceAddress{"wan": {Address: "127.0.0.1", Port: 8444}}}); err != nil {
			t.Fatal(err)
		}
	}
	p := New(r, "dc1", NewCache())
	w.feed(p)
	if !p.Ready() || len(p.Problems()) != g.problems {
		t.Fatalf("ready %t, problems %q", p.Ready(), p.Problems())
	}
	return p
}

// TestGoldens holds every resource against the files in testdata. Read a difference as carefully as code.
func TestGoldens(t *testing.T) {
	for i := range goldens {
		g := &goldens[i]
		t.Run(g.name, func(t *testing.T) {
			p := g.build(t)
			got := readable(t, p)
			name := filepath.Join("testdata", g.name+".json")
			if *update {
				if err := os.WriteFile(name, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(name)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%v: resources differ from %s; if that is right: go test ./mesh/proxy -run TestGoldens -update, and "+
					"read the difference", err, name)
			}
			again := g.build(t)
			for _, kind := range mesh.Every {
				for j, r := range again.Set(kind).All() {
					if first := p.Set(kind).All()[j]; kind != mesh.TypeSecret && !bytes.Equal(first.Body, r.Body) {
						t.Errorf("%s %q: two builds gave different bytes", kind, r.Name)
					}
				}
			}
		})
	}
}

// decoded is a resource's message.
func decoded(t testing.TB, r *mesh.Resource) proto.Message {
	t.Helper()
	var wrapped anypb.Any
	if err := proto.Unmarshal(r.Any, &wrapped); err != nil {
		t.Fatal(err)
	}
	m, err := wrapped.UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// object is a message as maps and lists.
func object(t testing.TB, m proto.Message) map[string]any {
	t.Helper()
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var o map[string]any
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// readable is all resources but the secrets, which are other ones each time.
func readable(t testing.TB, p *Proxy) []byte {
	t.Helper()
	out := map[string]any{}
	for _, kind := range mesh.Every[1:] {
		var list []any
		for _, r := range p.Set(kind).All() {
			list = append(list, object(t, decoded(t, r)))
		}
		out[kind.String()] = list
	}
	text, err := json.MarshalIndent(out, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}

// TestEnvoyTakesTheGoldens gives every golden to real Envoys as a whole configuration.
func TestEnvoyTakesTheGoldens(t *testing.T) {
	for _, name := range fetch.Envoys {
		t.Run(name, func(t *testing.T) {
			program := fetch.Need(t, name)
			for i := range goldens {
				g := &goldens[i]
				t.Run(g.name, func(t *testing.T) {
					dir := t.TempDir() // with the files that entries name
					cert, key := testLeaf(t)
					for name, text := range map[string]string{"envoy.json": string(static(t, g.build(t))), "ca.pem": testRoot(t),
						"cert.pem": cert, "key.pem": key} {
						if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
							t.Fatal(err)
						}
					}
					c := exec.CommandContext(t.Context(), program, "--mode", "validate", "--disable-hot-restart", "--concurrency", "1",
						"-c", "envoy.json")
					c.Dir = dir
					out, err := c.CombinedOutput()
					if err != nil || !strings.Contains(string(out), "OK") || strings.Contains(string(out), "deprecated") {
						t.Errorf("%v\n%s", err, out)
					}
				})
			}
		})
	}
}

// static puts into one file what a proxy gets over the network: references become what they refer to.
func static(t testing.TB, p *Proxy) []byte {
	t.Helper()
	var listeners, clusters, secrets []any
	for _, r := range p.Set(mesh.TypeSecret).All() {
		secrets = append(secrets, object(t, decoded(t, r)))
	}
	for _, r := range p.Set(mesh.TypeCluster).All() {
		m := decoded(t, r).(*clusterv3.Cluster)
		if m.GetType() == clusterv3.Cluster_EDS {
			name := m.EdsClusterConfig.ServiceName
			if name == "" {
				name = m.Name
			}
			m.EdsClusterConfig, m.ClusterDiscoveryType = nil, &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
			m.LoadAssignment = decoded(t, p.Set(mesh.TypeEndpoints).Get(name)).(*endpointv3.ClusterLoadAssignment)
		}
		clusters = append(clusters, inlined(t, p, object(t, m)))
	}
	for _, r := range p.Set(mesh.TypeListener).All() {
		listeners = append(listeners, inlined(t, p, object(t, decoded(t, r))))
	}
	text, err := json.Marshal(map[string]any{"node": map[string]any{"id": "x", "cluster": "x"},
		"static_resources": map[string]any{"listeners": listeners, "clusters": clusters, "secrets": secrets}})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// inlined replaces, at any depth, references to secrets, routes and rules.
func inlined(t testing.TB, p *Proxy, v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = inlined(t, p, v[i])
		}
	case map[string]any:
		delete(v, "sds_config")
		if rds, ok := v["rds"].(map[string]any); ok {
			delete(v, "rds")
			v["route_config"] = object(t, decoded(t, p.Set(mesh.TypeRoute).Get(rds["route_config_name"].(string))))
		}
		if _, ok := v["config_discovery"]; ok {
			delete(v, "config_discovery")
			m := decoded(t, p.Set(mesh.TypeExtension).Get(v["name"].(string))).(*corev3.TypedExtensionConfig)
			v["typed_config"] = object(t, m)["typed_config"]
		}
		for key := range v {
			v[key] = inlined(t, p, v[key])
		}
	}
	return v
}
