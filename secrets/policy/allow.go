package policy

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Request is what is to be judged.
type Request struct {
	Path      string // without a leading slash; a list's ends in one
	Need      Capability
	Data      map[string]any // parameters as decoded from JSON: string, float64, bool, nil, lists, objects
	Wrap      time.Duration  // of the response; 0: not wrapped
	Protected bool           // the path needs sudo beside Need
}

// Verdict is the answer.
type Verdict struct {
	Allowed  bool
	Root     bool     // by the root policy
	Granting []string // the policies whose rule counted
}

// Allow judges a request. Its cost is a few look-ups, whatever the number of rules.
func (a *ACL) Allow(q *Request) Verdict {
	if a.root {
		return Verdict{Allowed: true, Root: true, Granting: []string{RootName}}
	}
	r := a.find(q.Path, q.Need&(List|Scan) != 0)
	if r == nil || r.Capabilities&Deny != 0 || r.Capabilities&q.Need == 0 || (q.Protected && r.Capabilities&Sudo == 0) {
		return Verdict{}
	}
	if (r.MaxWrap > 0 && (q.Wrap == 0 || q.Wrap > r.MaxWrap)) || (r.MinWrap > 0 && q.Wrap < r.MinWrap) {
		return Verdict{}
	}
	if q.Need&(Create|Read|Update|Patch) != 0 && !r.parametersAllow(q) {
		return Verdict{}
	}
	return Verdict{Allowed: true, Granting: r.names}
}

// find returns the rule that counts for the path, or nil.
func (a *ACL) find(path string, list bool) *rule {
	short, slash := strings.CutSuffix(path, "/")
	if r := a.exactly(path); r != nil {
		return r
	}
	if list && slash {
		if r := a.exactly(short); r != nil {
			return r
		}
	}
	if r := a.best(path); r != nil || !list || !slash {
		return r
	}
	return a.best(short)
}

func (a *ACL) exactly(path string) *rule {
	if r := a.exact[path]; r != nil || a.under == nil {
		return r
	}
	return a.under.exact[path]
}

func (a *ACL) best(path string) *rule {
	r := a.first(path)
	if a.under == nil {
		return r
	}
	if other := a.under.first(path); r == nil || (other != nil && better(other, r) < 0) {
		return other
	}
	return r
}

// first is the best of the set's own patterns.
func (a *ACL) first(path string) *rule {
	for _, g := range a.groups {
		if len(path) < g.at {
			continue
		}
		for _, r := range g.literal[path[:g.at]] {
			if r.pattern.match(path) {
				return r
			}
		}
	}
	return nil
}

// Capabilities lists what may be done at a path, sorted; "root" and "deny" stand alone.
func (a *ACL) Capabilities(path string) []string {
	if a.root {
		return []string{RootName}
	}
	r := a.find(path, true)
	if r == nil {
		return []string{"deny"}
	}
	return r.words()
}

// Root reports whether the root policy is in the set.
func (a *ACL) Root() bool { return a.root }

// AsksParameters reports whether some rule looks at a request's parameters: without one Request.Data is not needed.
func (a *ACL) AsksParameters() bool { return a.params && !a.root }

// Below reports whether anything is allowed at a path that begins with prefix:
// whether someone may know that a mount is there.
func (a *ACL) Below(prefix string) bool {
	if a.root {
		return true
	}
	return a.below(prefix, nil) || (a.under != nil && a.under.below(prefix, a))
}

// below looks at the set's own rules, but those that are in the place of which over has one.
func (a *ACL) below(prefix string, over *ACL) bool {
	may := func(r *rule) bool {
		return r.Capabilities != 0 && r.Capabilities&Deny == 0 && (over == nil || over.rule(r.Pattern) == nil)
	}
	for text, r := range a.exact {
		if may(r) && strings.HasPrefix(text+"/", prefix) {
			return true
		}
	}
	for _, g := range a.groups {
		for literal, rules := range g.literal {
			if (strings.HasPrefix(literal, prefix) || strings.HasPrefix(prefix, literal)) && slices.ContainsFunc(rules,
				func(r *rule) bool {
					return may(r) && r.pattern.reaches(prefix)
				}) {
				return true
			}
		}
	}
	return false
}

// reaches reports whether the pattern matches some path that begins with prefix.
func (p *pattern) reaches(prefix string) bool {
	parts := strings.Split(strings.TrimSuffix(prefix, "/"), "/")
	for i, part := range parts {
		if i >= len(p.segments) {
			return false
		}
		s := p.segments[i]
		if i == len(p.segments)-1 && p.prefix {
			return strings.HasPrefix(part, s) || s == "+"
		}
		if s != "+" && s != part {
			return false
		}
	}
	return len(p.segments) > len(parts) || len(parts) == len(p.segments)
}

func (r *rule) parametersAllow(q *Request) bool {
	names := make(map[string]any, len(q.Data))
	for name, value := range q.Data {
		names[strings.ToLower(name)] = value
	}
	for _, name := range r.Required {
		if _, ok := names[name]; !ok {
			return false
		}
	}
	if len(names) == 0 {
		return true
	}
	if _, all := r.Denied["*"]; all {
		return false
	}
	for name, value := range names {
		if values, ok := r.Denied[name]; ok && (len(values) == 0 || holds(values, value)) {
			return false
		}
	}
	if len(r.Allowed) == 0 {
		return true
	}
	_, rest := r.Allowed["*"]
	for name, value := range names {
		values, ok := r.Allowed[name]
		if (!ok && !rest) || (ok && len(values) > 0 && !holds(values, value)) {
			return false
		}
	}
	return true
}

// holds reports whether a parameter's value is in a rule's list.
func holds(list []any, value any) bool {
	return slices.ContainsFunc(list, func(want any) bool { return same(want, value) })
}

// same compares a rule's value with a request's. Numbers and booleans may come as strings.
func same(want, got any) bool {
	if list, ok := got.([]any); ok {
		wanted, ok := want.([]any)
		return ok && slices.EqualFunc(wanted, list, same)
	}
	w, ok := scalar(want)
	if !ok {
		return false
	}
	g, ok := scalar(got)
	return ok && glob(w, g)
}

func scalar(v any) (string, bool) {
	switch x := v.(type) {
	case string:
		return x, true
	case bool:
		return strconv.FormatBool(x), true
	case float64:
		return strconv.FormatFloat(x, 'g', -1, 64), true
	}
	return "", false
}

// glob matches with '*' at either end of the pattern.
func glob(pattern, text string) bool {
	if pattern == "*" {
		return true
	}
	middle, head := strings.CutPrefix(pattern, "*")
	middle, tail := strings.CutSuffix(middle, "*")
	switch {
	case head && tail:
		return strings.Contains(text, middle)
	case head:
		return strings.HasSuffix(text, middle)
	case tail:
		return strings.HasPrefix(text, middle)
	}
	return pattern == text
}
