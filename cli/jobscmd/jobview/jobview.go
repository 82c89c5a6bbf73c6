// Package jobview says what commands show of jobs: differences, why nodes took nothing, moments. It is pure text.
package jobview

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/jobs/diff"
	"corbel.dev/corbel/jobs/jobwire"
)

// Plural is the ending of a noun.
func Plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

// Metric says what kept nodes from taking an allocation.
func Metric(m *jobwire.AllocationMetric, indent string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, indent+"* "+format+"\n", args...) }
	if m.NodesEvaluated == 0 {
		line("No nodes were eligible for evaluation")
	}
	for _, dc := range slices.Sorted(maps.Keys(m.NodesAvailable)) {
		if m.NodesAvailable[dc] == 0 {
			line("No nodes are available in datacenter %q", dc)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(m.ClassFiltered)) {
		line("Class %q: %d nodes excluded by filter", k, m.ClassFiltered[k])
	}
	for _, k := range slices.Sorted(maps.Keys(m.ConstraintFiltered)) {
		line("Constraint %q: %d nodes excluded by filter", k, m.ConstraintFiltered[k])
	}
	if m.NodesExhausted > 0 {
		line("Resources exhausted on %d nodes", m.NodesExhausted)
	}
	for _, k := range slices.Sorted(maps.Keys(m.ClassExhausted)) {
		line("Class %q exhausted on %d nodes", k, m.ClassExhausted[k])
	}
	for _, k := range slices.Sorted(maps.Keys(m.DimensionExhausted)) {
		line("Dimension %q exhausted on %d nodes", k, m.DimensionExhausted[k])
	}
	for _, q := range m.QuotaExhausted {
		line("Quota limit hit %q", q)
	}
	return b.String()
}

// signs mark the types of changes.
var signs = map[string]string{diff.Added: "+ ", diff.Deleted: "- ", diff.Edited: "+/- ", diff.None: ""}

// siblings are things that stand below each other: their signs take the room of the widest, and so do their names where
// values follow.
type siblings struct{ sign, name int }

func (s *siblings) add(kind string) { s.sign = max(s.sign, len(signs[kind])) }

func siblingsOf(fields []*diff.Field, objects []*diff.Object, tasks []*diff.Task) (s siblings) {
	for _, f := range fields {
		s.add(f.Type)
		s.name = max(s.name, len(f.Name))
	}
	for _, o := range objects {
		s.add(o.Type)
	}
	for _, t := range tasks {
		s.add(t.Type)
	}
	return s
}

// begin writes what a line begins with.
func (s siblings) begin(b *strings.Builder, indent, kind string) {
	fmt.Fprintf(b, "%s%-*s", indent, s.sign, signs[kind])
}

// Diff writes how a job differs; verbose shows what stays too.
func Diff(b *strings.Builder, d *diff.Job, verbose bool) {
	fmt.Fprintf(b, "%sJob: %q\n", signs[d.Type], d.ID)
	if d.Type == diff.Edited || verbose {
		siblingsOf(d.Fields, d.Objects, nil).write(b, d.Fields, d.Objects, "")
	}
	var groups siblings
	for _, g := range d.TaskGroups {
		groups.add(g.Type)
	}
	for _, g := range d.TaskGroups {
		updates := make([]string, 0, len(g.Updates))
		for _, name := range slices.Sorted(maps.Keys(g.Updates)) {
			updates = append(updates, fmt.Sprintf("%d %s", g.Updates[name], name))
		}
		groups.begin(b, "", g.Type)
		fmt.Fprintf(b, "Task Group: %q%s\n", g.Name, notes(updates))
		fields, objects := g.Fields, g.Objects
		if g.Type != diff.Edited && !verbose {
			fields, objects = nil, nil
		}
		parts := siblingsOf(fields, objects, g.Tasks)
		parts.write(b, fields, objects, "  ")
		for _, t := range g.Tasks {
			parts.begin(b, "  ", t.Type)
			fmt.Fprintf(b, "Task: %q%s\n", t.Name, notes(t.Annotations))
			if t.Type == diff.Edited || verbose {
				siblingsOf(t.Fields, t.Objects, nil).write(b, t.Fields, t.Objects, "    ")
			}
		}
	}
}

func notes(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return " (" + strings.Join(list, ", ") + ")"
}

func (s siblings) write(b *strings.Builder, fields []*diff.Field, objects []*diff.Object, indent string) {
	for _, f := range fields {
		s.begin(b, indent, f.Type)
		fmt.Fprintf(b, "%-*s ", s.name+1, f.Name+":")
		switch f.Type {
		case diff.Edited:
			fmt.Fprintf(b, "%q => %q%s\n", f.Old, f.New, notes(f.Annotations))
		case diff.Deleted:
			fmt.Fprintf(b, "%q%s\n", f.Old, notes(f.Annotations))
		default:
			fmt.Fprintf(b, "%q%s\n", f.New, notes(f.Annotations))
		}
	}
	for _, o := range objects {
		s.begin(b, indent, o.Type)
		fmt.Fprintf(b, "%s {\n", o.Name)
		inner := indent + strings.Repeat(" ", s.sign)
		siblingsOf(o.Fields, o.Objects, nil).write(b, o.Fields, o.Objects, inner)
		fmt.Fprintf(b, "%s}\n", inner)
	}
}

// When is a moment in Unix nanoseconds.
func When(nanos int64) string {
	if nanos == 0 {
		return "N/A"
	}
	return time.Unix(0, nanos).Format(time.RFC3339)
}

// Ago is how long ago a moment was.
func Ago(nanos int64) string {
	if nanos == 0 {
		return "N/A"
	}
	return time.Since(time.Unix(0, nanos)).Round(time.Second).String() + " ago"
}

// Moment is a time that may be none.
func Moment(t time.Time) string {
	if t.IsZero() {
		return "N/A"
	}
	return t.Local().Format(time.RFC3339)
}

// Or is text, or something else where there is none.
func Or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
