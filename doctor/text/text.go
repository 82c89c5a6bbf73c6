// Package text words a report of the doctor for a person. It is pure: what `corbel doctor` and `corbel lab` print is
// made here.
package text

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/doctor"
)

// Write prints a report for a person at 3 a.m.: the first finding in full view, the others after it.
func Write(w io.Writer, r *doctor.Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s asked, %s\n", plural(len(r.Findings), "finding"), plural(r.Asked, "member"),
		r.At.UTC().Format("2006-01-02 15:04:05 MST"))
	for i := range r.Findings {
		finding(&b, i+1, &r.Findings[i], r.At)
	}
	for _, s := range r.Silent {
		fmt.Fprintf(&b, "\nno answer: %s (%s)\n", s.Member, s.Reason)
	}
	if len(r.Fine) > 0 {
		b.WriteString("\nmeasured and in order:\n")
		for _, f := range r.Fine {
			fmt.Fprintf(&b, "  %s\n", f)
		}
	}
	if len(r.Gaps) > 0 {
		b.WriteString("\ncould not be measured:\n")
		for _, g := range r.Gaps {
			fmt.Fprintf(&b, "  %s\n", g)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func finding(b *strings.Builder, n int, f *doctor.Finding, now time.Time) {
	fmt.Fprintf(b, "\n%d. %s  %s\n   %s\n", n, strings.ToUpper(string(f.Severity)), f.Code, f.Title)
	fmt.Fprintf(b, "   culprit: %s", f.Culprit)
	if !f.Since.IsZero() {
		fmt.Fprintf(b, ", since %s (%s)", f.Since.UTC().Format("15:04:05"), now.Sub(f.Since).Round(time.Second))
	}
	b.WriteString("\n   evidence:\n")
	for _, l := range f.Evidence {
		fmt.Fprintf(b, "     - %s\n", l.Text)
	}
	if len(f.Not) > 0 {
		b.WriteString("   it is not:\n")
		for _, l := range f.Not {
			fmt.Fprintf(b, "     - %s\n", l.Text)
		}
	}
	if len(f.Causes) > 0 {
		b.WriteString("   it explains:\n")
		for _, c := range f.Causes {
			fmt.Fprintf(b, "     - %s: %s\n", c.Code, c.Title)
		}
	}
	b.WriteString("   do:\n")
	for i, step := range f.Do {
		fmt.Fprintf(b, "     %d. %s\n", i+1, step)
	}
	fmt.Fprintf(b, "   more: docs/runbook/%s.md\n", f.Code)
}

// WritePast lists what members found by themselves and what is over.
func WritePast(w io.Writer, c *doctor.Cluster, since time.Duration) error {
	type one struct {
		member string
		doctor.Past
	}
	var all []one
	for i := range c.Members {
		for _, p := range c.Members[i].Past {
			if !p.Until.IsZero() && p.Until.After(c.At.Add(-since)) {
				all = append(all, one{c.Members[i].Member, p})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b one) int { return b.From.Compare(a.From) })
	var b strings.Builder
	fmt.Fprintf(&b, "\nover, in the last %s:\n", since)
	if len(all) == 0 {
		b.WriteString("  nothing\n")
	}
	for _, p := range all {
		fmt.Fprintf(&b, "  %s to %s  %s  %s\n", p.From.UTC().Format("01-02 15:04:05"), p.Until.UTC().Format("15:04:05"),
			p.Code, p.Title)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func plural(n int, word string) string {
	switch n {
	case 0:
		return "no " + word + "s"
	case 1:
		return "1 " + word
	default:
		return fmt.Sprintf("%d %ss", n, word)
	}
}
