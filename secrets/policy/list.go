package policy

import "slices"

// Listed is what a set allows, pattern by pattern, as the resultant ACL shows it.
type Listed struct {
	Root  bool
	Exact map[string][]string // path to capabilities
	Globs map[string][]string // patterns, without the '*' at their end
}

// List lists the rules of the set.
func (a *ACL) List() Listed {
	l := Listed{Root: a.root, Exact: map[string][]string{}, Globs: map[string][]string{}}
	a.list(&l, nil)
	if a.under != nil {
		a.under.list(&l, a)
	}
	return l
}

func (a *ACL) list(l *Listed, over *ACL) {
	add := func(into map[string][]string, text string, r *rule) {
		if over != nil && over.rule(r.Pattern) != nil {
			return
		}
		into[text] = r.words()
	}
	for text, r := range a.exact {
		add(l.Exact, text, r)
	}
	for _, g := range a.groups {
		for _, rules := range g.literal {
			for _, r := range rules {
				text := r.Pattern
				if r.pattern.prefix {
					text = text[:len(text)-1]
				}
				add(l.Globs, text, r)
			}
		}
	}
}

// words are the names of a rule's capabilities, sorted; "deny" stands alone.
func (r *rule) words() []string {
	if r.Capabilities&Deny != 0 || r.Capabilities == 0 {
		return []string{"deny"}
	}
	var out []string
	for word, c := range capabilities {
		if r.Capabilities&c != 0 {
			out = append(out, word)
		}
	}
	slices.Sort(out)
	return out
}
