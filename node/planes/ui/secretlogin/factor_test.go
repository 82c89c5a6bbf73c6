package secretlogin

import (
	"encoding/json"
	"fmt"
	"testing"
)

// TestAsks: each enforcement asks for a passcode of one of its methods, but for those that another one's passcode
// satisfies; what takes no passcode is left out, and an enforcement that has nothing else stays.
func TestAsks(t *testing.T) {
	list := func(ids ...string) string {
		out := ""
		for _, id := range ids {
			out += fmt.Sprintf(`,{"id":%q,"type":"totp","uses_passcode":%t}`, id, id != "push")
		}
		return `{"any":[` + out[min(1, len(out)):] + `]}`
	}
	for _, c := range []struct{ constraints, want string }{
		{`{}`, ``},
		{`{"a":` + list("1") + `}`, `a[1]`},
		{`{"a":` + list("1", "2") + `,"b":` + list("3") + `}`, `a[1 2] b[3]`},
		{`{"a":` + list("1", "2") + `,"b":` + list("2") + `}`, `b[2]`},
		{`{"a":` + list("1") + `,"b":` + list("1") + `,"c":` + list("1") + `}`, `a[1]`},
		{`{"a":` + list("1", "2") + `,"b":` + list("2", "3") + `}`, `a[1 2] b[2 3]`},
		{`{"a":` + list("push") + `,"b":` + list("push", "1") + `}`, `a[] b[1]`},
		{`{"a":` + list() + `}`, `a[]`},
	} {
		var f factor
		if err := json.Unmarshal([]byte(`{"mfa_request_id":"x","mfa_constraints":`+c.constraints+`}`), &f); err != nil {
			t.Fatal(err)
		}
		got := ""
		for i, ask := range f.asks() {
			got += []string{"", " "}[min(i, 1)] + ask.Name + "["
			for n, m := range ask.Methods {
				got += []string{"", " "}[min(n, 1)] + m.Name
			}
			got += "]"
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.constraints, got, c.want)
		}
	}
}
