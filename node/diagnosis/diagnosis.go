// Package diagnosis is the tree of checks that `vault operator diagnose` shows, and the judgements that need no I/O:
// of limits, disks, folders and certificates.
//
// A Check's status is the worst of its own and its children's once Settle was called: a failure supersedes a warning,
// which supersedes success. What was skipped counts for nothing. Nothing here touches the outside; a tree belongs to
// one goroutine.
package diagnosis

import (
	"fmt"
	"io"
	"strings"
)

// Status is what became of a check, in the words of the output as JSON.
type Status string

// What may become of a check.
const (
	OK      Status = "ok"
	Warn    Status = "warn"
	Fail    Status = "fail"
	Skipped Status = "skip"
)

// marks are how a table tells them.
var marks = map[Status]string{OK: "success", Warn: "warning", Fail: "failure", Skipped: "skipped"}

// rank orders them: the greater one counts for what they are part of.
var rank = map[Status]int{Skipped: 0, OK: 1, Warn: 2, Fail: 3}

// Check is one of the tree.
type Check struct {
	Name     string   `json:"name"`
	Status   Status   `json:"status"`
	Warnings []string `json:"warnings,omitempty"`
	Message  string   `json:"message,omitempty"` // what was found
	Advice   string   `json:"advice,omitempty"`  // what to do about it
	Millis   int64    `json:"duration_ms"`
	Children []*Check `json:"children,omitempty"`
}

// New is a check that went well, so far.
func New(name, format string, args ...any) *Check {
	return &Check{Name: name, Status: OK, Message: fmt.Sprintf(format, args...)}
}

// As sets what became of it.
func (c *Check) As(s Status) *Check { c.Status = s; return c }

// Advise says what to do about it.
func (c *Check) Advise(format string, args ...any) *Check {
	c.Advice = fmt.Sprintf(format, args...)
	return c
}

// Failed is the check of a name that an error ended.
func Failed(name string, err error) *Check { return New(name, "%v", err).As(Fail) }

// Skip is a check that was not made, and why.
func Skip(name, why string) *Check { return New(name, "%s", why).As(Skipped) }

// Add puts checks below c.
func (c *Check) Add(list ...*Check) *Check {
	c.Children = append(c.Children, list...)
	return c
}

// Settle lets the worst of the children supersede, all the way up. A check whose children were all skipped stays as
// it is.
func (c *Check) Settle() Status {
	for _, child := range c.Children {
		if s := child.Settle(); rank[s] > rank[c.Status] {
			c.Status = s
		}
	}
	if len(c.Warnings) > 0 && rank[Warn] > rank[c.Status] {
		c.Status = Warn
	}
	return c.Status
}

// Write prints the tree for people; all adds how long each check took.
func (c *Check) Write(w io.Writer, all bool) error { return c.write(w, all, "") }

func (c *Check) write(w io.Writer, all bool, indent string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s[ %s ] %s", indent, marks[c.Status], c.Name)
	deeper := indent + "  "
	text := func(s string) string { return strings.ReplaceAll(s, "\n", "\n"+deeper+"  ") }
	if c.Message != "" {
		b.WriteString(": " + text(c.Message))
	}
	if all {
		fmt.Fprintf(&b, " (%d ms)", c.Millis)
	}
	b.WriteByte('\n')
	for _, warning := range c.Warnings {
		fmt.Fprintf(&b, "%s[ warning ] %s\n", deeper, text(warning))
	}
	if c.Advice != "" {
		fmt.Fprintf(&b, "%s%s\n", deeper, text(c.Advice))
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	for _, child := range c.Children {
		if err := child.write(w, all, deeper); err != nil {
			return err
		}
	}
	return nil
}
