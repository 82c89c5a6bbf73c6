package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"corbel.dev/corbel/test/fetch"
)

// terminate ends a process as a service manager does, and waits.
func (r *meshRig) terminate(c *exec.Cmd) {
	r.Helper()
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		r.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		r.Errorf("SIGTERM: %v", err)
	}
}

func (r *meshRig) ready(name string) {
	r.Helper()
	c := r.on(name, meshRoot)
	r.await(name+" to be ready", func() bool {
		status, _ := c.ask("GET", "/v1/agent/health/ready", "")
		return status == http.StatusOK
	})
}

// asks repeats requests of the API through one process until stop: each must be answered with 200. A blocking query
// goes on from the index that it was told, which never goes back.
func (r *meshRig) asks(paths ...string) (stop func() (sent int, failed []string)) {
	var mu sync.Mutex
	var sent int
	var failed []string
	end := make(chan struct{})
	var group sync.WaitGroup
	for _, path := range paths {
		group.Go(func() {
			index := ""
			for {
				select {
				case <-end:
					return
				default:
				}
				full := path
				if index != "" {
					full += "&wait=2s&index=" + index
				}
				req, err := http.NewRequest("GET", r.http+full, nil)
				if err != nil {
					r.Error(err)
					return
				}
				req.Header.Set("X-Consul-Token", r.token)
				resp, err := http.DefaultClient.Do(req)
				mu.Lock()
				sent++
				if err != nil {
					failed = append(failed, err.Error())
				} else if resp.StatusCode != http.StatusOK {
					text, _ := io.ReadAll(resp.Body)
					failed = append(failed, fmt.Sprintf("%s %s %.100s", full, resp.Status, text))
				}
				mu.Unlock()
				if err == nil {
					if strings.Contains(path, "block") {
						index = resp.Header.Get("X-Consul-Index")
					}
					_ = resp.Body.Close()
				}
			}
		})
	}
	return func() (int, []string) {
		close(end)
		group.Wait()
		return sent, failed
	}
}

// none wants no request to have failed; else it shows what is known of the moment, before anything else changes.
func (r *meshRig) none(what string, least int, stop func() (int, []string)) {
	r.Helper()
	sent, failed := stop()
	if sent >= least && len(failed) == 0 {
		return
	}
	r.Errorf("%s: %d of %d failed:\n%s", what, len(failed), sent, strings.Join(failed[:min(len(failed), 20)], "\n"))
	r.evidence()
}

// evidence prints how instances, proxies and the proxy of web stand, and keeps all logs beyond the test.
func (r *meshRig) evidence() {
	r.Helper()
	s1 := r.on("s1", meshRoot)
	for _, path := range []string{"/v1/health/service/api", "/v1/health/state/critical", "/v1/internal/mesh/status?all",
		"/v1/agent/members"} {
		_, body := s1.ask("GET", path, "")
		r.Logf("%s:\n%s", path, body)
	}
	for _, line := range strings.Split(r.admin("web", "/clusters"), "\n") {
		if strings.Contains(line, "api.default") && (strings.Contains(line, "::health_flags::") ||
			strings.Contains(line, "::rq_") || strings.Contains(line, "cx_connect_fail")) {
			r.Log(line)
		}
	}
	dir, err := os.MkdirTemp("", "corbel-rolling")
	if err != nil {
		r.Log(err)
		return
	}
	text, err := os.ReadFile(r.logs.Name())
	if err == nil {
		err = os.WriteFile(dir+"/log", text, 0o600)
	}
	r.Logf("all logs are kept: %s/log (%v)", dir, err)
}

// passing waits until the API lists as many instances of the service as work: an agent that was away may be counted
// as failed for a moment after it is back, and the next must not go while it is.
func (r *meshRig) passing(service string, want int) {
	r.Helper()
	s1, first := r.on("s1", meshRoot), true
	r.await(fmt.Sprintf("%d passing instances of %s", want, service), func() bool {
		_, body := s1.ask("GET", "/v1/health/connect/"+service+"?passing", "")
		n := strings.Count(strings.Join(strings.Fields(body), ""), `"Kind":"connect-proxy"`)
		if n != want && first {
			r.Logf("%d of %d instances of %s pass although their agents are ready", n, want, service)
			first = false
		}
		return n == want
	})
}

