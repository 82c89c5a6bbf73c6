package spec

import (
	"cmp"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/kit/errkind"
)

// The bounds when Options have none.
const (
	DefaultMaxBytes = 1 << 20
	// DefaultMaxSteps takes under a second on one core: a step is 1 µs to 2 µs where lists are made.
	DefaultMaxSteps = 500_000
)

// maxProblems is how many problems an Error lists.
const maxProblems = 50

// Options are what a job file is read with.
type Options struct {
	Filename  string            // for errors
	Variables []Assignment      // -var, the last one of a name counts
	VarFiles  []File            // -var-file, later ones over earlier ones
	Env       map[string]string // NOMAD_VAR_ variables, without the prefix
	Lax       bool              // variables that the file does not declare are ignored
	// ReadFile is what file() reads by; nil refuses it.
	ReadFile func(path string) ([]byte, error)
	Now      time.Time // of timestamp()
	Random   io.Reader // of uuidv4(); nil refuses it
	MaxBytes int
	MaxSteps int
}

// Assignment is a variable's value as text: HCL, but for variables of type string.
type Assignment struct{ Name, Text string }

// File is a file of variables.
type File struct {
	Name string
	Text []byte
}

// Problem is something wrong with a job file.
type Problem struct {
	File         string
	Line, Column int
	Field        string // such as job.web.group.api.count; "" when it is none's
	Text         string
}

func (p Problem) String() string {
	s := p.Text
	if p.Field != "" {
		s = p.Field + ": " + s
	}
	if p.Line > 0 {
		s = fmt.Sprintf("%s:%d,%d: %s", p.File, p.Line, p.Column, s)
	}
	return s
}

// Error is all that is wrong with a job file, in the order of its lines.
type Error struct {
	Problems []Problem
	More     int // that are not listed
}

// Error lists the problems, one a line.
func (e *Error) Error() string {
	lines := make([]string, 0, len(e.Problems)+1)
	for _, p := range e.Problems {
		lines = append(lines, p.String())
	}
	if e.More > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", e.More))
	}
	return strings.Join(lines, "\n")
}

// parser is one run of Parse.
type parser struct {
	budget
	o        Options
	sources  map[string][]byte
	problems []Problem
	more     int
	root     *hcl.EvalContext
	vaults   map[*jobwire.TaskGroup]*jobwire.Vault // of groups, for their tasks
	// references are what wrap has seen since somebody emptied it.
	references []hcl.Traversal
	declared   map[string][]string // names below var and local
	tables     map[reflect.Type]map[string]jobwire.Field
}

// Parse reads a job file. The error is Invalid, and an *Error is within.
func Parse(text []byte, o Options) (*jobwire.Job, error) {
	o.Filename = cmp.Or(o.Filename, "job.nomad.hcl")
	o.MaxBytes, o.MaxSteps = cmp.Or(o.MaxBytes, DefaultMaxBytes), cmp.Or(o.MaxSteps, DefaultMaxSteps)
	p := &parser{o: o, budget: budget{o.MaxSteps, o.MaxSteps}, sources: map[string][]byte{},
		declared: map[string][]string{}, tables: map[reflect.Type]map[string]jobwire.Field{},
		vaults: map[*jobwire.TaskGroup]*jobwire.Vault{}}
	job := p.bounded(text)
	if len(p.problems) > 0 {
		slices.SortStableFunc(p.problems, func(a, b Problem) int {
			return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
		})
		return nil, errkind.E(errkind.Invalid, "", &Error{p.problems, p.more})
	}
	return job, nil
}

// exhausted is thrown where a file is over its bounds: it ends the evaluation however deep that is.
type exhausted struct {
	at   hcl.Range
	text string
}

// bounded is file with an end to it.
func (p *parser) bounded(text []byte) (job *jobwire.Job) {
	defer func() {
		if thrown := recover(); thrown != nil {
			over, ours := thrown.(exhausted)
			if !ours {
				panic(thrown)
			}
			p.problem(over.at, "", "%s", over.text)
		} else if p.left < 0 && len(p.problems) == 0 { // a function caught what was thrown
			p.problem(hcl.Range{Filename: p.o.Filename}, "", "%s", p.tooMuch())
		}
	}()
	return p.file(text)
}

