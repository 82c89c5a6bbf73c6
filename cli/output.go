package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"
	"unicode/utf8"

	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

// table is aligned text with a head line.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// write prints the table with two spaces between columns and none at the end.
func (t *table) write(w io.Writer) error {
	widths := make([]int, len(t.head))
	all := append([][]string{t.head}, t.rows...)
	for _, row := range all {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range all {
		line := ""
		for i, cell := range row {
			line += cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeJSON prints v indented, or on one line when it is one of many.
func writeJSON(w io.Writer, v any, many bool) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if !many {
		enc.SetIndent("", "    ")
	}
	return enc.Encode(v)
}

// reading is what read commands share: the client and how to print.
type reading struct {
	dial
	json  bool
	watch bool
}

func (r *reading) flags(e *env, c *cobra.Command, canWatch bool) {
	r.dial.flags(e, c)
	c.Flags().BoolVar(&r.json, "json", false, "print JSON")
	if canWatch {
		c.Flags().BoolVar(&r.watch, "watch", false, "print again at each change until interrupted")
	}
}

// show reads once, or again and again with --watch, and prints each answer.
func show[T any](ctx context.Context, e *env, r *reading, q client.Query,
	read func(context.Context, client.Query) (T, client.Meta, error), print func(io.Writer, T) error) error {
	one := func(v T) error {
		if r.json {
			return writeJSON(e.out, v, r.watch)
		}
		return print(e.out, v)
	}
	if !r.watch {
		v, _, err := read(ctx, q)
		if err != nil {
			return err
		}
		return one(v)
	}
	return each(e, r, client.Follow(ctx, q, read), one)
}

// each prints a sequence of answers; failures in between go to stderr, the last one ends it.
func each[T any](e *env, r *reading, answers iter.Seq2[T, error], one func(T) error) error {
	var last error
	for v, err := range answers {
		if last = err; err != nil {
			fmt.Fprintf(e.err, "corbel: %v\n", err)
			continue
		}
		if !r.json {
			fmt.Fprintf(e.out, "%s\n", time.Now().Format("15:04:05"))
		}
		if err := one(v); err != nil {
			return err
		}
	}
	if last != nil {
		return exitCode(1) // said above
	}
	return nil
}
