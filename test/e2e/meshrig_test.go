package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/testport"
)

// meshWait bounds every wait of these tests; they wait for states, not for time to pass.
const meshWait = 90 * time.Second

// meshRig is one `corbel dev`, backends in this process and real Envoys beside them.
type meshRig struct {
	testing.TB
	envoy string // program
	dir   string
	http  string // base URL of the API
	ports map[string]int
	dev   *exec.Cmd
	logs  *os.File
	all   []*exec.Cmd

	token     string   // for the API
	envoyArgs []string // further flags of connect envoy
}

// emptyMeshRig runs nothing yet.
func emptyMeshRig(t testing.TB, envoy string) *meshRig {
	t.Helper()
	r := &meshRig{TB: t, envoy: envoy, dir: t.TempDir(), ports: map[string]int{}}
	var err error
	if r.logs, err = os.Create(filepath.Join(r.dir, "log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.end)
	return r
}

// newMeshRig starts a server, with further configuration.
func newMeshRig(t testing.TB, envoy string, hcl ...string) *meshRig {
	t.Helper()
	r := emptyMeshRig(t, envoy)
	r.http = fmt.Sprintf("http://127.0.0.1:%d", r.port("http"))
	// Certificates are renewed at once after a rotation: the contract's own key for tests.
	config := "connect { test_ca_leaf_root_change_spread = \"100ms\" }\n" + strings.Join(hcl, "\n")
	if err := os.WriteFile(filepath.Join(r.dir, "dev.hcl"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	r.startDev()
	return r
}

// port is a free port, the same for each name.
func (r *meshRig) port(name string) int {
	r.Helper()
	if p := r.ports[name]; p != 0 {
		return p
	}
	list, err := testport.Free(1)
	if err != nil {
		r.Fatal(err)
	}
	r.ports[name] = list[0]
	return list[0]
}

func (r *meshRig) command(args ...string) *exec.Cmd {
	c := exec.Command(filepath.Join(binDir, "corbel"), args...)
	c.Env = append(os.Environ(), "CORBEL_HTTP_ADDR="+r.http)
	c.Stdout, c.Stderr = r.logs, r.logs
	return c
}

func (r *meshRig) startDev() {
	r.Helper()
	r.dev = r.command("dev", "--config-file", filepath.Join(r.dir, "dev.hcl"), "--data-dir", filepath.Join(r.dir, "data"),
		"--log-level", "warn",
		"--http-port", fmt.Sprint(r.port("http")), "--dns-port", fmt.Sprint(r.port("dns")), "--server-port",
		fmt.Sprint(r.port("rpc")),
		"--serf-lan-port", fmt.Sprint(r.port("gossip")), "--grpc-port", fmt.Sprint(r.port("grpc")))
	if err := r.dev.Start(); err != nil {
		r.Fatal(err)
	}
	r.await("a leader", func() bool {
		status, body := r.ask("GET", "/v1/status/leader", "")
		return status == http.StatusOK && strings.Contains(body, ":")
	})
}

// killDev ends it as a power cut does.
func (r *meshRig) killDev() {
	_ = r.dev.Process.Kill()
	_ = r.dev.Wait()
}

func (r *meshRig) end() {
	for _, c := range append(r.all, r.dev) {
		if c == nil || c.Process == nil {
			continue
		}
		r.interrupt(c)
	}
	_ = r.logs.Close()
	if r.Failed() {
		text, _ := os.ReadFile(r.logs.Name())
		r.Logf("logs of all processes (the end):\n%s", text[max(0, len(text)-12<<10):])
	}
}

// interrupt ends a process, by force if it takes long. One that has ended already is left.
func (r *meshRig) interrupt(c *exec.Cmd) {
	_ = c.Process.Signal(syscall.SIGTERM)
	cut := time.AfterFunc(20*time.Second, func() { _ = c.Process.Kill() })
	_ = c.Wait()
	cut.Stop()
}

func (r *meshRig) await(what string, cond func() bool) {
	r.Helper()
	polltest.Within(r, meshWait, cond, "%s", what)
}

// ask sends a request to the API; status 0 is no answer.
func (r *meshRig) ask(method, path, body string) (int, string) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, r.http+path, strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	if r.token != "" {
		req.Header.Set("X-Consul-Token", r.token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

func (r *meshRig) must(method, path, body string) string {
	r.Helper()
	status, text := r.ask(method, path, body)
	if status != http.StatusOK {
		r.Fatalf("%s %s: %d %s", method, path, status, text)
	}
	return text
}

// service registers a service with a sidecar; upstreams are name, or name@peer, to port.
func (r *meshRig) service(id, name, version string, backend int, upstreams map[string]int) {
	r.Helper()
	list := []map[string]any{}
	for up, port := range upstreams {
		name, peer, _ := strings.Cut(up, "@")
		list = append(list, map[string]any{"DestinationName": name, "DestinationPeer": peer, "LocalBindPort": port})
	}
	public := r.port(id + " public")
	body, err := json.Marshal(map[string]any{"ID": id, "Name": name, "Address": "127.0.0.1", "Port": backend,
		"Meta":  map[string]string{"version": version},
		"Check": map[string]any{"CheckID": id + "-alive", "TTL": "1h", "Status": "passing"},
		"Connect": map[string]any{"SidecarService": map[string]any{"Port": public, "Proxy": map[string]any{"Upstreams": list},
			"Checks": []map[string]any{{"Name": "alias", "AliasService": id}}}}})
	if err != nil {
		r.Fatal(err)
	}
	r.must("PUT", "/v1/agent/service/register", string(body))
}

// proxy runs Envoy for a service, as an operator does.
func (r *meshRig) proxy(id string) {
	r.Helper()
	args := append([]string{"connect", "envoy", "--sidecar-for", id, "--admin-bind",
		fmt.Sprintf("127.0.0.1:%d", r.port(id+" admin")), "--envoy-binary", r.envoy}, r.envoyArgs...)
	c := r.command(append(args, "--", "--disable-hot-restart", "--concurrency", "1", "--log-level", "warning")...)
	if err := c.Start(); err != nil {
		r.Fatal(err)
	}
	r.all = append(r.all, c)
}

// admin asks Envoy's own interface.
func (r *meshRig) admin(id, path string) string {
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", r.port(id+" admin"), path))
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return string(text)
}

// get is a request through a port of web's sidecar: status 0 is a connection that was refused or closed.
func (r *meshRig) get(port int, path string, header ...string) (int, string) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("http://127.0.0.1:%d%s", port, path), nil)
	if err != nil {
		r.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// backend answers requests with its name, and says whom Envoy says it speaks to.
func backend(t testing.TB, name string) int {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("x-client", r.Header.Get("x-forwarded-client-cert"))
		_, _ = io.WriteString(w, name)
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().(*net.TCPAddr).Port
}

// echo sends back what comes over a connection.
func echo(t testing.TB) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		group.Wait()
	})
	group.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			group.Go(func() {
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				_, _ = io.Copy(c, c)
				_ = c.Close()
			})
		}
	})
	return l.Addr().(*net.TCPAddr).Port
}

// echoed sends a line through a port and tells whether it came back.
func echoed(port int) bool {
	c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), 10*time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Write([]byte("hello\n")); err != nil {
		return false
	}
	got := make([]byte, 6)
	_, err = io.ReadFull(c, got)
	return err == nil && string(got) == "hello\n"
}

func http2Only() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

// grpcEcho is a gRPC method that answers with its request, over HTTP/2 without TLS.
func grpcEcho(t testing.TB) int {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		_, _ = w.Write(text)
		w.Header().Set("Grpc-Status", "0")
	}))
	s.Config.Protocols = http2Only()
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().(*net.TCPAddr).Port
}

// grpcCalled calls it and tells whether message and status came back.
func grpcCalled(port int) bool {
	tr := &http.Transport{Protocols: http2Only()}
	defer tr.CloseIdleConnections()
	message := []byte{0, 0, 0, 0, 3, 'a', 'b', 'c'}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", fmt.Sprintf("http://127.0.0.1:%d/echo.Echo/Say", port),
		bytes.NewReader(message))
	if err != nil {
		return false
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("TE", "trailers")
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return err == nil && bytes.Equal(text, message) && resp.Trailer.Get("Grpc-Status") == "0"
}
