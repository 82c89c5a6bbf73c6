package e2e

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
)

// tutorial is one configuration as people write it for Consul, started under that name, and what it must do.
type tutorial struct {
	name     string   // file or folder below testdata/configs
	certs    bool     // it names ca.pem, cert.pem and key.pem
	alone    bool     // no leader: a client agent without servers
	token    string   // what its requests carry until the check says otherwise
	warnings []string // what it must be told about
	check    func(t *testing.T, a *started)
}

// managementToken is the one of acl.hcl.
const managementToken = "b1gs33cr3t-0000-0000-0000-000000000001"

var tutorials = []tutorial{
	{name: "server.hcl", check: func(t *testing.T, a *started) {
		a.want(t, "/v1/catalog/nodes", 200, `"rack":"r7"`)
		a.want(t, "/v1/agent/self", 200, `"Server":true`)
	}},
	{name: "client.json", alone: true, check: func(t *testing.T, a *started) {
		a.want(t, "/v1/agent/services", 200, `"cache"`)
		a.want(t, "/v1/agent/checks", 200, `"Status":"passing"`)
		a.want(t, "/v1/catalog/nodes", 500, "No known Consul servers")
	}, warnings: []string{"disable_update_check has no effect"}},
	{name: "tls.hcl", certs: true, check: overTLS},
	{name: "tls-flat.json", certs: true, check: overTLS,
		warnings: []string{"ca_file is the old name of tls.defaults.ca_file"}},
	{name: "acl.hcl", token: managementToken, check: tokensLast, warnings: []string{"acl.tokens.master is the old name"}},
	{name: "telemetry.hcl", check: func(t *testing.T, a *started) {
		a.want(t, "/v1/agent/metrics?format=prometheus", 200, "edge_raft_apply")
		a.want(t, "/v1/agent/metrics", 200, `"Gauges"`)
	}, warnings: []string{"telemetry.circonus_api_token has no effect"}},
	{name: "services.hcl", check: func(t *testing.T, a *started) {
		a.want(t, "/v1/health/service/web", 200, `"Weights":{"Passing":5,"Warning":1}`)
		a.want(t, "/v1/health/service/web?tag=v1", 200, `"lan":{"Address":"192.168.0.55","Port":8000}`)
		a.want(t, "/v1/health/service/web?passing", 200, "[]")
		a.want(t, "/v1/catalog/service/db", 200, `"ServiceSocketPath":"/run/db.sock"`)
		a.want(t, "/v1/agent/health/service/id/web-1?format=text", 429, "warning")
	}},
	{name: "checks.json", check: runsChecks},
	{name: "dns.hcl", check: func(t *testing.T, a *started) {
		for _, name := range []string{"web.service.example.org", "web.service.test"} {
			if out := a.dig(t, name, "127.0.0.1"); !strings.Contains(out, "NOERROR") {
				t.Errorf("%s: %s", name, out)
			}
		}
		if out := a.dig(t, "web.service.consul", ""); strings.Contains(out, "127.0.0.1") {
			t.Errorf("a zone that is not ours: %s", out)
		}
	}},
	{name: "gossip.json", check: func(t *testing.T, a *started) {
		a.want(t, "/v1/agent/self", 200, `"encrypted":"true"`)
		a.want(t, "/v1/agent/self", 200, `"EncryptKey":"hidden"`)
	}},
	{name: "autojoin.hcl", check: func(t *testing.T, a *started) {
		a.want(t, "/v1/operator/autopilot/configuration", 200, `"ServerStabilizationTime":"15s"`)
	}, warnings: []string{`retry_join: an entry for a cloud has no effect: provider: "softlayer" is none of`}},
	{name: "limits.hcl", check: func(t *testing.T, a *started) {
		a.put(t, "/v1/kv/large", strings.Repeat("x", 200), 413, "too large, max size: 128 bytes")
		a.put(t, "/v1/kv/small", "x", 200, "true")
		a.want(t, "/v1/agent/monitor", 403, "Endpoint is blocked by agent configuration")
		a.put(t, "/v1/session/create", `{"TTL":"10s"}`, 500, "Invalid Session TTL")
		if resp := a.want(t, "/v1/kv/small?raw", 200, "x"); resp.Header.Get("X-Edge") != "yes" {
			t.Errorf("headers %v", resp.Header)
		}
	}, warnings: []string{"raft_logstore has no effect", "limits.rpc_max_conns_per_client has no effect"}},
	{name: "mesh.hcl", check: func(t *testing.T, a *started) {
		a.want(t, "/v1/catalog/service/frontend-sidecar-proxy", 200, `"LocalBindPort":9191`)
		a.want(t, "/v1/health/connect/frontend", 200, `"frontend-sidecar-proxy"`)
		a.want(t, "/v1/agent/checks", 200, "Connect Sidecar Aliasing frontend")
	}},
	{name: "watches.hcl", check: func(t *testing.T, a *started) {
		told := func(file, want string) {
			t.Helper()
			polltest.Until(t, func() bool {
				text, _ := os.ReadFile(filepath.Join(a.dir, file)) // not there yet is empty
				return strings.Contains(string(text), want)
			}, "a handler to be told %q", want)
		}
		told("told", "null")
		a.put(t, "/v1/kv/app/config", "x", 200, "true")
		told("told", `"Key":"app/config"`)
		a.put(t, "/v1/agent/service/register", `{"Name":"redis","ID":"redis-7","Port":6379}`, 200, "")
		told("services", `"redis-7"`)
	}},
	{name: "dir", check: func(t *testing.T, a *started) {
		a.want(t, "/v1/catalog/nodes", 200, `"first":"1","second":"2"`)
		for _, name := range []string{"one", "two", "three"} {
			a.want(t, "/v1/agent/services", 200, `"`+name+`"`)
		}
		a.want(t, "/v1/agent/self", 200, `"recursors":["127.0.0.1:1","127.0.0.1:2"]`)
		a.want(t, "/v1/agent/self", 200, `"log_level":"WARN"`)
	}},
}

