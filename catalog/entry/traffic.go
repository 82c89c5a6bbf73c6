package entry

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"corbel.dev/corbel/kit/pattern"
)

// Subset is a part of a service's instances.
type Subset struct {
	Filter      string `json:",omitempty"`
	OnlyPassing bool   `json:",omitempty"`
}

// Redirect makes one service another.
type Redirect struct {
	Service       string `json:",omitempty"`
	ServiceSubset string `json:",omitempty"`
	Namespace     string `json:",omitempty"`
	Partition     string `json:",omitempty"`
	Datacenter    string `json:",omitempty"`
	Peer          string `json:",omitempty"`
	SamenessGroup string `json:",omitempty"`
}

// FailoverTarget is one place to go on at.
type FailoverTarget struct {
	Service       string `json:",omitempty"`
	ServiceSubset string `json:",omitempty"`
	Namespace     string `json:",omitempty"`
	Partition     string `json:",omitempty"`
	Datacenter    string `json:",omitempty"`
	Peer          string `json:",omitempty"`
}

// Failover says where to go on when no instance is healthy.
type Failover struct {
	Service       string           `json:",omitempty"`
	ServiceSubset string           `json:",omitempty"`
	Namespace     string           `json:",omitempty"`
	Datacenters   []string         `json:",omitempty"`
	Targets       []FailoverTarget `json:",omitempty"`
	Policy        *FailoverPolicy  `json:",omitempty"`
	SamenessGroup string           `json:",omitempty"`
}

// RingHash configures the policies ring_hash and maglev.
type RingHash struct {
	MinimumRingSize uint64 `json:",omitempty"`
	MaximumRingSize uint64 `json:",omitempty"`
}

// LeastRequest configures the policy least_request.
type LeastRequest struct {
	ChoiceCount uint32 `json:",omitempty"`
}

// CookieConfig is the cookie that is hashed.
type CookieConfig struct {
	Session bool   `json:",omitempty"`
	TTL     Nanos  `json:",omitempty"`
	Path    string `json:",omitempty"`
}

// HashPolicy says what of a request chooses the instance.
type HashPolicy struct {
	Field        string        `json:",omitempty"`
	FieldValue   string        `json:",omitempty"`
	CookieConfig *CookieConfig `json:",omitempty"`
	SourceIP     bool          `json:",omitempty"`
	Terminal     bool          `json:",omitempty"`
}

// LoadBalancer is how instances are chosen.
type LoadBalancer struct {
	Policy             string        `json:",omitempty"`
	RingHashConfig     *RingHash     `json:",omitempty"`
	LeastRequestConfig *LeastRequest `json:",omitempty"`
	HashPolicies       []HashPolicy  `json:",omitempty"`
}

// Resolver is service-resolver.
type Resolver struct {
	Common
	DefaultSubset        string              `json:",omitempty"`
	Subsets              map[string]Subset   `json:",omitempty"`
	Redirect             *Redirect           `json:",omitempty"`
	Failover             map[string]Failover `json:",omitempty"`
	ConnectTimeout       Duration            `json:",omitempty"`
	RequestTimeout       Duration            `json:",omitempty"`
	PrioritizeByLocality *LocalityPolicy     `json:",omitempty"`
	LoadBalancer         *LoadBalancer       `json:",omitempty"`
}

// Normalize implements Entry.
func (e *Resolver) Normalize() {}

var subsetName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

