package policy

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

func compile(t testing.TB, resolve Resolve, texts ...string) *ACL {
	t.Helper()
	var list []*Policy
	for i, text := range texts {
		p, err := Parse(fmt.Sprintf("p%d", i), text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	return Compile(list, resolve)
}

func TestParse(t *testing.T) {
	for _, text := range []string{
		`path "secret/*" { capabilities = ["create", "read"] min_wrapping_ttl = "1s" max_wrapping_ttl = 60
		   required_parameters = ["A"] allowed_parameters = { "b" = ["x", 1, true], "*" = [] } denied_parameters = { c = [] } }`,
		`path = { "/secret/*" = { capabilities = ["create", "read"], min_wrapping_ttl = 1, max_wrapping_ttl = "60", required_parameters = ["A"],
		   allowed_parameters = { b = ["x", 1, true], "*" = [] }, denied_parameters = { "C" = [] } } }`,
		`{"name": "n", "path": {"secret/*": {"capabilities": ["read", "create"], "min_wrapping_ttl": "1s", "max_wrapping_ttl": "1m",
		   "required_parameters": ["a"], "allowed_parameters": {"B": ["x", 1, true], "*": []}, "denied_parameters": {"c": []}}}}`,
	} {
		p, err := Parse("Name", text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := fmt.Sprintf("%s %+v", p.Name, p.Paths)
		want := "name [{Pattern:secret/* Capabilities:6 Required:[a] Allowed:map[*:[] b:[x 1 true]] Denied:map[c:[]] " +
			"MinWrap:1s MaxWrap:1m0s}]"
		if got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`path "a" { capabilities = ["fly"] }`:                       `invalid capability "fly"`,
		`path "a" { capabilities = "read" }`:                        "list of words",
		`path "a/+*" { capabilities = ["read"] }`:                   "no wildcard",
		`paths "a" { capabilities = ["read"] }`:                     `invalid key "paths"`,
		`path "a" { capability = ["read"] }`:                        "no key of a path block",
		`path "a" { policy = "admin" }`:                             "none of deny",
		`path "a" { min_wrapping_ttl = "1m" max_wrapping_ttl = 5 }`: "cannot be less",
		`path "a" { max_wrapping_ttl = "soon" }`:                    "no duration",
		`path "a" { max_wrapping_ttl = -1 }`:                        "negative",
		`path "a" { capabilities = ["read"] capabilities = [] }`:    "already set",
		`path "a" { allowed_parameters = ["x"] }`:                   "block of parameters",
		`path "a" { allowed_parameters = { x = "y" } }`:             "list of values",
		`path "a"`:           "",
		`{"path": {"a": 1}}`: "takes a block",
		`{"path": {"a": {"policy": "read", "policy": "deny"}}}`: "twice",
		`{"path": {}} {"path": {}}`:                             "something follows",
		`{"path": [}`:                                           "",
		strings.Repeat("{", 100):                                "nests deeper",
	} {
		_, err := Parse("p", text)
		if !errkind.Is(err, errkind.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want something about %q", text, err, want)
		}
	}
}

func TestWhichRuleCounts(t *testing.T) {
	for _, test := range []struct{ path, rules, want string }{
		{"a/b", "a/b a/* +/b", "a/b"},
		{"a/b", "a/* a/+", "a/+"},             // not a prefix
		{"a/b", "+/b a/+", "a/+"},             // the later first wildcard
		{"a/b/c", "a/+/c a/+/+", "a/+/c"},     // fewer plus signs
		{"a/bcd", "a/b* a/bc*", "a/bc*"},      // later
		{"a/b/c/d", "a/+/* a/+/c*", "a/+/c*"}, // longer
		{"a/b", "a/* *", "a/*"},
		{"a/b/c", "a/+ *", "*"},
		{"a", "a/* a/+", ""},
		{"a/", "a/+", ""}, // a segment has something in it
		{"ab", "a*", "a*"},
		{"a/*", "a/*x a/*", "a/*"},
		{"a/*x", "a/*x", "a/*x"}, // a star that is not last is a star
		{"A/b", "a/b", ""},
	} {
		var text strings.Builder
		for rule := range strings.FieldsSeq(test.rules) {
			fmt.Fprintf(&text, "path %q { capabilities = [\"read\"] }\n", rule)
		}
		got := ""
		if r := compile(t, nil, text.String()).find(test.path, false); r != nil {
			got = r.Pattern
		}
		if got != test.want {
			t.Errorf("%s under %s: %q counts, want %q", test.path, test.rules, got, test.want)
		}
	}
}

func TestAllow(t *testing.T) {
	text := `
path "kv/*" { capabilities = ["read", "list", "create"] }
path "kv/closed" { capabilities = ["deny", "read"] }
path "folder" { capabilities = ["list"] }
path "both/" { capabilities = ["list"] }
path "sys/raw" { capabilities = ["read"] }
path "sys/seal" { capabilities = ["update", "sudo"] }
path "wrap" { capabilities = ["read"] min_wrapping_ttl = "10s" max_wrapping_ttl = "1m" }
path "max" { capabilities = ["read"] max_wrapping_ttl = "1m" }
path "need" { capabilities = ["update"] required_parameters = ["name"] }
path "only" { capabilities = ["update"] allowed_parameters = { "Color" = ["red", "bl*"], "n" = [5], "any" = [] } }
path "rest" { capabilities = ["update"] allowed_parameters = { "color" = ["red"], "*" = [] } denied_parameters = { "admin" = [], "level" = ["*root*"] } }
path "none" { capabilities = ["update"] denied_parameters = { "*" = [] } }
`
	acl := compile(t, nil, text)
	for _, test := range []struct {
		q    Request
		want bool
	}{
		{Request{Path: "kv/a", Need: Read}, true}, {Request{Path: "kv/a", Need: Update}, false},
		{Request{Path: "kv/", Need: List}, true},
		{Request{Path: "kv/closed", Need: Read}, false}, {Request{Path: "other", Need: Read}, false},
		{Request{Path: "folder/", Need: List}, true}, {Request{Path: "both/", Need: List}, true},
		{Request{Path: "folder/", Need: Read}, false},
		{Request{Path: "sys/raw", Need: Read, Protected: true}, false},
		{Request{Path: "sys/seal", Need: Update, Protected: true}, true},
		{Request{Path: "wrap", Need: Read}, false}, {Request{Path: "wrap", Need: Read, Wrap: 5 * time.Second}, false},
		{Request{Path: "wrap", Need: Read, Wrap: time.Minute}, true},
		{Request{Path: "wrap", Need: Read, Wrap: time.Hour}, false},
		{Request{Path: "max", Need: Read}, false}, {Request{Path: "max", Need: Read, Wrap: time.Second}, true},
		{Request{Path: "need", Need: Update}, false},
		{Request{Path: "need", Need: Update, Data: map[string]any{"NAME": "x"}}, true},
		{Request{Path: "only", Need: Update, Data: map[string]any{"color": "blue"}}, true},
		{Request{Path: "only", Need: Update, Data: map[string]any{"color": "green"}}, false},
		{Request{Path: "only", Need: Update, Data: map[string]any{"n": 5.0, "any": []any{"x"}}}, true},
		{Request{Path: "only", Need: Update, Data: map[string]any{"n": 6.0}}, false},
		{Request{Path: "only", Need: Update, Data: map[string]any{"other": "x"}}, false},
		{Request{Path: "only", Need: Update}, true},
		{Request{Path: "rest", Need: Update, Data: map[string]any{"color": "red", "other": map[string]any{}}}, true},
		{Request{Path: "rest", Need: Update, Data: map[string]any{"color": "blue"}}, false},
		{Request{Path: "rest", Need: Update, Data: map[string]any{"Admin": "no"}}, false},
		{Request{Path: "rest", Need: Update, Data: map[string]any{"level": "x-root-y"}}, false},
		{Request{Path: "rest", Need: Update, Data: map[string]any{"level": "low"}}, true},
		{Request{Path: "none", Need: Update, Data: map[string]any{"a": nil}}, false},
		{Request{Path: "none", Need: Update}, true},
	} {
		if got := acl.Allow(&test.q); got.Allowed != test.want {
			t.Errorf("%+v: %t, want %t", test.q, got.Allowed, test.want)
		}
	}
	for path, want := range map[string]string{"kv/a": "create list read", "kv/closed": "deny", "other": "deny",
		"sys/seal": "sudo update", "folder/": "list"} {
		if got := strings.Join(acl.Capabilities(path), " "); got != want {
			t.Errorf("Capabilities(%q) = %q, want %q", path, got, want)
		}
	}
	root := Compile([]*Policy{{Name: RootName}}, nil)
	if v := root.Allow(&Request{Path: "x", Need: Delete, Protected: true}); !v.Allowed || !v.Root ||
		root.Capabilities("x")[0] != "root" {
		t.Errorf("root: %+v", v)
	}
}

func TestMerge(t *testing.T) {
	acl := compile(t, nil,
		`path "a" { capabilities = ["read"] max_wrapping_ttl = 60 allowed_parameters = { x = ["1"] } } path "d" { `+
			`capabilities = ["read"] }`,
		`path "a" { capabilities = ["update"] max_wrapping_ttl = 30 allowed_parameters = { x = ["2"], y = [] } `+
			`required_parameters = ["x"] } path "d" { capabilities = ["deny"] }`,
		`path "a/*" { capabilities = ["delete"] } path "d" { capabilities = ["update"] }`)
	r := acl.find("a", false)
	y, ok := r.Allowed["y"]
	if !ok || len(y) != 0 {
		t.Errorf("y may have any value, got %v", y)
	}
	if r.Capabilities != Read|Update || r.MaxWrap != 30*time.Second || len(r.Allowed["x"]) != 2 ||
		!slices.Equal(r.Required, []string{"x"}) || !slices.Equal(r.names, []string{"p0", "p1"}) {
		t.Errorf("merged to %+v", r)
	}
	if got := acl.Capabilities("d"); got[0] != "deny" {
		t.Errorf("deny did not win: %v", got)
	}
}

func TestTemplates(t *testing.T) {
	values := map[string]string{"identity.entity.id": "e1", "identity.entity.name": "../up",
		"identity.entity.metadata.star": "*"}
	resolve := func(v string) (string, bool) { s, ok := values[v]; return s, ok }
	acl := compile(t, resolve, `
path "kv/{{identity.entity.id}}/*" { capabilities = ["read"] }
path "name/{{identity.entity.name}}" { capabilities = ["read"] }
path "star/{{identity.entity.metadata.star}}" { capabilities = ["read"] }
path "gone/{{identity.entity.metadata.team}}" { capabilities = ["read"] }
path "open/{{identity.entity.id" { capabilities = ["read"] }`)
	if len(acl.exact) != 0 || len(acl.groups) != 1 {
		t.Errorf("rules with values that are missing or widen were kept: %v, %v", acl.exact, acl.groups)
	}
	if !acl.Allow(&Request{Path: "kv/e1/x", Need: Read}).Allowed ||
		acl.Allow(&Request{Path: "kv/e2/x", Need: Read}).Allowed {
		t.Error("the template does not follow the entity")
	}
}

func TestBelow(t *testing.T) {
	acl := compile(t, nil, `path "kv/a" { capabilities = ["read"] } path "team/+/x" { capabilities = ["read"] } path `+
		`"pre*" { capabilities = ["read"] } path "no/*" { capabilities = ["deny"] }`)
	for prefix, want := range map[string]bool{"kv/": true, "team/": true, "prefix/": true, "pre/": true, "no/": false,
		"other/": false, "te/": false} {
		if got := acl.Below(prefix); got != want {
			t.Errorf("Below(%q) = %t, want %t", prefix, got, want)
		}
	}
}

// The obvious model: every rule as a regular expression, sorted by the contract's words.
func modelFind(rules map[string]Capability, path string, list bool) Capability {
	paths := []string{path}
	if list && strings.HasSuffix(path, "/") {
		paths = append(paths, strings.TrimSuffix(path, "/"))
	}
	for _, p := range paths {
		if c, ok := rules[p]; ok && !strings.HasSuffix(p, "*") && !slices.Contains(strings.Split(p, "/"), "+") {
			return c
		}
	}
	for _, p := range paths {
		best, found := "", false
		for text := range rules {
			if modelMatch(text, p) && (!found || modelBetter(text, best)) {
				best, found = text, true
			}
		}
		if found {
			return rules[best]
		}
	}
	return 0
}

func modelMatch(text, path string) bool {
	parts := strings.Split(text, "/")
	prefix := strings.HasSuffix(text, "*")
	if !prefix && !slices.Contains(parts, "+") {
		return false
	}
	for i, s := range parts {
		switch {
		case s == "+":
			parts[i] = "[^/]+"
		case i == len(parts)-1 && prefix:
			parts[i] = regexp.QuoteMeta(strings.TrimSuffix(s, "*")) + ".*"
		default:
			parts[i] = regexp.QuoteMeta(s)
		}
	}
	return regexp.MustCompile("(?s)^" + strings.Join(parts, "/") + "$").MatchString(path)
}

func modelBetter(a, b string) bool {
	first := func(s string) int {
		at := len(s)
		for i := range s {
			segment := s[i] == '+' && (i == 0 || s[i-1] == '/') && (i+1 == len(s) || s[i+1] == '/')
			if segment || (s[i] == '*' && i == len(s)-1) {
				at = min(at, i)
			}
		}
		return at
	}
	plus := func(s string) int {
		return len(slices.DeleteFunc(strings.Split(s, "/"), func(p string) bool { return p != "+" }))
	}
	if first(a) != first(b) {
		return first(a) > first(b)
	}
	if star := strings.HasSuffix(a, "*"); star != strings.HasSuffix(b, "*") {
		return !star
	}
	if plus(a) != plus(b) {
		return plus(a) < plus(b)
	}
	if len(a) != len(b) {
		return len(a) > len(b)
	}
	return a > b
}

func TestAgainstTheModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	segments := []string{"a", "b", "ab", "+", "a+", "c"}
	path := func(wild bool) string {
		parts := make([]string, 1+rng.IntN(4))
		for i := range parts {
			parts[i] = segments[rng.IntN(len(segments))]
			if !wild && parts[i] == "+" {
				parts[i] = "x"
			}
		}
		return strings.Join(parts, "/")
	}
	needs := []Capability{Read, Create, Update, Delete, List}
	for range 1_000 {
		rules := map[string]Capability{}
		var list []*Policy
		for i := range 1 + rng.IntN(6) {
			text := path(true)
			if rng.IntN(3) == 0 {
				text = strings.TrimSuffix(text, "+") + "*"
			}
			c := needs[rng.IntN(len(needs))]
			c |= needs[rng.IntN(len(needs))]
			if rng.IntN(8) == 0 {
				c = Deny
			}
			pattern := text
			if rng.IntN(2) == 0 {
				pattern = strings.ReplaceAll(text, "c", "{{ see }}")
			}
			list = append(list, &Policy{Name: fmt.Sprint(i), Paths: []Path{{Pattern: pattern, Capabilities: c}}})
			if rules[text]&Deny != 0 || c&Deny != 0 {
				c = Deny
			} else {
				c |= rules[text]
			}
			rules[text] = c
		}
		see := func(string) (string, bool) { return "c", true }
		acl, over := Compile(list, see), Compile(list, nil).With(list, see)
		for range 10 {
			q := Request{Path: path(false), Need: needs[rng.IntN(len(needs))]}
			if rng.IntN(3) == 0 {
				q.Path += "/"
			}
			want := modelFind(rules, q.Path, q.Need == List)
			if got := acl.Allow(&q).Allowed; got != (want&Deny == 0 && want&q.Need != 0) {
				t.Fatalf("%+v under %v: %t, the model says %b", q, rules, got, want)
			}
			if got := over.Allow(&q).Allowed; got != acl.Allow(&q).Allowed || over.Below(q.Path+"/") != acl.Below(q.Path+"/") {
				t.Fatalf("%+v under %v with templates: %t", q, list, got)
			}
		}
	}
}

// FuzzParse: no text panics, and what was read compiles.
func FuzzParse(f *testing.F) {
	f.Add(`path "secret/*" { capabilities = ["read"] allowed_parameters = { x = [1] } }`)
	f.Add(`{"path": {"a/+": {"policy": "write"}}}`)
	f.Add("path \"a\" { comment = <<E\nx\nE\n}")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse("p", text)
		if err == nil {
			Compile([]*Policy{p, p}, nil).Allow(&Request{Path: "a/b", Need: Read})
		}
	})
}

func BenchmarkAllow(b *testing.B) {
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "path \"kv/team-%d/*\" { capabilities = [\"read\"] }\npath \"kv/+/shared-%d\" { capabilities = "+
			"[\"read\"] }\n", i, i)
	}
	acl := compile(b, nil, text.String())
	q := Request{Path: "kv/team-500/db/password", Need: Read}
	b.ReportAllocs()
	for b.Loop() {
		if !acl.Allow(&q).Allowed {
			b.Fatal("denied")
		}
	}
}
