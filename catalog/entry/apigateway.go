package entry

import (
	"crypto/tls"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"corbel.dev/corbel/kit/pattern"
)

// The kinds of api gateways and of what belongs to them.
const (
	APIGateway            = "api-gateway"
	HTTPRoute             = "http-route"
	TCPRoute              = "tcp-route"
	InlineCertificate     = "inline-certificate"
	FileSystemCertificate = "file-system-certificate"
	// BoundAPIGateway is what is bound to an api gateway. Nobody writes it: catalog/gateway works it out.
	BoundAPIGateway = "bound-api-gateway"
)

// Reference names another entry, or a listener of a gateway.
type Reference struct {
	Kind        string
	Name        string
	SectionName string `json:",omitempty"`
	Namespace   string `json:",omitempty"`
	Partition   string `json:",omitempty"`
}

// Status says how an entry stands to those that it names. It is worked out when the entry is read; what is written is
// not kept.
type Status struct {
	Conditions []Condition
}

// Condition is one statement about an entry.
type Condition struct {
	Type               string
	Status             string // True, False
	Reason             string
	Message            string
	Resource           *Reference
	LastTransitionTime *string
}

// APIListener is one port of an api gateway.
type APIListener struct {
	Name     string
	Hostname string `json:",omitempty"`
	Port     int
	Protocol string
	TLS      APITLS
	Override *APIPolicy `json:",omitempty"`
	Default  *APIPolicy `json:",omitempty"`
}

// APITLS is the TLS of a listener; without certificates it has none.
type APITLS struct {
	Certificates []Reference `json:",omitempty"`
	MinVersion   string      `json:",omitempty"`
	MaxVersion   string      `json:",omitempty"`
	CipherSuites []string    `json:",omitempty"`
}

// APIPolicy would check tokens, which is not done: it may only be empty.
type APIPolicy struct {
	JWT *JWTRequirement `json:",omitempty"`
}

// JWTRequirement names the providers of tokens that a request needs.
type JWTRequirement struct {
	Providers []JWTRequirementProvider `json:",omitempty"`
}

// JWTRequirementProvider is one of them.
type JWTRequirementProvider struct {
	Name string
}

// API is api-gateway.
type API struct {
	Common
	Listeners []APIListener
	Defaults  *IngressDefaults `json:",omitempty"` // hold for each service behind it
	ExtAuthz  *Toggle          `json:",omitempty"` // nil: whoever judges requests judges all
	Status    *Status          `json:",omitempty"`
}

// Normalize implements Entry.
func (e *API) Normalize() {
	e.Status = nil
	for i := range e.Listeners {
		l := &e.Listeners[i]
		l.Protocol = strings.ToLower(l.Protocol)
		for j := range l.TLS.Certificates {
			if c := &l.TLS.Certificates[j]; c.Kind == "" {
				c.Kind = InlineCertificate
			}
		}
	}
}

var sectionForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// Validate implements Entry.
func (e *API) Validate() error {
	errs := []error{e.validate("")}
	names := map[string]bool{}
	ports := map[int]*APIListener{}
	for i := range e.Listeners {
		l := &e.Listeners[i]
		path := fmt.Sprintf("Listeners[%d]", i)
		errs = append(errs, oneOf(path+".Protocol", l.Protocol, "http", "tcp"),
			oneOf(path+".TLS.MinVersion", l.TLS.MinVersion, tlsVersions...), oneOf(path+".TLS.MaxVersion", l.TLS.MaxVersion,
				tlsVersions...),
			validHost(path+".Hostname", l.Hostname))
		if l.Name != "" && !sectionForm.MatchString(l.Name) {
			errs = append(errs, fmt.Errorf("%s.Name %q: must be letters, digits and dashes", path, l.Name))
		}
		if names[l.Name] {
			errs = append(errs, fmt.Errorf("%s.Name: multiple listeners with the name %q", path, l.Name))
		}
		names[l.Name] = true
		if l.Port < 1 || l.Port > 65535 {
			errs = append(errs, fmt.Errorf("%s.Port %d: must be 1 to 65535", path, l.Port))
		}
		if other := ports[l.Port]; other != nil && (other.Protocol != l.Protocol || l.Protocol == "tcp" ||
			(len(other.TLS.Certificates) > 0) != (len(l.TLS.Certificates) > 0)) {
			errs = append(errs, fmt.Errorf("%s.Port %d: listeners %q and %q may share it only when both are http, with TLS "+
				"both or neither", path, l.Port, other.Name, l.Name))
		}
		ports[l.Port] = l
		for j, c := range l.TLS.Certificates {
			errs = append(errs, oneOf(fmt.Sprintf("%s.TLS.Certificates[%d].Kind", path, j), c.Kind, InlineCertificate,
				FileSystemCertificate))
			if c.Name == "" {
				errs = append(errs, fmt.Errorf("%s.TLS.Certificates[%d].Name is required", path, j))
			}
		}
		for what, p := range map[string]*APIPolicy{"Override": l.Override, "Default": l.Default} {
			if p != nil && p.JWT != nil {
				errs = append(errs, fmt.Errorf("%s.%s.JWT: tokens are not checked at gateways", path, what))
			}
		}
	}
	return errors.Join(errs...)
}

