package proxy

import (
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/kit/errkind"
)

// options reads a free map of settings, as operators write them: numbers may be
// text. What is not as it must be is noted under its name, and counts as not set.
type options struct {
	path     string // of the map, for the notes
	m        map[string]any
	problems []error
}

func (o *options) bad(key string, v any, want string) {
	o.problems = append(o.problems, errkind.Errorf(errkind.Invalid, "%s.%s %v: must be %s", o.path, key, v, want))
}

func (o *options) text(key string) string {
	v, ok := o.m[key]
	if !ok || v == nil {
		return ""
	}
	s, ok := v.(string)
	if !ok {
		o.bad(key, v, "text")
	}
	return s
}

// oneOf is text of a few words; nothing when it is not set.
func (o *options) oneOf(key string, words ...string) string {
	s := strings.ToLower(o.text(key))
	for _, w := range words {
		if s == w || s == "" {
			return s
		}
	}
	o.bad(key, strconv.Quote(s), "one of "+strings.Join(words, ", "))
	return ""
}

// number is a whole number from 0 to most; set tells that it is there.
func (o *options) number(key string, most int) (n int, set bool) {
	v, ok := o.m[key]
	if !ok || v == nil {
		return 0, false
	}
	f, ok := v.(float64)
	switch v := v.(type) {
	case int:
		f, ok = float64(v), true
	case string:
		parsed, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
		f, ok = parsed, err == nil
	}
	if !ok || f < 0 || f > float64(most) || f != math.Trunc(f) {
		o.bad(key, v, fmt.Sprintf("a whole number from 0 to %d", most))
		return 0, false
	}
	return int(f), true
}

// maxMillis is a day: more is a mistake.
const maxMillis = 24 * 60 * 60 * 1000

func (o *options) millis(key string, otherwise time.Duration) time.Duration {
	if n, set := o.number(key, maxMillis); set {
		return time.Duration(n) * time.Millisecond
	}
	return otherwise
}

func (o *options) flag(key string) bool {
	switch v := o.m[key].(type) {
	case nil:
		return false
	case bool:
		return v
	case string:
		if b, err := strconv.ParseBool(v); err == nil {
			return b
		}
	}
	o.bad(key, o.m[key], "true or false")
	return false
}

func (o *options) count(key string) *uint32 {
	if n, set := o.number(key, math.MaxInt32); set {
		v := uint32(n)
		return &v
	}
	return nil
}

// duration is text such as 10s, or nanoseconds.
func (o *options) duration(key string) *entry.Duration {
	var d entry.Duration
	switch v := o.m[key].(type) {
	case nil:
		return nil
	case string:
		parsed, err := time.ParseDuration(v)
		if err != nil || parsed < 0 {
			o.bad(key, strconv.Quote(v), "a duration such as 10s")
			return nil
		}
		d = entry.Duration(parsed)
	case float64:
		d = entry.Duration(v)
	default:
		o.bad(key, v, "a duration such as 10s")
		return nil
	}
	return &d
}

func (o *options) object(key string) *options {
	v, ok := o.m[key]
	if !ok || v == nil {
		return nil
	}
	m, ok := v.(map[string]any)
	if !ok {
		o.bad(key, v, "an object")
		return nil
	}
	return &options{path: o.path + "." + key, m: m}
}

// over is a map with what another sets put over it.
func over(below, above map[string]any) map[string]any {
	if len(below) == 0 {
		return above
	}
	if len(above) == 0 {
		return below
	}
	m := maps.Clone(below)
	maps.Copy(m, above)
	return m
}

// calling is what holds for an upstream: what its registration sets, else what
// the caller's service-defaults say for this upstream, else for all.
type calling struct {
	protocol       string
	connectTimeout time.Duration // 0: as the chain says
	gateway        string
	limits         *entry.UpstreamLimits
	passive        *entry.PassiveHealthCheck
	balance        bool
	listenerJSON   string
	clusterJSON    string
	maintenanceKey string // of Redis hosts
}

// callingOf merges; central may be nil.
func callingOf(u *Upstream, path string, central *entry.Upstreams) (calling, []error) {
	var c calling
	if central != nil {
		c.central(central.Defaults)
		for _, o := range central.Overrides {
			if o != nil && strings.EqualFold(o.Name, u.DestinationName) && o.Peer == u.DestinationPeer {
				c.central(o)
			}
		}
	}
	o := &options{path: path + ".Config", m: u.Config}
	set(&c.protocol, o.oneOf("protocol", "tcp", "http", "http2", "grpc", "redis"))
	set(&c.maintenanceKey, o.text("redis_maintenance_key"))
	set(&c.connectTimeout, o.millis("connect_timeout_ms", 0))
	set(&c.listenerJSON, o.text("envoy_listener_json"))
	set(&c.clusterJSON, o.text("envoy_cluster_json"))
	set(&c.gateway, u.MeshGateway.Mode)
	if b := o.oneOf("balance_outbound_connections", "exact_balance"); b != "" {
		c.balance = true
	}
	var problems []error
	if l := o.object("limits"); l != nil {
		bound := func(key string) *int {
			if n, set := l.number(key, math.MaxInt32); set {
				return &n
			}
			return nil
		}
		c.limits = &entry.UpstreamLimits{MaxConnections: bound("max_connections"),
			MaxPendingRequests: bound("max_pending_requests"), MaxConcurrentRequests: bound("max_concurrent_requests")}
		problems = l.problems
	}
	if h := o.object("passive_health_check"); h != nil {
		c.passive = &entry.PassiveHealthCheck{EnforcingConsecutive5xx: h.count("enforcing_consecutive_5xx"),
			MaxEjectionPercent: h.count("max_ejection_percent"), BaseEjectionTime: h.duration("base_ejection_time")}
		if n := h.count("max_failures"); n != nil {
			c.passive.MaxFailures = *n
		}
		if d := h.duration("interval"); d != nil {
			c.passive.Interval = *d
		}
		problems = append(problems, h.problems...)
	}
	return c, append(problems, o.problems...)
}

func (c *calling) central(v *entry.UpstreamConfig) {
	if v == nil {
		return
	}
	set(&c.protocol, v.Protocol)
	set(&c.connectTimeout, time.Duration(v.ConnectTimeoutMs)*time.Millisecond)
	set(&c.gateway, v.MeshGateway.Mode)
	set(&c.limits, v.Limits)
	set(&c.passive, v.PassiveHealthCheck)
	set(&c.listenerJSON, v.EnvoyListenerJSON)
	set(&c.clusterJSON, v.EnvoyClusterJSON)
	if v.BalanceOutboundConnections != "" {
		c.balance = true
	}
}

// set writes a value that is there.
func set[T comparable](into *T, v T) {
	var none T
	if v != none {
		*into = v
	}
}
