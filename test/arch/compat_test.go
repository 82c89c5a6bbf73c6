package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testFunc  = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w*)\(`)
	testNamed = regexp.MustCompile("`((?:Test|Fuzz)\\w*|\\w+\\.txtar)`")
)

// tests are the names of all test functions, those of the module test/compat too, and of all scripts.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".txtar"):
			names[d.Name()] = true
		case isTest(path):
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range testFunc.FindAllSubmatch(text, -1) {
				names[string(m[1])] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// judgeRow tells what is wrong with a row of a page of docs/compat whose columns are number, row, state and test.
func judgeRow(line string, tests map[string]bool) (wrong []string) {
	for _, m := range testNamed.FindAllStringSubmatch(line, -1) {
		if !tests[m[1]] {
			wrong = append(wrong, "no such test: "+m[1])
		}
	}
	cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
	if len(cells) != 4 || !strings.ContainsAny(cells[0], "0123456789") {
		return wrong // not a row of the contract
	}
	state := strings.TrimSpace(cells[2])
	switch {
	case state == "works" || strings.HasPrefix(state, "works; "):
		if !testNamed.MatchString(cells[3]) {
			wrong = append(wrong, "it works, says the row, and names no test")
		}
	case !strings.HasPrefix(state, "differs: ") && !strings.HasPrefix(state, "not yet: "):
		wrong = append(wrong, "the state must be works, differs: how, or not yet: what a client gets; not "+state)
	}
	return wrong
}

// TestCompatibilityPagesNameTheirTests: what a page of docs/compat calls working, a test shows.
func TestCompatibilityPagesNameTheirTests(t *testing.T) {
	known := tests(t)
	for page, least := range map[string]int{"consul.md": 150, "vault.md": 130, "sensu.md": 13, "nomad.md": 45,
		"usage.md": 40} {
		text, err := os.ReadFile(filepath.Join(root, "docs", "compat", page))
		if err != nil {
			t.Fatal(err)
		}
		number, rows := 0, 0
		for line := range strings.Lines(string(text)) {
			number++
			if !strings.HasPrefix(line, "|") {
				continue
			}
			rows++
			for _, why := range judgeRow(line, known) {
				t.Errorf("docs/compat/%s:%d: %s", page, number, why)
			}
		}
		if rows < least {
			t.Errorf("only %d rows of %s were read", rows, page)
		}
	}
}

// TestJudgeRow makes sure that rows which are wrong are found.
func TestJudgeRow(t *testing.T) {
	known := map[string]bool{"TestA": true, "a.txtar": true}
	for line, ok := range map[string]bool{
		"| 1 | x | works | `TestA` |": true, "| 1 | x | works; so | `a.txtar` |": true, "| 1 | x | not yet: 404 |  |": true,
		"| client | x | `TestA` |": true,
		"| 1 | x | works | |":      false, "| 1 | x | works | `TestB` |": false, "| 1 | x | works | `b.txtar` |": false,
		"| 1 | x | works fine | `TestA` |":  false,
		"| 1 | x | differs: so | `TestB` |": false, "| 1 | x | perhaps | `TestA` |": false, "| client | x | `TestB` |": false,
	} {
		if got := judgeRow(line, known); (len(got) == 0) != ok {
			t.Errorf("%s: %v", line, got)
		}
	}
}
