package meshcmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
)

// xdsServer is where Envoy finds its configuration.
type xdsServer struct {
	socket string // unix socket, instead of host and port
	host   string
	port   int
	tls    bool
}

// xdsServer takes --grpc-addr, or what the agent says of itself.
func (o *envoyOptions) xdsServer(ctx context.Context, e *command.Env, cl *client.Client) (xdsServer, error) {
	addr := o.grpcAddr
	s := xdsServer{tls: strings.HasPrefix(addr, "https://") || o.grpcCA != "" || o.grpcCAPath != ""}
	if path, ok := strings.CutPrefix(addr, "unix://"); ok {
		s.socket = path
		return s, nil
	}
	if addr == "" {
		var self struct {
			XDS *struct {
				Port  int
				Ports struct{ Plaintext, TLS int }
			} `json:"xDS"`
		}
		_, err := cl.Get(ctx, "/v1/agent/self", client.Query{}, &self)
		var refused *client.Error
		switch {
		case errors.As(err, &refused) && refused.Code == http.StatusForbidden:
			// sidecars' tokens often lack agent:read
			if addr = "127.0.0.1:8502"; s.tls {
				addr = "127.0.0.1:8503"
			}
			fmt.Fprintf(e.Err, "The token may not read the agent, so its gRPC port is not known: taking %s. If it is another "+
				"one, name it with --grpc-addr, or give the token agent:read.\n", addr)
		case err != nil:
			return s, err
		case self.XDS == nil || self.XDS.Ports.Plaintext <= 0 && self.XDS.Ports.TLS <= 0 && self.XDS.Port <= 0:
			return s, errors.New("the agent serves no xDS, so that a proxy would get no configuration: set ports.grpc on the " +
				"agent, or name another with --grpc-addr")
		case self.XDS.Ports.TLS > 0 && (s.tls || self.XDS.Ports.Plaintext <= 0):
			s.tls, addr = true, "127.0.0.1:"+strconv.Itoa(self.XDS.Ports.TLS)
		case self.XDS.Ports.Plaintext > 0:
			addr = "127.0.0.1:" + strconv.Itoa(self.XDS.Ports.Plaintext)
		default:
			addr = "127.0.0.1:" + strconv.Itoa(self.XDS.Port)
		}
	}
	addr = strings.TrimPrefix(strings.TrimPrefix(addr, "https://"), "http://")
	var err error
	if s.host, s.port, err = resolved(addr); err != nil {
		return s, command.Usagef("--grpc-addr %s: %v", addr, err)
	}
	return s, nil
}

func hostPort(addr string) (string, int, error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	return host, int(port), err
}

// resolved is host:port with the host as an address: Envoy takes no names there.
func resolved(addr string) (string, int, error) {
	host, port, err := hostPort(addr)
	if err != nil {
		return "", 0, err
	}
	if host == "" || host == "localhost" {
		return "127.0.0.1", port, nil
	}
	ip, err := net.ResolveIPAddr("ip", host)
	if err != nil {
		return "", 0, err
	}
	return ip.String(), port, nil
}

// authorities reads what Envoy shall trust at the gRPC port.
func (o *envoyOptions) authorities(cfg client.Config) (string, error) {
	files := []string{}
	folder := o.grpcCAPath
	switch {
	case o.grpcCA != "":
		files = append(files, o.grpcCA)
	case folder == "" && cfg.CAFile != "":
		files = append(files, cfg.CAFile)
	case folder == "":
		folder = cfg.CAPath
	}
	if folder != "" {
		found, err := filepath.Glob(filepath.Join(folder, "*"))
		if err != nil {
			return "", err
		}
		files = append(files, found...)
	}
	var b strings.Builder
	for _, path := range files {
		text, err := command.ReadFile(path)
		if err != nil {
			return "", err
		}
		b.Write(text)
	}
	if b.Len() == 0 {
		return "", command.Usagef("the gRPC port speaks TLS: give its authority with --grpc-ca-file")
	}
	return b.String(), nil
}