// validHost takes a name of hosts: "*" alone or as its first label.
func validHost(field, host string) error {
	if host == "" || host == "*" {
		return nil
	}
	name := strings.TrimPrefix(host, "*.")
	if len(name) > 253 || strings.ContainsAny(name, "*:/ ") || name == "" {
		return fmt.Errorf("%s %q: must be a host without a port, with * as its first label alone", field, host)
	}
	return nil
}

// HTTPService is where requests of a rule go.
type HTTPService struct {
	Name            string
	Weight          int
	Filters         HTTPFilters
	ResponseFilters HTTPResponseFilters
	Namespace       string `json:",omitempty"`
	Partition       string `json:",omitempty"`
}

// HTTPFilters change requests.
type HTTPFilters struct {
	Headers       []HTTPHeaderFilter `json:",omitempty"`
	URLRewrite    *URLRewrite        `json:",omitempty"`
	RetryFilter   *RetryFilter       `json:",omitempty"`
	TimeoutFilter *TimeoutFilter     `json:",omitempty"`
	JWT           *JWTRequirement    `json:",omitempty"`
	ExtAuthz      *Toggle            `json:",omitempty"` // of a rule alone; nil: as the gateway has it
}

// HTTPResponseFilters change responses.
type HTTPResponseFilters struct {
	Headers []HTTPHeaderFilter `json:",omitempty"`
}

// HTTPHeaderFilter changes headers.
type HTTPHeaderFilter struct {
	Add    map[string]string `json:",omitempty"`
	Remove []string          `json:",omitempty"`
	Set    map[string]string `json:",omitempty"`
}

// URLRewrite replaces what of the path was matched.
type URLRewrite struct{ Path string }

// RetryFilter says when a request is sent again.
type RetryFilter struct {
	NumRetries            uint32   `json:",omitempty"`
	RetryOn               []string `json:",omitempty"`
	RetryOnStatusCodes    []uint32 `json:",omitempty"`
	RetryOnConnectFailure bool     `json:",omitempty"`
}

// TimeoutFilter bounds requests.
type TimeoutFilter struct {
	RequestTimeout Duration
	IdleTimeout    Duration
}

// APIMatch picks requests.
type APIMatch struct {
	Headers []APIValueMatch `json:",omitempty"`
	Method  string          `json:",omitempty"`
	Path    APIPathMatch
	Query   []APIValueMatch `json:",omitempty"`
}

// APIPathMatch picks by path.
type APIPathMatch struct{ Match, Value string }

// APIValueMatch picks by a header or a parameter.
type APIValueMatch struct{ Match, Name, Value string }

// APIRule sends requests that one of Matches fits (all, without any) to Services.
type APIRule struct {
	Filters         HTTPFilters
	ResponseFilters HTTPResponseFilters
	Matches         []APIMatch `json:",omitempty"`
	Services        []HTTPService
}

// HTTP is http-route.
type HTTP struct {
	Common
	Parents   []Reference
	Rules     []APIRule
	Hostnames []string `json:",omitempty"`
	Status    *Status  `json:",omitempty"`
}

// Normalize implements Entry.
func (e *HTTP) Normalize() {
	e.Status = nil
	parents(e.Parents)
	for i := range e.Rules {
		r := &e.Rules[i]
		for j := range r.Services {
			if r.Services[j].Weight == 0 && len(r.Services) == 1 {
				r.Services[j].Weight = 1
			}
		}
		for j := range r.Matches {
			if m := &r.Matches[j]; m.Path.Match == "" {
				m.Path.Match = "prefix"
				if m.Path.Value == "" {
					m.Path.Value = "/"
				}
			}
		}
	}
}

func parents(list []Reference) {
	for i := range list {
		if list[i].Kind == "" {
			list[i].Kind = APIGateway
		}
	}
}

func validParents(list []Reference) error {
	var errs []error
	for i, p := range list {
		errs = append(errs, oneOf(fmt.Sprintf("Parents[%d].Kind", i), p.Kind, APIGateway))
		if p.Name == "" {
			errs = append(errs, fmt.Errorf("Parents[%d].Name is required", i)) //nolint:staticcheck // begins with a field's name
		}
	}
	return errors.Join(errs...)
}

// maxServiceWeight bounds the weight of one of a rule's services.
const maxServiceWeight = 100_000

