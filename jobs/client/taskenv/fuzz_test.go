package taskenv

import (
	"strings"
	"testing"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobwire"
)

// FuzzReplace puts values into what jobs write: text without a reference stays, and a value is not read again.
func FuzzReplace(f *testing.F) {
	for _, text := range []string{"", "${NOMAD_TASK_NAME}", "${ env[\"NOMAD_TASK_NAME\"] }", "${meta.a}", "${${meta.a}}",
		"${attr.kernel.name} ${node.unique.id}", "${", "}${}"} {
		f.Add(text, "${meta.a}")
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		e := New(&Source{Alloc: "0123456789", Node: &jobs.Node{Meta: map[string]string{"a": value}}, Job: &jobwire.Job{},
			Group: &jobwire.TaskGroup{}, Task: &jobwire.Task{Name: "t"}})
		if got := e.Replace(text); !strings.Contains(text, "${") && got != text {
			t.Errorf("%q became %q", text, got)
		}
		if got := e.Replace("<${meta.a}>"); got != "<"+value+">" {
			t.Errorf("the value %q was put in as %q", value, got)
		}
		_ = e.ReplaceAny(map[string]any{text: []any{text, map[string]any{"k": text}}})
	})
}
