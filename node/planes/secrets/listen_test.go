package secretsplane

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/core/wire/wiretest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/testport"
	"corbel.dev/corbel/node/vaultconf"
)

const manyListeners = `
storage "inmem" {}
enable_response_header_hostname     = true
enable_response_header_raft_node_id = true
log_requests_level = "info"
api_addr = "http://127.0.0.1:%[1]d"
listener "tcp" {
  address     = "127.0.0.1:%[1]d"
  tls_disable = true
  max_request_size = 100
  custom_response_headers { "default" = { "X-Port" = ["first"] } }
}
listener "tcp" {
  address     = "127.0.0.1:%[2]d"
  tls_disable = true
  role        = "metrics_only"
  telemetry { unauthenticated_metrics_access = true }
}
listener "tcp" {
  address     = "127.0.0.1:%[3]d"
  tls_disable = true
  disable_unauthed_generate_root_endpoints = false
  proxy_protocol_behavior         = "allow_authorized"
  proxy_protocol_authorized_addrs = "127.0.0.1"
  telemetry { disallow_metrics = true }
  profiling { unauthenticated_pprof_access = true }
  inflight_requests_logging { unauthenticated_in_flight_requests_access = true }
}
`

// heard keeps log lines.
type heard struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (h *heard) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(b)
}

func (h *heard) wait(t *testing.T, want, what string) {
	t.Helper()
	polltest.Until(t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return strings.Contains(h.text.String(), want)
	}, "%s", what)
}

// manyPorts runs a server with the three listeners and gives their addresses and its log.
func manyPorts(t *testing.T) (addrs []string, log *heard) {
	t.Helper()
	ports := freePorts(t, 3)
	log = &heard{}
	runVault(t, fmt.Sprintf(manyListeners, ports[0], ports[1], ports[2]), log)
	for _, p := range ports {
		addrs = append(addrs, fmt.Sprintf("127.0.0.1:%d", p))
	}
	return addrs, log
}

func freePorts(t *testing.T, n int) []int {
	t.Helper()
	ports, err := testport.Free(n)
	if err != nil {
		t.Fatal(err)
	}
	return ports
}

