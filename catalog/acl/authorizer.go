package acl

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sort"
	"strings"
)

// Authorizer answers what one set of policies allows. It never changes.
type Authorizer struct {
	sets     [resourceCount]set
	scalars  [resourceCount]Level
	fallback Level // what holds where no rule speaks
	class    string
}

// set is the rules about one resource that has names.
type set struct {
	exact    map[string]Level
	names    []string // of exact, sorted
	prefixes []prefix // sorted by text
}

// prefix is a prefix rule. Above is the index of the longest other prefix that begins it, or -1.
type prefix struct {
	text  string
	level Level
	above int
}

// find returns what the rules say about name, Unset for nothing.
func (s *set) find(name string) Level {
	if l, ok := s.exact[name]; ok {
		return l
	}
	return s.findPrefix(name)
}

// findPrefix returns what the longest matching prefix rule says.
func (s *set) findPrefix(name string) Level {
	// All texts between name and the longest prefix of it begin with that prefix,
	// so it is the last text that is not after name, or one above that.
	low, high := 0, len(s.prefixes)
	for low < high {
		mid := int(uint(low+high) >> 1)
		if s.prefixes[mid].text <= name {
			low = mid + 1
		} else {
			high = mid
		}
	}
	for i := low - 1; i >= 0; i = s.prefixes[i].above {
		if strings.HasPrefix(name, s.prefixes[i].text) {
			return s.prefixes[i].level
		}
	}
	return Unset
}

// least returns the lowest level that a rule below prefix gives, or l.
func (s *set) least(below string, l Level) Level {
	i := sort.SearchStrings(s.names, below)
	for ; i < len(s.names) && strings.HasPrefix(s.names[i], below); i++ {
		l = min(l, s.exact[s.names[i]])
	}
	i, _ = slices.BinarySearchFunc(s.prefixes, below, func(p prefix, t string) int { return cmp.Compare(p.text, t) })
	for ; i < len(s.prefixes) && strings.HasPrefix(s.prefixes[i].text, below); i++ {
		l = min(l, s.prefixes[i].level)
	}
	return l
}

// most returns the highest level that any rule gives, or l.
func (s *set) most(l Level) Level {
	for _, e := range s.exact {
		l = max(l, e)
	}
	for _, p := range s.prefixes {
		l = max(l, p.level)
	}
	return l
}

// level returns what holds for one name, the default included.
func (a *Authorizer) level(r Resource, name string) Level {
	l := a.scalars[r]
	switch {
	case r.named():
		l = a.sets[r].find(name)
	case r == JobsNode:
		l = stronger(l, a.sets[Node].find(""))
	case r == JobsAgent:
		l = stronger(l, a.sets[Agent].find(""))
	case r == JobsOperator:
		l = stronger(l, a.scalars[Operator])
	}
	if l != Unset {
		return l
	}
	switch r {
	case Mesh, Peering: // operators had these rights before there were rules for them
		if l = a.scalars[Operator]; l != Unset {
			return l
		}
	case ACL:
		return Deny
	}
	return a.fallback
}

// Allow reports whether the policies allow l on the thing of that name.
func (a *Authorizer) Allow(r Resource, name string, l Level) bool {
	return r == NoResource || r < resourceCount && a.level(r, name) >= l
}

// AllowBelow reports whether l is allowed on each name that begins with prefix.
func (a *Authorizer) AllowBelow(r Resource, prefix string, l Level) bool {
	if !r.named() {
		return a.Allow(r, "", l)
	}
	s := &a.sets[r]
	most := s.findPrefix(prefix) // an exact rule for the prefix says nothing about what is below
	if most == Unset {
		most = a.fallback
	}
	return s.least(prefix, most) >= l
}

// AllowAny reports whether l is allowed on at least one name.
func (a *Authorizer) AllowAny(r Resource, l Level) bool {
	if !r.named() {
		return a.Allow(r, "", l)
	}
	if a.sets[r].most(Unset) >= l {
		return true
	}
	return a.level(r, "") >= l
}

// Class names what may be seen: authorizers of one class see the same of everything. The class of
// those that see all of the catalog is "".
func (a *Authorizer) Class() string { return a.class }

