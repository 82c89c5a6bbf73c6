package sso

import (
	"encoding/json"
	"strings"
	"testing"

	"corbel.dev/corbel/monitor"
)

// FuzzPerson: whatever a provider says, whom it names has a name that fits, few groups, and both prefixes.
func FuzzPerson(f *testing.F) {
	for _, claims := range []string{`{"name":"ann","groups":["a","b","a"]}`, `{"name":7,"groups":"a"}`, `{"name":[]}`,
		`{"name":"a\u0000","groups":[1,null]}`, `{"groups":{}}`, `null`} {
		f.Add(claims)
	}
	p := &monitor.AuthProvider{UsernameClaim: "name", UsernamePrefix: "u:", GroupsClaim: "groups", GroupsPrefix: "g:"}
	f.Fuzz(func(t *testing.T, text string) {
		var claims map[string]any
		if json.Unmarshal([]byte(text), &claims) != nil {
			return
		}
		who, err := Person(p, claims)
		if err != nil {
			return
		}
		if !fits(who.User) || !strings.HasPrefix(who.User, "u:") || len(who.User) == len("u:") ||
			len(who.Groups) > maxGroups {
			t.Errorf("%q of %d groups", who.User, len(who.Groups))
		}
		for i, g := range who.Groups {
			if !fits(g) || !strings.HasPrefix(g, "g:") || i > 0 && who.Groups[i-1] >= g {
				t.Errorf("groups %q", who.Groups)
			}
		}
	})
}