// TestTutorialConfigurations starts each file as it stands, but for ports and folders, and looks at what it does.
func TestTutorialConfigurations(t *testing.T) {
	for _, c := range tutorials {
		t.Run(c.name, func(t *testing.T) {
			a := begin(t, &c)
			a.check(t, c.alone)
			c.check(t, a)
			a.stop(t)
			for _, w := range c.warnings {
				if !strings.Contains(a.output(), w) {
					t.Errorf("no warning %q in\n%s", w, a.output())
				}
			}
		})
	}
}

// overTLS: the API answers over HTTPS, and a certificate that was replaced is served after a reload.
func overTLS(t *testing.T, a *started) {
	serial := func() string {
		pem, err := os.ReadFile(filepath.Join(a.dir, "ca.pem"))
		if err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{RootCAs: pool}}}
		resp, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d/v1/status/leader", a.https))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Fatalf("over HTTPS: %d", resp.StatusCode)
		}
		return fmt.Sprintf("%x", resp.TLS.PeerCertificates[0].Signature)
	}
	old := serial()
	a.makeCerts(t)
	a.put(t, "/v1/agent/reload", "", 200, "")
	if serial() == old {
		t.Error("the former certificate is still served after a reload")
	}
}

// tokensLast: a token that was set over the API is there after kill -9.
func tokensLast(t *testing.T, a *started) {
	a.token = ""
	a.want(t, "/v1/kv/a", 403, "Permission denied")
	a.token = managementToken
	a.put(t, "/v1/kv/a", "1", 200, "true")
	a.put(t, "/v1/agent/token/default", `{"Token":"`+a.token+`"}`, 200, "")
	a.put(t, "/v1/agent/token/none", `{"Token":"x"}`, 404, `Token "none" is unknown`)
	a.token = ""
	a.want(t, "/v1/kv/a?raw", 200, "1")
	a.kill()
	a.run(t)
	a.check(t, false)
	a.want(t, "/v1/kv/a?raw", 200, "1")
}