// Compile merges the rules of several policies. fallback, Write or Deny, is what holds where no rule speaks.
func Compile(fallback Level, policies ...[]Rule) *Authorizer {
	a := &Authorizer{fallback: fallback}
	for _, rule := range merge(policies) {
		if !rule.Resource.named() {
			a.scalars[rule.Resource] = rule.Level
			continue
		}
		a.sets[rule.Resource].add(rule)
		switch rule.Resource {
		case Service:
			rule.Resource, rule.Level = Intention, rule.intentions()
			a.sets[Intention].add(rule)
		case Jobs:
			a.single(rule, JobsList, JobsLifecycle)
		case Variable:
			a.single(rule, VariableList, VariableDestroy)
		}
	}
	for r := range a.sets {
		a.sets[r].link()
	}
	if !a.seesAll() {
		a.class = a.fingerprint()
	}
	return a
}

// single adds what a rule says about each of the single rights from first to last.
func (a *Authorizer) single(rule Rule, first, last Resource) {
	has := rule.rights()
	for r := first; r <= last; r++ {
		one := Rule{Resource: r, Prefix: rule.Prefix, Name: rule.Name, Level: None}
		switch {
		case rule.Level == Deny:
			one.Level = Deny
		case has&rightOf(r) != 0:
			one.Level = Write
		}
		a.sets[r].add(one)
	}
}

// intentions is the right on intentions: where nothing is said, whoever sees the service sees them.
func (r *Rule) intentions() Level {
	switch {
	case r.Intentions != Unset:
		return r.Intentions
	case r.Level == Deny:
		return Deny
	}
	return Read
}

// merge leaves one rule for each thing that is spoken about, in a fixed order.
func merge(policies [][]Rule) []Rule {
	var all []Rule
	for _, p := range policies {
		all = append(all, p...)
	}
	slices.SortStableFunc(all, func(a, b Rule) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), compareBool(a.Prefix, b.Prefix), cmp.Compare(a.Name, b.Name))
	})
	merged := all[:0]
	for _, r := range all {
		if n := len(merged); n > 0 && merged[n-1].Resource == r.Resource && merged[n-1].Prefix == r.Prefix &&
			merged[n-1].Name == r.Name {
			last := &merged[n-1]
			if has := last.rights() | r.rights(); last.Resource == Jobs || last.Resource == Variable {
				last.Can = has
			}
			last.Level, last.Intentions = stronger(last.Level, r.Level), stronger(last.Intentions, r.Intentions)
			continue
		}
		merged = append(merged, r)
	}
	return merged
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func (s *set) add(r Rule) {
	if r.Prefix {
		s.prefixes = append(s.prefixes, prefix{text: r.Name, level: r.Level, above: -1})
		return
	}
	if s.exact == nil {
		s.exact = map[string]Level{}
	}
	s.exact[r.Name] = r.Level
	s.names = append(s.names, r.Name)
}

// link finds for each prefix the one above it; rules come sorted.
func (s *set) link() {
	for i := range s.prefixes {
		for above := i - 1; above >= 0; above = s.prefixes[above].above {
			if strings.HasPrefix(s.prefixes[i].text, s.prefixes[above].text) {
				s.prefixes[i].above = above
				break
			}
		}
	}
}

// seesAll reports whether nothing in the catalog is hidden.
func (a *Authorizer) seesAll() bool {
	for _, r := range [...]Resource{Intention, Key, Node, Query, Service, Session} {
		if !a.AllowBelow(r, "", Read) {
			return false
		}
	}
	return true
}

// fingerprint is equal for equal rules, and for those alone.
func (a *Authorizer) fingerprint() string {
	h := sha256.New()
	b := []byte{byte(a.fallback)}
	text := func(s string, l Level) {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
		b = append(b, byte(l))
	}
	for r := range a.sets {
		s := &a.sets[r]
		b = binary.AppendUvarint(append(b, byte(a.scalars[r])), uint64(len(s.names)))
		for _, name := range s.names {
			text(name, s.exact[name])
		}
		b = binary.AppendUvarint(b, uint64(len(s.prefixes)))
		for _, p := range s.prefixes {
			text(p.text, p.level)
		}
		h.Write(b)
		b = b[:0]
	}
	return string(h.Sum(nil)[:16])
}
