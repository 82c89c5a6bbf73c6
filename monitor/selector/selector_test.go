package selector

import (
	"strings"
	"testing"
)

var thing = map[string]string{
	"region": "us-west-1", "tier": "web", "check.name": "cpu", "check.subscriptions": "linux,web", "check.publish": "true",
	"empty": "",
	"quote": `it's "so"`,
}

func get(name string) (string, bool) { v, ok := thing[name]; return v, ok }

func TestMatches(t *testing.T) {
	for text, want := range map[string]bool{
		"":                                    true,
		"  ":                                  true,
		`region == "us-west-1"`:               true,
		`region == us-west-1`:                 true,
		`region='us-west-1'`:                  true,
		`region != "us-west-1"`:               false,
		`absent == ""`:                        false,
		`absent != "x"`:                       true,
		`empty == ""`:                         true,
		`tier in [web, "db"]`:                 true,
		`tier in ["db"]`:                      false,
		`tier in []`:                          false,
		`tier notin []`:                       true,
		`tier notin [web]`:                    false,
		`absent notin [web]`:                  true,
		`absent in [web]`:                     false,
		`tier in "web"`:                       true,
		`region matches "west"`:               true,
		`region matches west`:                 true,
		`region matches "east"`:               false,
		`absent matches ""`:                   false,
		`check.publish == true`:               true,
		`check.publish == "true"`:             true,
		`"linux" in check.subscriptions`:      true,
		`linux in check.subscriptions`:        true,
		`"lin" in check.subscriptions`:        false,
		`"windows" notin check.subscriptions`: true,
		`check.name == "cpu" && "web" in check.subscriptions`:     true,
		`check.name == "cpu"&&"db" in check.subscriptions`:        false,
		`check.name == cpu && tier == web && region matches "-1"`: true,
		`quote == "it's \"so\""`:                                  true,
	} {
		s, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := s.Matches(get); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestWrong(t *testing.T) {
	for _, text := range []string{
		"region", "region ==", "== x", "region == us west", "region ~ x", "region == 1abc", "tier in [", "tier in [web",
		"tier in [web;db]",
		`region == "open`, "a == b &&", "a == b & c == d", "a == b || c == d", "region is x",
		strings.Repeat("a==b&&", MaxRequirements) + "a==b", strings.Repeat("x", MaxBytes+1),
	} {
		if _, err := Parse(text); err == nil {
			t.Errorf("%.40q is accepted", text)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`region == "us-west-1" && 'x' in check.subscriptions`)
	f.Add(`tier notin [a, "b\"c", 'd'] && name matches "x"`)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		if s.Empty() != (strings.Trim(text, " \t\r\n") == "") {
			t.Fatalf("%q is empty: %v", text, s.Empty())
		}
		if len(s.Names()) > MaxRequirements {
			t.Fatal("too many requirements")
		}
		first := s.Matches(get)
		if second, err := Parse(text); err != nil || second.Matches(get) != first {
			t.Fatal("the second reading differs")
		}
	})
}
