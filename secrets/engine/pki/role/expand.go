package role

import (
	"slices"
	"strings"

	"corbel.dev/corbel/secrets"
)

// Expanded is the role with its templates filled in for who asks.
func (r *Role) Expanded(who secrets.Identity) *Role {
	if !r.DomainsTemplate && !r.URIsTemplate {
		return r
	}
	own := *r
	if r.DomainsTemplate {
		own.Domains = expand(r.Domains, who)
	}
	if r.URIsTemplate {
		own.URIs = expand(r.URIs, who)
	}
	return &own
}

// expand fills in templates. One that names what its caller does not have allows nothing, and neither does a value
// that would widen it: whoever chose their own name must not be able to choose a pattern.
func expand(list []string, who secrets.Identity) []string {
	var out []string
	for _, text := range list {
		if filled, ok := fill(text, who); ok {
			out = append(out, filled)
		}
	}
	return slices.Clip(out)
}

func fill(text string, who secrets.Identity) (string, bool) {
	var out strings.Builder
	for {
		before, rest, more := strings.Cut(text, "{{")
		out.WriteString(before)
		if !more {
			return out.String(), true
		}
		name, after, ok := strings.Cut(rest, "}}")
		if !ok || who == nil {
			return "", false
		}
		value, ok := who.Variable(strings.TrimSpace(name))
		if !ok || value == "" || strings.ContainsAny(value, "*{}") {
			return "", false
		}
		out.WriteString(value)
		text = after
	}
}
