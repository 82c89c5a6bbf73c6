package entry

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Actions of an intention.
const (
	Allow = "allow"
	Deny  = "deny"
)

// Intentions is service-intentions: who may reach the service Name ("*": any).
type Intentions struct {
	Common
	Sources []*Source
	JWT     *IntentionJWT `json:",omitempty"`
}

// Source is one rule: what holds for traffic from Name.
type Source struct {
	Name             string
	Peer             string            `json:",omitempty"`
	Namespace        string            `json:",omitempty"`
	Partition        string            `json:",omitempty"`
	SamenessGroup    string            `json:",omitempty"`
	Action           string            `json:",omitempty"`
	Permissions      []Permission      `json:",omitempty"`
	Precedence       int               `json:",omitempty"`
	Type             string            `json:",omitempty"`
	Description      string            `json:",omitempty"`
	LegacyID         string            `json:",omitempty"`
	LegacyMeta       map[string]string `json:",omitempty"`
	LegacyCreateTime *time.Time        `json:",omitempty"`
	LegacyUpdateTime *time.Time        `json:",omitempty"`
}

// Permission allows or denies the requests that it matches; the first that matches wins.
type Permission struct {
	Action string
	HTTP   *HTTPPermission `json:",omitempty"`
	JWT    *IntentionJWT   `json:",omitempty"`
}

// HTTPPermission picks requests.
type HTTPPermission struct {
	PathExact  string             `json:",omitempty"`
	PathPrefix string             `json:",omitempty"`
	PathRegex  string             `json:",omitempty"`
	Header     []HeaderPermission `json:",omitempty"`
	Methods    []string           `json:",omitempty"`
}

// HeaderPermission picks by one header.
type HeaderPermission struct {
	Name       string
	Present    bool   `json:",omitempty"`
	Exact      string `json:",omitempty"`
	Prefix     string `json:",omitempty"`
	Suffix     string `json:",omitempty"`
	Contains   string `json:",omitempty"`
	Regex      string `json:",omitempty"`
	Invert     bool   `json:",omitempty"`
	IgnoreCase bool   `json:",omitempty"`
}

// IntentionJWT names the providers whose tokens count.
type IntentionJWT struct {
	Providers []IntentionProvider `json:",omitempty"`
}

// IntentionProvider is one of them, with what its claims must say.
type IntentionProvider struct {
	Name         string        `json:",omitempty"`
	VerifyClaims []VerifyClaim `json:",omitempty"`
}

// VerifyClaim is one claim.
type VerifyClaim struct {
	Path  []string `json:",omitempty"`
	Value string   `json:",omitempty"`
}

// Precedence of an intention from source to destination: 9 when both are exact,
// 8 for an exact destination, 6 for an exact source, 5 for none.
func Precedence(source, destination string) int {
	switch {
	case source != "*" && destination != "*":
		return 9
	case destination != "*":
		return 8
	case source != "*":
		return 6
	}
	return 5
}

// Normalize implements Entry: sources come in the order in which they are evaluated.
func (e *Intentions) Normalize() {
	for _, s := range e.Sources {
		if s == nil {
			continue
		}
		s.Precedence = Precedence(s.Name, e.Name)
		if s.Type == "" {
			s.Type = "consul"
		}
		for _, p := range s.Permissions {
			if p.HTTP != nil {
				p.HTTP.normalize()
			}
		}
	}
	slices.SortStableFunc(e.Sources, func(a, b *Source) int {
		if a == nil || b == nil {
			return 0
		}
		return cmp.Or(cmp.Compare(b.Precedence, a.Precedence), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Peer, b.Peer))
	})
}

func (p *HTTPPermission) normalize() {
	for i := range p.Methods {
		p.Methods[i] = upper(p.Methods[i])
	}
}

func upper(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'a' && c <= 'z' {
			b[i] = c - 'a' + 'A'
		}
	}
	return string(b)
}

// Validate implements Entry.
func (e *Intentions) Validate() error {
	errs := []error{e.validate("")}
	if len(e.Sources) == 0 {
		errs = append(errs, errors.New("at least one source is required"))
	}
	seen := map[[2]string]bool{}
	for i, s := range e.Sources {
		path := fmt.Sprintf("Sources[%d]", i)
		if s == nil || s.Name == "" {
			errs = append(errs, fmt.Errorf("%s.Name is required", path))
			continue
		}
		if at := [2]string{s.Name, s.Peer}; seen[at] {
			errs = append(errs, fmt.Errorf("%s defines %q more than once", path, s.Name))
		} else {
			seen[at] = true
		}
		errs = append(errs, s.validate(path))
	}
	return errors.Join(errs...)
}

func (s *Source) validate(path string) error {
	errs := []error{oneOf(path+".Type", s.Type, "consul")}
	if s.Name == "*" && s.Peer == "*" {
		errs = append(errs, fmt.Errorf("%s.Peer: cannot use wildcard \"*\"", path))
	}
	switch {
	case s.Action != "" && len(s.Permissions) > 0:
		errs = append(errs, fmt.Errorf("%s.Action must be omitted if Permissions are specified", path))
	case s.Action == "" && len(s.Permissions) == 0:
		errs = append(errs, fmt.Errorf("%s.Action must be set to allow or deny", path))
	case s.Action != "":
		errs = append(errs, oneOf(path+".Action", s.Action, Allow, Deny))
	}
	if len(s.Description) > 512 {
		errs = append(errs, fmt.Errorf("%s.Description exceeds maximum length 512", path))
	}
	for i, p := range s.Permissions {
		at := fmt.Sprintf("%s.Permissions[%d]", path, i)
		errs = append(errs, oneOf(at+".Action", p.Action, Allow, Deny))
		if p.HTTP == nil && p.JWT == nil {
			errs = append(errs, fmt.Errorf("%s.HTTP is required", at))
		}
		if p.HTTP != nil {
			errs = append(errs, p.HTTP.validate(at+".HTTP"))
		}
	}
	return errors.Join(errs...)
}

func (p *HTTPPermission) validate(path string) error {
	m := HTTPMatch{PathExact: p.PathExact, PathPrefix: p.PathPrefix, PathRegex: p.PathRegex, Methods: p.Methods}
	errs := []error{m.validate(path)}
	for i, h := range p.Header {
		at := fmt.Sprintf("%s.Header[%d]", path, i)
		if h.Name == "" {
			errs = append(errs, fmt.Errorf("%s missing required Name field", at))
		}
		if count(h.Present, h.Exact != "", h.Prefix != "", h.Suffix != "", h.Contains != "", h.Regex != "") != 1 {
			errs = append(errs, fmt.Errorf("%s should contain exactly one of Present, Exact, Prefix, Suffix, Contains, or Regex",
				at))
		}
		errs = append(errs, goodRegex(at+".Regex", h.Regex))
	}
	if p.PathExact == "" && p.PathPrefix == "" && p.PathRegex == "" && len(p.Header) == 0 && len(p.Methods) == 0 {
		errs = append(errs, fmt.Errorf("%s should not be empty", path))
	}
	return errors.Join(errs...)
}
