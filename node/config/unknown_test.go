package config

import (
	"strings"
	"testing"
)

// TestUnknownKeys: a mistyped key is told with its line and what was perhaps meant.
func TestUnknownKeys(t *testing.T) {
	for text, want := range map[string]string{
		"node_name = \"a\"\nserverr = true\n": "2: invalid config key serverr; did you mean server?",
		"ports {\n  http = 1\n}\nports {\n  # htttp\n  htttp = 1\n}\n": "6: invalid " +
			"config key ports.htttp; did you mean ports.http?",
		"{\n\"Ports\": {\n\"HTTTP\": 1}}": "3: invalid config key ports.htttp; did you mean ports.http?",
		"colourful_things = 1":            "1: invalid config key colourful_things",
	} {
		l := &loader{cfg: &Config{}}
		l.cfg.loaded.origins = map[string]string{}
		l.schema = schemaOf(l.cfg)
		l.bytes("x.hcl", []byte(text), "")
		if got := strings.TrimPrefix(strings.Join(l.problems, "\n"), "x.hcl:"); got != want {
			t.Errorf("%q:\n got %s\nwant %s", text, got, want)
		}
	}
}