// Validate implements Entry.
func (e *Resolver) Validate() error {
	errs := []error{e.validate("")}
	for name := range e.Subsets {
		if len(name) > 63 || !subsetName.MatchString(name) {
			errs = append(errs, fmt.Errorf("Subset %q is not a valid DNS label",
				name)) //nolint:staticcheck // begins with a field's name
		}
	}
	known := func(subset string) bool { _, ok := e.Subsets[subset]; return ok || subset == "" }
	if !known(e.DefaultSubset) {
		errs = append(errs, fmt.Errorf("DefaultSubset %q is not a valid subset",
			e.DefaultSubset)) //nolint:staticcheck // begins with a field's name
	}
	if e.ConnectTimeout < 0 || e.RequestTimeout < 0 {
		errs = append(errs,
			errors.New(
				"ConnectTimeout and RequestTimeout must not be below zero")) //nolint:staticcheck // begins with a field's name
	}
	if r := e.Redirect; r != nil {
		if len(e.Failover) > 0 {
			errs = append(errs,
				errors.New("Redirect and Failover cannot both be set")) //nolint:staticcheck // begins with a field's name
		}
		if *r == (Redirect{}) {
			errs = append(errs, errors.New("Redirect is empty")) //nolint:staticcheck // begins with a field's name
		}
		if r.ServiceSubset != "" && r.Service == "" {
			errs = append(errs,
				errors.New(
					"Redirect.ServiceSubset defined without Redirect.Service")) //nolint:staticcheck // begins with a field's name
		}
	}
	for subset, f := range e.Failover {
		path := fmt.Sprintf("Failover[%q]", subset)
		if subset != "*" && (subset == "" || !known(subset)) {
			errs = append(errs, fmt.Errorf("%s: not a valid subset", path))
		}
		errs = append(errs, f.validate(path, e.Name, known))
	}
	return errors.Join(append(errs, e.LoadBalancer.validate())...)
}

func (f *Failover) validate(path, self string, known func(string) bool) error {
	if len(f.Targets) > 0 && (f.Service != "" || f.ServiceSubset != "" || len(f.Datacenters) > 0) {
		return fmt.Errorf("%s: Targets cannot be set together with Service, ServiceSubset or Datacenters", path)
	}
	if len(f.Targets) == 0 && f.Service == "" && f.ServiceSubset == "" && len(f.Datacenters) == 0 {
		return fmt.Errorf("%s: one of Service, ServiceSubset, Datacenters or Targets is required", path)
	}
	if f.ServiceSubset != "" && (f.Service == "" || f.Service == self) && !known(f.ServiceSubset) {
		return fmt.Errorf("%s.ServiceSubset %q is not a valid subset of %q", path, f.ServiceSubset, self)
	}
	if slices.Contains(f.Datacenters, "") {
		return fmt.Errorf("%s.Datacenters: found empty datacenter", path)
	}
	return nil
}

func (l *LoadBalancer) validate() error {
	if l == nil {
		return nil
	}
	errs := []error{oneOf("LoadBalancer.Policy", l.Policy, "", "random", "round_robin", "least_request",
		"ring_hash", "maglev")}
	hashing := l.Policy == "ring_hash" || l.Policy == "maglev"
	if len(l.HashPolicies) > 0 && !hashing {
		errs = append(errs, fmt.Errorf("LoadBalancer.HashPolicies specified for non-hash-based Policy: %q",
			l.Policy)) //nolint:staticcheck // begins with a field's name
	}
	if l.RingHashConfig != nil && l.Policy != "ring_hash" {
		errs = append(errs, fmt.Errorf("LoadBalancer.RingHashConfig specified for incompatible Policy %q",
			l.Policy)) //nolint:staticcheck // begins with a field's name
	}
	if l.LeastRequestConfig != nil && l.Policy != "least_request" {
		errs = append(errs, fmt.Errorf("LoadBalancer.LeastRequestConfig specified for incompatible Policy %q",
			l.Policy)) //nolint:staticcheck // begins with a field's name
	}
	for i, h := range l.HashPolicies {
		path := fmt.Sprintf("LoadBalancer.HashPolicies[%d]", i)
		errs = append(errs, oneOf(path+".Field", h.Field, "", "header", "cookie", "query_parameter"))
		switch {
		case h.SourceIP && h.Field != "":
			errs = append(errs, fmt.Errorf("%s: a single hash policy cannot hash both a source address and a %q", path, h.Field))
		case !h.SourceIP && (h.Field == "" || h.FieldValue == ""):
			errs = append(errs, fmt.Errorf("%s: Field and FieldValue are required", path))
		}
		if h.CookieConfig != nil && h.Field != "cookie" {
			errs = append(errs, fmt.Errorf("%s: CookieConfig is for the Field \"cookie\"", path))
		}
	}
	return errors.Join(errs...)
}