func runsChecks(t *testing.T, a *started) {
	status := func() map[string]string {
		var checks map[string]struct{ Status, Output, Type string }
		resp, body := a.get(t, "/v1/agent/checks")
		if resp == nil || json.Unmarshal(body, &checks) != nil {
			return nil
		}
		all := map[string]string{}
		for id, c := range checks {
			all[id] = c.Type + " " + c.Status + " " + strings.TrimSpace(c.Output)
		}
		return all
	}
	for id, want := range map[string]string{
		"disk": "script passing plenty", "load": "script warning high", "beat": "ttl passing",
		"container": "docker critical checks of kind \"docker\" are not supported yet",
		"unit":      "os_service critical checks of kind \"os_service\" are not supported yet",
		"mirror":    "alias warning Aliased check \"load\" failing: high",
		"gone":      "tcp critical dial tcp 127.0.0.1:1",
	} {
		polltest.Until(t, func() bool { return strings.HasPrefix(status()[id], strings.TrimSpace(want)) },
			"check %s to be %q, of %v", id, want, polled(status))
	}
	// The API may not run scripts: only files may.
	a.put(t, "/v1/agent/check/register", `{"Name":"x","Args":["/bin/true"],"Interval":"1s"}`, 400,
		"Scripts are disabled on this agent from remote calls")

	// Maintenance and what the API registered outlive kill -9.
	a.put(t, "/v1/agent/service/register", `{"Name":"api-made","Port":1,"Check":{"CheckID":"kept","TTL":"1h",`+
		`"Status":"warning"}}`, 200, "")
	a.put(t, "/v1/agent/maintenance?enable=true&reason=disk+swap", "", 200, "")
	a.put(t, "/v1/agent/service/maintenance/app?enable=true", "", 200, "")
	a.kill()
	a.run(t)
	a.check(t, false)
	a.want(t, "/v1/agent/services", 200, `"api-made"`)
	a.want(t, "/v1/agent/checks", 200, `"Notes":"disk swap"`)
	a.want(t, "/v1/agent/checks", 200, `"_service_maintenance:app"`)
	a.want(t, "/v1/agent/health/service/id/app?format=text", 503, "maintenance")
	a.put(t, "/v1/agent/maintenance?enable=false", "", 200, "")
}

// polled shows a state at the time when a failure is told.
type polled func() map[string]string

func (p polled) String() string { return fmt.Sprint(p()) }

// started is a process of one configuration.
type started struct {
	dir, http, token string
	dns, https       int
	args             []string
	cmd              *exec.Cmd
	done             chan struct{}

	mu  sync.Mutex // guards out
	out bytes.Buffer
}

// Write implements io.Writer.
func (a *started) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.out.Write(p)
}

func (a *started) output() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.out.String()
}

func begin(t *testing.T, c *tutorial) *started {
	t.Helper()
	a := &started{dir: t.TempDir(), token: c.token}
	path, err := filepath.Abs(filepath.Join("testdata", "configs", c.name))
	if err != nil {
		t.Fatal(err)
	}
	if c.certs {
		a.makeCerts(t)
	}
	port := map[string]int{}
	for _, name := range []string{"http", "dns", "server", "serf_lan", "serf_wan", "https", "grpc"} {
		if port[name], err = freePort(); err != nil {
			t.Fatal(err)
		}
	}
	a.http, a.dns, a.https = fmt.Sprintf("http://127.0.0.1:%d", port["http"]), port["dns"], port["https"]
	own := "data_dir = \"data\"\nnode_name = \"tutorial\"\nports {\n"
	for name, n := range port {
		if name != "https" && name != "grpc" || name == "https" && c.certs || name == "grpc" && c.name == "mesh.hcl" {
			own += fmt.Sprintf("%s = %d\n", name, n)
		}
	}
	flag := "-config-file"
	if filepath.Ext(path) == "" {
		flag = "-config-dir"
	}
	a.args = []string{"consul", "agent", flag, path, "-hcl", own + "}"}
	if flag == "-config-dir" { // files and folders count in the order of the command line
		a.args = append(a.args, "-config-file", filepath.Join(filepath.Dir(path), "after-dir.hcl"))
	}
	a.run(t)
	t.Cleanup(a.kill)
	return a
}

