package doctor

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestSignals: what a rule reads is gathered, and what is gathered is read.
func TestSignals(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var read []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || file == "signals.go" {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			if s, err := strconv.Unquote(lit.Value); err == nil && slices.Contains(Signals, s) {
				read = append(read, s)
			}
			return true
		})
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"one", "all", "value", "rate"}, sel.Sel.Name) {
				return true
			}
			if lit, ok := call.Args[0].(*ast.BasicLit); ok {
				if name, _ := strconv.Unquote(lit.Value); !slices.Contains(Signals, name) {
					t.Errorf("%s reads %q, which nobody gathers", file, name)
				}
			}
			return true
		})
	}
	for _, name := range Signals {
		if name != "group.apply" && name != "group.queue" && !slices.Contains(read, name) { // those two are shown, not judged
			t.Errorf("%q is gathered, and no rule reads it", name)
		}
	}
}
