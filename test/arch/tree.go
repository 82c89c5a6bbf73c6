// Package arch holds no code of its own: its tests enforce the layout and the
// habits of the tree: who may import whom, which packages are pure, one door for
// each heavy library, package docs, sizes, banned calls.
//
// The tables are in rules.go. A failure names the file, the rule and what to do
// instead. To change a rule change its table, with the reason beside it.
package arch

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
)

// modulePath begins the import paths of the product.
const modulePath = "corbel.dev/corbel"

// pkg is one package of the product, parsed.
type pkg struct {
	ImportPath, Name, Dir string
	Imports               []string
	GoFiles, TestGoFiles  []string
	XTestGoFiles          []string

	rel   string // path below the module, "" for its root
	fset  *token.FileSet
	files map[string]*ast.File // by name; tests too
}

// isTest reports whether the file is a test.
func isTest(name string) bool { return strings.HasSuffix(name, "_test.go") }

// place is a position as a person writes it: path below the root, and line.
func (p *pkg) place(pos token.Pos) string {
	at := p.fset.Position(pos)
	return fmt.Sprintf("%s:%d", filepath.Join(p.rel, filepath.Base(at.Filename)), at.Line)
}

// load lists and parses the packages of the module at root, for this platform.
func load(root string) ([]*pkg, error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Name,Dir,Imports,GoFiles,TestGoFiles,XTestGoFiles", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var list []*pkg
	decoder := json.NewDecoder(strings.NewReader(string(out)))
	for {
		p := &pkg{fset: token.NewFileSet(), files: map[string]*ast.File{}}
		if err := decoder.Decode(p); err == io.EOF {
			return list, nil
		} else if err != nil {
			return nil, err
		}
		p.rel = strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, modulePath), "/")
		for _, names := range [][]string{p.GoFiles, p.TestGoFiles, p.XTestGoFiles} {
			for _, name := range names {
				f, err := parser.ParseFile(p.fset, filepath.Join(p.Dir, name), nil, parser.ParseComments)
				if err != nil {
					return nil, err
				}
				p.files[name] = f
			}
		}
		list = append(list, p)
	}
}