// HeaderModifiers change headers on their way.
type HeaderModifiers struct {
	Add    map[string]string `json:",omitempty"`
	Set    map[string]string `json:",omitempty"`
	Remove []string          `json:",omitempty"`
}

// RouteMatch picks requests.
type RouteMatch struct {
	HTTP *HTTPMatch `json:",omitempty"`
}

// HTTPMatch picks by path, headers, query and method.
type HTTPMatch struct {
	PathExact       string            `json:",omitempty"`
	PathPrefix      string            `json:",omitempty"`
	PathRegex       string            `json:",omitempty"`
	CaseInsensitive bool              `json:",omitempty"`
	Header          []HeaderMatch     `json:",omitempty"`
	QueryParam      []QueryParamMatch `json:",omitempty"`
	Methods         []string          `json:",omitempty"`
}

// HeaderMatch picks by one header.
type HeaderMatch struct {
	Name    string
	Present bool   `json:",omitempty"`
	Exact   string `json:",omitempty"`
	Prefix  string `json:",omitempty"`
	Suffix  string `json:",omitempty"`
	Regex   string `json:",omitempty"`
	Invert  bool   `json:",omitempty"`
}

// QueryParamMatch picks by one parameter.
type QueryParamMatch struct {
	Name    string
	Present bool   `json:",omitempty"`
	Exact   string `json:",omitempty"`
	Regex   string `json:",omitempty"`
}

// RouteDestination is where matching requests go, and how.
type RouteDestination struct {
	Service               string           `json:",omitempty"`
	ServiceSubset         string           `json:",omitempty"`
	Namespace             string           `json:",omitempty"`
	Partition             string           `json:",omitempty"`
	PrefixRewrite         string           `json:",omitempty"`
	RequestTimeout        Duration         `json:",omitempty"`
	IdleTimeout           Duration         `json:",omitempty"`
	NumRetries            uint32           `json:",omitempty"`
	RetryOnConnectFailure bool             `json:",omitempty"`
	RetryOnStatusCodes    []uint32         `json:",omitempty"`
	RetryOn               []string         `json:",omitempty"`
	RequestHeaders        *HeaderModifiers `json:",omitempty"`
	ResponseHeaders       *HeaderModifiers `json:",omitempty"`
}

// Route is one rule of a Router; the first that matches wins.
type Route struct {
	Match       *RouteMatch       `json:",omitempty"`
	Destination *RouteDestination `json:",omitempty"`
}

// Router is service-router.
type Router struct {
	Common
	Routes []Route `json:",omitempty"`
}

// Normalize implements Entry.
func (e *Router) Normalize() {
	for _, r := range e.Routes {
		if r.Match != nil && r.Match.HTTP != nil {
			for i, m := range r.Match.HTTP.Methods {
				r.Match.HTTP.Methods[i] = strings.ToUpper(m)
			}
		}
	}
}

// Validate implements Entry.
func (e *Router) Validate() error {
	errs := []error{e.validate("")}
	for i, r := range e.Routes {
		path := fmt.Sprintf("Routes[%d]", i)
		rewritable := false
		if r.Match != nil && r.Match.HTTP != nil {
			rewritable = r.Match.HTTP.PathExact != "" || r.Match.HTTP.PathPrefix != ""
			errs = append(errs, r.Match.HTTP.validate(path))
		}
		if d := r.Destination; d != nil {
			if d.PrefixRewrite != "" && !rewritable {
				errs = append(errs, fmt.Errorf("%s cannot make use of PrefixRewrite without configuring either PathExact or "+
					"PathPrefix", path))
			}
			if slices.ContainsFunc(d.RetryOnStatusCodes, func(c uint32) bool { return c < 100 || c > 599 }) {
				errs = append(errs, fmt.Errorf("%s.Destination.RetryOnStatusCodes: codes must be 100 to 599", path))
			}
		}
	}
	return errors.Join(errs...)
}

