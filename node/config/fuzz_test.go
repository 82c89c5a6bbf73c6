package config

import (
	"encoding/json"
	"strings"
	"testing"
)

// load runs text through everything that a file goes through. Nothing may panic,
// and JSON of what was parsed must parse to the same again.
func load(t *testing.T, text []byte, format string) {
	tree, err := parse(text, format)
	if err == nil {
		again, err := json.Marshal(plain(tree))
		if err != nil {
			t.Fatalf("not JSON: %v", err)
		}
		if _, err := parse(again, "json"); err != nil && !strings.Contains(err.Error(), "given twice") {
			t.Fatalf("%s: %v", again, err)
		}
	}
	c := &Config{loaded: loaded{origins: map[string]string{}}}
	l := &loader{cfg: c, schema: schemaOf(c)}
	l.bytes("fuzz", text, format)
	if err != nil && len(l.problems) == 0 {
		t.Fatalf("%v was not reported", err)
	}
}

func FuzzHCL(f *testing.F) {
	for _, seed := range []string{
		`node_name = "a"`, `ports { http = 1 https = -1 }`,
		`service { name = "web" check { args = ["a", "b"] interval = "10s" } }`,
		`service "x" { }`, "x = <<EOF\nhi\nEOF\n", `a = [[[[1]]]]`, `acl = { tokens = { master = "x" } }`,
		`acl { tokens { } } acl { }`, `a = 0x1F b = 1e3 c = -2`,
		`"${` + "`", strings.Repeat("[", 200), strings.Repeat("a{", 200),
		`node_meta { a = 1 b = true } dns_config { service_ttl { "*" = "1s" } }`, "/* \" */ [[", "\ufeffa = 1",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) { load(t, text, "hcl") })
}

func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"ports":{"http":1}}`, `{"segments":null,"services":[{"name":"a"}]}`, `{"service":{"name":"a","checks":[{}]}}`,
		`{"a":1,"a":2}`, `[1]`, `{"node_meta":[{"a":"b"}]}`,
		`{"bind_addr":3,"retry_join":"x","log_json":"yes"}`, strings.Repeat(`{"a":`, 200),
		`{"acl":[{"tokens":{"master":"x"}}]} 1`, `{"ports":{"http":1e99}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) { load(t, text, "json") })
}

// TestBounds: size and depth are refused before they cost anything.
func TestBounds(t *testing.T) {
	for _, tt := range []struct{ text, format, want string }{
		{strings.Repeat("[", 1<<20), "json", "nests deeper"},
		{"a = " + strings.Repeat("[", 1<<20), "hcl", "nests deeper"},
		{strings.Repeat("a {", 1<<20), "hcl", "nests deeper"},
		{strings.Repeat(" ", maxFileBytes+1), "hcl", "is larger than"},
		{`{"a":1}`, "toml", "unknown format"},
	} {
		if _, err := parse([]byte(tt.text), tt.format); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.20q as %s: %v, want %s", tt.text, tt.format, err, tt.want)
		}
	}
}
