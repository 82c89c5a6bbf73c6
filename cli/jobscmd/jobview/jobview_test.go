package jobview

import (
	"strings"
	"testing"

	"corbel.dev/corbel/jobs/diff"
)

// TestDiff: signs stand before names, and what stands below each other begins in one column.
func TestDiff(t *testing.T) {
	field := func(kind, name, old, next string, notes ...string) *diff.Field {
		return &diff.Field{Type: kind, Name: name, Old: old, New: next, Annotations: notes}
	}
	for _, c := range []struct {
		name    string
		job     diff.Job
		verbose bool
		want    string
	}{
		{"new", diff.Job{Type: diff.Added, ID: "web", TaskGroups: []*diff.Group{{Type: diff.Added, Name: "g",
			Updates: map[string]uint64{"create": 2}, Fields: []*diff.Field{field(diff.Added, "Count", "", "2")},
			Tasks: []*diff.Task{{Type: diff.Added, Name: "main", Annotations: []string{"forces create"}}}}}}, false, `
+ Job: "web"
+ Task Group: "g" (2 create)
  + Task: "main" (forces create)
`},
		{"edited", diff.Job{Type: diff.Edited, ID: "web",
			Fields: []*diff.Field{field(diff.Edited, "Priority", "50", "60"), field(diff.Added, "Meta[a]", "", "b")},
			TaskGroups: []*diff.Group{
				{Type: diff.Edited, Name: "g", Fields: []*diff.Field{field(diff.Edited, "Count", "1", "2", "forces create")},
					Tasks: []*diff.Task{{Type: diff.None, Name: "main"}, {Type: diff.Edited, Name: "log",
						Objects: []*diff.Object{{Type: diff.Edited, Name: "Config", Fields: []*diff.Field{
							field(diff.Edited, "command", "a", "b"), field(diff.None, "args[0]", "x", "x")}}}}}},
				{Type: diff.Deleted, Name: "old"}}}, false, `
+/- Job: "web"
+/- Priority: "50" => "60"
+   Meta[a]:  "b"
+/- Task Group: "g"
  +/- Count: "1" => "2" (forces create)
      Task: "main"
  +/- Task: "log"
    +/- Config {
        +/- command: "a" => "b"
            args[0]: "x"
        }
-   Task Group: "old"
`},
		{"nothing", diff.Job{Type: diff.None, ID: "web", TaskGroups: []*diff.Group{{Type: diff.None, Name: "g"}}}, false, `
Job: "web"
Task Group: "g"
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b strings.Builder
			Diff(&b, &c.job, c.verbose)
			if got := "\n" + b.String(); got != c.want {
				t.Errorf("%s\nwant%s", got, c.want)
			}
		})
	}
}
