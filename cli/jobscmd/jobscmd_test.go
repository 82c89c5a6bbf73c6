package jobscmd

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/jobscmd/jobfile"
	"corbel.dev/corbel/cli/jobscmd/jobscmdtest"
	"github.com/spf13/cobra"
)

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
	of := jobscmdtest.Of
	jobscmdtest.Run(t, []jobscmdtest.Case{
		of("list", Job, map[string]string{"GET /v1/jobs": jobs2}, "status",
			"web-2  batch/periodic  50        dead (stopped)", ""),
		of("json", Job, map[string]string{"GET /v1/jobs": jobs2}, "status --json", `"ID": "web-2"`, ""),
		of("plan of nothing", Job, map[string]string{"PUT /v1/job/example/plan": plan("0")}, "plan "+file,
			"-check-index 9", ""),
		of("plan of something", Job, map[string]string{"PUT /v1/job/example/plan": plan("1")}, "plan "+file, "allocated",
			"exit code 1"),
		of("plan that fails", Job, nil, "plan "+file, "404", "exit code 255"),
		of("plan of a file that is not there", Job, nil, "plan no.hcl", "no such file", "exit code 255"),
		of("no job", Job, map[string]string{"GET /v1/jobs": `[]`}, "inspect web", "", `no job whose id begins with "web"`),
		of("an exact id", Job, map[string]string{"GET /v1/jobs": jobs2, "GET /v1/job/web": `{"ID":"web"}`}, "inspect web",
			`"ID": "web"`, ""),
		of("two jobs", Job, map[string]string{"GET /v1/jobs": jobs2}, "inspect we", "", "2 jobs begin with"),
		of("a short id", Alloc, nil, "stop a", "", "too short"),
		of("no id", Alloc, nil, "stop xyz", "", "hexadecimal"),
		of("two ids", Alloc, map[string]string{"GET /v1/allocations": `[{"ID":"ab1","Name":"x"},{"ID":"ab2","Name":"y"}]`},
			"stop ab", "", "2 allocations begin"),
		of("odd id", Alloc, map[string]string{"GET /v1/allocations": `[{"ID":"ab1"},{"ID":"ac2"}]`,
			"PUT /v1/allocation/ab1/stop": `{"EvalID":"e1"}`}, "stop --detach ab1", "Evaluation ID: e1", ""),
		of("drain of nothing", Node, nil, "drain x", "", "one of -enable and -disable"),
		of("metadata", Node, map[string]string{"GET /v1/nodes": `[{"ID":"ab1","Name":"n1"}]`,
			"GET /v1/client/metadata": `{"Meta":{"a":"b"},"Dynamic":{"a":"b","rack":null},"Static":{"rack":"r"}}`},
			"meta read --node-id n1",
			"Dynamic Meta\na    = b\nrack = <unset>\n\nStatic Meta\nrack = r", ""),
		of("metadata that changes", Node, map[string]string{"PUT /v1/client/metadata": `{"Dynamic":{"a":"b"}}`},
			"meta apply --unset rack a=b", "1 names", ""),
		of("metadata of nothing", Node, nil, "meta apply", "", "name=value or -unset is missing"),
		of("metadata without a value", Node, nil, "meta apply a", "", "must be name=value"),
		of("an agent's log", Monitor, map[string]string{"GET /v1/agent/monitor": `{"Data":"aGk="}`},
			"--server-id leader", "hi", ""),
		of("two logs", Monitor, nil, "--server-id a --node-id b", "", "one of -node-id and -server-id"),
		of("too many arguments", Job, nil, "inspect a b", "", "takes one argument, not 2"),
	})
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
