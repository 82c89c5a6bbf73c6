package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"corbel.dev/corbel/kit/testport"
	"corbel.dev/corbel/test/fetch"
)

// checked is an application whose checks tell whether they came through Envoy.
type checked struct {
	http, grpc     int // ports
	direct, byHTTP atomic.Int64
	byGRPC         atomic.Int64
}

func newChecked(t *testing.T) *checked {
	c := &checked{}
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("x-request-id") == "" { // which Envoy gives
			c.direct.Add(1)
		} else {
			c.byHTTP.Add(1)
		}
		_, _ = io.WriteString(w, "well")
	}))
	t.Cleanup(plain.Close)
	health := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Header.Get("x-request-id") != "" && r.URL.Path == "/grpc.health.v1.Health/Check" {
			c.byGRPC.Add(1)
		}
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		_, _ = w.Write([]byte{0, 0, 0, 0, 2, 8, 1}) // SERVING
		w.Header().Set("Grpc-Status", "0")
	}))
	health.Config.Protocols = http2Only()
	health.Start()
	t.Cleanup(health.Close)
	c.http, c.grpc = plain.Listener.Addr().(*net.TCPAddr).Port, health.Listener.Addr().(*net.TCPAddr).Port
	return c
}

// registerChecked registers the application with a sidecar.
func (r *meshRig) registerChecked(c *checked, expose bool) {
	r.Helper()
	body, err := json.Marshal(map[string]any{"Name": "app", "Address": "127.0.0.1", "Port": c.http,
		"Checks": []map[string]any{
			{"CheckID": "app-http", "HTTP": fmt.Sprintf("http://127.0.0.1:%d/health", c.http), "Interval": "1s"},
			{"CheckID": "app-grpc", "GRPC": fmt.Sprintf("127.0.0.1:%d", c.grpc), "Interval": "1s"}},
		"Connect": map[string]any{"SidecarService": map[string]any{"Port": r.port("app public"),
			"Checks": []map[string]any{{"Name": "alias", "AliasService": "app"}},
			"Proxy":  map[string]any{"Expose": map[string]any{"Checks": expose}}}}})
	if err != nil {
		r.Fatal(err)
	}
	r.must("PUT", "/v1/agent/service/register", string(body))
}

// exposedPort is the port that a check goes through, and its status.
func (r *meshRig) exposedPort(check string) (port int, status string) {
	r.Helper()
	var all map[string]struct {
		ExposedPort int
		Status      string
	}
	if err := json.Unmarshal([]byte(r.must("GET", "/v1/agent/checks", "")), &all); err != nil {
		r.Fatal(err)
	}
	return all[check].ExposedPort, all[check].Status
}

// TestExposedChecks: with Expose.Checks, in a registration or in a config entry, the agent's checks by HTTP and gRPC
// go through listeners of the sidecar, which let nothing else through, and straight again without.
func TestExposedChecks(t *testing.T) {
	free, err := testport.Free(4)
	if err != nil {
		t.Fatal(err)
	}
	low, high := slices.Min(free), slices.Max(free)
	r := newMeshRig(t, fetch.Need(t, "envoy"),
		fmt.Sprintf("ports { expose_min_port = %d, expose_max_port = %d }\n", low, high))
	app := newChecked(t)
	r.registerChecked(app, true)
	r.proxy("app")
	through := func() {
		t.Helper()
		was := [2]int64{app.byHTTP.Load(), app.byGRPC.Load()}
		r.await("checks through Envoy", func() bool {
			http, one := r.exposedPort("app-http")
			grpc, two := r.exposedPort("app-grpc")
			return http >= low && http <= high && grpc >= low && grpc <= high && one == "passing" && two == "passing" &&
				app.byHTTP.Load() > was[0] && app.byGRPC.Load() > was[1]
		})
	}
	straight := func() {
		t.Helper()
		was := app.direct.Load()
		r.await("checks that go straight", func() bool {
			http, one := r.exposedPort("app-http")
			grpc, two := r.exposedPort("app-grpc")
			return http == 0 && grpc == 0 && one == "passing" && two == "passing" && app.direct.Load() > was
		})
	}
	through()
	port, _ := r.exposedPort("app-http")
	if status, _ := r.get(port, "/health"); status != http.StatusOK {
		t.Errorf("the path of the check: %d", status)
	}
	if status, _ := r.get(port, "/secret"); status != http.StatusNotFound {
		t.Errorf("another path: %d", status)
	}
	text := strings.ReplaceAll(r.must("GET", "/v1/health/checks/app", ""), ": ", ":")
	if !strings.Contains(text, fmt.Sprintf(`"ExposedPort":%d`, port)) {
		t.Errorf("the catalog does not know the port: %s", text)
	}
	if !strings.Contains(r.admin("app", "/config_dump?resource=dynamic_listeners"), "source_prefix_ranges") {
		t.Error("the listener takes connections from everywhere")
	}
	r.synced(1)

	r.registerChecked(app, false)
	straight()
	r.await("the listener to be gone", func() bool { status, _ := r.get(port, "/health"); return status == 0 })
	r.must("PUT", "/v1/config", `{"Kind":"service-defaults","Name":"app","Protocol":"tcp","Expose":{"Checks":true}}`)
	through()
	r.must("DELETE", "/v1/config/service-defaults/app", "")
	straight()
	r.synced(1)
}
