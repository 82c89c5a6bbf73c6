package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// sourceFile fits a file of the tree that a page names.
var sourceFile = regexp.MustCompile("`((?:[a-z0-9_]+/)+[a-z0-9_]+\\.go)`")

// TestPagesNameFilesThatExist: whoever follows a page of docs/internals finds the files that it names.
func TestPagesNameFilesThatExist(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "internals", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		number := 0
		for line := range strings.Lines(string(text)) {
			number++
			for _, m := range sourceFile.FindAllStringSubmatch(line, -1) {
				named++
				if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
					t.Errorf("%s:%d names %s, which is not there", filepath.Base(page), number, m[1])
				}
			}
		}
	}
	if named < 30 {
		t.Errorf("only %d files are named", named)
	}
}
