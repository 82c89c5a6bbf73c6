package jobscmd

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/jobscmd/jobfile"
	"github.com/spf13/cobra"
)

// call runs a command against a server that answers by method and path; what stands for no answer is 404.
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

const jobs2 = `[{"ID":"web","Type":"service","Priority":50,"Status":"running","SubmitTime":1},` +
	`{"ID":"web-2","Type":"batch","Priority":50,"Status":"dead","Stop":true,"Periodic":true}]`

// TestCommands: what commands print, ask and refuse.
func TestCommands(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.hcl")
	if err := os.WriteFile(file, []byte(jobfile.Sample), 0o600); err != nil {
		t.Fatal(err)
	}
	plan := func(place string) string {
		return `{"Annotations":{"DesiredTGUpdates":{"web":{"Place":` + place + `}}},"JobModifyIndex":9}`
	}
	for _, c := range []struct {
		name    string
		cmd     func(*command.Env, *cobra.Command)
		answers map[string]string
		args    string
		has     string
		err     string // "" is none
	}{
		{"list", Job, map[string]string{"GET /v1/jobs": jobs2}, "status",
			"web-2  batch/periodic  50        dead (stopped)", ""},
		{"json", Job, map[string]string{"GET /v1/jobs": jobs2}, "status --json", `"ID": "web-2"`, ""},
		{"plan of nothing", Job, map[string]string{"PUT /v1/job/example/plan": plan("0")}, "plan " + file,
			"-check-index 9", ""},
		{"plan of something", Job, map[string]string{"PUT /v1/job/example/plan": plan("1")}, "plan " + file, "allocated",
			"exit code 1"},
		{"plan that fails", Job, nil, "plan " + file, "404", "exit code 255"},
		{"plan of a file that is not there", Job, nil, "plan no.hcl", "no such file", "exit code 255"},
		{"no job", Job, map[string]string{"GET /v1/jobs": `[]`}, "inspect web", "", `no job whose id begins with "web"`},
		{"an exact id", Job, map[string]string{"GET /v1/jobs": jobs2, "GET /v1/job/web": `{"ID":"web"}`}, "inspect web",
			`"ID": "web"`, ""},
		{"two jobs", Job, map[string]string{"GET /v1/jobs": jobs2}, "inspect we", "", "2 jobs begin with"},
		{"a short id", Alloc, nil, "stop a", "", "too short"},
		{"no id", Alloc, nil, "stop xyz", "", "hexadecimal"},
		{"two ids", Alloc, map[string]string{"GET /v1/allocations": `[{"ID":"ab1","Name":"x"},{"ID":"ab2","Name":"y"}]`},
			"stop ab", "", "2 allocations begin"},
		{"odd id", Alloc, map[string]string{"GET /v1/allocations": `[{"ID":"ab1"},{"ID":"ac2"}]`,
			"PUT /v1/allocation/ab1/stop": `{"EvalID":"e1"}`}, "stop --detach ab1", "Evaluation ID: e1", ""},
		{"drain of nothing", Node, nil, "drain x", "", "one of -enable and -disable"},
		{"too many arguments", Job, nil, "inspect a b", "", "takes one argument, not 2"},
		{"settings", func(e *command.Env, c *cobra.Command) { command.Group(c, schedulerCommands(e)) },
			map[string]string{"GET /v1/operator/scheduler/configuration": `{"SchedulerConfig":{"ModifyIndex":4}}`,
				"PUT /v1/operator/scheduler/configuration": `{"Updated":false}`},
			"scheduler set-config --scheduler-algorithm spread", "", "changed meanwhile"},
	} {
		out, err := call(t, c.cmd, c.answers, strings.Fields(c.args)...)
		switch {
		case c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: error %v, want %q\n%s", c.name, err, c.err, out)
		case !strings.Contains(out, c.has):
			t.Errorf("%s printed %q, which lacks %q", c.name, out, c.has)
		}
	}
}

// TestSamples: the files that init writes can be read, with and without their comments.
func TestSamples(t *testing.T) {
	for _, text := range []string{jobfile.Sample, jobfile.Fleet, jobfile.Mesh, jobfile.Full,
		jobfile.Uncommented(jobfile.Sample)} {
		file := &jobfile.File{}
		file.Flags(&cobra.Command{})
		e := &command.Env{In: strings.NewReader(text)}
		if _, _, err := file.Read(e, "-"); err != nil {
			t.Error(err)
		}
	}
}

// TestLastLines: of what is there only the last lines, of what comes everything.
func TestLastLines(t *testing.T) {
	for _, c := range []struct{ have, want string }{{"a\nb\nc\n", "b\nc\n"}, {"a\nb\nc", "b\nc"}, {"a\n", "a\n"},
		{"", ""}} {
		var out bytes.Buffer
		l := &lastLines{to: &out, lines: 2}
		_, first := l.Write([]byte(c.have))
		flushed := l.flush()
		_, then := l.Write([]byte("!"))
		if err := errors.Join(first, flushed, then); err != nil || out.String() != c.want+"!" {
			t.Errorf("%q: %q, %v", c.have, out.String(), err)
		}
	}
}
