package usage

import (
	"strings"
	"testing"
	"time"
)

// TestTogether: which tags are joint ones, what value an event has of them, and which of them answers.
func TestTogether(t *testing.T) {
	p := &Product{Name: "seats", Kind: Unique, Identity: []string{"user"}, Tags: []string{"team", "env", "zone", "odd,tag",
		"env,team,zone", "team,env", "env,env"}}
	if err := p.Complete(); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", MaxTagBytes)
	for _, test := range []struct {
		tags []Field
		want string
	}{
		{nil, `;["","",""];["",""];`},
		{[]Field{{"team", `r"d`}, {"zone", "a"}}, `;["","r\"d","a"];["r\"d",""];`},
		{[]Field{{"team", "red"}, {"team,env", "its own"}, {"odd,tag", "odd"}}, `odd;["","red",""];its own;`},
		{[]Field{{"zone", long}}, `;;["",""];`},
	} {
		e := Event{Product: "seats", Identity: []Field{{"user", "bob"}}, Tags: test.tags}
		o, _, err := p.Observe(Key{}, &e, time.Unix(1000, 0), nil)
		if got := strings.Join(o.Tags[3:], ";"); err != nil || got != test.want {
			t.Errorf("%.40v: %s, %v; want %s", test.tags, got, err, test.want)
		}
	}
	for _, test := range []struct{ ask, tag, value, group string }{
		{"env,team", "team,env", `["red","prod"]`, `["prod","red"]`},
		{"zone,team", "env,team,zone", `["prod","red","a"]`, `["a","red"]`},
		{"zone", "env,team,zone", `["prod","red","a"]`, `["a"]`},
		{"team,env", "team,env", "", ""},
		{"team,env", "team,env", `["red"]`, ""},
	} {
		tag, into := p.Together(test.ask)
		if tag < 0 || p.Tags[tag] != test.tag {
			t.Errorf("%s: tag %d", test.ask, tag)
			continue
		}
		if group, in := into(test.value); !in || group != test.group {
			t.Errorf("%s of %s: %s, %t", test.ask, test.value, group, in)
		}
	}
	for _, ask := range []string{"team,color", "odd,tag", ","} {
		if tag, _ := p.Together(ask); tag >= 0 {
			t.Errorf("%s: tag %d", ask, tag)
		}
	}
}
