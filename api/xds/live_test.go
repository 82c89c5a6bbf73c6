package xds

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/testport"
	"corbel.dev/corbel/mesh"
	"corbel.dev/corbel/telemetry"
	"corbel.dev/corbel/test/fetch"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	_ "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
)

// fromJSON encodes an Envoy message that is written as JSON.
func fromJSON(t testing.TB, typ mesh.Type, name, version, text string) *mesh.Resource {
	t.Helper()
	var wrapped anypb.Any
	if err := protojson.Unmarshal([]byte(`{"@type": "`+typ.URL()+`",`+strings.TrimPrefix(strings.TrimSpace(text), "{")),
		&wrapped); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return encoded(typ, name, version, wrapped.Value)
}

func certificate(t testing.TB) (cert, key string) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		NotBefore: time.Now().Add(-time.Hour), DNSNames: []string{"x"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	bits, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", bits)
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// live is a real Envoy that is told by our server over a unix socket.
type live struct {
	t       *testing.T
	p       *proxy
	plane   *table
	socket  string
	port    int
	metrics *telemetry.Registry
	stop    func()
}

const ads = `{"ads": {}, "resource_api_version": "V3"}`

func (l *live) resources(app *httptest.Server) {
	cert, key := certificate(l.t)
	l.p.put(fromJSON(l.t, mesh.TypeSecret, "leaf", "1", fmt.Sprintf(`{"name": "leaf", "tls_certificate": {`+
		`"certificate_chain": {"inline_string": %s}, "private_key": {"inline_string": %s}}}`, quoted(cert), quoted(key))),
		l.cluster("1", 5), l.endpoints("1", app.Listener.Addr().(*net.TCPAddr).Port), l.rules("1", "ALLOW"),
		fromJSON(l.t, mesh.TypeRoute, "routes", "1", `{"name": "routes", "virtual_hosts": [{"name": "all", "domains": `+
			`["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "app"}}]}]}`),
		fromJSON(l.t, mesh.TypeListener, "in", "1",
			fmt.Sprintf(
				`{"name": "in", "address": {"socket_address": {"address": "127.0.0.1", "port_value": %d}}, "filter_chains": [{
			"transport_socket": {"name": "tls", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
				"common_tls_context": {"tls_certificate_sds_secret_configs": [{"name": "leaf", "sds_config": %s}]}}},
			"filters": [{"name": "http", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
				"stat_prefix": "in", "rds": {"route_config_name": "routes", "config_source": %s}, "http_filters": [
				{"name": "rules", "config_discovery": {"config_source": %s, "type_urls": ["type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC"]}},
				{"name": "router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}]}}]}]}`, l.port, ads, ads, ads)))
}

func (l *live) cluster(version string, seconds int) *mesh.Resource {
	return fromJSON(l.t, mesh.TypeCluster, "app", version,
		fmt.Sprintf(`{"name": "app", "type": "EDS", "connect_timeout": "%ds", "eds_cluster_config": {"eds_config": %s}}`,
			seconds, ads))
}

func (l *live) endpoints(version string, port int) *mesh.Resource {
	return fromJSON(l.t, mesh.TypeEndpoints, "app", version, fmt.Sprintf(`{"cluster_name": "app", "endpoints": [{`+
		`"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": %d}}}}]}]}`,
		port))
}

func (l *live) rules(version, action string) *mesh.Resource {
	return fromJSON(l.t, mesh.TypeExtension, "rules", version,
		fmt.Sprintf(
			`{"name": "rules", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC",
		"rules": {"action": %q, "policies": {"all": {"permissions": [{"any": true}], "principals": [{"any": true}]}}}}}`, action))
}

// serve runs the discovery server on the socket.
func (l *live) serve() {
	listener, err := net.Listen("unix", l.socket)
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	server := New(Config{Plane: l.plane, Metrics: l.metrics})
	go func() { done <- server.Run(ctx, listener) }()
	l.stop = func() {
		cancel()
		if err := polltest.Get(l.t, done, "Run"); err != nil {
			l.t.Error(err)
		}
	}
}

func (l *live) start(program, apiType string) {
	l.t.Helper()
	dir := l.t.TempDir()
	text :=
		fmt.Sprintf(
			`{"node": {"id": "web-1", "cluster": "web"}, "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
		"dynamic_resources": {"lds_config": %s, "cds_config": %s, "ads_config": {"api_type": %q, "transport_api_version": "V3",
			"grpc_services": [{"envoy_grpc": {"cluster_name": "plane"}, "initial_metadata": [{"key": "x-consul-token", "value": "good"}]}]}},
		"static_resources": {"clusters": [{"name": "plane", "type": "STATIC", "connect_timeout": "5s",
			"load_assignment": {"cluster_name": "plane", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"pipe": {"path": %q}}}}]}]},
			"typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
				"@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions", "explicit_http_config": {"http2_protocol_options": {}}}}}]}}`, ads, ads, apiType, l.socket)
	file := filepath.Join(dir, "envoy.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		l.t.Fatal(err)
	}
	cmd := exec.Command(program, "-c", file, "--disable-hot-restart", "--concurrency", "1", "--admin-address-path",
		filepath.Join(dir, "admin"))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, _ := os.ReadFile(log.Name()); l.t.Failed() {
			l.t.Logf("envoy:\n%s", text[max(0, len(text)-4000):])
		}
		_ = log.Close()
	})
}

