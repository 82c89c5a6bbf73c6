package arch

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/scanner"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Rooms: what one person can hold in the head. What is beyond a limit stands in
// rooms.txt with its measure and the day by which it goes, and may only shrink.
const (
	maxPackageLines = 3000 // without tests
	maxFields       = 15   // of a struct
	maxConfigFields = 25   // of a struct whose name ends in Config or Options
	maxMethods      = 40   // of a type
	maxColumns      = 120  // of a line; a tab is one
)

// The kinds of rooms, as rooms.txt writes them.
const (
	kindLines   = "lines"   // of a package
	kindFields  = "fields"  // of a struct
	kindMethods = "methods" // of a type
	kindColumns = "columns" // lines below a folder of the root, tests too, that are too long
	kindValues  = "values"  // calls of context.WithValue in a package: program data travels as arguments
)

// advice says what to do about a room of the kind.
var advice = map[string]string{
	kindLines: fmt.Sprintf("a package has at most %d lines without tests: find the second noun and divide",
		maxPackageLines),
	kindFields: fmt.Sprintf("a struct has at most %d fields, a Config or Options %d: find the parts that it has",
		maxFields, maxConfigFields),
	kindMethods: fmt.Sprintf("a type has at most %d methods: find the types inside", maxMethods),
	kindColumns: fmt.Sprintf("a line has at most %d columns", maxColumns),
	kindValues:  "a context carries deadlines and cancellation: make it an argument",
}

// room is one measure: of a package by its path, or of a type by package.Type.
type room struct{ kind, what string }

func (r room) String() string { return r.kind + " " + r.what }

// measures returns what is beyond a limit.
func measures(list []*pkg) map[room]int {
	found := map[room]int{}
	for _, p := range list {
		lines, methods := 0, map[string]int{}
		top, _, _ := strings.Cut(p.rel, "/") // code that moves within it takes its long lines along
		for name, f := range p.files {
			found[room{kindColumns, top}] += longLines(filepath.Join(p.Dir, name))
			if isTest(name) {
				continue
			}
			lines += p.fset.File(f.Pos()).LineCount()
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.TypeSpec:
					if s, ok := n.Type.(*ast.StructType); ok {
						found[room{kindFields, p.rel + "." + n.Name.Name}] = s.Fields.NumFields() // embedded ones too
					}
				case *ast.FuncDecl:
					if n.Recv != nil {
						methods[receiver(n.Recv.List[0].Type)]++
					}
				}
				if selects(n, "context", "WithValue") && carriers[p.rel] == "" {
					found[room{kindValues, p.rel}]++
				}
				return true
			})
		}
		found[room{kindLines, p.rel}] = lines
		for name, n := range methods {
			found[room{kindMethods, p.rel + "." + name}] = n
		}
	}
	maps.DeleteFunc(found, func(r room, n int) bool { return n <= limit(r) })
	return found
}

func limit(r room) int {
	switch r.kind {
	case kindLines:
		return maxPackageLines
	case kindMethods:
		return maxMethods
	case kindFields:
		if strings.HasSuffix(r.what, "Config") || strings.HasSuffix(r.what, "Options") {
			return maxConfigFields
		}
		return maxFields
	}
	return 0
}

// selects reports whether n is pkg.name.
func selects(n ast.Node, pkg, name string) bool {
	s, ok := n.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != name {
		return false
	}
	id, ok := s.X.(*ast.Ident)
	return ok && id.Name == pkg
}

// receiver is the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// longLines counts the lines that are too long. What a raw string makes long (JSON as it
// is sent, a tag of a struct) is data, whose line breaks are not ours to choose.
func longLines(path string) (n int) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	data := rawStrings(text)
	at := 0
	for line := range strings.Lines(string(text)) {
		end := at + len(line)
		if utf8.RuneCountInString(strings.TrimRight(line, "\n")) > maxColumns && !data.within(at, end) {
			n++
		}
		at = end
	}
	return n
}

// spans are raw strings of a file: where they begin and where they end, in bytes.
type spans [][2]int

// within reports whether a raw string stands on the line from begin to end.
func (s spans) within(begin, end int) bool {
	return slices.ContainsFunc(s, func(raw [2]int) bool { return raw[0] < end && raw[1] > begin })
}

func rawStrings(text []byte) (list spans) {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(text))
	s.Init(file, text, nil, 0)
	for {
		pos, kind, literal := s.Scan()
		if kind == token.EOF {
			return list
		}
		if kind == token.STRING && literal[0] == '`' {
			at := file.Offset(pos)
			list = append(list, [2]int{at, at + len(literal)})
		}
	}
}

// exemption is a line of rooms.txt: what a room measures at most, and until when.
type exemption struct {
	most  int
	until string // YYYY-MM-DD
}

const roomsHead = `# Rooms beyond the limits of rooms.go: kind, what, measure at most, the day by which it is gone.
# The list only shrinks: "go test ./test/arch -run TestRooms -update" takes out what is done and lowers the rest.
`

func readRooms(path string) (map[room]exemption, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list := map[room]exemption{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		text := lines.Text()
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		fields := strings.Fields(text)
		if len(fields) != 4 {
			return nil, fmt.Errorf("%s: %q: want four words", path, text)
		}
		most, err := strconv.Atoi(fields[2])
		if err != nil {
			return nil, fmt.Errorf("%s: %q: %w", path, text, err)
		}
		list[room{fields[0], fields[1]}] = exemption{most, fields[3]}
	}
	return list, nil
}

func writeRooms(path string, list map[room]exemption) error {
	keys := slices.SortedFunc(maps.Keys(list), func(a, b room) int { return strings.Compare(a.String(), b.String()) })
	var b strings.Builder
	b.WriteString(roomsHead)
	for _, r := range keys {
		fmt.Fprintf(&b, "%s %d %s\n", r, list[r].most, list[r].until)
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// judgeRooms compares what is with what may be, and returns the complaints, sorted.
func judgeRooms(found map[room]int, may map[room]exemption) []string {
	var list []string
	for r, n := range found {
		if e, exempt := may[r]; !exempt {
			list = append(list, fmt.Sprintf("%s: %d: %s", r, n, advice[r.kind]))
		} else if n > e.most {
			list = append(list, fmt.Sprintf("%s: %d, and rooms.txt lets it have %d: it may only shrink", r, n, e.most))
		}
	}
	for r := range may {
		if found[r] == 0 {
			list = append(list, r.String()+": needs no exemption any more: run with -update")
		}
	}
	slices.Sort(list)
	return list
}