// bootstrap is what goes into Envoy's first configuration.
type bootstrap struct {
	proxyID, cluster, datacenter, node string
	adminHost, adminLog                string
	adminPort                          int
	server                             xdsServer
	roots, token                       string
	config                             map[string]any // of the proxy's registration
	getenv                             func(string) string
	promPath                           string // where --prometheus-scrape-path asks for figures; "" is /metrics
	promPort                           int    // who answers there instead of Envoy itself; 0 is Envoy
}

// agentCluster is the name under which Envoy knows its agent.
const agentCluster = "local_agent"

type object = map[string]any

// object builds the configuration. Settings of the registration come in where the contract has them.
func (b *bootstrap) object() (object, error) {
	metadata := object{"namespace": "default", "partition": "default"}
	if b.node != "" {
		metadata["node_name"] = b.node
	}
	out := object{
		"admin": object{
			"access_log": []any{object{"name": "Consul Admin Access Log", "typed_config": object{
				"@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog", "path": b.adminLog}}},
			"address": socket(b.adminHost, b.adminPort),
		},
		"node": object{"cluster": b.cluster, "id": b.proxyID, "metadata": metadata},
		"layered_runtime": object{"layers": []any{object{"name": "base",
			"static_layer": object{"re2.max_program_size.error_level": 1048576}}}},
		"static_resources": object{"clusters": []any{b.agent()}},
		"stats_config":     object{"stats_tags": b.tags(), "use_all_default_tags": true},
		"dynamic_resources": object{
			"lds_config": viaADS(), "cds_config": viaADS(),
			"ads_config": object{"api_type": "DELTA_GRPC", "transport_api_version": "V3", "grpc_services": object{
				"initial_metadata": []any{object{"key": "x-consul-token", "value": b.token}},
				"envoy_grpc":       object{"cluster_name": agentCluster}}},
		},
	}
	if err := b.settings(out); err != nil {
		return nil, err
	}
	return out, nil
}

func socket(host string, port int) object {
	return object{"socket_address": object{"address": host, "port_value": port}}
}

func viaADS() object {
	return object{"ads": object{}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"}
}

// agent is the static cluster of the agent's gRPC port.
func (b *bootstrap) agent() object {
	address := socket(b.server.host, b.server.port)
	if b.server.socket != "" {
		address = object{"pipe": object{"path": b.server.socket}}
	}
	cluster := object{
		"name": agentCluster, "ignore_health_on_host_removal": false, "connect_timeout": "1s", "type": "STATIC",
		"typed_extension_protocol_options": object{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": object{
			"@type":                "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
			"explicit_http_config": object{"http2_protocol_options": object{}}}},
		"load_assignment": object{"cluster_name": agentCluster,
			"endpoints": []any{object{"lb_endpoints": []any{object{"endpoint": object{"address": address}}}}}},
	}
	if b.server.tls {
		cluster["transport_socket"] = object{"name": "tls", "typed_config": object{
			"@type":              "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
			"common_tls_context": object{"validation_context": object{"trusted_ca": object{"inline_string": b.roots}}}}}
	}
	return cluster
}

// clusterParts are the parts of a cluster's name, in order: the tag that each gives, its pattern before, the pattern
// of its value, its pattern after.
var clusterParts = []struct{ tag, before, value, after string }{
	{"custom_hash", `(?:`, `[^.]+`, `~)?`},
	{"service_subset", `(?:`, `[^.]+`, `\.)?`},
	{"service", ``, `[^.]+`, `\.`},
	{"namespace", ``, `[^.]+`, `\.`},
	{"partition", `(?:`, `[^.]+`, `\.)?`},
	{"datacenter", ``, `[^.]+`, `\.`},
	{"routing_type", ``, `internal[^.]*`, `\.`},
	{"trust_domain", ``, `[^.]+`, `\.consul\.`},
}

