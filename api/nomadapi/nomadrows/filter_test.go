package nomadrows

import (
	"encoding/json"
	"testing"
)

var filterTests = []struct {
	text string
	want bool
}{
	{`Status == "running"`, true}, {`Status == running`, true}, {`Status != "running"`, false},
	{`Status == "x" or Priority == 50`, true}, {`Status == "x" or Status == "running" and Priority == 51`, false},
	{`not Status == "x"`, true}, {`(Status == "x" or Status == "running") and "blue" in Tags`, true},
	{`"red" in Tags`, false}, {`"red" not in Tags`, true}, {`Tags contains "blue"`, true}, {`Status contains "unn"`, true},
	{`Status matches "^run"`, true}, {`Status not matches "^run"`, false}, {`Meta.team == "a b"`, true},
	{`team in Meta`, true}, {`Gone is empty`, true}, {`Tags is not empty`, true}, {"Meta.team == `a b`", true},
	{`Big == 1000000`, true}, {`Stop == false`, true},
}

// TestFilter: each form of an expression.
func TestFilter(t *testing.T) {
	var object any
	if err := json.Unmarshal([]byte(`{"Status":"running","Priority":50,"Tags":["blue"],"Meta":{"team":"a b"},"Big":1000000,
		"Stop":false}`), &object); err != nil {
		t.Fatal(err)
	}
	for _, c := range filterTests {
		f, err := CompileFilter(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
		} else if f.Match(object) != c.want {
			t.Errorf("%s is not %t", c.text, c.want)
		}
	}
	for _, bad := range []string{"(", "a", "a ==", `a == "`, "== b", "a is b", "a == b c", "a == b and", ")",
		`a matches "("`, `a = b`} {
		if _, err := CompileFilter(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func FuzzFilter(f *testing.F) {
	for _, c := range filterTests {
		f.Add(c.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		filter, err := CompileFilter(text)
		if err == nil {
			filter.Match(map[string]any{"a": []any{"b", map[string]any{}}, "Status": "running"})
		}
	})
}

// TestMatch: ids of jobs hold slashes, escaped or not.
func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, path, want string
		ok                  bool
	}{
		{"/v1/job/*job", "/v1/job/a", "a", true},
		{"/v1/job/*job", "/v1/job/a/b", "a/b", true},
		{"/v1/job/*job", "/v1/job/a%2Fb", "a/b", true},
		{"/v1/job/*job", "/v1/job/", "", false},
		{"/v1/job/*job", "/v1/job", "", false},
		{"/v1/job/*job/plan", "/v1/job/a/b/plan", "a/b", true},
		{"/v1/job/*job/plan", "/v1/job/plan", "", false},
		{"/v1/job/*job/plan", "/v1/job/a%2Fplan", "", false},
		{"/v1/job/*job/periodic/force", "/v1/job/a%2Fb/periodic/force", "a/b", true},
		{"/v1/job/*job", "/v1/job/%zz", "", false},
		{"/v1/node/:job", "/v1/node/a/b", "", false},
	} {
		args, ok := match(c.pattern, c.path)
		if ok != c.ok || ok && args["job"] != c.want {
			t.Errorf("%s %s: %v %t", c.pattern, c.path, args, ok)
		}
	}
}
