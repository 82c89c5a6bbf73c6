package node

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"corbel.dev/corbel/node/config"
)

// TestPlaneSamples: the sections of planes that the documentation shows are read as they stand.
func TestPlaneSamples(t *testing.T) {
	block := regexp.MustCompile("(?ms)^```hcl\n((?:jobs|usage) \\{.*?)^```")
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range block.FindAllStringSubmatch(string(text), -1) {
			seen++
			if _, err := config.Load(config.Options{Dev: true, Style: config.Corbel, Hostname: "h", Fragments: []string{m[1]},
				Sections: Sections()}); err != nil {
				t.Errorf("%s: %v\n%s", filepath.Base(page), err, m[1])
			}
		}
	}
	if seen == 0 {
		t.Error("no sample was found: has the form of the pages changed?")
	}
}

var update = flag.Bool("update", false, "rewrite the keys of planes in docs/configuration.md")

// TestPlaneKeys keeps docs/configuration.md equal to the sections of the planes.
func TestPlaneKeys(t *testing.T) {
	const path = "../docs/configuration.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- planes: go test ./node -run TestPlaneKeys -update -->\n", "<!-- end of planes -->\n"
	head, rest, ok := strings.Cut(string(text), begin)
	old, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal("the marks of the table are gone")
	}
	want := "\n" + config.Reference(Sections()) + "\n"
	if old == want {
		return
	}
	if !*update {
		t.Fatal("docs/configuration.md does not have the planes' keys as they are: go test ./node -run TestPlaneKeys -update")
	}
	if err := os.WriteFile(path, []byte(head+begin+want+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}