func (m *HTTPMatch) validate(path string) error {
	var errs []error
	if count(m.PathExact != "", m.PathPrefix != "", m.PathRegex != "") > 1 {
		errs = append(errs, fmt.Errorf("%s should only contain at most one of PathExact, PathPrefix, or PathRegex", path))
	}
	for field, p := range map[string]string{"PathExact": m.PathExact, "PathPrefix": m.PathPrefix} {
		if p != "" && !strings.HasPrefix(p, "/") {
			errs = append(errs, fmt.Errorf("%s.%s doesn't start with '/': %q", path, field, p))
		}
	}
	errs = append(errs, goodRegex(path+".PathRegex", m.PathRegex))
	for i, h := range m.Header {
		at := fmt.Sprintf("%s.Header[%d]", path, i)
		if h.Name == "" {
			errs = append(errs, fmt.Errorf("%s missing required Name field", at))
		}
		if n := count(h.Present, h.Exact != "", h.Prefix != "", h.Suffix != "", h.Regex != ""); n != 1 {
			errs = append(errs, fmt.Errorf("%s should contain exactly one of Present, Exact, Prefix, Suffix, or Regex", at))
		}
		errs = append(errs, goodRegex(at+".Regex", h.Regex))
	}
	for i, p := range m.QueryParam {
		at := fmt.Sprintf("%s.QueryParam[%d]", path, i)
		if p.Name == "" {
			errs = append(errs, fmt.Errorf("%s missing required Name field", at))
		}
		if count(p.Present, p.Exact != "", p.Regex != "") != 1 {
			errs = append(errs, fmt.Errorf("%s should contain exactly one of Present, Exact, or Regex", at))
		}
		errs = append(errs, goodRegex(at+".Regex", p.Regex))
	}
	return errors.Join(append(errs, goodMethods(path, m.Methods))...)
}

func goodRegex(path, expr string) error {
	if _, err := pattern.Compile(expr); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE"}

func goodMethods(path string, list []string) error {
	seen := map[string]bool{}
	for _, m := range list {
		if !slices.Contains(methods, m) {
			return fmt.Errorf("%s.Methods contains an invalid method %q", path, m)
		}
		if seen[m] {
			return fmt.Errorf("%s.Methods contains %q more than once", path, m)
		}
		seen[m] = true
	}
	return nil
}

func count(list ...bool) int {
	n := 0
	for _, b := range list {
		if b {
			n++
		}
	}
	return n
}

// Split is one part of the traffic.
type Split struct {
	Weight          float32
	Service         string           `json:",omitempty"`
	ServiceSubset   string           `json:",omitempty"`
	Namespace       string           `json:",omitempty"`
	Partition       string           `json:",omitempty"`
	RequestHeaders  *HeaderModifiers `json:",omitempty"`
	ResponseHeaders *HeaderModifiers `json:",omitempty"`
}

// Splitter is service-splitter.
type Splitter struct {
	Common
	Splits []Split `json:",omitempty"`
}

// Normalize implements Entry: weights have steps of 0.01.
func (e *Splitter) Normalize() {
	for i := range e.Splits {
		e.Splits[i].Weight = float32(math.Round(float64(e.Splits[i].Weight)*100) / 100)
	}
}

// Validate implements Entry.
func (e *Splitter) Validate() error {
	errs := []error{e.validate("")}
	if len(e.Splits) == 0 {
		errs = append(errs, errors.New("no splits configured"))
	}
	sum := 0
	seen := map[[2]string]bool{}
	for i, s := range e.Splits {
		scaled := int(math.Round(float64(s.Weight) * 100))
		if scaled < 0 || scaled > 10000 {
			errs = append(errs, fmt.Errorf("Splits[%d].Weight %v: must be 0 to 100", i,
				s.Weight)) //nolint:staticcheck // begins with a field's name
		}
		sum += scaled
		to := [2]string{s.Service, s.ServiceSubset}
		if to[0] == "" {
			to[0] = e.Name
		}
		if seen[to] {
			errs = append(errs, fmt.Errorf("split destination occurs more than once: service=%q subset=%q", to[0], to[1]))
		}
		seen[to] = true
	}
	if sum != 10000 && len(e.Splits) > 0 {
		errs = append(errs, fmt.Errorf("the sum of all split weights must be 100, not %v", float64(sum)/100))
	}
	return errors.Join(errs...)
}
