package entry

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
)

// Merge lays what proxy-defaults and service-defaults say under what a proxy or gateway
// registered: the registration wins, then service-defaults of service, then proxy-defaults.
//
// proxy is the registered Proxy object in the contract's field names, nil for none; the result is such
// an object too. service is the one that a sidecar stands for, or a gateway's own name.
// What a proxy's upstreams get is made from the upstream's own protocol, then
// UpstreamConfig.Defaults and UpstreamConfig.Overrides of service.
func Merge(get Getter, service string, proxy []byte) ([]byte, error) {
	out := map[string]any{}
	if len(proxy) > 0 {
		dec := json.NewDecoder(bytes.NewReader(proxy))
		dec.UseNumber() // a port must not become a float
		if err := dec.Decode(&out); err != nil {
			return nil, err
		}
	}
	all, _ := get(ProxyDefaults, Global).(*Proxy)
	own, _ := get(ServiceDefaults, service).(*Service)
	if all == nil {
		all = &Proxy{}
	}
	if own == nil {
		own = &Service{}
	}
	fillObject(out, "Config", CentralConfig(all, own))
	mode := cmp.Or(text(out["Mode"]), own.Mode, all.Mode)
	out["Mode"] = mode
	fillText(out, "MutualTLSMode", own.MutualTLSMode, all.MutualTLSMode)
	gateway := cmp.Or(text(object(out["MeshGateway"])["Mode"]), own.MeshGateway.Mode, all.MeshGateway.Mode)
	fillObject(out, "MeshGateway", asObject(MeshGateway{Mode: gateway}))
	for _, t := range []*TransparentProxy{own.TransparentProxy, all.TransparentProxy} {
		if t != nil {
			fillObject(out, "TransparentProxy", asObject(t))
		}
	}
	if len(object(out["Expose"])) == 0 {
		expose := own.Expose
		if !expose.Checks && len(expose.Paths) == 0 {
			expose = all.Expose
		}
		out["Expose"] = asObject(expose)
	}
	if all.AccessLogs != nil && len(object(out["AccessLogs"])) == 0 {
		out["AccessLogs"] = asObject(all.AccessLogs)
	}
	if extensions := slices.Concat(all.EnvoyExtensions, own.EnvoyExtensions); len(extensions) > 0 &&
		out["EnvoyExtensions"] == nil {
		out["EnvoyExtensions"] = extensions
	}
	mergeUpstreams(out, get, own, mode, gateway)
	return json.Marshal(out)
}

// CentralConfig is Proxy.Config as the entries alone would have it.
func CentralConfig(all *Proxy, own *Service) map[string]any {
	c := maps.Clone(all.Config)
	if c == nil {
		c = map[string]any{}
	}
	setText(c, "protocol", own.Protocol)
	setText(c, "balance_inbound_connections", own.BalanceInboundConnections)
	setCount(c, "max_inbound_connections", own.MaxInboundConnections)
	setCount(c, "local_connect_timeout_ms", own.LocalConnectTimeoutMs)
	setCount(c, "local_request_timeout_ms", own.LocalRequestTimeoutMs)
	if own.RateLimits != nil {
		c["rate_limits"] = asObject(own.RateLimits)
	}
	return c
}

// mergeUpstreams fills in the registered upstreams. A transparent proxy also gets those that
// service-defaults name: it has a listener for all, and each may be set up in its own way.
func mergeUpstreams(out map[string]any, get Getter, own *Service, mode, gateway string) {
	list, _ := out["Upstreams"].([]any)
	registered := map[string]bool{}
	for _, u := range list {
		u := object(u)
		name := text(u["DestinationName"])
		if kind := text(u["DestinationType"]); name == "" || kind != "" && kind != "service" {
			continue // a prepared query has no entries of its own
		}
		if text(u["DestinationPeer"]) == "" && text(u["Datacenter"]) == "" {
			registered[name] = true
		}
		fillUpstream(u, Upstream(get, own, name), gateway)
	}
	if mode == "transparent" && own.UpstreamConfig != nil {
		for _, o := range own.UpstreamConfig.Overrides {
			if o.Name == "" || o.Peer != "" || registered[o.Name] {
				continue
			}
			registered[o.Name] = true
			u := map[string]any{"DestinationType": "service", "DestinationName": o.Name, "CentrallyConfigured": true}
			fillUpstream(u, Upstream(get, own, o.Name), gateway)
			list = append(list, u)
		}
	}
	if len(list) > 0 {
		out["Upstreams"] = list
	}
}

func fillUpstream(u map[string]any, central UpstreamConfig, gateway string) {
	fillObject(u, "Config", upstreamConfig(&central))
	if mode := cmp.Or(text(object(u["MeshGateway"])["Mode"]), central.MeshGateway.Mode, gateway); mode != "" {
		u["MeshGateway"] = asObject(MeshGateway{Mode: mode})
	}
}