// runVault runs a server with a configuration until the test ends.
func runVault(t *testing.T, text string, log io.Writer) {
	t.Helper()
	cfg, err := vaultconf.Parse([]vaultconf.Source{{Name: "test", Text: text}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewServer(cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func fetch(t *testing.T, method, address, path, body string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Timeout: 30 * time.Second}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// TestVaultListeners: each listener has its own rules.
func TestVaultListeners(t *testing.T) {
	addrs, log := manyPorts(t)
	for _, c := range []struct {
		at           int
		method, path string
		code         int
	}{
		{0, "GET", "/v1/sys/health", 501}, {1, "GET", "/v1/sys/health", 404}, {2, "GET", "/v1/sys/health", 501},
		{0, "GET", "/v1/sys/metrics", 503}, {1, "GET", "/v1/sys/metrics?format=prometheus", 200},
		{2, "GET", "/v1/sys/metrics", 404},
		{0, "GET", "/v1/sys/pprof/goroutine", 503}, {1, "GET", "/v1/sys/pprof/goroutine", 404},
		{2, "GET", "/v1/sys/pprof/goroutine?debug=1", 200},
		{2, "GET", "/v1/sys/pprof", 200}, {2, "GET", "/v1/sys/pprof/none", 404}, {2, "PUT", "/v1/sys/pprof/heap", 405},
		{2, "GET", "/v1/sys/pprofx", 503},
		{0, "GET", "/v1/sys/in-flight-req", 503}, {2, "GET", "/v1/sys/in-flight-req", 200},
	} {
		resp, body := fetch(t, c.method, addrs[c.at], c.path, "")
		if resp.StatusCode != c.code {
			t.Errorf("listener %d, %s %s: %s %s", c.at, c.method, c.path, resp.Status, body)
		}
		if got := resp.Header.Get("X-Port"); (got == "first") != (c.at == 0) {
			t.Errorf("listener %d has the header %q", c.at, got)
		}
		if resp.Header.Get("X-Vault-Hostname") != hostname() || resp.Header.Get("X-Vault-Raft-Node-ID") != "" {
			t.Errorf("headers of the server: %v", resp.Header)
		}
	}
	if resp, body := fetch(t, "PUT", addrs[0], "/v1/sys/init", `{"secret_shares":1,"secret_threshold":1,"x":"`+
		strings.Repeat("x", 100)+`"}`); resp.StatusCode != 413 {
		t.Errorf("a body above this listener's limit: %s %s", resp.Status, body)
	}
	resp, body := fetch(t, "PUT", addrs[2], "/v1/sys/init", `{"secret_shares":1,"secret_threshold":1,"x":"`+
		strings.Repeat("x", 100)+`"}`)
	if resp.StatusCode != 200 {
		t.Fatalf("%s %s", resp.Status, body)
	}
	share := strings.Split(strings.Split(body, `"keys":["`)[1], `"`)[0]
	if resp, body := fetch(t, "PUT", addrs[0], "/v1/sys/unseal", `{"key":"`+share+`"}`); resp.StatusCode != 200 {
		t.Fatalf("%s %s", resp.Status, body)
	}
	for at, want := range []int{403, 404, 200} {
		if resp, body := fetch(t, "GET", addrs[at], "/v1/sys/generate-root/attempt", ""); resp.StatusCode != want {
			t.Errorf("generate-root without a token at listener %d: %s %s", at, resp.Status, body)
		}
	}
	c, err := net.Dial("tcp", addrs[2])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "PROXY TCP4 192.0.2.7 192.0.2.1 4711 8200\r\nGET /v1/sys/leader HTTP/1.1\r\nHost: "+
		"x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 200 {
		t.Errorf("behind a proxy: %v, %v", resp, err)
	}
	log.wait(t, "completed_request", "a line of each request")
	log.wait(t, "client_address=192.0.2.7:4711", "the address that the proxy told")
}

// Clients with TLS are offered HTTP/2, and take several answers over one connection of either kind.
func TestVaultHTTP2(t *testing.T) {
	dir, ports := t.TempDir(), freePorts(t, 1)
	a := wiretest.NewAuthority(t)
	a.Store(dir, a.Issue("one", -time.Hour, time.Hour))
	address := fmt.Sprintf("127.0.0.1:%d", ports[0])
	runVault(t, fmt.Sprintf("storage \"inmem\" {}\nlistener \"tcp\" {\n  address = %q\n  tls_cert_file = %q\n  "+
		"tls_key_file = %q\n}\n", address, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")), &heard{})
	pool := x509.NewCertPool()
	pool.AddCert(a.Cert)
	for major, offered := range map[int]bool{1: false, 2: true} {
		var dialled atomic.Int32
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: offered,
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				dialled.Add(1)
				return (&net.Dialer{}).DialContext(ctx, network, addr)
			}}
		defer tr.CloseIdleConnections()
		client := &http.Client{Transport: tr, Timeout: 30 * time.Second}
		for _, c := range []struct {
			method, path, body string
			code               int
		}{{"GET", "sys/seal-status", "", 200}, {"LIST", "secret", "", 503},
			{"PUT", "sys/init", `{"secret_shares":300,"x":"` + strings.Repeat("x", 1<<19) + `"}`, 400},
			{"HEAD", "sys/health", "", 501}} {
			req, err := http.NewRequestWithContext(t.Context(), c.method, "https://"+address+"/v1/"+c.path,
				strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode != c.code || resp.ProtoMajor != major || resp.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s %s: %s %s %v", c.method, c.path, resp.Proto, resp.Status, resp.Header)
			}
		}
		if n := dialled.Load(); n != 1 {
			t.Errorf("HTTP/%d: %d connections", major, n)
		}
	}
}

// TestVaultListenersRefused: what a listener cannot be.
func TestVaultListenersRefused(t *testing.T) {
	for text, want := range map[string]string{
		`proxy_protocol_behavior = "sometimes"`:                                               "proxy_protocol_behavior",
		`proxy_protocol_behavior = "deny_unauthorized"`:                                       "proxy_protocol_authorized_addrs: is needed",
		`proxy_protocol_behavior = "deny_unauthorized" proxy_protocol_authorized_addrs = "x"`: `"x" is neither`,
		`x_forwarded_for_client_cert_header = "Client-Cert"`:                                  "needs x_forwarded_for_authorized_addrs",
		`x_forwarded_for_authorized_addrs = "1.1.1.1" x_forwarded_for_client_cert_header = "C" ` +
			`x_forwarded_for_client_cert_header_decoders = "ROT13"`: `"ROT13" is none of`,
	} {
		cfg, err := vaultconf.Parse([]vaultconf.Source{{Name: "test", Text: `storage "inmem" {}` +
			"\nlistener \"tcp\" {\naddress = \"127.0.0.1:0\"\ntls_disable = true\n" + strings.ReplaceAll(text, "\" ", "\"\n") +
			"\n}\n"}}, nil)
		if err == nil {
			_, err = NewServer(cfg, io.Discard)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
