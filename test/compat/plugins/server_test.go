//go:build linux

// Package plugins runs stock plug-ins of secrets engines and auth methods under the built binary. It is a module of its
// own, so that their dependencies do not decide ours. CORBEL_BIN names the binary; without it, it is built.
package plugins

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/vault/api"
)

// built builds a program into a folder, and gives its path.
func built(t *testing.T, dir, from, name string) string {
	t.Helper()
	to := filepath.Join(dir, filepath.Base(name))
	cmd := exec.Command("go", "build", "-o", to, name)
	cmd.Dir = from
	begin := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	t.Logf("%s was built in %s", filepath.Base(name), time.Since(begin).Round(time.Second))
	return to
}

// server is a server of the secrets plane whose records are in a folder.
type server struct {
	t            *testing.T
	bin, dir     string
	address, key string
	cmd          *exec.Cmd
	log          output
	client       *api.Client
}

// output is what a process printed, safe to read while it prints.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// newServer starts a server with a folder of plug-ins, and unseals it.
func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{t: t, dir: t.TempDir(), bin: os.Getenv("CORBEL_BIN")}
	if s.bin == "" {
		s.bin = built(t, s.dir, filepath.Join("..", "..", ".."), "corbel.dev/corbel/cmd/corbel")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = l.Addr().String()
	_ = l.Close()
	if err := os.Mkdir(s.plugins(), 0o755); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("storage \"file\" { path = %q }\nlistener \"tcp\" {\n  address = %q\n  tls_disable = true\n}\n"+
		"plugin_directory = %q\ndisable_mlock = true\n", filepath.Join(s.dir, "data"), s.address, s.plugins())
	if err := os.WriteFile(filepath.Join(s.dir, "server.hcl"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	c := api.DefaultConfig()
	c.Address, c.MaxRetries, c.Timeout = "http://"+s.address, 0, 90*time.Second
	if s.client, err = api.NewClient(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.kill()
		if t.Failed() {
			t.Log(s.log.String())
		}
	})
	s.start()
	init, err := s.client.Sys().Init(&api.InitRequest{SecretShares: 1, SecretThreshold: 1})
	if err != nil {
		t.Fatal(err)
	}
	s.key = init.KeysB64[0]
	s.client.SetToken(init.RootToken)
	s.unseal()
	return s
}

func (s *server) plugins() string { return filepath.Join(s.dir, "plugins") }

func (s *server) start() {
	s.t.Helper()
	s.cmd = exec.Command(s.bin, "vault", "server", "-config="+filepath.Join(s.dir, "server.hcl"))
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.within("the server", func() bool {
		resp, err := http.Get("http://" + s.address + "/v1/sys/seal-status")
		if err == nil {
			_ = resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	})
}

// kill ends the server as kill -9 does.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

func (s *server) unseal() {
	s.t.Helper()
	if st, err := s.client.Sys().Unseal(s.key); err != nil || st.Sealed {
		s.t.Fatal(err, st)
	}
}

// within waits until something is so.
func (s *server) within(what string, is func() bool) {
	s.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); !is(); <-tick.C {
		if time.Now().After(end) {
			s.t.Fatalf("%s: not within a minute\n%s", what, s.log.String())
		}
	}
}

// vault runs a command of `corbel vault`, and gives what it prints.
func (s *server) vault(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.bin, append([]string{"vault"}, args...)...)
	cmd.Env = append(os.Environ(), "VAULT_ADDR=http://"+s.address, "VAULT_TOKEN="+s.client.Token(), "HOME="+s.dir)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// must is vault where it has to succeed.
func (s *server) must(args ...string) string {
	s.t.Helper()
	out, err := s.vault(args...)
	if err != nil {
		s.t.Fatalf("%v: %v\n%s\n%s", args, err, out, s.log.String())
	}
	return out
}

// programs are the processes that the server has of a plug-in.
func (s *server) programs(name string) (pids []int) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		_, after, ok := strings.Cut(string(text), ") ")
		fields := strings.Fields(after)
		if err != nil || !ok || len(fields) < 2 || fields[0] == "Z" || fields[1] != strconv.Itoa(s.cmd.Process.Pid) {
			continue
		}
		pid := filepath.Base(filepath.Dir(path))
		line, err := os.ReadFile("/proc/" + pid + "/cmdline")
		if n, wrong := strconv.Atoi(pid); err == nil && wrong == nil && strings.Contains(string(line), name) {
			pids = append(pids, n)
		}
	}
	return pids
}
