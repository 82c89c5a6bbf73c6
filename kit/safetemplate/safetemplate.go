// Package safetemplate runs templates that others wrote, in the language of text/template, within steps, bytes and
// time.
//
// A template of text/template is a program: loops and templates that call each other run for as long as they like, and
// printf makes megabytes of a few characters. Here every turn of a loop and every call of a template is a step; what
// functions make is paid from a budget before it is made; and the clock is looked at with each. So a template costs
// at most Limits, whatever it says, and its caller may run it in a process that has other work.
//
// Functions that a caller adds must pay for what they make: see Budget. A Template may be run by any number of
// goroutines.
package safetemplate

import (
	"fmt"
	"maps"
	"strings"
	"text/template"
	"text/template/parse"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// Limits of one run. The zero value of each field means its default.
type Limits struct {
	TextBytes   int           // of the template itself; 64 KiB
	OutputBytes int           // of what it comes to; 1 MiB
	MadeBytes   int           // that functions make on the way; 4 MiB
	Steps       int           // turns of loops and calls of templates; 10,000
	Time        time.Duration // 100 ms
	// Left and Right are the template's brackets; {{ and }}.
	Left, Right string
}

func (l *Limits) complete() {
	for field, value := range map[*int]int{&l.TextBytes: 64 << 10, &l.OutputBytes: 1 << 20, &l.MadeBytes: 4 << 20,
		&l.Steps: 10_000} {
		if *field <= 0 {
			*field = value
		}
	}
	if l.Time <= 0 {
		l.Time = 100 * time.Millisecond
	}
}

// Functions are what a template may call beside the built-in ones, for one run.
type Functions func(*Budget) template.FuncMap

// Template is a parsed template.
type Template struct {
	t      *template.Template
	funcs  Functions
	limits Limits
}

// step is the function that is called at the begin of each turn and of each template.
const step = "_step"

// Parse reads a template. name stands in errors; funcs may be nil. Errors: TooLarge, and Invalid for what is no
// template.
func Parse(name, text string, funcs Functions, limits Limits) (*Template, error) {
	limits.complete()
	if len(text) > limits.TextBytes {
		return nil, errkind.Errorf(errkind.TooLarge, "%s: a template of %d bytes; at most %d", name, len(text),
			limits.TextBytes)
	}
	if funcs == nil {
		funcs = func(*Budget) template.FuncMap { return nil }
	}
	t, err := template.New(name).Delims(limits.Left, limits.Right).Funcs(functions(new(Budget), funcs)).Parse(text)
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "", err)
	}
	marker, err := template.New("").Funcs(template.FuncMap{step: func() string { return "" }}).Parse("{{" + step + "}}")
	if err != nil {
		return nil, errkind.E(errkind.Internal, "the step of a template", err)
	}
	for _, one := range t.Templates() {
		if one.Tree != nil && one.Root != nil {
			count(one.Root, marker.Root.Nodes[0])
			lead(one.Root, marker.Root.Nodes[0])
		}
	}
	return &Template{t: t, funcs: funcs, limits: limits}, nil
}

// Root is the template's tree, for callers that allow less than the language has.
func (t *Template) Root() *parse.ListNode { return t.t.Root }

// count puts the marker into every loop below a list.
func count(list *parse.ListNode, marker parse.Node) {
	if list == nil {
		return
	}
	for _, n := range list.Nodes {
		switch n := n.(type) {
		case *parse.RangeNode:
			count(n.List, marker)
			count(n.ElseList, marker)
			lead(n.List, marker)
		case *parse.IfNode:
			count(n.List, marker)
			count(n.ElseList, marker)
		case *parse.WithNode:
			count(n.List, marker)
			count(n.ElseList, marker)
		}
	}
}

// lead puts the marker before all else in a list.
func lead(list *parse.ListNode, marker parse.Node) {
	list.Nodes = append([]parse.Node{marker.Copy()}, list.Nodes...)
}

// Execute runs the template over data. With strict, a key of a map that is missing is an error. Errors are of kind
// Invalid; errors.Is finds ErrLimit where a limit ended it.
func (t *Template) Execute(data any, strict bool) (string, error) {
	run, err := t.t.Clone()
	if err != nil {
		return "", errkind.E(errkind.Internal, "a template", err)
	}
	b := &Budget{made: t.limits.MadeBytes, steps: t.limits.Steps, until: time.Now().Add(t.limits.Time)}
	run.Funcs(functions(b, t.funcs))
	if strict {
		run.Option("missingkey=error")
	}
	out := &output{budget: b, left: t.limits.OutputBytes}
	if err := run.Execute(out, data); err != nil {
		return "", errkind.E(errkind.Invalid, "", err)
	}
	return out.String(), nil
}

// functions are the built-in ones that make something, made to pay for it, and the caller's.
func functions(b *Budget, more Functions) template.FuncMap {
	f := template.FuncMap{
		step:       func() (string, error) { return "", b.step() },
		"print":    func(args ...any) (string, error) { return b.escaped(1, fmt.Sprint, args) },
		"println":  func(args ...any) (string, error) { return b.escaped(1, fmt.Sprintln, args) },
		"html":     func(args ...any) (string, error) { return b.escaped(6, template.HTMLEscaper, args) },
		"js":       func(args ...any) (string, error) { return b.escaped(6, template.JSEscaper, args) },
		"urlquery": func(args ...any) (string, error) { return b.escaped(3, template.URLQueryEscaper, args) },
		"printf":   b.printf,
	}
	maps.Copy(f, more(b))
	return f
}

// output collects what a template writes, up to its limit.
type output struct {
	strings.Builder
	budget *Budget
	left   int
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	if o.left -= len(p); o.left < 0 {
		return 0, limit("its text grows too large")
	}
	if err := o.budget.clock(); err != nil {
		return 0, err
	}
	return o.Builder.Write(p)
}
