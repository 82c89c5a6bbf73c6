package policy

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// RootName is the policy that allows everything.
const RootName = "root"

// ACL is a compiled set of policies.
type ACL struct {
	root   bool
	params bool // some rule looks at parameters
	exact  map[string]*rule
	groups []group // patterns, the later first wildcard first
	under  *ACL    // the rules that do not depend on who asks; nil: all are here
}

// group is the patterns whose first wildcard is at one place, by what is before it.
type group struct {
	at      int
	literal map[string][]*rule // the better first
}

// rule is what all policies of the set say about one pattern.
type rule struct {
	Path
	pattern pattern
	names   []string // of the policies, in order
}

// pattern is a path with wildcards, taken apart.
type pattern struct {
	segments []string // "+" is any; the last of a prefix pattern is a beginning
	prefix   bool
	plus     int
	first    int // place of the first wildcard
}

func newPattern(text string) (p pattern, wild bool) {
	body, prefix := strings.CutSuffix(text, "*")
	p = pattern{segments: strings.Split(body, "/"), prefix: prefix, first: len(body)}
	at := 0
	for _, s := range p.segments {
		if s == "+" {
			p.plus++
			p.first = min(p.first, at)
		}
		at += len(s) + 1
	}
	return p, prefix || p.plus > 0
}

func (p *pattern) match(path string) bool {
	for i, s := range p.segments {
		last := i == len(p.segments)-1
		if last && p.prefix && s != "+" {
			return strings.HasPrefix(path, s)
		}
		here, rest, more := strings.Cut(path, "/")
		if (s == "+" && here == "") || (s != "+" && s != here) {
			return false
		}
		if last {
			return !more
		}
		if !more {
			return false
		}
		path = rest
	}
	return false
}

// better orders rules by which one counts when both match (contract 2.4).
func better(a, b *rule) int {
	return cmp.Or(
		cmp.Compare(b.pattern.first, a.pattern.first),
		byBool(a.pattern.prefix, b.pattern.prefix),
		cmp.Compare(a.pattern.plus, b.pattern.plus),
		cmp.Compare(len(b.Pattern), len(a.Pattern)),
		strings.Compare(b.Pattern, a.Pattern),
	)
}

func byBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// Resolve gives the value of a variable of a path's template, like "identity.entity.id".
type Resolve func(variable string) (value string, ok bool)

// Compile makes the ACL of policies. Rules with templates take their values
// from resolve, and are left out where one is missing or would change the meaning of the path.
func Compile(policies []*Policy, resolve Resolve) *ACL {
	acl := &ACL{exact: map[string]*rule{}}
	all := map[string]*rule{}
	for _, p := range policies {
		if p.Name == RootName {
			acl.root = true
		}
		for _, path := range p.Paths {
			text, ok := expand(path.Pattern, resolve)
			if !ok {
				continue
			}
			path.Pattern = text
			if r := all[text]; r != nil {
				r.merge(&path, p.Name)
				continue
			}
			all[text] = newRule(path, p.Name)
		}
	}
	acl.index(all)
	return acl
}

// With returns the set with those rules of its policies that have templates: a few of somebody's own
// over the set, which is shared. It judges as Compile with resolve does.
func (a *ACL) With(policies []*Policy, resolve Resolve) *ACL {
	if a.root {
		return a
	}
	own := map[string]*rule{}
	for _, p := range policies {
		for _, path := range p.Paths {
			if !templated(path.Pattern) {
				continue
			}
			text, ok := expand(path.Pattern, resolve)
			if !ok {
				continue
			}
			path.Pattern = text
			r := own[text]
			if r == nil {
				if r = a.rule(text).clone(); r == nil {
					own[text] = newRule(path, p.Name)
					continue
				}
				own[text] = r
			}
			r.merge(&path, p.Name)
		}
	}
	if len(own) == 0 {
		return a
	}
	over := &ACL{exact: map[string]*rule{}, params: a.params, under: a}
	over.index(own)
	return over
}

func newRule(path Path, name string) *rule {
	r := &rule{Path: path, names: []string{name}}
	r.Allowed, r.Denied, r.Required = maps.Clone(path.Allowed), maps.Clone(path.Denied), slices.Clone(path.Required)
	return r
}

func (r *rule) clone() *rule {
	if r == nil {
		return nil
	}
	next := newRule(r.Path, "")
	next.names = slices.Clone(r.names)
	return next
}

// rule returns what the set itself says about exactly this pattern, or nil.
func (a *ACL) rule(text string) *rule {
	p, wild := newPattern(text)
	if !wild {
		return a.exact[text]
	}
	for _, g := range a.groups {
		if g.at == p.first {
			for _, r := range g.literal[text[:p.first]] {
				if r.Pattern == text {
					return r
				}
			}
		}
	}
	return nil
}

func (a *ACL) index(all map[string]*rule) {
	var wild []*rule
	for text, r := range all {
		a.params = a.params || r.Allowed != nil || r.Denied != nil || r.Required != nil
		p, is := newPattern(text)
		if !is {
			a.exact[text] = r
			continue
		}
		r.pattern = p
		wild = append(wild, r)
	}
	slices.SortFunc(wild, better)
	for _, r := range wild {
		if n := len(a.groups); n == 0 || a.groups[n-1].at != r.pattern.first {
			a.groups = append(a.groups, group{at: r.pattern.first, literal: map[string][]*rule{}})
		}
		literal := a.groups[len(a.groups)-1].literal
		literal[r.Pattern[:r.pattern.first]] = append(literal[r.Pattern[:r.pattern.first]], r)
	}
}

// merge adds what another policy says about the same pattern.
func (r *rule) merge(p *Path, name string) {
	if !slices.Contains(r.names, name) {
		r.names = append(r.names, name)
	}
	if r.Capabilities&Deny != 0 || p.Capabilities&Deny != 0 {
		r.Capabilities = Deny
		return
	}
	r.Capabilities |= p.Capabilities
	r.MinWrap, r.MaxWrap = lower(r.MinWrap, p.MinWrap), lower(r.MaxWrap, p.MaxWrap)
	r.Allowed, r.Denied = mergeParameters(r.Allowed, p.Allowed), mergeParameters(r.Denied, p.Denied)
	for _, name := range p.Required {
		if !slices.Contains(r.Required, name) {
			r.Required = append(r.Required, name)
		}
	}
}

// lower is the lesser of two limits, where 0 is none.
func lower(a, b time.Duration) time.Duration {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}

func mergeParameters(into, from map[string][]any) map[string][]any {
	if from == nil {
		return into
	}
	if into == nil {
		return maps.Clone(from)
	}
	for name, values := range from {
		old, was := into[name]
		if was && (len(old) == 0 || len(values) == 0) {
			into[name] = nil // any value
			continue
		}
		into[name] = append(slices.Clip(old), values...)
	}
	return into
}

func templated(pattern string) bool { return strings.Contains(pattern, "{{") }

// expand puts values in the place of variables.
func expand(text string, resolve Resolve) (string, bool) {
	if !templated(text) {
		return text, true
	}
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "{{")
		out.WriteString(before)
		if !found {
			return out.String(), true
		}
		variable, after, closed := strings.Cut(rest, "}}")
		if !closed || resolve == nil {
			return "", false
		}
		value, ok := resolve(strings.TrimSpace(variable))
		if !ok || value == "" || strings.ContainsAny(value, "/+*") {
			return "", false // a value that is a path or a wildcard would widen the rule
		}
		out.WriteString(value)
		text = after
	}
}
