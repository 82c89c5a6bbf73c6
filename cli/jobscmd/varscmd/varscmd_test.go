package varscmd

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"corbel.dev/corbel/cli/command"
	"github.com/spf13/cobra"
)

// TestCommands: what commands print, ask and refuse.
func TestCommands(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers map[string]string // by method and path; what is not there is 404
		args    string
		has     string
		err     string // "" is none
	}{
		{"variables", map[string]string{"GET /v1/vars": `[{"Namespace":"default","Path":"a/b","ModifyTime":1}]`},
			"list", "default    a/b   1970-01-01T00:00:00Z", ""},
		{"an item", map[string]string{"GET /v1/var/a/b": `{"Items":{"k":"v"}}`}, "get --item k a/b", "v\n", ""},
		{"no item", map[string]string{"GET /v1/var/a/b": `{"Items":{"k":"v"}}`}, "get --item x a/b", "", "it has k"},
		{"a template", map[string]string{"GET /v1/var/a/b": `{"Items":{"k":"${v}"}}`}, "get --out hcl a/b",
			`"k" = "$${v}"`, ""},
		{"no variable", nil, "get a/b", "", `there is no variable "a/b"`},
		{"nothing to put", nil, "put a/b", "", "one item at least"},
		{"no pair to put", nil, "put a/b c", "", "must be NAME=VALUE"},
		{"put", map[string]string{"PUT /v1/var/a/b": `{"Path":"a/b","ModifyIndex":4}`}, "put a/b k=v",
			"modify index 4", ""},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer, ok := c.answers[r.Method+" "+r.URL.EscapedPath()]
			if !ok {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			_, _ = io.WriteString(w, answer)
		}))
		var out bytes.Buffer
		e := &command.Env{In: strings.NewReader(""), Out: &out, Err: &out, Nomad: true,
			Getenv: func(name string) string { return map[string]string{"NOMAD_ADDR": server.URL}[name] }}
		root := &cobra.Command{Use: "nomad", SilenceErrors: true, SilenceUsage: true}
		Var(e, root)
		root.SetArgs(strings.Fields(c.args))
		err := root.ExecuteContext(t.Context())
		e.Close()
		server.Close()
		switch {
		case c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: error %v, want %q\n%s", c.name, err, c.err, out.String())
		case !strings.Contains(out.String(), c.has):
			t.Errorf("%s printed %q, which lacks %q", c.name, out.String(), c.has)
		}
	}
}
