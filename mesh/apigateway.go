package mesh

import (
	"slices"
	"strings"

	"corbel.dev/corbel/catalog/entry"
	"corbel.dev/corbel/catalog/gateway"
)

// API is what an api gateway lets in from outside of the mesh.
type API struct {
	Defaults     *entry.IngressDefaults `json:",omitempty"`
	ExtAuthz     *entry.Toggle          `json:",omitempty"`
	Listeners    []APIListener
	Certificates []APICertificate `json:",omitempty"`
	Problems     []string         `json:",omitempty"`
}

// APIListener is one listener with its routes.
type APIListener struct {
	Name         string
	Port         int
	Protocol     string // http, tcp
	Hostname     string // "*" for all
	TLS          *entry.TLSDirection
	Certificates []string   `json:",omitempty"` // names of API.Certificates; with any the listener speaks TLS
	Routes       []APIRoute `json:",omitempty"` // of http
	Service      string     `json:",omitempty"` // of tcp; "": nothing is behind it
}

// APIRoute says where requests for some hosts go. Rules are in the order in which they are looked at.
type APIRoute struct {
	Hosts []string
	Rules []APIRule
}

// APIRule sends requests that Match fits to Services.
type APIRule struct {
	Match       *entry.RouteMatch // nil: all
	Destination *entry.RouteDestination
	Services    []APIService
	ExtAuthz    *entry.Toggle `json:",omitempty"`
}

// APIService is a service behind a rule, and its share.
type APIService struct {
	Name            string
	Weight          int
	RequestHeaders  *entry.HeaderModifiers
	ResponseHeaders *entry.HeaderModifiers
}

// APICertificate is what a listener shows: PEM, or paths of files on the gateway's host.
type APICertificate struct {
	Name      string
	Cert, Key string
	Files     bool `json:",omitempty"`
}

// api is the view of an api gateway's entry.
func (m *Maker) api(e *entry.API) *API {
	out := &API{Defaults: e.Defaults, ExtAuthz: e.ExtAuthz}
	routes := m.routes()
	for i := range e.Listeners {
		l := &e.Listeners[i]
		if why := gateway.Unusable(m.get, l); why != "" {
			out.Problems = append(out.Problems, "listener "+l.Name+": "+why)
			continue
		}
		v := APIListener{Name: l.Name, Port: l.Port, Protocol: l.Protocol, Hostname: l.Hostname,
			TLS: &entry.TLSDirection{TLSMinVersion: l.TLS.MinVersion, TLSMaxVersion: l.TLS.MaxVersion,
				CipherSuites: l.TLS.CipherSuites}}
		if v.Hostname == "" {
			v.Hostname = "*"
		}
		for _, c := range l.TLS.Certificates {
			v.Certificates = append(v.Certificates, m.certificate(out, c))
		}
		for _, r := range routes.OfHTTP(e.Name, l) {
			v.Routes = append(v.Routes, APIRoute{Hosts: gateway.Hosts(l, r), Rules: apiRules(r)})
		}
		for _, r := range routes.OfTCP(e.Name, l) {
			if v.Service == "" && len(r.Services) > 0 {
				v.Service = r.Services[0].Name
			}
		}
		out.Listeners = append(out.Listeners, v)
	}
	return out
}

func (m *Maker) routes() *gateway.Routes {
	if m.Routes != nil {
		return m.Routes()
	}
	return gateway.RoutesOf(m.State, m.get)
}

// certificate takes a certificate that is there into the view, once, and returns its name.
func (m *Maker) certificate(out *API, c entry.Reference) string {
	v := APICertificate{Name: c.Kind + "/" + c.Name}
	switch e := m.get(c.Kind, c.Name).(type) {
	case *entry.Certificate:
		v.Cert, v.Key = e.Certificate, e.PrivateKey
	case *entry.CertificateFiles:
		v.Cert, v.Key, v.Files = e.Certificate, e.PrivateKey, true
	}
	if !slices.Contains(out.Certificates, v) {
		out.Certificates = append(out.Certificates, v)
	}
	return v.Name
}

// apiRules are the rules of a route, one for each match.
func apiRules(r *entry.HTTP) []APIRule {
	var list []APIRule
	for i := range r.Rules {
		rule := &r.Rules[i]
		one := APIRule{Destination: destination(&rule.Filters), ExtAuthz: rule.Filters.ExtAuthz}
		one.Destination.RequestHeaders, one.Destination.ResponseHeaders = modifiers(rule.Filters.Headers),
			modifiers(rule.ResponseFilters.Headers)
		for j := range rule.Services {
			s := &rule.Services[j]
			one.Services = append(one.Services, APIService{Name: s.Name, Weight: s.Weight,
				RequestHeaders: modifiers(s.Filters.Headers), ResponseHeaders: modifiers(s.ResponseFilters.Headers)})
			if u := s.Filters.URLRewrite; u != nil {
				one.Destination.PrefixRewrite = u.Path
			}
		}
		for j := range rule.Matches {
			each := one
			each.Match = &entry.RouteMatch{HTTP: apiMatch(&rule.Matches[j])}
			list = append(list, each)
		}
		if len(rule.Matches) == 0 {
			list = append(list, one)
		}
	}
	return list
}

func destination(f *entry.HTTPFilters) *entry.RouteDestination {
	d := &entry.RouteDestination{}
	if f.URLRewrite != nil {
		d.PrefixRewrite = f.URLRewrite.Path
	}
	if t := f.TimeoutFilter; t != nil {
		d.RequestTimeout, d.IdleTimeout = t.RequestTimeout, t.IdleTimeout
	}
	if t := f.RetryFilter; t != nil {
		d.NumRetries, d.RetryOn, d.RetryOnStatusCodes, d.RetryOnConnectFailure = t.NumRetries, t.RetryOn,
			t.RetryOnStatusCodes, t.RetryOnConnectFailure
	}
	return d
}

// modifiers puts the filters of a list together, later ones over earlier ones.
func modifiers(list []entry.HTTPHeaderFilter) *entry.HeaderModifiers {
	if len(list) == 0 {
		return nil
	}
	m := &entry.HeaderModifiers{Add: map[string]string{}, Set: map[string]string{}}
	for _, f := range list {
		for k, v := range f.Add {
			m.Add[k] = v
		}
		for k, v := range f.Set {
			m.Set[k] = v
		}
		m.Remove = append(m.Remove, f.Remove...)
	}
	return m
}

func apiMatch(a *entry.APIMatch) *entry.HTTPMatch {
	h := &entry.HTTPMatch{}
	switch a.Path.Match {
	case "exact":
		h.PathExact = a.Path.Value
	case "prefix":
		h.PathPrefix = a.Path.Value
	case "regex":
		h.PathRegex = a.Path.Value
	}
	if a.Method != "" && a.Method != "all" {
		h.Methods = []string{strings.ToUpper(a.Method)}
	}
	for _, v := range a.Headers {
		one := entry.HeaderMatch{Name: v.Name}
		switch v.Match {
		case "exact":
			one.Exact = v.Value
		case "prefix":
			one.Prefix = v.Value
		case "suffix":
			one.Suffix = v.Value
		case "regex":
			one.Regex = v.Value
		default:
			one.Present = true
		}
		h.Header = append(h.Header, one)
	}
	for _, v := range a.Query {
		one := entry.QueryParamMatch{Name: v.Name}
		switch v.Match {
		case "exact":
			one.Exact = v.Value
		case "regex":
			one.Regex = v.Value
		default:
			one.Present = true
		}
		h.QueryParam = append(h.QueryParam, one)
	}
	return h
}
