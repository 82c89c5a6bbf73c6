package spec

import (
	"maps"
	"strings"
	"testing"
)

// TestParseVariable: both forms of items, and what is refused with its place.
func TestParseVariable(t *testing.T) {
	want := map[string]string{"user": "u", "port": "5432", "text": "a\nb\n"}
	for _, text := range []string{
		"path = \"app/db\"\nnamespace = \"web\"\nitems {\n user = \"u\"\n port = 5432\n text = <<E\na\nb\nE\n}\n",
		"path = \"app/db\"\nnamespace = \"web\"\nmodify_index = 4\n" +
			"items = { user = \"u\", \"port\" = 5432, text = \"a\\nb\\n\" }\n",
	} {
		v, err := ParseVariable([]byte(text), "x.nv.hcl")
		if err != nil || v.Path != "app/db" || v.Namespace != "web" || !maps.Equal(v.Items, want) {
			t.Errorf("%s: %+v %v", text, v, err)
		}
	}
	for text, says := range map[string]string{
		"path = upper(\"a\")":              "as it is",
		"path = \"a${b}\"":                 "as it is",
		"items = [1]":                      "no object",
		"items { a = [for x in [1]: x] }":  "as it is",
		"items { a = 1 }\nitems { a = 2 }": "twice",
		"items {\n b {\n}\n}":              "no block but items",
		"color = \"red\"":                  "\"color\" is unknown",
		"path = ":                          "x.nv.hcl:1",
		strings.Repeat("a {", 200):         "nested too deep",
	} {
		if _, err := ParseVariable([]byte(text), "x.nv.hcl"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}

// FuzzParseVariable: whatever a file holds, it is read or refused.
func FuzzParseVariable(f *testing.F) {
	f.Add("path = \"a\"\nitems { b = \"c\" }")
	f.Add("items = { (a) = 1 }")
	f.Fuzz(func(t *testing.T, text string) {
		if v, err := ParseVariable([]byte(text), "f"); (v == nil) == (err == nil) {
			t.Error(v, err)
		}
	})
}
