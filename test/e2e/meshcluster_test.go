package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/test/fetch"
)

const (
	meshRoot = "00000000-aaaa-bbbb-cccc-000000000001"
	meshWeb  = "00000000-aaaa-bbbb-cccc-000000000002"
	meshAPI  = "00000000-aaaa-bbbb-cccc-000000000003"
)

// meshProcess runs a server or an agent with a configuration of its own.
func (r *meshRig) meshProcess(kind, name, extra string) {
	r.Helper()
	config := fmt.Sprintf(`node_name = %q
data_dir = %q
bind_addr = "127.0.0.1"
log_level = "info"
retry_join = ["127.0.0.1:%d"]
tls { disabled = true }
acl { enabled = true, default_policy = "deny", tokens { initial_management = %q, agent = %q } }
%s
`, name, filepath.Join(r.dir, name), r.port("s1 gossip"), meshRoot, meshRoot, extra)
	r.runs(kind, name, config)
}

// runs starts a server or an agent by a file.
func (r *meshRig) runs(kind, name, config string) {
	r.Helper()
	path := filepath.Join(r.dir, name+".hcl")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		r.Fatal(err)
	}
	c := r.command(kind, "--config-file", path, "--http-port", fmt.Sprint(r.port(name+" http")), "--dns-port",
		fmt.Sprint(r.port(name+" dns")),
		"--server-port", fmt.Sprint(r.port(name+" rpc")), "--serf-lan-port", fmt.Sprint(r.port(name+" gossip")))
	if err := c.Start(); err != nil {
		r.Fatal(err)
	}
	r.all = append(r.all, c)
}

// on is the rig as it looks from another process, with a token.
func (r *meshRig) on(process, token string, envoyArgs ...string) *meshRig {
	c := *r
	c.all, c.dev = nil, nil
	c.http, c.token, c.envoyArgs = fmt.Sprintf("http://127.0.0.1:%d", r.port(process+" http")), token,
		append(envoyArgs, "--token", token)
	return &c
}

// certificateFor makes a certificate for names and 127.0.0.1 that is its own authority.
func certificateFor(t *testing.T, dns ...string) (certPEM, keyPEM []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: dns,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw})
}

