package compat

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// pythonLibraries installs the pinned requirements into the cache, once per set of them.
func pythonLibraries(t *testing.T, python string) string {
	t.Helper()
	requirements := filepath.Join("testdata", "requirements.txt")
	text, err := os.ReadFile(requirements)
	must(t, err)
	cache, err := filepath.Abs(filepath.Join("..", "..", ".cache", "python"))
	must(t, err)
	dir := filepath.Join(cache, fmt.Sprintf("%x", sha256.Sum256(text))[:16])
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	must(t, os.MkdirAll(cache, 0o755))
	part, err := os.MkdirTemp(cache, "part-")
	must(t, err)
	defer func() { _ = os.RemoveAll(part) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// Wheels for any platform: one hash each, and nothing of them is compiled.
	out, err := exec.CommandContext(ctx, python, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:",
		"--implementation=py", "--abi=none", "--platform=any", "--require-hashes", "--target", part, "-r", requirements).CombinedOutput()
	if err != nil {
		notRun(t, "pip cannot install the client: %v: %s", err, strings.TrimSpace(string(out)))
	}
	if err := os.Rename(part, dir); err != nil {
		if _, other := os.Stat(dir); other != nil { // another run may have been first
			t.Fatal(err)
		}
	}
	return dir
}

// The Python client drives KV, catalog, health with blocking, and sessions.
func TestPythonClient(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		notRun(t, "python3 is not installed")
	}
	libraries := pythonLibraries(t, python)
	host, port, err := net.SplitHostPort(server.http)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, filepath.Join("testdata", "client.py"), host, port, server.name)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+libraries, "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "ALL WELL") {
		t.Fatalf("%v\n%s", err, out)
	}
}
