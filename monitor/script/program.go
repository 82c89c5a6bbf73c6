package script

import (
	"crypto/sha256"
	"fmt"

	"github.com/dop251/goja"
	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/parser"
	"github.com/dop251/goja/token"
	"github.com/dop251/goja/unistring"

	"corbel.dev/corbel/kit/errkind"
)

// MaxSource bounds the source of a program in bytes: reading one cannot be interrupted.
const MaxSource = 1 << 20

// Program is a text to be run. It is never changed and may run in many goroutines at once. It is
// compiled where it runs, so that a text that its parser cannot digest harms nobody else.
type Program struct {
	source string
	body   bool
	id     [sha256.Size]byte
}

// NewProgram is a program of statements; its result is that of the last expression statement that ran, as when
// they are typed into a console. Variables that they declare are theirs alone. It fails (TooLarge) for its size
// alone: Engine.Check reads it.
func NewProgram(source string) (*Program, error) { return newProgram(source, false) }

// NewBody is the body of a function; its result is what it returns. It fails as NewProgram does.
func NewBody(body string) (*Program, error) { return newProgram(body, true) }

func newProgram(source string, body bool) (*Program, error) {
	if err := fits(source); err != nil {
		return nil, err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%t %s", body, source)
	p := &Program{source: source, body: body}
	h.Sum(p.id[:0])
	return p, nil
}

// result is the variable that holds what a program's last statement came to.
const result = "__corbel_result"

// compile reads p. An error is of kind Invalid.
func (p *Program) compile() (*goja.Program, error) {
	if p.body {
		whole, _, err := function(p.source)
		if err != nil {
			return nil, err
		}
		return compiled(whole)
	}
	// By themselves first: what is put around them must not make a program of what is none.
	if _, err := goja.Parse("", p.source, parser.WithDisableSourceMaps); err != nil {
		return nil, errkind.E(errkind.Invalid, "JavaScript", err)
	}
	whole, f, err := function("var " + result + ";" + p.source + "\nreturn " + result)
	if err != nil {
		return nil, err
	}
	keepAll(f.Body.List)
	return compiled(whole)
}

// function reads a call of a function with a body; a body that ends the function early is refused.
func function(body string) (*ast.Program, *ast.FunctionLiteral, error) {
	whole, err := goja.Parse("", "(function(){"+body+"\n})()", parser.WithDisableSourceMaps)
	if err != nil {
		return nil, nil, errkind.E(errkind.Invalid, "JavaScript", err)
	}
	if len(whole.Body) == 1 {
		if s, ok := whole.Body[0].(*ast.ExpressionStatement); ok {
			if call, ok := s.Expression.(*ast.CallExpression); ok {
				if f, ok := call.Callee.(*ast.FunctionLiteral); ok {
					return whole, f, nil
				}
			}
		}
	}
	return nil, nil, errkind.Errorf(errkind.Invalid, "JavaScript: unbalanced braces")
}

func fits(source string) error {
	if len(source) > MaxSource {
		return errkind.Errorf(errkind.TooLarge, "JavaScript of %d bytes; at most %d", len(source), MaxSource)
	}
	return nil
}

func compiled(p *ast.Program) (*goja.Program, error) {
	out, err := goja.CompileAST(p, false)
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "JavaScript", err)
	}
	return out, nil
}

// keepAll makes expression statements remember what they came to, outside of functions within.
func keepAll(list []ast.Statement) {
	for _, s := range list {
		keep(s)
	}
}

func keep(s ast.Statement) {
	switch s := s.(type) {
	case *ast.ExpressionStatement:
		// What stands before is the program's own text, so its place serves as that of the variable.
		s.Expression = &ast.AssignExpression{
			Operator: token.ASSIGN, Right: s.Expression,
			Left: &ast.Identifier{Name: unistring.String(result), Idx: s.Expression.Idx0()},
		}
	case *ast.BlockStatement:
		keepAll(s.List)
	case *ast.IfStatement:
		keep(s.Consequent)
		if s.Alternate != nil {
			keep(s.Alternate)
		}
	case *ast.ForStatement:
		keep(s.Body)
	case *ast.ForInStatement:
		keep(s.Body)
	case *ast.ForOfStatement:
		keep(s.Body)
	case *ast.WhileStatement:
		keep(s.Body)
	case *ast.DoWhileStatement:
		keep(s.Body)
	case *ast.LabelledStatement:
		keep(s.Statement)
	case *ast.WithStatement:
		keep(s.Body)
	case *ast.SwitchStatement:
		for _, c := range s.Body {
			keepAll(c.Consequent)
		}
	case *ast.TryStatement:
		keepAll(s.Body.List)
		if s.Catch != nil {
			keepAll(s.Catch.Body.List)
		}
	}
}

// Library is what runs before a program: the scripts of assets, whose functions and variables the program then sees.
type Library struct {
	sources []string
	id      [sha256.Size]byte
}

// NewLibrary is scripts that run in the order given. It fails as NewProgram does.
func NewLibrary(sources []string) (*Library, error) {
	l := &Library{sources: sources}
	h := sha256.New()
	for _, source := range sources {
		if err := fits(source); err != nil {
			return nil, err
		}
		fmt.Fprintf(h, "%d %s", len(source), source)
	}
	h.Sum(l.id[:0])
	return l, nil
}

// ready is a library as a machine has it, with the runtimes that were prepared with it.
type ready struct {
	programs []*goja.Program
	idle     chan *runtime
}

func (l *Library) ready() (*ready, error) {
	out := &ready{idle: make(chan *runtime, maxIdle)}
	if l == nil {
		return out, nil
	}
	for _, source := range l.sources {
		tree, err := goja.Parse("", source, parser.WithDisableSourceMaps)
		if err != nil {
			return nil, errkind.E(errkind.Invalid, "JavaScript of an asset", err)
		}
		p, err := goja.CompileAST(tree, false)
		if err != nil {
			return nil, errkind.E(errkind.Invalid, "JavaScript of an asset", err)
		}
		out.programs = append(out.programs, p)
	}
	return out, nil
}
