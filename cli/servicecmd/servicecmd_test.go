package servicecmd

import (
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name, args, want string
	}{
		{"corbel-agent", "agent --config-dir x", ""},
		{"monitor", "sensu-agent start", ""},
		{"corbel", "server --bootstrap", `"server" cannot be a service`},
		{"a/b", "agent", "--name"},
		{"", "agent", "--name"},
	} {
		err := judge(c.name, strings.Fields(c.args))
		if got := ""; err != nil {
			got = err.Error()
			if c.want == "" || !strings.Contains(got, c.want) {
				t.Errorf("%q %q: %s", c.name, c.args, got)
			}
		} else if c.want != "" {
			t.Errorf("%q %q is taken", c.name, c.args)
		}
	}
}