// Validate implements Entry.
func (e *HTTP) Validate() error {
	errs := []error{e.validate(""), validParents(e.Parents)}
	for i, h := range e.Hostnames {
		errs = append(errs, validHost(fmt.Sprintf("Hostnames[%d]", i), h))
	}
	for i := range e.Rules {
		r := &e.Rules[i]
		path := fmt.Sprintf("Rules[%d]", i)
		errs = append(errs, validFilters(path+".Filters", &r.Filters))
		for j := range r.Matches {
			errs = append(errs, r.Matches[j].validate(fmt.Sprintf("%s.Matches[%d]", path, j)))
		}
		for j := range r.Services {
			s := &r.Services[j]
			at := fmt.Sprintf("%s.Services[%d]", path, j)
			if s.Name == "" || s.Name == "*" {
				errs = append(errs, fmt.Errorf("%s.Name: must name a service", at))
			}
			if s.Weight < 0 || s.Weight > maxServiceWeight {
				errs = append(errs, fmt.Errorf("%s.Weight %d: must be 0 to %d", at, s.Weight, maxServiceWeight))
			}
			if s.Filters.RetryFilter != nil || s.Filters.TimeoutFilter != nil ||
				s.Filters.URLRewrite != nil && len(r.Services) > 1 {
				errs = append(errs, fmt.Errorf("%s.Filters: retries, timeouts and rewrites belong to the rule", at))
			}
			if s.Filters.ExtAuthz != nil {
				errs = append(errs, fmt.Errorf("%s.Filters.ExtAuthz: belongs to the rule", at))
			}
			errs = append(errs, validFilters(at+".Filters", &s.Filters))
		}
	}
	return errors.Join(errs...)
}

func validFilters(path string, f *HTTPFilters) error {
	if f.JWT != nil {
		return fmt.Errorf("%s.JWT: tokens are not checked at gateways", path)
	}
	return nil
}

func (m *APIMatch) validate(path string) error {
	errs := []error{oneOf(path+".Path.Match", m.Path.Match, "exact", "prefix", "regex"),
		oneOf(path+".Method", m.Method, "", "CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT",
			"TRACE", "all")}
	if m.Path.Match != "regex" && !strings.HasPrefix(m.Path.Value, "/") {
		errs = append(errs, fmt.Errorf("%s.Path.Value %q: must begin with /", path, m.Path.Value))
	}
	if m.Path.Match == "regex" {
		errs = append(errs, validRegex(path+".Path.Value", m.Path.Value))
	}
	for i, h := range m.Headers {
		errs = append(errs, h.validate(fmt.Sprintf("%s.Headers[%d]", path, i), "exact", "prefix", "suffix",
			"present", "regex"))
	}
	for i, q := range m.Query {
		errs = append(errs, q.validate(fmt.Sprintf("%s.Query[%d]", path, i), "exact", "present", "regex"))
	}
	return errors.Join(errs...)
}

func (v *APIValueMatch) validate(path string, how ...string) error {
	if v.Name == "" {
		return fmt.Errorf("%s.Name is required", path)
	}
	if !slices.Contains(how, v.Match) {
		return oneOf(path+".Match", v.Match, how...)
	}
	if v.Match == "regex" {
		return validRegex(path+".Value", v.Value)
	}
	return nil
}

func validRegex(field, text string) error {
	if _, err := pattern.Compile(text); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	return nil
}

// TCP is tcp-route.
type TCP struct {
	Common
	Parents  []Reference
	Services []TCPService
	Status   *Status `json:",omitempty"`
}

// TCPService is where connections go.
type TCPService struct {
	Name      string
	Namespace string `json:",omitempty"`
	Partition string `json:",omitempty"`
}

// Normalize implements Entry.
func (e *TCP) Normalize() { e.Status = nil; parents(e.Parents) }

// Validate implements Entry.
func (e *TCP) Validate() error {
	errs := []error{e.validate(""), validParents(e.Parents)}
	if len(e.Services) > 1 {
		errs = append(errs,
			errors.New(
				"Services: tcp-route currently only supports a single service")) //nolint:staticcheck // begins with a field's name
	}
	for i, s := range e.Services {
		if s.Name == "" || s.Name == "*" {
			errs = append(errs, fmt.Errorf("Services[%d].Name: must name a service",
				i)) //nolint:staticcheck // begins with a field's name
		}
	}
	return errors.Join(errs...)
}

// Certificate is inline-certificate: a certificate and its key, as PEM.
type Certificate struct {
	Common
	Certificate string
	PrivateKey  string
}

// Normalize implements Entry.
func (e *Certificate) Normalize() {}

// Validate implements Entry.
func (e *Certificate) Validate() error {
	errs := []error{e.validate("")}
	if _, err := tls.X509KeyPair([]byte(e.Certificate), []byte(e.PrivateKey)); err != nil {
		errs = append(errs, fmt.Errorf("Certificate and PrivateKey: %w",
			err)) //nolint:staticcheck // begins with a field's name
	}
	return errors.Join(errs...)
}

// CertificateFiles is file-system-certificate: paths on the gateway's host.
type CertificateFiles struct {
	Common
	Certificate string
	PrivateKey  string
}

// Normalize implements Entry.
func (e *CertificateFiles) Normalize() {}

// Validate implements Entry.
func (e *CertificateFiles) Validate() error {
	errs := []error{e.validate("")}
	if e.Certificate == "" || e.PrivateKey == "" {
		errs = append(errs,
			errors.New(
				"Certificate and PrivateKey are required: paths of files on the gateway's host")) //nolint:staticcheck // a field
	}
	return errors.Join(errs...)
}
