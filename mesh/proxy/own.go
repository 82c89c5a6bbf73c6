package proxy

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/mesh/envoy"
)

// own is what a proxy has for itself: its application's cluster, its public listener, exposed paths.
type own struct {
	resources []*mesh.Resource
	rules     []string // the rules that the public listener refers to
	problems  []string
	failed    bool // something could not be built
	stale     bool // the registration or the service changed since it was built
}

// outdate has it built anew at the next occasion; nil: it is not built yet.
func (o *own) outdate() {
	if o != nil {
		o.stale = true
	}
}

// add takes a resource, or notes why there is none.
func (o *own) add(c *Cache, r *mesh.Resource, err error) {
	if err != nil {
		o.problems, o.failed = append(o.problems, errkind.Text(err)), true
		return
	}
	o.resources = append(o.resources, c.one(r))
}

// config is the free settings: those of the config entries, and over them the registration's.
func (p *profile) config() *options {
	return &options{path: "Proxy.Config", m: over(p.service.Config, p.reg.Config)}
}

func (p *profile) logs() *entry.AccessLogs {
	if p.reg.AccessLogs != nil {
		return p.reg.AccessLogs
	}
	return p.service.AccessLogs
}

func (p *profile) tracing() string { return p.config().text("envoy_listener_tracing_json") }

// buildOwn builds what depends on the registration and the service alone. A part
// that cannot be built is left out and named.
func (p *profile) buildOwn() *own {
	o := &own{problems: p.unserved()}
	if p.reg.Kind != catalog.KindConnectProxy {
		return o // a gateway has no application
	}
	c := p.config()
	protocol := c.oneOf("protocol", "tcp", "http", "http2", "grpc", "redis")
	if protocol == "" {
		protocol = p.service.Protocol
	}
	connect := c.millis("local_connect_timeout_ms", envoy.DefaultConnectTimeout)
	most, _ := c.number("max_inbound_connections", math.MaxInt32)
	local := &envoy.Local{Name: envoy.LocalApp, Address: p.reg.LocalServiceAddress, Port: p.reg.LocalServicePort,
		Socket:   p.reg.LocalServiceSocketPath,
		Protocol: protocol, ConnectTimeout: connect, MaxConnections: most, JSON: c.text("envoy_local_cluster_json")}
	if local.Address == "" {
		local.Address = "127.0.0.1"
	}
	if local.Port > 0 || local.Socket != "" || local.JSON != "" { // a proxy for upstreams alone has no application
		r, err := envoy.LocalCluster(local)
		o.add(p.cache, r, err)
		p.public(o, c, protocol)
	}
	p.exposed(o, c, local)
	for _, err := range c.problems {
		o.problems = append(o.problems, errkind.Text(err))
	}
	return o
}

// unserved names what the settings ask for and no proxy is given.
func (p *profile) unserved() []string {
	var list []string
	note := func(asked bool, what string) {
		if asked {
			list = append(list, what)
		}
	}
	v := p.service
	direct := v.TransparentProxy
	if p.reg.TransparentProxy != nil {
		direct = p.reg.TransparentProxy
	}
	note(direct != nil && direct.DialedDirectly,
		"TransparentProxy.DialedDirectly: instances are not reached by their own addresses through the mesh")
	note(p.reg.MutualTLSMode == "permissive" || p.reg.MutualTLSMode == "" && v.MutualTLSMode == "permissive",
		"MutualTLSMode \"permissive\": only connections with a certificate are let in")
	note(v.RateLimits != nil, "RateLimits: requests are not limited")
	for _, e := range v.Extensions {
		judges := e.Name == entry.ExtAuthzExtension && (p.reg.Kind == catalog.KindAPIGateway || !e.For(p.reg.Kind))
		note(!judges, fmt.Sprintf("EnvoyExtensions: %q is not applied", e.Name))
	}
	return list
}

// wantsChecks tells whether config entries, and not the registration, have checks go through the proxy.
func (p *profile) wantsChecks() bool {
	return p.reg.Kind == catalog.KindConnectProxy && p.service.Expose.Checks && !p.reg.Expose.Checks
}

