package script

import (
	"github.com/dop251/goja"
	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/parser"
	"github.com/dop251/goja/token"
	"github.com/dop251/goja/unistring"

	"corbel.dev/corbel/kit/errkind"
)

// MaxSource bounds the source of a program in bytes: reading one cannot be interrupted.
const MaxSource = 1 << 20

// Program is what was compiled. It is never changed and may run in many goroutines at once.
type Program struct{ program *goja.Program }

// result is the variable that holds what a program's last statement came to.
const result = "__corbel_result"

// Compile reads statements; their result is that of the last expression statement that ran, as when they are
// typed into a console. Variables that they declare are theirs alone. An error is of kind Invalid.
func Compile(source string) (*Program, error) {
	if err := fits(source); err != nil {
		return nil, err
	}
	// By themselves first: what is put around them must not make a program of what is none.
	if _, err := goja.Parse("", source, parser.WithDisableSourceMaps); err != nil {
		return nil, errkind.E(errkind.Invalid, "JavaScript", err)
	}
	whole, f, err := function("var " + result + ";" + source + "\nreturn " + result)
	if err != nil {
		return nil, err
	}
	keepAll(f.Body.List)
	return compiled(whole)
}

// CompileBody reads the body of a function; its result is what it returns. An error is of kind Invalid.
func CompileBody(body string) (*Program, error) {
	if err := fits(body); err != nil {
		return nil, err
	}
	whole, _, err := function(body)
	if err != nil {
		return nil, err
	}
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

func compiled(p *ast.Program) (*Program, error) {
	out, err := goja.CompileAST(p, false)
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "JavaScript", err)
	}
	return &Program{out}, nil
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

// Library is what runs before a program: the scripts of assets, whose functions and
// variables the program then sees. Runtimes that have it ready are kept with it.
type Library struct {
	programs []*goja.Program
	idle     chan *runtime
}

// NewLibrary compiles scripts, which run in the order given. An error is of kind Invalid.
func NewLibrary(sources []string) (*Library, error) {
	l := &Library{idle: make(chan *runtime, maxIdle)}
	for _, source := range sources {
		if err := fits(source); err != nil {
			return nil, err
		}
		tree, err := goja.Parse("", source, parser.WithDisableSourceMaps)
		if err != nil {
			return nil, errkind.E(errkind.Invalid, "JavaScript", err)
		}
		p, err := goja.CompileAST(tree, false)
		if err != nil {
			return nil, errkind.E(errkind.Invalid, "JavaScript", err)
		}
		l.programs = append(l.programs, p)
	}
	return l, nil
}