// TestRollingRestart ends every server and then every agent with SIGTERM, one after the other, under load: no request
// through real Envoys fails, none through an agent, and what changes afterwards reaches the proxies. At last an agent
// with drain_wait ends for good: its instance is out of use before it goes.
func TestRollingRestart(t *testing.T) {
	r := emptyMeshRig(t, fetch.Need(t, "envoy"))
	names := []string{"s1", "s2", "s3"}
	procs := map[string]*exec.Cmd{}
	start := func(kind, name, extra string) {
		r.meshProcess(kind, name, extra)
		procs[name] = r.all[len(r.all)-1]
	}
	const server = "bootstrap_expect = 3\nports { serf_wan = -1 }"
	for _, name := range names {
		start("server", name, server)
	}
	agent := func(name string) string {
		return fmt.Sprintf("ports { grpc = %d }\nleave_on_terminate = false\n", r.port(name+" grpc"))
	}
	agents := map[string]*meshRig{}
	for _, name := range []string{"a1", "a2", "a3"} {
		start("agent", name, agent(name))
		agents[name] = r.on(name, meshRoot, "--grpc-addr", fmt.Sprintf("127.0.0.1:%d", r.port(name+" grpc")))
	}
	for name := range procs {
		r.ready(name)
	}
	a1 := agents["a1"]
	a1.must("PUT", "/v1/config", `{"Kind":"service-defaults","Name":"api","Protocol":"http"}`)
	a1.must("PUT", "/v1/connect/intentions/exact?source=web&destination=api", `{"Action":"allow"}`)
	a1.must("PUT", "/v1/kv/block", "x")
	instance := func(name, id string, port int) {
		// The check's interval is the usual one: a restarted agent cannot wait for it.
		agents[name].must("PUT", "/v1/agent/service/register",
			fmt.Sprintf(
				`{"ID":%q,"Name":"api","Address":"127.0.0.1","Port":%d,"Check":{"TCP":"127.0.0.1:%[2]d","Interval":"10s","Status":"passing"},
			"Connect":{"SidecarService":{"Port":%d,"Checks":[{"Name":"alias","AliasService":%[1]q}]}}}`, id, port, r.port(id+" public")))
		agents[name].proxy(id)
	}
	instance("a2", "api-1", backend(t, "api-1"))
	instance("a3", "api-2", backend(t, "api-2"))
	a1.service("web", "web", "1", backend(t, "web"), map[string]int{"api": r.port("to api")})
	a1.proxy("web")
	t.Cleanup(func() {
		for _, a := range agents {
			a.dev = nil
			a.logs, _ = os.Open(os.DevNull)
			a.end()
		}
	})
	answers := func(id string) func() bool {
		return func() bool { _, body := r.get(r.port("to api"), "/"); return body == id }
	}
	r.await("the first instance", answers("api-1"))
	r.await("the second instance", answers("api-2"))

	traffic := r.load(r.port("to api"))
	queries := a1.asks("/v1/kv/block?consistent", "/v1/health/service/api?passing", "/v1/kv/block?raw")
	for _, name := range names {
		r.terminate(procs[name])
		start("server", name, server)
		r.ready(name)
		a1.must("PUT", "/v1/kv/block", name) // wakes the blocking queries
	}
	r.none("requests while servers restart", 100, traffic)
	r.none("queries through an agent while servers restart", 100, queries)

	traffic = r.load(r.port("to api"))
	for _, name := range []string{"a1", "a2", "a3"} {
		r.terminate(procs[name])
		extra := agent(name)
		if name == "a2" {
			extra += `drain_wait = "60s"` // for the next time
		}
		start("agent", name, extra)
		r.ready(name)
		r.await("the proxies of all agents", func() bool {
			_, body := r.on("s1", meshRoot).ask("GET", "/v1/internal/mesh/status", "")
			return strings.Contains(strings.Join(strings.Fields(body), ""), `"synced":3`)
		})
		r.passing("api", 2)
	}
	r.none("requests while agents restart", 100, traffic)
	// What changes now gets through.
	a1.must("PUT", "/v1/connect/intentions/exact?source=web&destination=api", `{"Action":"deny"}`)
	r.await("the intention", func() bool {
		status, _ := r.get(r.port("to api"), "/")
		return status == http.StatusForbidden
	})
	a1.must("PUT", "/v1/connect/intentions/exact?source=web&destination=api", `{"Action":"allow"}`)
	// At both instances: one may let requests in while the other has not heard of it.
	r.await("the intention's end", func() bool {
		seen := map[string]bool{}
		for range 20 {
			status, body := r.get(r.port("to api"), "/")
			if status != http.StatusOK {
				return false
			}
			seen[body] = true
		}
		return len(seen) == 2
	})
	r.drained(procs["a2"], agents["a2"])
}

// drained ends the agent of api-1 while a request of it is under way.
func (r *meshRig) drained(agent *exec.Cmd, a2 *meshRig) {
	r.Helper()
	release := make(chan struct{})
	s1 := r.on("s1", meshRoot)
	port := slowBackend(r, release)
	a2.must("PUT", "/v1/agent/service/register", fmt.Sprintf(`{"ID":"slow-1","Name":"slow","Port":%d}`, port))
	asked := make(chan string, 1)
	go func() {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
		if err != nil {
			asked <- err.Error()
			return
		}
		_ = resp.Body.Close()
		asked <- resp.Status
	}()
	traffic := r.load(r.port("to api"))
	if err := agent.Process.Signal(syscall.SIGTERM); err != nil {
		r.Fatal(err)
	}
	r.await("the agent to wait for the request", func() bool {
		log, _ := os.ReadFile(r.logs.Name())
		return bytes.Contains(log, []byte("connections are in use"))
	})
	status, body := a2.ask("GET", "/v1/agent/health/ready", "")
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "ends") {
		r.Errorf("ready while it drains: %d %s", status, body)
	}
	if _, body := s1.ask("GET", "/v1/health/service/api?passing", ""); strings.Contains(body, `"ID":"api-1"`) {
		r.Error("an instance that drains is among the passing ones")
	}
	r.await("requests to go elsewhere", func() bool {
		for range 20 {
			if _, body := r.get(r.port("to api"), "/"); body != "api-2" {
				return false
			}
		}
		return true
	})
	close(release)
	if status := <-asked; !strings.HasPrefix(status, "200") {
		r.Errorf("the request under way ended with %s", status)
	}
	if err := agent.Wait(); err != nil {
		r.Errorf("SIGTERM: %v", err)
	}
	r.none("requests while an agent drains", 10, traffic)
}