// get asks the proxy until it gives the wanted answer.
func (l *live) get(what string, want func(code int, body string) bool) {
	l.t.Helper()
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	polltest.NoError(l.t, patience, func() error {
		r, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d/", l.port))
		if err != nil {
			return err
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err == nil && !want(r.StatusCode, string(body)) {
			err = fmt.Errorf("got %d %q", r.StatusCode, body)
		}
		return err
	}, "%s", what)
}

func (l *live) reported(what string, match func(Report) bool) {
	l.t.Helper()
	polltest.Within(l.t, patience, func() bool {
		for _, r := range l.p.heard() {
			if match(r) {
				return true
			}
		}
		return false
	}, "%s", what)
}

func says(text string) func(int, string) bool {
	return func(code int, body string) bool { return code == 200 && body == text }
}

// A real Envoy gets everything from our server and serves requests by it, through
// changes, refusals, a restart of the server, and removals.
func TestRealEnvoy(t *testing.T) {
	for _, name := range fetch.Envoys {
		for _, apiType := range []string{"DELTA_GRPC", "GRPC"} {
			t.Run(name+" "+apiType, func(t *testing.T) { tellEnvoy(t, fetch.Need(t, name), apiType) })
		}
	}
}

func tellEnvoy(t *testing.T, program, apiType string) {
	var apps [2]*httptest.Server
	for i := range apps {
		apps[i] = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "app ", i)
		}))
		t.Cleanup(apps[i].Close)
	}
	ports, err := testport.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "xds") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l := &live{t: t, plane: newTable(), socket: filepath.Join(dir, "s"), port: ports[0],
		metrics: telemetry.New(telemetry.Config{})}
	l.p = l.plane.add("web-1")
	l.resources(apps[0])
	l.serve()
	t.Cleanup(func() { l.stop() })
	l.start(program, apiType)
	l.get("the first answer", says("app 0"))
	second := apps[1].Listener.Addr().(*net.TCPAddr).Port
	l.p.put(l.endpoints("2", second))
	l.get("the other endpoint", says("app 1"))
	l.p.put(l.rules("2", "DENY"))
	l.get("to be refused", func(code int, _ string) bool { return code == 403 })
	l.p.put(l.rules("3", "ALLOW"))
	l.get("to be let in", says("app 1"))
	l.p.put(l.cluster("2", 6))
	l.reported("the changed cluster", func(r Report) bool { return r.Type == mesh.TypeCluster && has(r, "app", "2") })
	l.get("an answer by the changed cluster", says("app 1"))

	l.p.put(l.endpoints("bad", 99999999))
	l.reported("a refusal", func(r Report) bool { return r.Refused != "" && has(r, "app", "bad") })
	l.get("what was before the refusal", says("app 1"))
	l.p.put(l.endpoints("4", second))
	l.reported("endpoints after the refusal", func(r Report) bool { return r.Refused == "" && has(r, "app", "4") })

	l.stop()
	l.p.mu.Lock()
	l.p.reports = nil
	l.p.mu.Unlock()
	l.serve()
	if apiType == "DELTA_GRPC" {
		l.reported("that Envoy brought its cluster along", func(r Report) bool {
			return r.Sent.IsZero() &&
				has(r, "app", "2")
		})
		l.reported("that Envoy brought its secret along", func(r Report) bool {
			return r.Sent.IsZero() &&
				has(r, "leaf", "1")
		})
	}
	l.p.put(l.endpoints("5", apps[0].Listener.Addr().(*net.TCPAddr).Port))
	l.get("an answer after the server's restart", says("app 0"))
	for _, r := range l.p.heard() {
		if r.Type == mesh.TypeCluster && apiType == "DELTA_GRPC" && !r.Sent.IsZero() {
			t.Errorf("clusters were sent again: %+v", r)
		}
	}
	l.stop()
	l.p.remove(mesh.TypeListener, "in") // while nobody can tell
	l.serve()
	polltest.NoError(t, patience, func() error {
		conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", l.port), time.Second)
		if err == nil {
			_ = conn.Close()
			return errors.New("it still listens")
		}
		return nil
	}, "the removed listener to close")
}

func has(r Report, name, version string) bool {
	for _, one := range r.Resources {
		if one.Name == name && one.Version == version {
			return true
		}
	}
	return false
}
