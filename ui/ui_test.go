package ui

import (
	"compress/gzip"
	"io"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"corbel.dev/corbel/kit/loud"
)

// TestDistIsBuilt: what is embedded is what src gives, and the vendored files are those that were listed.
func TestDistIsBuilt(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "run", "-C", "../tools", "./uibuild", "-check",
		"../ui").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestTypes: src is well typed. The compiler is a native program, version 7; it is wanted on PATH as tsc.
func TestTypes(t *testing.T) {
	t.Parallel()
	path, err := exec.LookPath("tsc")
	if err != nil {
		loud.Skip(t, "the types of ui/src: there is no tsc on PATH")
	}
	if out, err := exec.CommandContext(t.Context(), path, "-p", ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func get(path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w
}

var named = regexp.MustCompile(`/ui/assets/[^"]+`)

func TestPage(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/ui", "/ui/", "/ui/services/web", "/ui/kv/a%2Fb"} {
		w := get(path)
		if w.Code != 200 || !strings.Contains(w.Body.String(), `<div id="app">`) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
		policy := w.Header().Get("Content-Security-Policy")
		if !strings.Contains(policy, "require-trusted-types-for 'script'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: %s", path, policy)
		}
		if got := w.Header().Get("Cache-Control"); got != "no-cache" {
			t.Errorf("%s: Cache-Control %s", path, got)
		}
	}
	page := get("/ui").Body.String()
	if strings.Contains(page, "<script>") || strings.Contains(page, "style=") || strings.Contains(page, "http") {
		t.Errorf("something inline or foreign: %s", page)
	}
	assets := named.FindAllString(page, -1)
	if len(assets) != 2 {
		t.Fatalf("%q", assets)
	}
	for _, path := range assets {
		w := get(path, "Accept-Encoding", "gzip")
		z, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatalf("%s: %d %v", path, w.Code, err)
		}
		small, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		plain := get(path)
		if plain.Body.String() != string(small) || len(small) == 0 {
			t.Errorf("%s: %d bytes plain, %d unzipped", path, plain.Body.Len(), len(small))
		}
		if got := plain.Header().Get("Cache-Control"); !strings.Contains(got, "immutable") {
			t.Errorf("%s: Cache-Control %s", path, got)
		}
		if b := get(path, "Accept-Encoding", "gzip, deflate, br"); b.Header().Get("Content-Encoding") != "br" {
			t.Errorf("%s: %s", path, b.Header())
		}
	}
	for _, path := range []string{"/ui/assets/none.js", "/ui/assets/", "/ui/assets/../index.html",
		"/ui/assets/index.html.gz"} {
		if w := get(path, "Accept-Encoding", "gzip"); w.Code != 404 || strings.Contains(w.Header().Get("Cache-Control"),
			"immutable") {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
	}
}
