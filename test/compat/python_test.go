package compat

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
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
		"--implementation=py", "--abi=none", "--platform=any", "--require-hashes", "--target", part, "-r",
		requirements).CombinedOutput()
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

// runPython runs the script against a server; what it asserts is in testdata/client.py.
func runPython(t *testing.T, n *node, more ...string) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		notRun(t, "python3 is not installed")
	}
	libraries := pythonLibraries(t, python)
	host, port, err := net.SplitHostPort(n.http)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, append([]string{filepath.Join("testdata", "client.py"), host, port, n.name},
		more...)...)
	// The library prefers a token of the environment to its own, an empty one too.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, api.HTTPTokenEnvName+"=")
	})
	cmd.Env = append(cmd.Env, "PYTHONPATH="+libraries, "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "ALL WELL") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// The Python client drives KV, catalog, health with blocking, sessions and locks.
func TestPythonClient(t *testing.T) {
	t.Parallel()
	runPython(t, server)
}

// The Python client makes policies and tokens, and is held to them.
func TestPythonClientTokens(t *testing.T) {
	n := run(t, "dev", "python-acl", "-hcl",
		`acl { enabled = true default_policy = "deny" tokens { initial_management = "`+managing+`" default = "" } }`)
	t.Setenv(api.HTTPTokenEnvName, "")
	eventually(t, "the management token", func() error {
		c, err := api.NewClient(&api.Config{Address: n.http, Token: managing})
		if err == nil {
			_, _, err = c.ACL().TokenReadSelf(nil)
		}
		return err
	})
	runPython(t, n, managing)
}