func (p *parser) problem(at hcl.Range, field, format string, args ...any) {
	if len(p.problems) >= maxProblems {
		p.more++
		return
	}
	text := format
	if len(args) > 0 {
		text = fmt.Sprintf(format, args...)
	}
	found := Problem{at.Filename, at.Start.Line, at.Start.Column, field, text}
	if !slices.Contains(p.problems, found) { // a dynamic block says it once for each of its blocks
		p.problems = append(p.problems, found)
	}
}

// diagnose reports whether diags have no error, and records those that they have.
func (p *parser) diagnose(diags hcl.Diagnostics, field string) bool {
	for _, d := range diags {
		if d.Severity != hcl.DiagError {
			continue
		}
		var at hcl.Range
		if d.Subject != nil {
			at = *d.Subject
		}
		p.problem(at, field, "%s", strings.TrimSuffix(d.Summary+": "+d.Detail, ": "))
	}
	return !diags.HasErrors()
}

// parse reads HCL within the bounds, and makes its expressions count their steps.
func (p *parser) parse(name string, text []byte) *hclsyntax.Body {
	if len(text) > p.o.MaxBytes {
		p.problem(hcl.Range{Filename: name}, "", "%d bytes: at most %d are read", len(text), p.o.MaxBytes)
		return nil
	}
	if at, why := tooDeep(text, name); why != "" {
		p.problem(at, "", "%s", why)
		return nil
	}
	file, diags := hclsyntax.ParseConfig(text, name, hcl.InitialPos)
	if !p.diagnose(diags, "") {
		return nil
	}
	p.sources[name] = text
	return file.Body.(*hclsyntax.Body)
}

// file reads the whole file.
func (p *parser) file(text []byte) *jobwire.Job {
	body := p.parse(p.o.Filename, text)
	if body == nil {
		return nil
	}
	for _, a := range attributes(body) {
		p.problem(a.NameRange, "", "%s stands outside of a block: a file has variable, locals and job blocks", a.Name)
	}
	parts := map[string][]*hclsyntax.Block{}
	for _, b := range body.Blocks {
		switch b.Type {
		case "job", "variable", "variables", "locals":
			parts[b.Type] = append(parts[b.Type], b)
		default:
			p.problem(b.TypeRange, "", "unknown block %q%s", b.Type,
				suggest(b.Type, []string{"job", "variable", "variables", "locals"}))
		}
	}
	if len(parts["job"]) != 1 {
		at := hcl.Range{Filename: p.o.Filename, Start: hcl.InitialPos}
		if len(parts["job"]) > 1 {
			at = parts["job"][1].TypeRange
		}
		p.problem(at, "", "a file has one job block, this one has %d", len(parts["job"]))
		return nil
	}
	p.root = &hcl.EvalContext{Functions: p.functions()}
	p.variables(parts["variable"], parts["variables"])
	p.locals(parts["locals"])
	if len(p.problems) > 0 { // what they stand for is not known: the rest would be noise
		return nil
	}
	return p.job(parts["job"][0])
}

// attributes are those of a body in the order of its lines.
func attributes(b *hclsyntax.Body) []*hclsyntax.Attribute {
	list := make([]*hclsyntax.Attribute, 0, len(b.Attributes))
	for _, a := range b.Attributes {
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b *hclsyntax.Attribute) int {
		return cmp.Compare(a.SrcRange.Start.Byte, b.SrcRange.Start.Byte)
	})
	return list
}

// suggest proposes the known word that is nearest to word.
func suggest(word string, known []string) string {
	best, least := "", 1+len(word)/3
	for _, k := range slices.Sorted(slices.Values(known)) {
		if d := distance(word, k, least+1); d <= least && (best == "" || d < distance(word, best, least+1)) {
			best = k
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// distance is how many letters are to be put in, left out, changed or swapped with their neighbour; what is limit or
// more is limit.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit || len(a) > 64 || len(b) > 64 {
		return limit
	}
	var before, last, row [65]int
	for k := range len(b) + 1 {
		last[k] = k
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for k := 1; k <= len(b); k++ {
			cost := 1
			if a[i-1] == b[k-1] {
				cost = 0
			}
			row[k] = min(last[k]+1, row[k-1]+1, last[k-1]+cost)
			if i > 1 && k > 1 && a[i-1] == b[k-2] && a[i-2] == b[k-1] {
				row[k] = min(row[k], before[k-2]+1)
			}
		}
		before, last = last, row
	}
	return min(last[len(b)], limit)
}
