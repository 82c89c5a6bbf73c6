package arch

import (
	"bytes"
	"go/ast"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const root = "../.."

var loaded = sync.OnceValues(func() ([]*pkg, error) { return load(root) })

func packages(t *testing.T) []*pkg {
	t.Helper()
	list, err := loaded()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 20 {
		t.Fatalf("only %d packages were found", len(list))
	}
	return list
}

func TestImports(t *testing.T) {
	for _, p := range packages(t) {
		for _, path := range p.Imports {
			to, inside := strings.CutPrefix(path, modulePath+"/")
			if !inside {
				continue
			}
			if why := judge(p.rel, to); why != "" {
				t.Errorf("%s imports %s: %s", p.rel, to, why)
			}
		}
	}
}

// TestJudge makes sure that the table refuses what it must: a rule that allows all would pass above.
func TestJudge(t *testing.T) {
	tests := []struct {
		from, to string
		ok       bool
	}{
		{"cmd/corbel", "cli", true}, {"cmd/corbel", "node", false}, {"cli", "node", true}, {"cli", "catalog", false},
		{"node", "catalog/registry", true}, {"node", "cli", false}, {"api/consulapi", "catalog/registry", true},
		{"api/consulapi", "core/group", false}, {"api/consulapi", "api/dnsapi", false}, {"api/consulapi", "api/httpx", true},
		{"api/dnsapi", "secrets", false}, {"catalog", "core/table", true}, {"catalog", "core/group", false},
		{"catalog", "kit/vfs", false}, {"catalog", "catalog/registry", false}, {"catalog/registry", "catalog", true},
		{"catalog/registry", "secrets", false}, {"mesh", "catalog", true}, {"mesh/rules", "catalog/registry", false},
		{"core/group", "telemetry", true}, {"core/group", "catalog", false}, {"telemetry", "core/wire", false},
		{"kit/vfs", "kit/clock", true}, {"kit/vfs", "telemetry", false}, {"kit/vfs", "kit/polltest", false},
		{"bench", "catalog", false}, {"bench", "client", true}, {"client", "api/httpx", false},
		{"somewhere", "kit/vfs", false},
	}
	for _, test := range tests {
		if why := judge(test.from, test.to); (why == "") != test.ok {
			t.Errorf("%s imports %s: %q, want ok = %t", test.from, test.to, why, test.ok)
		}
	}
}

func TestHeavyLibrariesHaveOneDoor(t *testing.T) {
	for _, p := range packages(t) {
		for _, path := range p.Imports {
			for _, d := range doors {
				if within(path, d.library) && !within(p.rel, d.by...) && !within(p.rel, "test") {
					t.Errorf("%s imports %s: only %v may (%s)", p.rel, path, d.by, d.why)
				}
			}
		}
	}
}

var impureCalls = []string{"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Sleep"}

func TestPurity(t *testing.T) {
	found := 0
	for _, p := range packages(t) {
		if !slices.Contains(pure, p.rel) {
			continue
		}
		found++
		for _, path := range p.Imports {
			if !slices.Contains(pureNet, path) && within(path, pureNever...) {
				t.Errorf("%s imports %s: a pure package takes it as an argument or returns it as an effect", p.rel, path)
			}
		}
		for name, f := range p.files {
			if isTest(name) {
				if Single(p.rel) {
					startsNone(t, p, f)
				}
				continue
			}
			startsNone(t, p, f)
			ast.Inspect(f, func(n ast.Node) bool {
				for _, call := range impureCalls {
					if selects(n, "time", call) {
						t.Errorf("%s: time.%s in a pure package: take the time as an argument", p.place(n.Pos()), call)
					}
				}
				return true
			})
		}
	}
	if found == 0 {
		t.Error("no pure package was found")
	}
}

// startsNone looks for what starts goroutines.
func startsNone(t *testing.T, p *pkg, f *ast.File) {
	ast.Inspect(f, func(n ast.Node) bool {
		_, starts := n.(*ast.GoStmt)
		if call, ok := n.(*ast.CallExpr); ok {
			s, ok := call.Fun.(*ast.SelectorExpr)
			starts = ok && slices.Contains([]string{"Go", "Parallel", "RunParallel"}, s.Sel.Name)
		}
		if starts {
			t.Errorf("%s: a goroutine in a pure package, which is not run under the race detector", p.place(n.Pos()))
		}
		return true
	})
}

func TestPackageDocsAndNames(t *testing.T) {
	names := map[string]string{}
	for _, p := range packages(t) {
		if len(p.GoFiles) == 0 {
			continue
		}
		documented := slices.ContainsFunc(p.GoFiles, func(name string) bool {
			doc := p.files[name].Doc
			return doc != nil && len(strings.TrimSpace(doc.Text())) > 20
		})
		if !documented {
			t.Errorf("%s has no package comment: say what it is, what always holds, who may call it", p.rel)
		}
		if p.Name == "main" {
			continue
		}
		if other, taken := names[p.Name]; taken {
			t.Errorf("%s and %s are both called %s: names are unique, so that no import needs an alias", other, p.rel, p.Name)
		}
		names[p.Name] = p.rel
	}
}

func TestSizes(t *testing.T) {
	for _, p := range packages(t) {
		for name, f := range p.files {
			path := filepath.Join(p.rel, name)
			fileLimit, funcLimit := maxFileLines, maxFuncLines
			if isTest(name) {
				fileLimit, funcLimit = maxTestFileLines, maxTestFuncLines
			}
			if lines := p.fset.File(f.Pos()).LineCount(); lines > fileLimit && longFiles[path] == "" {
				t.Errorf("%s has %d lines, at most %d: find the second noun and split", path, lines, fileLimit)
			}
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || fn.Body == nil {
					continue
				}
				lines := p.fset.Position(fn.End()).Line - p.fset.Position(fn.Pos()).Line + 1
				if lines > funcLimit && longFunctions[p.rel+"."+fn.Name.Name] == "" {
					t.Errorf("%s: %s has %d lines, at most %d", p.place(fn.Pos()), fn.Name.Name, lines, funcLimit)
				}
			}
		}
	}
}

