package monitor

import (
	"maps"
	"strings"
)

// Redacted stands for a value that is not shown.
const Redacted = "REDACTED"

// defaultRedact are the names of labels and annotations that hide their values where an entity names none itself.
var defaultRedact = []string{"password", "passwd", "pass", "api_key", "api_token", "access_key", "secret_key",
	"private_key", "secret"}

// RedactMeta returns m with the values of sensitive labels and annotations replaced. m itself is not changed.
func RedactMeta(m Meta, names []string) Meta {
	if len(names) == 0 {
		names = defaultRedact
	}
	hide := make(map[string]bool, len(names))
	for _, n := range names {
		hide[plain(n)] = true
	}
	m.Labels, m.Annotations = redact(m.Labels, hide), redact(m.Annotations, hide)
	return m
}

func redact(in map[string]string, hide map[string]bool) map[string]string {
	var out map[string]string
	for k := range in {
		if !hide[plain(k)] {
			continue
		}
		if out == nil {
			out = maps.Clone(in)
		}
		out[k] = Redacted
	}
	if out == nil {
		return in
	}
	return out
}

// plain drops case and punctuation: API-Key is api_key.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'A' <= r && r <= 'Z':
			return r + 'a' - 'A'
		case r < 128 && !('a' <= r && r <= 'z' || '0' <= r && r <= '9'):
			return -1
		}
		return r
	}, name)
}
