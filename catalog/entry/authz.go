package entry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ExtAuthzExtension is the name of the extension by which somebody outside of the proxy judges requests.
const ExtAuthzExtension = "builtin/ext-authz"

// Toggle switches what an extension does.
type Toggle struct {
	Enabled bool
}

// Authz are the arguments of ExtAuthzExtension.
type Authz struct {
	ProxyType    string
	ListenerType string `json:",omitempty"`
	Config       AuthzConfig
}

// AuthzConfig says who judges requests, and how it is asked. One of both services is set.
type AuthzConfig struct {
	StatPrefix             string       `json:",omitempty"`
	FailureModeAllow       bool         `json:",omitempty"`
	StatusOnError          int          `json:",omitempty"`
	IncludePeerCertificate bool         `json:",omitempty"`
	ClearRouteCache        bool         `json:",omitempty"`
	TransportAPIVersion    string       `json:"TransportApiVersion,omitempty"`
	WithRequestBody        *AuthzBody   `json:",omitempty"`
	GrpcService            *AuthzByGRPC `json:",omitempty"`
	HTTPService            *AuthzByHTTP `json:"HttpService,omitempty"`
}

// AuthzBody sends the request's body along.
type AuthzBody struct {
	MaxRequestBytes     uint32
	AllowPartialMessage bool
	PackAsBytes         bool
}

// AuthzTarget is who is asked: a service of the mesh, or host and port.
type AuthzTarget struct {
	Service *struct{ Name, Namespace, Partition string } `json:",omitempty"`
	URI     string                                       `json:",omitempty"`
	Timeout string                                       `json:",omitempty"`
}

// AuthzHeader is sent with each question.
type AuthzHeader struct{ Key, Value string }

// AuthzMatch picks headers by their names.
type AuthzMatch struct {
	Exact, Prefix, Suffix, Contains, SafeRegex string
	IgnoreCase                                 bool
}

// AuthzByGRPC asks by Envoy's own protocol.
type AuthzByGRPC struct {
	Target          *AuthzTarget
	Authority       string
	InitialMetadata []AuthzHeader
}

// AuthzByHTTP asks by a request like the one to be judged, without its body.
type AuthzByHTTP struct {
	Target               *AuthzTarget
	PathPrefix           string
	AuthorizationRequest *struct {
		AllowedHeaders []AuthzMatch
		HeadersToAdd   []AuthzHeader
	}
	AuthorizationResponse *struct {
		AllowedUpstreamHeaders         []AuthzMatch
		AllowedUpstreamHeadersToAppend []AuthzMatch
		AllowedClientHeaders           []AuthzMatch
		AllowedClientHeadersOnSuccess  []AuthzMatch
	}
}

// ExtAuthzOf is the extension that judges requests to a proxy of a kind: the last of a list that is for it; nil when
// there is none. The error names what of its arguments cannot be used.
func ExtAuthzOf(list []EnvoyExtension, proxyType string) (*Authz, error) {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].Name != ExtAuthzExtension || !list[i].For(proxyType) {
			continue
		}
		out := &Authz{}
		text, err := json.Marshal(list[i].Arguments)
		if err == nil {
			dec := json.NewDecoder(bytes.NewReader(text))
			dec.DisallowUnknownFields()
			err = dec.Decode(out)
		}
		if err == nil {
			err = out.Config.validate()
		}
		if err != nil {
			return out, fmt.Errorf("EnvoyExtensions: %s: Arguments: %w", ExtAuthzExtension, err)
		}
		return out, nil
	}
	return nil, nil
}

// For tells whether an extension is for proxies of a kind. Without a kind it is for sidecars.
func (e *EnvoyExtension) For(proxyType string) bool {
	for k, v := range e.Arguments {
		if text, ok := v.(string); ok && fold(k) == "proxytype" {
			return text == proxyType
		}
	}
	return proxyType == "connect-proxy"
}

