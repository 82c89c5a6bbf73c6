package definition

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Span is a duration that a body gives as a string or as nanoseconds.
type Span time.Duration

// UnmarshalJSON implements json.Unmarshaler.
func (s *Span) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	if len(b) > 0 && b[0] == '"' {
		var text string
		if err := json.Unmarshal(b, &text); err != nil {
			return err
		}
		if text == "" {
			return nil
		}
		d, err := time.ParseDuration(text)
		*s = Span(d)
		return err
	}
	var n int64
	if err := json.Unmarshal(b, &n); err != nil {
		return fmt.Errorf("invalid duration %s", b)
	}
	*s = Span(n)
	return nil
}

// MarshalJSON implements json.Marshaler: the contract's duration string.
func (s Span) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).String()) }

// Wire is the contract's Definition object of a HealthCheck; what is zero is left out.
type Wire struct {
	Probe
	OutputMaxSize                  int  `json:",omitempty"`
	Interval                       Span `json:",omitempty"`
	Timeout                        Span `json:",omitempty"`
	DeregisterCriticalServiceAfter Span `json:",omitempty"`
	TTL                            Span `json:",omitempty"`
}

// JSON is the definition as the catalog stores it, nil when all of it is unset.
func (w *Wire) JSON() []byte {
	stored := *w
	if tls := w.H2PingUseTLS; tls != nil && !*tls {
		stored.H2PingUseTLS = nil // the catalog's zero: it knows no default
	}
	b, err := json.Marshal(&stored)
	if err != nil || len(b) <= len("{}") { // strings, numbers and lists always marshal
		return nil
	}
	return b
}

// shape describes a contract object whose keys are known: folded key to the
// contract's spelling and what is inside.
type shape map[string]shapeField

type shapeField struct {
	name  string
	inner shape // nil: the value is kept as it is
	list  bool
}

// keys makes a shape of leaf fields.
func keys(names ...string) shape {
	s := shape{}
	for _, n := range names {
		s[fold(n)] = shapeField{name: n}
	}
	return s
}

// with adds a nested object, or a list of them.
func (s shape) with(name string, inner shape, list bool) shape {
	s[fold(name)] = shapeField{name: name, inner: inner, list: list}
	return s
}

var (
	meshGatewayShape = keys("Mode")
	exposePathShape  = keys("ListenerPort", "Path", "LocalPathPort", "Protocol", "ParsedFromCheck")
	upstreamShape    = keys("DestinationType", "DestinationName", "DestinationNamespace", "DestinationPartition",
		"DestinationPeer", "Datacenter", "LocalBindAddress", "LocalBindPort", "LocalBindSocketPath",
		"LocalBindSocketMode", "Config", "CentrallyConfigured").with("MeshGateway", meshGatewayShape, false)
	proxyShape = keys("DestinationServiceName", "DestinationServiceID", "LocalServiceAddress", "LocalServicePort",
		"LocalServiceSocketPath", "Mode", "Config", "MutualTLSMode").
		with("TransparentProxy", keys("OutboundListenerPort", "DialedDirectly"), false).
		with("MeshGateway", meshGatewayShape, false).
		with("Expose", keys("Checks").with("Paths", exposePathShape, true), false).
		with("Upstreams", upstreamShape, true).
		with("EnvoyExtensions", keys("Name", "Required", "Arguments", "ConsulVersion", "EnvoyVersion"), true).
		with("AccessLogs", keys("Enabled", "DisableListenerLogs", "Type", "Path", "JSONFormat", "TextFormat"), false)
)

// proxy reads a Proxy object into canonical JSON: the contract's names, sorted
// keys; free maps such as Config keep their keys. nil for an empty object.
func (d decoder) proxy(path string, v any) ([]byte, error) {
	m, err := readObject(path, v)
	if err != nil || len(m) == 0 {
		return nil, err
	}
	out, err := d.reshape(path, m, proxyShape)
	if err != nil {
		return nil, err
	}
	return json.Marshal(out) // maps marshal with sorted keys
}

func (d decoder) reshape(path string, m map[string]any, s shape) (map[string]any, error) {
	out := make(map[string]any, len(m))
	for _, key := range sortedKeys(m) {
		at := join(path, key)
		f, ok := s[fold(key)]
		if !ok && d.strict {
			return nil, fmt.Errorf("invalid config key %s", at)
		}
		if !ok || m[key] == nil {
			continue
		}
		var err error
		switch {
		case f.inner == nil:
			out[f.name], err = d.leaf(at, f.name, m[key])
		case f.list:
			var list []any
			var objects []map[string]any
			if objects, err = objectList(at, m[key]); err == nil {
				for i, o := range objects {
					var item map[string]any
					if item, err = d.reshape(fmt.Sprintf("%s[%d]", at, i), o, f.inner); err != nil {
						break
					}
					list = append(list, item)
				}
			}
			out[f.name] = list
		default:
			var o map[string]any
			if o, err = readObject(at, m[key]); err == nil {
				out[f.name], err = d.reshape(at, o, f.inner)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// leaf checks the few leaves that others compute with, and unwraps HCL's lists
// of blocks in free maps.
func (d decoder) leaf(path, name string, v any) (any, error) {
	switch {
	case name == "Config" || name == "Arguments":
		m, err := readObject(path, v)
		if err != nil {
			return nil, err
		}
		return plain(m, 0), nil
	case strings.HasSuffix(name, "Port"):
		return readInt(path, v)
	case name == "Checks" || name == "Enabled" || name == "Required" || name == "DialedDirectly" ||
		name == "DisableListenerLogs" || name == "ParsedFromCheck" || name == "CentrallyConfigured":
		return readBool(path, v)
	}
	return readString(path, v)
}

// plain turns HCL's one-block lists inside a free map into objects.
func plain(v any, depth int) any {
	if depth > 32 {
		return v
	}
	switch x := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(x))
		for k, e := range x {
			out[k] = plain(e, depth+1)
		}
		return out
	case []map[string]any:
		if len(x) == 1 {
			return plain(x[0], depth+1)
		}
		out := make([]any, len(x))
		for i, e := range x {
			out[i] = plain(e, depth+1)
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i, e := range x {
			out[i] = plain(e, depth+1)
		}
		return out
	}
	return v
}

// ProxyDestination is the service that a proxy stands for, "" for what is no proxy.
func (d *Service) ProxyDestination() string { return proxyDestination(d.Proxy) }

// proxyDestination reads DestinationServiceName out of canonical JSON.
func proxyDestination(proxy []byte) string {
	if len(proxy) == 0 {
		return ""
	}
	var p struct{ DestinationServiceName string }
	if json.Unmarshal(proxy, &p) != nil {
		return ""
	}
	return p.DestinationServiceName
}