var (
	bothRules        = []string{mesh.NetworkRules, mesh.HTTPRules}
	onlyNetworkRules = bothRules[:1:1]
	onlyHTTPRules    = bothRules[1:]
)

// public is the listener that other proxies connect to, with the rules that it refers to.
func (p *profile) public(o *own, c *options, protocol string) {
	if len(o.resources) == 0 {
		return // no cluster to lead to
	}
	o.rules = onlyNetworkRules
	custom := c.text("envoy_public_listener_json")
	if entry.IsHTTP(protocol) {
		o.rules = onlyHTTPRules
	}
	if custom != "" { // it may hold filter chains of both kinds
		o.rules = bothRules
	}
	v := &envoy.Public{Protocol: protocol, Bind: p.publicBind(c), Balance: c.oneOf("balance_inbound_connections",
		"exact_balance") != "",
		HandshakeTimeout: c.millis("handshake_timeout_ms", 0), RequestTimeout: c.millis("local_request_timeout_ms", 0),
		IdleTimeout: c.millis("local_idle_timeout_ms", 0),
		HTTP:        p.service.HTTP, Logs: p.logs(), Tracing: c.text("envoy_listener_tracing_json"), JSON: custom}
	if p.service.TLS != nil {
		v.TLS = p.service.TLS.Incoming
	}
	if len(p.service.Trusted) > 0 && p.anchors != nil {
		v.Roots = envoy.TrustedSecret
		r, err := envoy.Trusted(p.anchors, p.service.Trusted)
		o.add(p.cache, r, err)
	}
	r, err := envoy.PublicListener(v)
	o.add(p.cache, r, err)
}

// publicBind is where a proxy listens: its own settings, else where its registration says that it is reached.
func (p *profile) publicBind(c *options) envoy.Bind {
	b := envoy.Bind{Address: c.text("bind_address"), Port: p.reg.Port, Socket: p.reg.Socket}
	if port, set := c.number("bind_port", math.MaxUint16); set && port > 0 {
		b.Port = port
	}
	if b.Address == "" {
		b.Address = p.reg.Address
	}
	if b.Address == "" {
		b.Address = "0.0.0.0"
	}
	return b
}

// exposed are the paths that are reached without a certificate: those of the registration, else of the config entries.
func (p *profile) exposed(o *own, c *options, app *envoy.Local) {
	paths := p.reg.Expose.Paths
	if len(paths) == 0 {
		paths = p.service.Expose.Paths
	}
	var from []string // of checks
	if c := p.reg.ExposedChecks; c != nil {
		paths, from = slices.Concat(paths, c.Paths), c.From
	}
	bind := p.publicBind(c)
	seen := map[string]bool{}
	for i, e := range paths {
		port := e.LocalPathPort
		if port == 0 {
			port = app.Port
		}
		if e.ListenerPort == 0 || port == 0 {
			o.problems = append(o.problems, fmt.Sprintf("Proxy.Expose.Paths[%d]: ListenerPort and LocalPathPort are required",
				i))
			continue
		}
		cluster := envoy.LocalApp
		other := e.ParsedFromCheck && e.Protocol == "http2" && app.Protocol != "http2" && app.Protocol != "grpc"
		if port != app.Port || app.JSON != "" || other {
			cluster = "exposed_cluster_" + strconv.Itoa(port)
			if other {
				cluster += "_http2"
			}
			if !seen[cluster] {
				r, err := envoy.LocalCluster(&envoy.Local{Name: cluster, Address: app.Address, Port: port, Protocol: e.Protocol,
					ConnectTimeout: app.ConnectTimeout})
				o.add(p.cache, r, err)
				seen[cluster] = true
			}
		}
		v := &envoy.Exposed{Path: e.Path, Bind: envoy.Bind{Address: bind.Address, Port: e.ListenerPort},
			Protocol: e.Protocol, Cluster: cluster, Logs: p.logs()}
		if e.ParsedFromCheck {
			v.From = from
		}
		r, err := envoy.ExposedListener(v)
		o.add(p.cache, r, err)
	}
}
