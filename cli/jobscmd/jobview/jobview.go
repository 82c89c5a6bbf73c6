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
var signs = map[string]string{diff.Added: "+   ", diff.Deleted: "-   ", diff.Edited: "+/- ", diff.None: "    "}

// Diff writes how a job differs; verbose shows what stays too.
func Diff(b *strings.Builder, d *diff.Job, verbose bool) {
	fmt.Fprintf(b, "%sJob: %q\n", signs[d.Type], d.ID)
	if d.Type == diff.Edited || verbose {
		writeFields(b, d.Fields, "")
		writeObjects(b, d.Objects, "")
	}
	for _, g := range d.TaskGroups {
		updates := make([]string, 0, len(g.Updates))
		for _, name := range slices.Sorted(maps.Keys(g.Updates)) {
			updates = append(updates, fmt.Sprintf("%d %s", g.Updates[name], name))
		}
		fmt.Fprintf(b, "%sTask Group: %q", signs[g.Type], g.Name)
		if len(updates) > 0 {
			fmt.Fprintf(b, " (%s)", strings.Join(updates, ", "))
		}
		b.WriteString("\n")
		if g.Type == diff.Edited || verbose {
			writeFields(b, g.Fields, "  ")
			writeObjects(b, g.Objects, "  ")
		}
		for _, t := range g.Tasks {
			fmt.Fprintf(b, "  %sTask: %q%s\n", signs[t.Type], t.Name, notes(t.Annotations))
			if t.Type == diff.Edited || verbose {
				writeFields(b, t.Fields, "    ")
				writeObjects(b, t.Objects, "    ")
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

func writeFields(b *strings.Builder, fields []*diff.Field, indent string) {
	for _, f := range fields {
		switch f.Type {
		case diff.Edited:
			fmt.Fprintf(b, "%s%s%s: %q => %q%s\n", indent, signs[f.Type], f.Name, f.Old, f.New, notes(f.Annotations))
		case diff.Deleted:
			fmt.Fprintf(b, "%s%s%s: %q%s\n", indent, signs[f.Type], f.Name, f.Old, notes(f.Annotations))
		default:
			fmt.Fprintf(b, "%s%s%s: %q%s\n", indent, signs[f.Type], f.Name, f.New, notes(f.Annotations))
		}
	}
}

func writeObjects(b *strings.Builder, objects []*diff.Object, indent string) {
	for _, o := range objects {
		fmt.Fprintf(b, "%s%s%s {\n", indent, signs[o.Type], o.Name)
		writeFields(b, o.Fields, indent+"  ")
		writeObjects(b, o.Objects, indent+"  ")
		fmt.Fprintf(b, "%s    }\n", indent)
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
