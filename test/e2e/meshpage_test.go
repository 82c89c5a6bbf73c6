package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corbel.dev/corbel/test/fetch"
)

// TestMeshPage does what docs/mesh.md tells of two services and how they stand: its files and its commands, in their
// order, on other ports.
func TestMeshPage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "mesh.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := ""
	for section := range strings.SplitSeq(string(text), "\n## ") {
		if heading, _, _ := strings.Cut(section, "\n"); heading == "Two services" || heading == "How the proxies stand" {
			page += section
		}
	}
	r := newMeshRig(t, fetch.Need(t, "envoy"))
	r.fresh = true
	ports := strings.NewReplacer("19000", fmt.Sprint(r.port("api admin")), "19001", fmt.Sprint(r.port("web admin")),
		"9090", fmt.Sprint(backend(t, "api")), "9091", fmt.Sprint(backend(t, "web")), "9191", fmt.Sprint(r.port("to api")))
	page = ports.Replace(page)
	files := 0
	for block := range strings.SplitSeq(page, "```hcl\n") {
		body, _, closed := strings.Cut(block, "```")
		if name, ok := strings.CutPrefix(strings.SplitN(body, "\n", 2)[0], "# "); ok && closed && strings.HasSuffix(name, ".hcl") {
			files++
			if err := os.WriteFile(filepath.Join(r.dir, name), []byte(body), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(r.dir, "ca.json"), []byte(`{"Provider":"consul","Config":{"LeafCertTTL":"72h","PrivateKeyType":"ec","PrivateKeyBits":384}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	steps := map[string]int{}
	for _, line := range shellLines(page) {
		words := shellWords(line)
		if len(words) > 1 && r.step(words) {
			steps[words[0]+" "+words[1]]++
		}
	}
	for _, want := range []string{"corbel services", "corbel connect", "corbel intention", "corbel mesh"} {
		if steps[want] == 0 {
			t.Errorf("no %s was run of %v", want, steps)
		}
	}
	if files != 2 {
		t.Errorf("%d files", files)
	}
	r.synced(2)
}

// step runs a line of the page; false for what is not run here.
func (r *meshRig) step(words []string) bool {
	r.Helper()
	reached := func(want int) {
		r.Helper()
		r.await(fmt.Sprintf("status %d through both proxies", want), func() bool {
			status, _ := r.get(r.port("to api"), "/")
			return status == want
		})
	}
	switch {
	case words[0] == "curl":
		reached(http.StatusOK)
		return true
	case words[0] != "corbel" || words[1] == "dev":
		return false
	}
	c := r.command(words[1:]...)
	c.Dir = r.dir
	if words[1] == "connect" && words[2] == "envoy" {
		c.Args = append(c.Args, "--envoy-binary", r.envoy, "--", "--disable-hot-restart", "--concurrency", "1", "--log-level", "warning")
		if err := c.Start(); err != nil {
			r.Fatal(err)
		}
		r.all = append(r.all, c)
		return true
	}
	if err := c.Run(); err != nil {
		r.Fatalf("%v: %v", words, err)
	}
	if words[1] == "intention" {
		line := strings.Join(words, " ")
		switch {
		case strings.Contains(line, "--deny"):
			r.await("the refusal", func() bool { status, _ := r.get(r.port("to api"), "/"); return status != http.StatusOK })
		case strings.Contains(line, "--allow"):
			reached(http.StatusOK)
		}
	}
	return true
}
