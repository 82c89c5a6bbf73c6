package telemetry

import (
	"slices"
	"strings"
)

// Naming turns the names in the code into those that operators see, and says which
// of them are shown at all. It is immutable; Reload replaces it.
type Naming struct {
	prefix string // with its dot, "consul."
	host   string // with its dot, or "" when host names are switched off
	label  *Label // of the host, on all series; nil without enable_hostname_label
	rules  []prefixRule
	allow  bool // what happens to names that no rule covers
}

type prefixRule struct {
	prefix string
	allow  bool
}

func newNaming(s Settings, host string) *Naming {
	n := &Naming{prefix: "consul.", allow: s.FilterDefault == nil || *s.FilterDefault}
	if s.MetricsPrefix != "" {
		n.prefix = strings.TrimSuffix(s.MetricsPrefix, ".") + "."
	}
	switch {
	case host == "":
	case s.EnableHostnameLabel:
		n.label = &Label{"host", host}
	case !s.DisableHostname:
		n.host = host + "."
	}
	for _, rule := range s.PrefixFilter {
		if len(rule) > 1 && (rule[0] == '+' || rule[0] == '-') {
			n.rules = append(n.rules, prefixRule{rule[1:], rule[0] == '+'})
		}
	}
	return n
}

// foreign is the beginning of names that dashboards of another system know: they stand without the process's prefix.
const foreign = "nomad.client."

// before is what stands before a series' name.
func (n *Naming) before(s *Series) string {
	if strings.HasPrefix(s.Name, foreign) {
		return ""
	}
	return n.prefix
}

// Allowed reports whether the prefix filter lets the series through. Rules match
// against the name with its prefix; of those that match the longest decides, and of two
// equally long ones the blocking one. A gauge also answers to its name with the host.
func (n *Naming) Allowed(s *Series) bool {
	if len(n.rules) == 0 {
		return n.allow
	}
	plain, full := n.Plain(s), n.Name(s)
	longest, allow := -1, n.allow
	for _, rule := range n.rules {
		if !strings.HasPrefix(plain, rule.prefix) && !strings.HasPrefix(full, rule.prefix) {
			continue
		}
		if len(rule.prefix) > longest || (len(rule.prefix) == longest && !rule.allow) {
			longest, allow = len(rule.prefix), rule.allow
		}
	}
	return allow
}

// Name is the name with prefix and, for gauges unless switched off, the host:
// consul.host1.runtime.alloc_bytes, consul.raft.apply.
func (n *Naming) Name(s *Series) string {
	if s.Kind == KindGauge {
		return n.before(s) + n.host + s.Name
	}
	return n.before(s) + s.Name
}

// Labels are the series' labels, and the host's where the settings want it on all of them. Do not change the slice.
func (n *Naming) Labels(s *Series) []Label {
	if n.label == nil || slices.ContainsFunc(s.Labels, func(l Label) bool { return l.Name == n.label.Name }) {
		return s.Labels
	}
	return append(slices.Clip(s.Labels), *n.label)
}

// Plain is the name with the prefix alone, as Prometheus shows it.
func (n *Naming) Plain(s *Series) string { return n.before(s) + s.Name }