func (c *AuthzConfig) validate() error {
	var errs []error
	if (c.GrpcService == nil) == (c.HTTPService == nil) {
		return errors.New("Config: exactly one of GrpcService and HttpService must be set")
	}
	if c.StatusOnError != 0 && (c.StatusOnError < 100 || c.StatusOnError > 599) {
		errs = append(errs, fmt.Errorf("Config.StatusOnError %d: must be 100 to 599", c.StatusOnError))
	}
	switch strings.ToLower(c.TransportAPIVersion) {
	case "", "v3", "auto":
	default:
		errs = append(errs, fmt.Errorf("Config.TransportApiVersion %q: only V3 is spoken", c.TransportAPIVersion))
	}
	if b := c.WithRequestBody; b != nil && b.MaxRequestBytes == 0 {
		errs = append(errs, errors.New("Config.WithRequestBody.MaxRequestBytes is required"))
	}
	t := c.Target()
	switch {
	case t == nil || (t.Service == nil) == (t.URI == ""):
		errs = append(errs, errors.New("Config: Target: exactly one of Service and URI must be set"))
	case t.Service != nil && t.Service.Name == "":
		errs = append(errs, errors.New("Config: Target.Service.Name is required"))
	case t.URI != "":
		if _, _, err := t.HostPort(); err != nil {
			errs = append(errs, err)
		}
	}
	if t != nil && t.Timeout != "" {
		if d, err := time.ParseDuration(t.Timeout); err != nil || d <= 0 {
			errs = append(errs, fmt.Errorf("Config: Target.Timeout %q: must be a duration such as 1s", t.Timeout))
		}
	}
	if h := c.HTTPService; h != nil {
		for what, list := range h.matches() {
			for i, m := range list {
				if err := m.validate(); err != nil {
					errs = append(errs, fmt.Errorf("Config.HttpService.%s[%d]: %w", what, i, err))
				}
			}
		}
	}
	return errors.Join(errs...)
}

func (h *AuthzByHTTP) matches() map[string][]AuthzMatch {
	out := map[string][]AuthzMatch{}
	if r := h.AuthorizationRequest; r != nil {
		out["AuthorizationRequest.AllowedHeaders"] = r.AllowedHeaders
	}
	if r := h.AuthorizationResponse; r != nil {
		out["AuthorizationResponse.AllowedUpstreamHeaders"] = r.AllowedUpstreamHeaders
		out["AuthorizationResponse.AllowedUpstreamHeadersToAppend"] = r.AllowedUpstreamHeadersToAppend
		out["AuthorizationResponse.AllowedClientHeaders"] = r.AllowedClientHeaders
		out["AuthorizationResponse.AllowedClientHeadersOnSuccess"] = r.AllowedClientHeadersOnSuccess
	}
	return out
}

func (m *AuthzMatch) validate() error {
	set := 0
	for _, text := range []string{m.Exact, m.Prefix, m.Suffix, m.Contains, m.SafeRegex} {
		if text != "" {
			set++
		}
	}
	if set != 1 {
		return errors.New("exactly one of Exact, Prefix, Suffix, Contains and SafeRegex must be set")
	}
	if m.SafeRegex != "" {
		return validRegex("SafeRegex", m.SafeRegex)
	}
	return nil
}

// Target is who is asked; nil when nothing says so.
func (c *AuthzConfig) Target() *AuthzTarget {
	switch {
	case c.GrpcService != nil:
		return c.GrpcService.Target
	case c.HTTPService != nil:
		return c.HTTPService.Target
	}
	return nil
}

// HostPort is where a target that is no service listens.
func (t *AuthzTarget) HostPort() (host string, port int, err error) {
	text := strings.TrimPrefix(t.URI, "http://")
	colon := max(strings.LastIndexByte(text, ':'), 0)
	host = strings.TrimSuffix(strings.TrimPrefix(text[:colon], "["), "]")
	port, err = strconv.Atoi(strings.TrimPrefix(text[colon:], ":"))
	if err != nil || host == "" || strings.Contains(host, "/") || port < 1 || port > 65535 {
		return "", 0, fmt.Errorf("Config: Target.URI %q: must be host:port", t.URI)
	}
	return host, port, nil
}

// Within is how long an answer may take.
func (t *AuthzTarget) Within() time.Duration {
	if d, err := time.ParseDuration(t.Timeout); err == nil && d > 0 {
		return d
	}
	return time.Second
}