func TestBannedCalls(t *testing.T) {
	for _, p := range packages(t) {
		for name, f := range p.files {
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" && inits[p.rel] == "" {
					t.Errorf("%s: init() hides order and state: call it from where it is needed", p.place(fn.Pos()))
				}
			}
			banned(t, p, name, f)
		}
	}
}

var skipCalls = []string{"Skip", "Skipf", "SkipNow"}

// banned looks for calls; inside a synctest bubble time is fake and sleeping is how one waits.
func banned(t *testing.T, p *pkg, name string, f *ast.File) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if selects(call.Fun, "synctest", "Test") {
			return false
		}
		s, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		id, _ := s.X.(*ast.Ident)
		switch {
		case id == nil:
		case isTest(name) && id.Name == "time" && s.Sel.Name == "Sleep":
			t.Errorf("%s: time.Sleep in a test: poll with kit/polltest, or use a synctest bubble", p.place(n.Pos()))
		case id.Name == "log" && imports(f, "log") && s.Sel.Name != "New": // libraries ask for a *log.Logger
			t.Errorf("%s: log.%s: take a *slog.Logger from the Config", p.place(n.Pos()), s.Sel.Name)
		case slices.Contains([]string{"t", "b", "f", "tb"}, id.Name) && slices.Contains(skipCalls, s.Sel.Name) &&
			p.rel != "kit/loud" && isTest(name):
			t.Errorf("%s: %s.%s: use kit/loud, so that what did not run is seen", p.place(n.Pos()), id.Name, s.Sel.Name)
		}
		return true
	})
}

func imports(f *ast.File, path string) bool {
	return slices.ContainsFunc(f.Imports, func(s *ast.ImportSpec) bool { return s.Path.Value == strconv.Quote(path) })
}

// machinePath fits absolute paths of somebody's machine; the pieces are apart so that it does not find itself.
var machinePath = regexp.MustCompile(`(^|[\s"'(=:` + "`" + `])/(wo` + `rk|ro` + `ot|ho` + `me|Us` + `ers)/[a-zA-Z.]`)

var openEnd = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b(.*)`)

func TestNoMachinePathsAndNoLooseEnds(t *testing.T) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil { // an archive without git: the Go files alone
		out = nil
		for _, p := range packages(t) {
			for name := range p.files {
				out = append(out, filepath.Join(p.rel, name)+"\x00"...)
			}
		}
	}
	files := 0
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil || bytes.IndexByte(text, 0) >= 0 || strings.HasSuffix(name, ".sum") ||
			strings.Contains(name, "testdata/") {
			continue // deleted, binary, or not for reading
		}
		files++
		number := 0
		for line := range strings.Lines(string(text)) {
			number++
			if machinePath.MatchString(line) {
				t.Errorf("%s:%d: a path of one machine: %s", name, number, strings.TrimSpace(line))
			}
			if m := openEnd.FindStringSubmatch(line); m != nil && !strings.Contains(m[2], "#") &&
				strings.HasSuffix(name, ".go") {
				t.Errorf("%s:%d: %s without an issue number", name, number, m[1])
			}
		}
	}
	if files < 40 {
		t.Errorf("only %d files were read", files)
	}
}

// TestExemptionsAreUsed keeps the lists of exceptions short.
func TestExemptionsAreUsed(t *testing.T) {
	lines := map[string]int{}
	for _, p := range packages(t) {
		for name, f := range p.files {
			lines[filepath.Join(p.rel, name)] = p.fset.File(f.Pos()).LineCount()
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok {
					key := p.rel + "." + fn.Name.Name
					lines[key] = max(lines[key], length(p.fset, fn))
				}
			}
		}
	}
	for key := range longFunctions {
		if lines[key] <= maxFuncLines {
			t.Errorf("%s needs no exemption any more", key)
		}
	}
	for key := range longFiles {
		if lines[key] <= maxFileLines {
			t.Errorf("%s needs no exemption any more", key)
		}
	}
}

func length(fset *token.FileSet, n ast.Node) int {
	return fset.Position(n.End()).Line - fset.Position(n.Pos()).Line + 1
}
