package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// namedPath fits a file or package of the tree that a page names, also with a name of the package behind it.
var namedPath = regexp.MustCompile("`([a-z0-9_]+(?:/[a-z0-9_]+)+(?:\\.go)?)(?:\\.[A-Z]\\w*)?`")

// missingPaths are those of a page that stand in a top folder of the tree and are not there, and how many it names.
func missingPaths(page string) (missing []string, named int) {
	for _, m := range namedPath.FindAllStringSubmatch(page, -1) {
		top, _, _ := strings.Cut(m[1], "/")
		if at, err := os.Stat(filepath.Join(root, top)); err != nil || !at.IsDir() {
			continue
		}
		named++
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			missing = append(missing, m[1])
		}
	}
	return missing, named
}

// TestPagesNamePathsThatExist: whoever follows a page of docs/internals finds the files and packages that it names.
func TestPagesNamePathsThatExist(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "internals", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, page := range append(pages, filepath.Join(root, "docs", "reliability.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		number := 0
		for line := range strings.Lines(string(text)) {
			number++
			missing, named := missingPaths(line)
			total += named
			for _, path := range missing {
				t.Errorf("%s:%d names %s, which does not exist", filepath.Base(page), number, path)
			}
		}
	}
	if total < 300 {
		t.Errorf("the pages name only %d paths: has their form changed?", total)
	}
}

// TestMissingPaths makes sure that a path which is gone is found.
func TestMissingPaths(t *testing.T) {
	missing, named := missingPaths("`kit/gone`, `kit/gone/gone.go` and `kit/gone.Name`; `kit/clock`, `kit/clock.Real`, " +
		"`v1/kv/gone` and `core/a-key`")
	if got := strings.Join(missing, " "); got != "kit/gone kit/gone/gone.go kit/gone" || named != 5 {
		t.Errorf("missing %s of %d", got, named)
	}
}