// meshCertificate is one for 127.0.0.1, as files.
func meshCertificate(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	certPEM, keyPEM := certificateFor(t)
	cert, key = filepath.Join(dir, "xds.pem"), filepath.Join(dir, "xds-key.pem")
	for path, text := range map[string][]byte{cert: certPEM, key: keyPEM} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// TestMeshOnAgents: three servers and two agents with access control. One Envoy gets its configuration over TLS, the
// other over a unix socket; intentions are needed; wrong tokens are refused; traffic outlives all servers.
func TestMeshOnAgents(t *testing.T) {
	r := emptyMeshRig(t, fetch.Need(t, "envoy"))
	cert, key := meshCertificate(t, r.dir)
	sockets, err := os.MkdirTemp("", "xds") // the path of a socket is bounded
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	socket := filepath.Join(sockets, "s")
	for _, name := range []string{"s1", "s2", "s3"} {
		r.meshProcess("server", name, "bootstrap_expect = 3\nports { serf_wan = -1 }")
	}
	servers := r.on("s1", meshRoot)
	servers.await("a leader", func() bool {
		status, body := servers.ask("GET", "/v1/status/leader", "")
		return status == http.StatusOK && strings.Contains(body, ":")
	})
	r.meshProcess("agent", "a1", fmt.Sprintf("ports { grpc_tls = %d }\ntls { disabled = true, grpc { cert_file = %q, "+
		"key_file = %q } }", r.port("a1 grpc"), cert, key))
	r.meshProcess("agent", "a2", fmt.Sprintf("addresses { grpc = \"unix://%s\" }", socket))
	for id, service := range map[string]string{meshWeb: "web", meshAPI: "api"} {
		body := fmt.Sprintf(`{"SecretID":%q,"ServiceIdentities":[{"ServiceName":%q}]}`, id, service)
		servers.await("the token of "+service, func() bool {
			status, _ := servers.ask("PUT", "/v1/acl/token", body)
			return status == http.StatusOK
		})
	}
	servers.must("PUT", "/v1/config", `{"Kind":"service-defaults","Name":"api","Protocol":"http"}`)
	web, api := r.on("a1", meshWeb, "--grpc-addr", fmt.Sprintf("127.0.0.1:%d", r.port("a1 grpc")), "--grpc-ca-file", cert),
		r.on("a2", meshAPI, "--grpc-addr", "unix://"+socket)
	// An agent that has just begun knows no server for a moment, or asks one that has not heard of the token yet.
	for name, c := range map[string]*meshRig{"web": web, "api": api} {
		c.await("the agent of "+name, func() bool {
			status, _ := c.ask("PUT", "/v1/agent/service/register", fmt.Sprintf(`{"Name":%q,"ID":"first"}`, name))
			return status == http.StatusOK
		})
		c.must("PUT", "/v1/agent/service/deregister/first", "")
	}
	api.service("api", "api", "1", backend(t, "api"), nil)
	web.service("web", "web", "1", backend(t, "web"), map[string]int{"api": r.port("to api")})
	web.proxy("web")
	api.proxy("api")
	r.all = append(r.all, append(web.all, api.all...)...)
	reached := func() int { status, _ := r.get(r.port("to api"), "/"); return status }
	servers.await("both proxies to be synced", func() bool {
		_, body := servers.ask("GET", "/v1/internal/mesh/status", "")
		return strings.Contains(strings.Join(strings.Fields(body), ""), `"synced":2`)
	})
	if status := reached(); status != http.StatusForbidden {
		t.Errorf("without an intention: %d", status)
	}
	servers.must("PUT", "/v1/connect/intentions/exact?source=web&destination=api", `{"Action":"allow"}`)
	r.await("the intention", func() bool { return reached() == http.StatusOK })
	meshRefusals(t, socket)
	for _, c := range r.all[:3] { // the servers
		_ = c.Process.Kill()
	}
	for range 50 {
		if status := reached(); status != http.StatusOK {
			t.Fatalf("without servers: %d", status)
		}
	}
}

// meshRefusals: who may not have a proxy's configuration is told so with the contract's status.
func meshRefusals(t *testing.T, socket string) {
	for _, c := range []struct {
		id, token, status string
	}{
		{"api-sidecar-proxy", "", "16"},       // Unauthenticated or denied: see below
		{"api-sidecar-proxy", "nobody", "16"}, // a token that does not exist
		{"api-sidecar-proxy", meshWeb, "7"},   // another service's
		{"unknown", meshAPI, "3"},
		{"", meshAPI, "3"},
	} {
		status, message := discover(t, socket, c.id, c.token)
		if c.token == "" && status == "7" {
			continue // the anonymous token exists, and lacks the right
		}
		if status != c.status {
			t.Errorf("%q with %q: status %s %s, want %s", c.id, c.token, status, message, c.status)
		}
	}
}

// discover begins a stream as Envoy does and returns how it ended.
func discover(t *testing.T, socket, id, token string) (status, message string) {
	t.Helper()
	tr := &http.Transport{Protocols: http2Only(), DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	defer tr.CloseIdleConnections()
	field := func(number byte, text string) string { return string([]byte{number<<3 | 2, byte(len(text))}) + text }
	message = field(1, field(1, id)+field(6, "envoy")) + field(2, "type.googleapis.com/envoy.config.cluster.v3.Cluster")
	body, write := io.Pipe() // stays open: the server ends the stream
	defer write.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST",
		"http://xds/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("TE", "trailers")
	if token != "" {
		req.Header.Set("x-consul-token", token)
	}
	go func() { _, _ = io.WriteString(write, string([]byte{0, 0, 0, 0, byte(len(message))})+message) }()
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	for _, h := range []http.Header{resp.Header, resp.Trailer} {
		if s := h.Get("Grpc-Status"); s != "" {
			return s, h.Get("Grpc-Message")
		}
	}
	return "none", ""
}