func (a *started) makeCerts(t *testing.T) {
	t.Helper()
	cmd := exec.Command("certs", "server.dc1.consul")
	cmd.Dir = a.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("certs: %v\n%s", err, out)
	}
}

func (a *started) run(t *testing.T) {
	t.Helper()
	a.cmd = exec.Command(filepath.Join(binDir, "corbel"), a.args...)
	a.cmd.Dir, a.cmd.Stdout, a.cmd.Stderr = a.dir, a, a
	a.cmd.Env = []string{"HOME=" + a.dir, "PATH=" + os.Getenv("PATH")}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	a.done = done
	cmd := a.cmd
	go func() { _ = cmd.Wait(); close(done) }()
}

// check waits until the process answers and, unless it is alone, its own node is known with all that it registered.
func (a *started) check(t *testing.T, alone bool) {
	t.Helper()
	polltest.NoError(t, polltest.Deadline, func() error {
		select {
		case <-a.done:
			t.Fatalf("it ended:\n%s", a.output())
		default:
		}
		path := "/v1/catalog/service/consul"
		if alone {
			path = "/v1/agent/services"
		}
		resp, body := a.get(t, path)
		if resp == nil || resp.StatusCode != 200 && resp.StatusCode != 403 ||
			!alone && resp.StatusCode == 200 && string(body) == "[]" {
			return fmt.Errorf("%s: %s", path, body)
		}
		return nil
	}, "the process to answer")
}

func (a *started) request(t *testing.T, method, path, body string) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, a.http+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if a.token != "" {
		req.Header.Set("X-Consul-Token", a.token)
	}
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, []byte(err.Error())
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, []byte(err.Error())
	}
	return resp, b
}

func (a *started) get(t *testing.T, path string) (*http.Response, []byte) {
	t.Helper()
	return a.request(t, "GET", path, "")
}

// want polls until the answer has the status and holds the text.
func (a *started) want(t *testing.T, path string, status int, text string) (resp *http.Response) {
	t.Helper()
	polltest.NoError(t, polltest.Deadline, func() error {
		var body []byte
		resp, body = a.get(t, path)
		if resp == nil || resp.StatusCode != status || !bytes.Contains(body, []byte(text)) {
			return fmt.Errorf("%v %s", resp, body)
		}
		return nil
	}, "%s to answer %d with %q", path, status, text)
	return resp
}

// put sends once: what it does is not to be done twice.
func (a *started) put(t *testing.T, path, body string, status int, text string) {
	t.Helper()
	resp, b := a.request(t, "PUT", path, body)
	if resp == nil || resp.StatusCode != status || !bytes.Contains(b, []byte(text)) {
		t.Fatalf("PUT %s: %v %s, want %d %s", path, resp, b, status, text)
	}
}

// dig asks until the answer holds the text.
func (a *started) dig(t *testing.T, name, text string) (out string) {
	t.Helper()
	polltest.Until(t, func() bool {
		cmd := exec.Command("dig", name)
		cmd.Env = append(os.Environ(), fmt.Sprintf("DNS=127.0.0.1:%d", a.dns))
		b, _ := cmd.CombinedOutput() // no answer yet is one to wait for
		out = string(b)
		return strings.Contains(out, text)
	}, "%s to resolve to %q", name, text)
	return out
}

func (a *started) kill() {
	_ = a.cmd.Process.Kill()
	<-a.done
}

// stop ends the process as an operator does.
func (a *started) stop(t *testing.T) {
	t.Helper()
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, func() bool {
		select {
		case <-a.done:
			return true
		default:
			return false
		}
	}, "the process to end")
	if out := a.output(); strings.Contains(out, "panic:") || strings.Contains(out, "DATA RACE") {
		t.Errorf("it panicked:\n%s", out)
	}
}
