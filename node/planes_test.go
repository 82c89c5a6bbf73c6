package node

import (
	"os"
	"path/filepath"
	"regexp"
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