// upstreamParts are those of an upstream listener's name.
var upstreamParts = []struct{ tag, before, value, after string }{
	{"service", ``, `[^.]+`, ``},
	{"namespace", `(?:\.`, `[^.]+`, `)?`},
	{"partition", `(?:\.`, `[^.]+`, `)?`},
	{"datacenter", `\.`, `[^.]+`, `\.`},
}

// tags turn the names of Envoy's figures into labels. In each pattern the first group is cut out of the name and the
// second is the value.
func (b *bootstrap) tags() []any {
	out := []any{}
	pattern := func(name, start string, parts []struct{ tag, before, value, after string }, i int) {
		text := start + "("
		for j, p := range parts {
			value := p.value
			if i == j {
				value = "(" + value + ")"
			}
			text += p.before + value + p.after
		}
		out = append(out, object{"tag_name": name, "regex": text + ")"})
	}
	for i, p := range clusterParts {
		pattern("consul.destination."+p.tag, `^cluster\.(?:passthrough~)?`, clusterParts, i)
	}
	for i, p := range upstreamParts {
		pattern("consul.upstream."+p.tag, `^(?:tcp|http)\.upstream\.`, upstreamParts, i)
	}
	// The registration's own tags come first: Envoy takes the first of a name.
	own, _ := b.config["envoy_stats_tags"].([]any)
	for _, tag := range own {
		if name, value, ok := strings.Cut(fmt.Sprint(tag), "="); ok {
			out = append(out, object{"tag_name": name, "fixed_value": value})
		}
	}
	for _, fixed := range [][2]string{{"local_cluster", b.cluster}, {"consul.source.service", b.cluster},
		{"consul.source.namespace", "default"},
		{"consul.source.partition", "default"}, {"consul.source.datacenter", b.datacenter}} {
		if fixed[1] != "" {
			out = append(out, object{"tag_name": fixed[0], "fixed_value": fixed[1]})
		}
	}
	return out
}

// settings lays the registration's envoy_ settings over the configuration.
func (b *bootstrap) settings(out object) error {
	text := func(key string) string { s, _ := b.config[key].(string); return s }
	if raw := text("envoy_tracing_json"); raw != "" {
		if !json.Valid([]byte(raw)) {
			return errors.New("envoy_tracing_json of the proxy is not JSON")
		}
		out["tracing"] = json.RawMessage(raw)
	}
	clusters := out["static_resources"].(object)
	if raw := text("envoy_extra_static_clusters_json"); raw != "" {
		var extra []json.RawMessage
		if err := json.Unmarshal([]byte("["+raw+"]"), &extra); err != nil {
			return fmt.Errorf("envoy_extra_static_clusters_json of the proxy: %w", err)
		}
		list := clusters["clusters"].([]any)
		for _, c := range extra {
			list = append(list, c)
		}
		clusters["clusters"] = list
	}
	sinks, err := b.sinks(text)
	if err != nil {
		return err
	}
	if sinks != nil {
		out["stats_sinks"] = sinks
	}
	if raw := text("envoy_stats_flush_interval"); raw != "" {
		out["stats_flush_interval"] = raw
	}
	if raw := text("envoy_stats_config_json"); raw != "" {
		if !json.Valid([]byte(raw)) {
			return errors.New("envoy_stats_config_json of the proxy is not JSON")
		}
		out["stats_config"] = json.RawMessage(raw)
	}
	return b.listeners(clusters, text)
}

