package e2e

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"corbel.dev/corbel/test/fetch"
)

// TestMeshRollsWithoutAFailure replaces every instance of an upstream under load through real Envoys: the new one
// comes, the old one is drained, and then its proxy is stopped. No request fails.
func TestMeshRollsWithoutAFailure(t *testing.T) {
	r := newMeshRig(t, fetch.Need(t, "envoy"))
	r.must("PUT", "/v1/config", `{"Kind":"service-defaults","Name":"api","Protocol":"http"}`)
	for _, id := range []string{"api-1", "api-2"} {
		r.service(id, "api", "1", backend(t, id), nil)
	}
	r.service("web", "web", "1", backend(t, "web"), map[string]int{"api": r.port("to api")})
	for _, id := range []string{"api-1", "api-2", "web"} {
		r.proxy(id)
	}
	answers := func(id string) func() bool {
		return func() bool { _, body := r.get(r.port("to api"), "/"); return body == id }
	}
	r.await("the first instance", answers("api-1"))
	r.await("the second instance", answers("api-2"))
	stop := r.load(r.port("to api"))
	for i := 1; i <= 2; i++ {
		old, next := fmt.Sprintf("api-%d", i), fmt.Sprintf("api-%d", i+2)
		// It passes once its proxy listens: one that passes before is sent requests that nobody takes.
		r.must("PUT", "/v1/agent/service/register",
			fmt.Sprintf(`{"ID":%q,"Name":"api","Address":"127.0.0.1","Port":%d,"Connect":{"SidecarService":{"Port":%d,
			"Checks":[{"Name":"listens","TCP":"127.0.0.1:%[3]d","Interval":"200ms"}]}}}`, next, backend(t, next), r.port(next+" public")))
		r.proxy(next)
		r.await("requests to "+next, answers(next))
		var out bytes.Buffer
		c := r.command("services", "drain", old, "--wait", "60s", "--quiet", "200ms", "--reason", "a new version")
		c.Stdout = &out
		if err := c.Run(); err != nil || !strings.Contains(out.String(), "is drained") {
			t.Fatalf("drain %s: %v\n%s", old, err, &out)
		}
		if status, body := r.ask("GET", "/v1/health/service/api?passing", ""); status != http.StatusOK ||
			strings.Contains(body, `"ID":"`+old+`"`) {
			t.Errorf("%s drains and is among the passing instances: %d", old, status)
		}
		proxy := r.all[i-1]
		if err := proxy.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		r.await("the end of the proxy of "+old, func() bool { return r.admin(old, "/ready") == "" })
		r.must("PUT", "/v1/agent/service/deregister/"+old, "")
	}
	sent, failed := stop()
	if sent < 100 || len(failed) > 0 {
		t.Errorf("%d of %d requests failed: %.5q", len(failed), sent, failed)
	}
}

// slowBackend answers once it is released.
func slowBackend(t testing.TB, release <-chan struct{}) int {
	end := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		select {
		case <-release:
		case <-end:
		}
	}))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(end) }) // first: Close waits for requests under way
	return s.Listener.Addr().(*net.TCPAddr).Port
}

// TestDrainSaysWhatItWaitsFor drains a service without a mesh: a connection in use keeps it, and the end of the time
// is an error.
func TestDrainSaysWhatItWaitsFor(t *testing.T) {
	r := newMeshRig(t, "")
	release := make(chan struct{})
	port := slowBackend(t, release)
	r.must("PUT", "/v1/agent/service/register", fmt.Sprintf(`{"ID":"slow-1","Name":"slow","Port":%d}`, port))
	asked := make(chan int, 1)
	go func() { // without a time limit: it is under way until it is released
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
		if err != nil {
			asked <- 0
			return
		}
		_ = resp.Body.Close()
		asked <- resp.StatusCode
	}()
	var out, errs bytes.Buffer
	drain := func(wait string) error {
		out.Reset()
		errs.Reset()
		c := r.command("services", "drain", "slow-1", "--wait", wait, "--quiet", "200ms")
		c.Stdout, c.Stderr = &out, &errs
		return c.Run()
	}
	r.await("a request that is under way to keep the instance", func() bool {
		return drain("1s") != nil && strings.Contains(errs.String(), "connections are in use")
	})
	if _, body := r.ask("GET", "/v1/health/checks/slow", ""); !strings.Contains(body, "_service_drain:slow-1") {
		t.Errorf("the instance is not marked: %s", body)
	}
	close(release)
	if status := <-asked; status != http.StatusOK {
		t.Errorf("the request under way ended with %d", status)
	}
	if err := drain("60s"); err != nil {
		t.Errorf("drain without work: %v %s", err, &errs)
	}
	c := r.command("services", "drain", "slow-1", "--undo")
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	r.await("the instance to take work again", func() bool {
		_, body := r.ask("GET", "/v1/health/service/slow?passing", "")
		return strings.Contains(body, "slow-1")
	})
	if err := r.command("services", "drain", "nobody").Run(); err == nil {
		t.Error("an unknown instance was drained")
	}
}

// TestAgentsDrainWhenTheyLeave ends agents that set nothing: one that leaves on request waits for a request under
// way, one without services, one that is told not to, and one that no server answers wait for nothing.
func TestAgentsDrainWhenTheyLeave(t *testing.T) {
	r := emptyMeshRig(t, "")
	r.token = meshRoot
	agents := map[string]*meshRig{}
	procs := map[string]*exec.Cmd{}
	start := func(kind, name, extra string) {
		r.meshProcess(kind, name, extra+fmt.Sprintf("\nlog_file = %q", filepath.Join(r.dir, name+".log")))
		procs[name], agents[name] = r.all[len(r.all)-1], r.on(name, meshRoot)
	}
	start("server", "s1", "bootstrap = true")
	for name, extra := range map[string]string{"busy": "", "bare": "", "told": `drain_wait = "0s"`,
		"alone": `drain_wait = "10m"`} {
		start("agent", name, extra)
	}
	release := make(chan struct{})
	port := slowBackend(t, release)
	for name, a := range agents {
		r.ready(name)
		if name != "s1" && name != "bare" {
			a.must("PUT", "/v1/agent/service/register", fmt.Sprintf(`{"ID":"slow-%s","Name":"slow","Port":%d}`, name, port))
		}
	}
	logged := func(name, text string) bool {
		log, err := os.ReadFile(filepath.Join(r.dir, name+".log"))
		return err == nil && bytes.Contains(log, []byte(text))
	}
	for _, name := range []string{"bare", "told"} {
		r.terminate(procs[name])
		if logged(name, "draining") || !logged(name, "leaving the cluster") {
			t.Errorf("%s drained, or did not leave", name)
		}
	}
	asked := make(chan error, 1)
	go func() {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
		if err == nil {
			err = resp.Body.Close()
		}
		asked <- err
	}()
	left := make(chan error, 1)
	go func() {
		c := r.command("leave", "--token", meshRoot)
		c.Env = append(c.Env, "CORBEL_HTTP_ADDR="+agents["busy"].http)
		left <- c.Run()
	}()
	r.await("the agent that leaves to wait for the request", func() bool { return logged("busy", "in use") })
	close(release)
	if err := <-asked; err != nil {
		t.Errorf("the request under way: %v", err)
	}
	if err := <-left; err != nil {
		t.Errorf("corbel leave: %v", err)
	}
	if err := procs["busy"].Wait(); err != nil {
		t.Errorf("the agent that was asked to leave: %v", err)
	}
	r.terminate(procs["s1"])
	r.terminate(procs["alone"])
	if !logged("alone", "no server answers") {
		t.Error("an agent that no server answers does not say so")
	}
}
