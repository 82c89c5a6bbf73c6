package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

// Table is aligned text with a head line. On a terminal it fits the width, and states have colours.
type Table struct {
	Head []string
	Gap  int // spaces between columns; 0 is 2
	rows [][]string
}

// Add appends a row.
func (t *Table) Add(cells ...string) { t.rows = append(t.rows, cells) }

// Write prints the table with spaces between columns and none at the end.
func (t *Table) Write(w io.Writer) error {
	all := t.rows
	if t.Head != nil {
		all = append([][]string{t.Head}, t.rows...)
	}
	columns, gap := 0, 2
	if t.Gap > 0 {
		gap = t.Gap
	}
	for _, row := range all {
		columns = max(columns, len(row))
	}
	widths := make([]int, columns)
	for _, row := range all {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	l := lookOf(w)
	l.narrow(widths, gap)
	var b strings.Builder
	for n, row := range all {
		line := ""
		for i, cell := range row {
			cell = cut(cell, widths[i])
			line += l.paint(cell, n == 0 && t.Head != nil) +
				strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+gap)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Fields is text of "Name:   value" lines, the values under each other.
type Fields struct {
	Width int // column of the values
	b     strings.Builder
}

// Add appends a field.
func (f *Fields) Add(name, value string) {
	f.Line(strings.TrimRight(name+":"+strings.Repeat(" ", max(f.Width-utf8.RuneCountInString(name)-1, 1))+value, " "))
}

// Line appends a line as it is.
func (f *Fields) Line(text string) { f.b.WriteString(text + "\n") }

// String is what was added.
func (f *Fields) String() string { return f.b.String() }

// Write prints what was added.
func (f *Fields) Write(w io.Writer) error {
	_, err := io.WriteString(w, f.b.String())
	return err
}

// WriteJSON prints v indented, or on one line when it is one of many.
func WriteJSON(w io.Writer, v any, many bool) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if !many {
		enc.SetIndent("", "    ")
	}
	return enc.Encode(v)
}

// Reading is what read commands share: the client and how to print.
type Reading struct {
	Dial
	JSON  bool
	Watch bool

	format string
}

// Flags gives c the flags of a command that reads.
func (r *Reading) Flags(e *Env, c *cobra.Command, canWatch bool) {
	r.Dial.Flags(e, c)
	c.Flags().BoolVar(&r.JSON, "json", false, "print JSON")
	if canWatch {
		c.Flags().BoolVar(&r.Watch, "watch", false, "print again at each change until interrupted")
	}
}

// FormatFlag gives c the flag --format beside --json.
func (r *Reading) FormatFlag(c *cobra.Command) {
	c.Flags().StringVar(&r.format, "format", "pretty", "pretty or json")
}

// CheckFormat reads the flag of FormatFlag.
func (r *Reading) CheckFormat() error {
	switch r.format {
	case "", "pretty":
	case "json":
		r.JSON = true
	default:
		return Usagef("--format=%s must be pretty or json", r.format)
	}
	return nil
}

// Show reads once, or again and again with --watch, and prints each answer.
func Show[T any](ctx context.Context, e *Env, r *Reading, q client.Query,
	read func(context.Context, client.Query) (T, client.Meta, error), print func(io.Writer, T) error) error {
	one := func(v T) error {
		if r.JSON {
			return WriteJSON(e.Out, v, r.Watch)
		}
		return print(e.Out, v)
	}
	if !r.Watch {
		v, _, err := read(ctx, q)
		if err != nil {
			return err
		}
		return one(v)
	}
	return each(e, r, client.Follow(ctx, q, read), one)
}

// each prints a sequence of answers; failures in between go to stderr, the last one ends it.
func each[T any](e *Env, r *Reading, answers iter.Seq2[T, error], one func(T) error) error {
	var last error
	said := ""
	for v, err := range answers {
		if last = err; err != nil {
			if text := e.Text(err); text != said { // once: nobody reads it again and again
				said = text
				fmt.Fprintf(e.Err, "%s: %s\n", e.Program(), text)
			}
			continue
		}
		said = ""
		if !r.JSON {
			fmt.Fprintf(e.Out, "%s\n", time.Now().Format("15:04:05"))
		}
		if err := one(v); err != nil {
			return err
		}
	}
	if last != nil {
		return ExitCode(1) // said above
	}
	return nil
}

// Changing makes of a question whose answer has no index to block on one that Show can follow: it is asked again every
// so often, and answered when the answer is another one.
func Changing[T any](every time.Duration, ask func(context.Context) (T, error)) func(context.Context,
	client.Query) (T, client.Meta, error) {
	var before T
	var version uint64
	return func(ctx context.Context, _ client.Query) (T, client.Meta, error) {
		for {
			now, err := ask(ctx)
			if err != nil || version == 0 || !reflect.DeepEqual(before, now) {
				before = now
				version++
				return now, client.Meta{Index: version}, err
			}
			timer := time.NewTimer(every)
			select {
			case <-ctx.Done():
				timer.Stop()
				return now, client.Meta{}, ctx.Err()
			case <-timer.C:
			}
		}
	}
}