// sinks are where Envoy sends its figures to.
func (b *bootstrap) sinks(text func(string) string) ([]any, error) {
	var sinks []any
	for _, kind := range []struct {
		key, name, message string
	}{{"envoy_statsd_url", "statsd", "Statsd"}, {"envoy_dogstatsd_url", "dog_statsd", "DogStatsd"}} {
		url := os.Expand(text(kind.key), b.variable)
		if url == "" {
			continue
		}
		var address object
		if path, ok := strings.CutPrefix(url, "unix://"); ok {
			address = object{"pipe": object{"path": path}}
		} else {
			host, port, err := resolved(regexp.MustCompile(`^(udp|tcp)://`).ReplaceAllString(url, ""))
			if err != nil {
				return nil, fmt.Errorf("%s of the proxy is %q, it must be udp://host:port: %w", kind.key, url, err)
			}
			address = object{"socket_address": object{"address": host, "port_value": port, "protocol": "UDP"}}
		}
		sinks = append(sinks, object{"name": "envoy.stat_sinks." + kind.name,
			"typed_config": object{"@type": "type.googleapis.com/envoy.config.metrics.v3." + kind.message + "Sink",
				"address": address}})
	}
	for _, key := range []string{"envoy_stats_sinks_json", "envoy_extra_stats_sinks_json"} {
		raw := text(key)
		if raw == "" {
			continue
		}
		var extra []json.RawMessage
		if err := json.Unmarshal([]byte("["+raw+"]"), &extra); err != nil {
			return nil, fmt.Errorf("%s of the proxy: %w", key, err)
		}
		for _, s := range extra {
			sinks = append(sinks, s)
		}
	}
	return sinks, nil
}

// variable is the value of an environment variable in an address: a host's own agent is often known by one only.
func (b *bootstrap) variable(name string) string { return b.getenv(name) }

// listeners open what the registration wants scraped without Envoy's whole interface.
func (b *bootstrap) listeners(static object, text func(string) string) error {
	var list []any
	scraped := "self_admin"
	if b.promPort != 0 {
		scraped = "prometheus_backend"
	}
	for _, want := range []struct{ key, name, prefix, rewrite, cluster string }{
		{"envoy_prometheus_bind_addr", "envoy_prometheus_metrics_listener", cmp.Or(b.promPath, "/metrics"),
			"/stats/prometheus", scraped},
		{"envoy_stats_bind_addr", "envoy_metrics_listener", "/stats", "/stats", "self_admin"}} {
		addr := text(want.key)
		if addr == "" {
			continue
		}
		host, port, err := hostPort(addr)
		if err != nil {
			return fmt.Errorf("%s of the proxy is %q, it must be host:port: %w", want.key, addr, err)
		}
		list = append(list, object{"name": want.name, "address": socket(host, port),
			"filter_chains": []any{object{"filters": []any{object{
				"name": "envoy.filters.network.http_connection_manager", "typed_config": object{
					"@type": "type.googleapis.com/envoy.extensions.filters.network." +
						"http_connection_manager.v3.HttpConnectionManager",
					"stat_prefix": want.name, "codec_type": "HTTP1",
					"route_config": object{"name": "self_admin_route",
						"virtual_hosts": []any{object{"name": "self_admin", "domains": []any{"*"}, "routes": []any{
							object{"match": object{"path": want.prefix},
								"route": object{"cluster": want.cluster, "prefix_rewrite": want.rewrite}},
							object{"match": object{"prefix": "/"}, "direct_response": object{"status": 404}}}}}},
					"http_filters": []any{object{"name": "envoy.filters.http.router",
						"typed_config": object{"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}},
				}}}}}})
	}
	if raw := text("envoy_extra_static_listeners_json"); raw != "" {
		var extra []json.RawMessage
		if err := json.Unmarshal([]byte("["+raw+"]"), &extra); err != nil {
			return fmt.Errorf("envoy_extra_static_listeners_json of the proxy: %w", err)
		}
		for _, l := range extra {
			list = append(list, l)
		}
	}
	if list == nil {
		return nil
	}
	static["listeners"] = list
	clusters := append(static["clusters"].([]any), local("self_admin", b.adminHost, b.adminPort))
	if b.promPort != 0 {
		clusters = append(clusters, local("prometheus_backend", "127.0.0.1", b.promPort))
	}
	static["clusters"] = clusters
	return nil
}

// local is a static cluster of one address on this host.
func local(name, host string, port int) object {
	return object{"name": name, "ignore_health_on_host_removal": false, "connect_timeout": "5s", "type": "STATIC",
		"load_assignment": object{"cluster_name": name,
			"endpoints": []any{object{"lb_endpoints": []any{object{"endpoint": object{"address": socket(host, port)}}}}}}}
}