// Upstream is what the entries say about the service name as an upstream of the one that own
// belongs to, nil for none: its protocol, then own's defaults for all upstreams, then those for this one.
func Upstream(get Getter, own *Service, name string) UpstreamConfig {
	c := UpstreamConfig{Name: name}
	if e, ok := get(ServiceDefaults, name).(*Service); ok {
		c.Protocol = e.Protocol
	}
	if e, ok := get(ProxyDefaults, Global).(*Proxy); ok && c.Protocol == "" {
		c.Protocol = e.Protocol()
	}
	if own == nil || own.UpstreamConfig == nil {
		return c
	}
	c.overlay(own.UpstreamConfig.Defaults)
	for _, o := range own.UpstreamConfig.Overrides {
		if o.Name == name && o.Peer == "" {
			c.overlay(o)
		}
	}
	return c
}

// overlay takes over what o sets.
func (u *UpstreamConfig) overlay(o *UpstreamConfig) {
	if o == nil {
		return
	}
	u.EnvoyListenerJSON = cmp.Or(o.EnvoyListenerJSON, u.EnvoyListenerJSON)
	u.EnvoyClusterJSON = cmp.Or(o.EnvoyClusterJSON, u.EnvoyClusterJSON)
	u.Protocol = cmp.Or(o.Protocol, u.Protocol)
	u.MeshGateway.Mode = cmp.Or(o.MeshGateway.Mode, u.MeshGateway.Mode)
	u.BalanceOutboundConnections = cmp.Or(o.BalanceOutboundConnections, u.BalanceOutboundConnections)
	if o.ConnectTimeoutMs != 0 {
		u.ConnectTimeoutMs = o.ConnectTimeoutMs
	}
	if o.Limits != nil {
		u.Limits = o.Limits
	}
	if o.PassiveHealthCheck != nil {
		u.PassiveHealthCheck = o.PassiveHealthCheck
	}
}

// upstreamConfig is an Upstream.Config in the names that registrations use.
func upstreamConfig(u *UpstreamConfig) map[string]any {
	c := map[string]any{}
	setText(c, "envoy_listener_json", u.EnvoyListenerJSON)
	setText(c, "envoy_cluster_json", u.EnvoyClusterJSON)
	setText(c, "protocol", u.Protocol)
	setText(c, "balance_outbound_connections", u.BalanceOutboundConnections)
	setCount(c, "connect_timeout_ms", u.ConnectTimeoutMs)
	if l := u.Limits; l != nil {
		limits := map[string]any{}
		setPointer(limits, "max_connections", l.MaxConnections)
		setPointer(limits, "max_pending_requests", l.MaxPendingRequests)
		setPointer(limits, "max_concurrent_requests", l.MaxConcurrentRequests)
		c["limits"] = limits
	}
	if p := u.PassiveHealthCheck; p != nil {
		check := map[string]any{}
		if p.Interval != 0 {
			check["interval"] = p.Interval.String()
		}
		setCount(check, "max_failures", int(p.MaxFailures))
		setPointer(check, "enforcing_consecutive_5xx", p.EnforcingConsecutive5xx)
		setPointer(check, "max_ejection_percent", p.MaxEjectionPercent)
		if p.BaseEjectionTime != nil {
			check["base_ejection_time"] = p.BaseEjectionTime.String()
		}
		c["passive_health_check"] = check
	}
	return c
}

// fillObject puts under a field's object what central has and the object lacks, at every depth.
func fillObject(out map[string]any, field string, central map[string]any) {
	if len(central) == 0 && out[field] != nil {
		return
	}
	have, ok := out[field].(map[string]any)
	if out[field] != nil && !ok {
		return // not an object: as registered
	}
	if have == nil {
		have = map[string]any{}
	}
	fill(have, central)
	if len(have) > 0 || field != "Config" {
		out[field] = have
	}
}

func fill(have, central map[string]any) {
	for k, v := range central {
		now, there := have[k]
		if !there {
			have[k] = v
			continue
		}
		inner, ok := now.(map[string]any)
		if more, both := v.(map[string]any); ok && both {
			inner = maps.Clone(inner)
			fill(inner, more)
			have[k] = inner
		}
	}
}

func fillText(out map[string]any, field string, values ...string) {
	setText(out, field, cmp.Or(append([]string{text(out[field])}, values...)...))
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

func object(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func setText(m map[string]any, key, v string) {
	if v != "" {
		m[key] = v
	}
}

func setCount(m map[string]any, key string, n int) {
	if n != 0 {
		m[key] = n
	}
}

func setPointer[T any](m map[string]any, key string, v *T) {
	if v != nil {
		m[key] = *v
	}
}

// asObject is the JSON object of v.
func asObject(v any) map[string]any {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil // the entries' types have nothing that cannot be encoded
	}
	var m map[string]any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	_ = dec.Decode(&m)
	return m
}
