package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// platforms are what releases are made for, those that differ most first: the agent and the commands run on all of
// them, servers not on Windows.
var platforms = []platform{{"windows", "amd64"}, {"darwin", "arm64"}, {"linux", "arm64"}, {"darwin", "amd64"},
	{"windows", "arm64"}, {"linux", "amd64"}}

// unlike is how many of platforms a run of all steps checks: the others differ from these in the processor alone.
const unlike = 3

type platform struct{ system, arch string }

// listed is a package as the go command tells it, those that it imports before it.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string
	Module          *struct{ Main bool }
	ForTest         string // the package that it is compiled for, with that one's test files or on top of them
}

// again says that a package is the same as before: it is compiled once more for the tests of one that it imports.
func (l *listed) again() bool {
	own, _, variant := strings.Cut(l.ImportPath, " ")
	return variant && own != l.ForTest && own != l.ForTest+"_test"
}

// systems checks the types of the whole binary for each platform, from source. That finds what breaks a build (a name
// that a system lacks, a file that a constraint leaves out) in three seconds of a core a platform, where six builds
// from nothing would take ten minutes. Of the first, which is most unlike Linux, all packages and their tests are
// checked, as `go vet ./...` would; of the others the binary. Linking is tried by the release. Alone (-only systems) it
// checks all platforms, and vets what Windows and macOS have of their own, for which all below it is compiled.
func (r *runner) systems() {
	files := &parsed{set: token.NewFileSet(), files: map[string]*parsedFile{}}
	list := platforms
	if !r.alone {
		list = platforms[:unlike]
	}
	for _, p := range list {
		if err := r.checkTypes(p, files); err != nil {
			r.fail("systems "+p.system+"/"+p.arch, err.Error())
			continue
		}
		r.pass()
	}
	if !r.alone {
		return
	}
	for _, p := range platforms[:2] {
		if err := r.vetOn(p); err != nil {
			r.fail("vet "+p.system+"/"+p.arch, err.Error())
			continue
		}
		r.pass()
	}
}

// vetOn vets the packages of the binary that have other files on a platform than on Linux: of all others, vet on Linux
// says the same.
func (r *runner) vetOn(p platform) error {
	here, err := r.ownFiles(platform{"linux", p.arch})
	if err != nil {
		return err
	}
	there, err := r.ownFiles(p)
	if err != nil {
		return err
	}
	args := []string{"vet"}
	for path, files := range there {
		if here[path] != files {
			args = append(args, path)
		}
	}
	if len(args) == 1 {
		return fmt.Errorf("no package has files of its own on %s", p.system)
	}
	slices.Sort(args[1:])
	cmd := r.command(r.root, "go", args...)
	cmd.Env = p.environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go vet: %w\n%s", err, out)
	}
	return nil
}

// ownFiles are the files of this module's packages in the binary, by the package's path.
func (r *runner) ownFiles(p platform) (map[string]string, error) {
	const format = `{{with .Module}}{{if .Main}}{{$.ImportPath}} {{join $.GoFiles ","}}{{end}}{{end}}`
	cmd := r.command(r.root, "go", "list", "-deps", "-f", format, "./cmd/corbel")
	cmd.Env = p.environ()
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list for %s/%s: %w", p.system, p.arch, err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if path, names, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			files[path] = names
		}
	}
	return files, nil
}

func (p platform) environ() []string {
	return append(os.Environ(), "GOOS="+p.system, "GOARCH="+p.arch, "CGO_ENABLED=0")
}

func (r *runner) checkTypes(p platform, files *parsed) error {
	args := []string{"list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap,Module,ForTest"}
	if p == platforms[0] {
		args = append(args, "-test", "./...")
	} else {
		args = append(args, "./cmd/corbel")
	}
	cmd := exec.CommandContext(r.ctx, "go", args...)
	cmd.Dir = r.root
	cmd.Env = p.environ()
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go list: %w\n%s", err, complaints.String())
	}
	known := imported{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var l listed
		if err := d.Decode(&l); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := known.check(&l, p, files); err != nil {
			return err
		}
		if r.ctx.Err() != nil {
			return r.ctx.Err()
		}
	}
}

// imported are the packages that were checked, by their paths.
type imported map[string]*types.Package

// mapped finds a package as one package names it: what is vendored has another name there.
type mapped struct {
	known imported
	names map[string]string
}

// Import implements types.Importer.
func (m mapped) Import(path string) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	if other, ok := m.names[path]; ok {
		path = other
	}
	if p := m.known[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%s was not listed", path)
}

// mostErrors is how many errors of a package are told.
const mostErrors = 10

// check checks a package: what is ours in full, of others the declarations alone.
func (known imported) check(l *listed, p platform, files *parsed) error {
	if l.ImportPath == "unsafe" || strings.HasSuffix(l.ImportPath, ".test") {
		return nil
	}
	ours := l.Module != nil && l.Module.Main
	var list []*ast.File
	for _, name := range l.GoFiles {
		f, err := files.get(filepath.Join(l.Dir, name), ours)
		if err != nil {
			return err
		}
		list = append(list, f)
	}
	var errs []string
	conf := types.Config{Importer: mapped{known, l.ImportMap}, IgnoreFuncBodies: !ours || l.again(), FakeImportC: true,
		Sizes: types.SizesFor("gc", p.arch), Error: func(err error) {
			if len(errs) < mostErrors {
				errs = append(errs, err.Error())
			}
		}}
	pkg, err := conf.Check(l.ImportPath, files.set, list, nil)
	known[l.ImportPath] = pkg
	if err != nil && ours {
		return fmt.Errorf("%s does not build for %s/%s:\n%s", l.ImportPath, p.system, p.arch, strings.Join(errs, "\n"))
	}
	return nil
}

// parsed are files in the form that the checker takes: most are the same for all platforms. One goroutine.
type parsed struct {
	set   *token.FileSet
	files map[string]*parsedFile
}

type parsedFile struct {
	file *ast.File
	err  error
}

// get parses a file; without its functions' bodies, unless it is ours.
func (p *parsed) get(path string, ours bool) (*ast.File, error) {
	if f := p.files[path]; f != nil {
		return f.file, f.err
	}
	f := &parsedFile{}
	f.file, f.err = parser.ParseFile(p.set, path, nil, parser.SkipObjectResolution)
	if f.file != nil && !ours {
		for _, d := range f.file.Decls {
			if d, ok := d.(*ast.FuncDecl); ok {
				d.Body = nil
			}
		}
	}
	p.files[path] = f
	return f.file, f.err
}
