package acl

import (
	"reflect"
	"strings"
	"testing"
)

// TestNomadRules: a block of a namespace with variables gives what it says; what has no counterpart is refused.
func TestNomadRules(t *testing.T) {
	got, err := Parse(`
		namespace "default" {
			policy = "read"
			variables {
				path "app/*" { capabilities = ["list", "read", "write", "destroy"] }
				path "app/db" { capabilities = ["deny"] }
				path "shared" { capabilities = ["read"] }
			}
		}
		namespace "team-*" { variables { path "*" { capabilities = ["read"] } } }`)
	want := []Rule{{Resource: Jobs, Name: "default", Level: Read},
		{Resource: Variable, Prefix: true, Name: "default/app/", Level: Write},
		{Resource: Variable, Name: "default/app/db", Level: Deny},
		{Resource: Variable, Name: "default/shared", Level: Read},
		{Resource: Variable, Prefix: true, Name: "team-", Level: Read}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v %v", got, err)
	}
	wrap := func(path string) string { return "namespace \"a\" {\n variables {\n" + path + "\n}\n}" }
	for text, says := range map[string]string{
		wrap(`path "a" { capabilities = ["write"] }`):                                "need read and write",
		wrap(`path "a" { capabilities = ["list"] }`):                                 "listing needs read",
		wrap(`path "a" { capabilities = ["read", "destroy"] }`):                      "need read and write",
		wrap(`path "a" { capabilities = ["fly"] }`):                                  `"fly" is no capability`,
		wrap(`path "a" { capabilities = "read" }`):                                   "are a list",
		wrap(`path "*/a" { capabilities = ["read"] }`):                               "at the end alone",
		wrap(`path "a" { policy = "read" }`):                                         "variables take path",
		`namespace "a*" { variables { path "b" { capabilities = ["read"] } } }`:      `only path "*"`,
		"namespace \"a\" {\n policy = \"scale\"\n variables {\n}\n}":                 "deny, read or write",
		"namespace \"a\" {\n capabilities = [\"read-job\"]\n variables {\n}\n}":      "no counterpart",
		"namespace \"a\" {\n key \"b\" {\n policy = \"read\"\n}\n variables {\n}\n}": "no block but variables",
		`namespace "a" { key "b" { policy = "read" } }`:                              "holds a block",
		"namespace \"a\" \"b\" {\n variables {\n}\n}":                                "one name",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}
