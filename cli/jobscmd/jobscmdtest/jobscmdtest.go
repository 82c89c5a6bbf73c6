// Package jobscmdtest runs commands of the jobs plane against answers, for their tests.
package jobscmdtest

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

// Case is one run of a command and what it must say.
type Case struct {
	Name    string
	Build   func(*command.Env, *cobra.Command)
	Answers map[string]string // by method and path; what is not there is 404
	Args    string
	Has     string
	Err     string // "" is none
}

// Of is a Case by the order of its fields: tests are tables of them.
func Of(name string, build func(*command.Env, *cobra.Command), answers map[string]string, args, has, err string) Case {
	return Case{name, build, answers, args, has, err}
}

// Run runs the cases.
func Run(t *testing.T, cases []Case) {
	t.Helper()
	for _, c := range cases {
		out, err := call(t, c.Build, c.Answers, strings.Fields(c.Args)...)
		switch {
		case c.Err == "" && err != nil || c.Err != "" && (err == nil || !strings.Contains(err.Error(), c.Err)):
			t.Errorf("%s: error %v, want %q\n%s", c.Name, err, c.Err, out)
		case !strings.Contains(out, c.Has):
			t.Errorf("%s printed %q, which lacks %q", c.Name, out, c.Has)
		}
	}
}

// call runs a command against a server that answers by method and path.
func call(t *testing.T, cmd func(*command.Env, *cobra.Command), answers map[string]string, args ...string) (string,
	error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.Method+" "+r.URL.EscapedPath()]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("X-Nomad-Index", "7")
		_, _ = io.WriteString(w, answer)
	}))
	defer server.Close()
	var out bytes.Buffer
	e := &command.Env{In: strings.NewReader(""), Out: &out, Err: &out, Nomad: true,
		Getenv: func(name string) string { return map[string]string{"NOMAD_ADDR": server.URL}[name] }}
	defer e.Close()
	root := &cobra.Command{Use: "nomad", SilenceErrors: true, SilenceUsage: true}
	cmd(e, root)
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}
