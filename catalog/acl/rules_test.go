package acl

import (
	"reflect"
	"strings"
	"testing"

	"corbel.dev/corbel/kit/errkind"
)

func TestParse(t *testing.T) {
	want := []Rule{
		{Resource: Key, Prefix: true, Name: "foo/", Level: List},
		{Resource: Key, Name: "foo/secret", Level: Deny},
		{Resource: Service, Name: "web", Level: Write, Intentions: Read},
		{Resource: Session, Prefix: true, Name: "", Level: Read},
		{Resource: Operator, Level: Read},
	}
	for name, text := range map[string]string{
		"hcl": `
			# a comment { with [ brackets
			key_prefix "foo/" { policy = "list" }
			key "foo/secret" {
				policy = "deny"
			}
			service "web" { policy = "write", intentions = "read" }
			session_prefix "" { policy = "read" }
			operator = "read"`,
		"hcl assigned": `key_prefix = { "foo/" = { policy = "list" } }
			key = { "foo/secret" = { policy = "deny" } }
			service = { web = { policy = "write" intentions = "read" } }
			"session_prefix" "" { policy = "read" }
			operator = "read"`,
		"json": `{"key_prefix": {"foo/": {"policy": "list"}}, "key": {"foo/secret": {"policy": "deny"}},
			"service": {"web": {"policy": "write", "intentions": "read"}}, "session_prefix": {"": {"policy": "read"}}, "operator": "read"}`,
		"json lists": `{"key_prefix": [{"foo/": [{"policy": "list"}]}], "key": [{"foo/secret": {"policy": "deny"}}],
			"service": {"web": [{"policy": "write"}, {"intentions": "read"}]}, "session_prefix": {"": {"policy": "read"}}, "operator": "read"}`,
	} {
		got, err := Parse(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for r := Agent; r < resourceCount; r++ {
		text := r.String() + ` = "read"`
		if r.named() {
			text = r.String() + ` "n" { policy = "read" } ` + r.String() + `_prefix "p" { policy = "write" }`
		}
		if _, err := Parse(text); (err != nil) != (r == Intention || r.single()) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{"", " \n", "{}", "# nothing"} {
		if got, err := Parse(text); err != nil || len(got) != 0 {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, says := range map[string]string{
		`keys "a" { policy = "read" }`:                                `1:1: "keys" is no resource`,
		"key \"a\" {\n  police = \"read\"\n}":                         `2:3: key "a" has no key "police"`,
		`key "a" { policy = "list" } service "a" { policy = "list" }`: `service "a" policy is "list": use deny, read or write`,
		`key "a" { policy = "READ" }`:                                 `use deny, read, list or write`,
		`key "a" { intentions = "read" policy = "read" }`:             `no key "intentions"`,
		`key "a" {}`:                                                   `needs a policy`,
		`key "a" "b" { policy = "read" }`:                              `takes one name`,
		`key { policy = "read" }`:                                      `needs a name`,
		`key = "read"`:                                                 `needs a name`,
		`operator "a" { policy = "read" }`:                             `takes no name`,
		`operator_prefix = "read"`:                                     `is no resource`,
		`operator = read`:                                              ``,
		`operator = 1`:                                                 `is no string`,
		`operator = "list"`:                                            `use deny, read or write`,
		`operator = "read" operator = "write"`:                         `already set`,
		`intention "a" { policy = "read" }`:                            `is no resource`,
		`namespace_prefix "a" { policy = "read" }`:                     `is no resource`,
		`key "a" { policy = "read" policy = "write" }`:                 `already set`,
		`key "a" { policy { } }`:                                       `holds a block`,
		`key "a" { policy = ["read"] }`:                                `holds a block`,
		`key "a" {`:                                                    ``,
		`{"keys": {"a": {"policy": "read"}}}`:                          `is no resource`,
		`{"key": {"a": {"policy": "read"}}, "key": {}}`:                `the key "key" is there twice`,
		`{"key": {"a": {"policy": "read"}, "a": {"policy": "write"}}}`: `the key "a" is there twice`,
		`{"key": {"a": {"policy": "read", "policy": "write"}}}`:        `the key "policy" is there twice`,
		`{"key": {"a": {"policy": 1}}}`:                                `is no string`,
		`{"key": {"a": "read"}}`:                                       `an object is expected`,
		`{"key": 7}`:                                                   `an object is expected`,
		`{"operator": "read"} x`:                                       ``,
		`{"operator": "read"`:                                          ``,
		"{\"operator\": \"read\", \"key\": {\"\xff\": {\"policy\":\"read\"}}}": `UTF-8`,
		strings.Repeat(`a {`, 100):   `nest deeper`,
		strings.Repeat(`a = [`, 100): `nest deeper`,
	} {
		got, err := Parse(text)
		if err == nil || !errkind.Is(err, errkind.Invalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, %v; want %q", text, got, err, says)
		}
	}
	if _, err := Parse(strings.Repeat(" ", MaxRulesBytes+1)); !errkind.Is(err, errkind.TooLarge) {
		t.Error(err)
	}
}

func TestTemplates(t *testing.T) {
	for _, tpl := range Templates {
		name := ""
		if tpl.NeedsName {
			name = "web-1"
		}
		text, err := Expand(tpl.Name, name)
		if err != nil {
			t.Fatal(err)
		}
		if rules, err := Parse(text); err != nil || len(rules) == 0 || strings.Contains(text, "{{") {
			t.Errorf("%s: %v %v\n%s", tpl.Name, rules, err, text)
		}
		if tpl.NeedsName {
			if _, err := Expand(tpl.Name, `a" { policy = "write" } key_prefix "`); err == nil {
				t.Error("a name broke out of its quotes")
			}
		}
	}
	for name, ok := range map[string]bool{"a": true, "a-b_c9": true, "": false, "A": false, "-a": false, "a-": false,
		"a.b":                    false,
		strings.Repeat("a", 257): false, "a\n": false} {
		if ValidIdentityName(name) != ok {
			t.Errorf("%q", name)
		}
	}
	for text, l := range map[string]Level{GlobalManagementRules: Write, GlobalReadOnlyRules: Read} {
		rules, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		a := Compile(Deny, rules)
		for r := Agent; r < resourceCount; r++ {
			if r.single() {
				continue // what other rules give
			}
			if !a.AllowBelow(r, "", l) || l == Read && a.AllowAny(r, Write) {
				t.Errorf("%v at %v", r, l)
			}
		}
		if a.Class() != "" {
			t.Error("whoever sees all must be of the common class")
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(GlobalManagementRules)
	f.Add(`key_prefix "a" { policy = "list" } service "b" { policy = "read" intentions = "deny" } acl = "write"`)
	f.Add(`{"key": {"a": {"policy": "read"}}, "operator": "read", "service": [{"x": [{"policy": "write"}]}]}`)
	f.Add("key \"a\" { policy = <<EOF\nread\nEOF\n}")
	f.Fuzz(func(t *testing.T, text string) {
		rules, err := Parse(text)
		if err != nil {
			if k := errkind.Of(err); k != errkind.Invalid && k != errkind.TooLarge {
				t.Fatal("kind", k, err)
			}
			return
		}
		for _, r := range rules {
			if r.Resource == NoResource || r.Level == Unset || !r.Resource.named() && (r.Name != "" || r.Prefix) ||
				r.Level == List && r.Resource != Key || r.Intentions == List {
				t.Fatalf("%+v from %q", r, text)
			}
		}
		again := Compile(Deny, rules, rules)
		if a := Compile(Deny, rules); a.Class() != again.Class() {
			t.Fatal("saying it twice is not saying it once")
		}
	})
}
