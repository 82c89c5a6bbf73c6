// Package compat drives the built binary through the clients that fleets use
// today, unmodified. It is a module of its own, so that their dependencies do not
// decide ours. CORBEL_BIN names the binary; without it, it is built.
package compat

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

// server is one `corbel dev` that most tests share: each uses names of its own.
var server *node

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == listenWord {
		fmt.Fprintln(os.Stderr, listenOnly(os.Args[2]))
		os.Exit(1)
	}
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "compat:", err)
		code = 1
	}
	os.Exit(code)
}

func runAll(m *testing.M) (code int, err error) {
	if bin, err = binary(); err != nil {
		return 1, err
	}
	if code, err = runWith(m); code != 0 || err != nil {
		return code, err
	}
	// The tests of the shared server once more, with ACLs that deny by default: the client's token and
	// the agent's default for raw requests have all rights.
	flag.Parse()
	if f := flag.Lookup("test.run"); f.Value.String() == "" {
		if err = f.Value.Set(sharedTests); err != nil {
			return 1, err
		}
	}
	if err = os.Setenv(api.HTTPTokenEnvName, managing); err != nil {
		return 1, err
	}
	return runWith(m, "-hcl", `acl { enabled = true default_policy = "deny"
		tokens { initial_management = "`+managing+`" default = "`+managing+`" } }`)
}

const (
	managing    = "5f3cf9a1-0000-4000-8000-000000000001"
	sharedTests = "^Test(Agent(Service|Self)|Catalog|KV|Txn|Session|Lock|Semaphore|Status|DNS|Errors|" +
		"CheckT|CheckHTTP|ConfigEntries|Intentions|Events|PreparedQueries|Filters|Sidecar|CachedReads|" +
		"ServiceHash|Consul(SD|Template))"
)

func runWith(m *testing.M, args ...string) (code int, err error) {
	if server, err = newNode("dev", "compat", append([]string{"-enable-script-checks"}, args...)...); err != nil {
		return 1, err
	}
	if err = server.start(); err != nil {
		return 1, err
	}
	if err = server.await(); err != nil {
		return 1, err
	}
	code = m.Run()
	return code, server.finish()
}

func binary() (string, error) {
	if bin := os.Getenv("CORBEL_BIN"); bin != "" {
		return filepath.Abs(bin)
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return "", err
	}
	bin := filepath.Join(root, ".cache", "bin", "corbel")
	cmd := exec.Command("go", "build", "-o", bin, "./cmd/corbel")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building corbel: %w: %s", err, out)
	}
	return bin, nil
}

func consul(t *testing.T) *api.Client {
	t.Helper()
	return server.client(t)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually polls until f returns nil, and quotes its last error when it never does.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	begin := time.Now()
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Since(begin) > 45*time.Second {
			t.Fatalf("waited 45 s for: %s; last: %v", what, err)
		}
		timer := time.NewTimer(20 * time.Millisecond)
		<-timer.C
	}
}
