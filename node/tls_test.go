package node

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/core/wire/wiretest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/testport"
	"corbel.dev/corbel/node/config"
	"corbel.dev/corbel/node/raftgroup"
)

const goodName = "server.dc1.consul"

// secured starts a server whose RPC and HTTPS ports demand certificates of a.
func secured(t *testing.T, a *wiretest.Authority, more string) (m *testMember, https, dir, hcl string) {
	t.Helper()
	dir = t.TempDir()
	a.Store(dir, a.Issue(goodName, -time.Minute, time.Hour))
	ports, err := testport.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	hcl = fmt.Sprintf(aclOff+`
bootstrap = true
ports { https = %d }
tls { defaults {
  ca_file = "%[2]s/ca.pem"
  cert_file = "%[2]s/cert.pem"
  key_file = "%[2]s/key.pem"
  verify_incoming = true
  verify_outgoing = true
  verify_server_hostname = true
  %[3]s
} }`, ports[0], dir, more)
	m = startServer(t, "secured", hcl)
	m.awaitAsk("PUT", "/v1/kv/ready", "x", http.StatusOK, "true")
	return m, fmt.Sprintf("127.0.0.1:%d", ports[0]), dir, hcl
}

// show always shows the certificate: crypto/tls would rather show none than what the server's hints exclude.
func show(c *tls.Certificate) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if c == nil {
			return &tls.Certificate{}, nil
		}
		return c, nil
	}
}

// knock reports whether a connection is served that shows c: one for Raft that is not closed within patience is, as
// it waits for a message.
func knock(t *testing.T, m *testMember, a *wiretest.Authority, c *tls.Certificate, proto wire.Protocol, group byte,
	patience time.Duration) bool {
	t.Helper()
	conn, err := net.DialTimeout("tcp", m.Wire.Addr().String(), 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	client := tls.Client(conn, &tls.Config{RootCAs: a.Pool(), ServerName: goodName, GetClientCertificate: show(c)})
	if client.Handshake() != nil {
		return false
	}
	// The server's verdict on a certificate comes after TLS 1.3's handshake is over here.
	if _, err := client.Write([]byte{byte(proto), group}); err != nil {
		return false
	}
	if proto != wire.ProtoRaft { // the gRPC server speaks first
		_, err = io.ReadFull(client, make([]byte, 9))
		return err == nil
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, err = client.Read(make([]byte, 1))
	timeout, ok := err.(net.Error)
	return err == nil || ok && timeout.Timeout() // it waits for a message
}

// TestStrangersOfRPC is C7: nobody without a valid certificate of the right authority gets through to RPC or Raft.
func TestStrangersOfRPC(t *testing.T) {
	t.Parallel()
	a, other := wiretest.NewAuthority(t), wiretest.NewAuthority(t)
	m, _, _, _ := secured(t, a, "")
	cert := func(c tls.Certificate) *tls.Certificate { return &c }
	stranger := map[string]*tls.Certificate{
		"no certificate":           nil,
		"of another authority":     cert(other.Issue(goodName, -time.Minute, time.Hour)),
		"expired":                  cert(a.Issue(goodName, -time.Hour, -time.Minute)),
		"not yet valid":            cert(a.Issue(goodName, 30*time.Minute, time.Hour)),
		"expired, of another":      cert(other.Issue(goodName, -time.Hour, -time.Minute)),
		"a client's name for Raft": cert(a.Issue("client.dc1.consul", -time.Minute, time.Hour)),
		"a server's of another dc": cert(a.Issue("server.dc2.consul", -time.Minute, time.Hour)),
	}
	knock := func(c *tls.Certificate, proto wire.Protocol, group byte, patience time.Duration) bool {
		return knock(t, m, a, c, proto, group, patience)
	}
	for name, c := range stranger {
		if name != "a client's name for Raft" && name != "a server's of another dc" && knock(c, wire.ProtoRPC, 0, 0) {
			t.Errorf("%s: RPC was served", name)
		}
		if knock(c, wire.ProtoRaft, raftgroup.CatalogID, 30*time.Second) {
			t.Errorf("%s: Raft was served", name)
		}
	}
	good := cert(a.Issue(goodName, -time.Minute, time.Hour))
	if !knock(good, wire.ProtoRPC, 0, 0) || !knock(good, wire.ProtoRaft, raftgroup.CatalogID, time.Second) {
		t.Error("a server's own certificate was refused")
	}
	if conn, err := net.Dial("tcp", m.Wire.Addr().String()); err == nil {
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
		_, _ = conn.Write([]byte{byte(wire.ProtoRPC), 0})
		if n, err := io.ReadFull(conn, make([]byte, 9)); err == nil {
			t.Errorf("plain RPC was served: %d bytes", n)
		}
		_ = conn.Close()
	}
}

// TestStrangersOfXDS is C7 for the port that Envoys come to: nobody without a valid certificate of the right
// authority gets a byte of the protocol.
func TestStrangersOfXDS(t *testing.T) {
	a, other := wiretest.NewAuthority(t), wiretest.NewAuthority(t)
	dir := t.TempDir()
	a.Store(dir, a.Issue(goodName, -time.Minute, time.Hour))
	ports, err := testport.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	m := startServer(t, "secured", fmt.Sprintf(aclOff+`
bootstrap = true
ports { grpc_tls = %d }
tls { grpc {
  ca_file = "%[2]s/ca.pem"
  cert_file = "%[2]s/cert.pem"
  key_file = "%[2]s/key.pem"
  verify_incoming = true
} }`, ports[0], dir))
	m.awaitAsk("PUT", "/v1/kv/ready", "x", http.StatusOK, "true")
	served := func(config *tls.Config) bool {
		conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0]), 30*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
		client := conn
		if config != nil {
			config.NextProtos = []string{"h2"}
			client = tls.Client(conn, config)
		}
		if _, err := io.WriteString(client,
			"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
			return false
		}
		_, err = io.ReadFull(client, make([]byte, 9)) // the server's settings
		return err == nil
	}
	with := func(roots *wiretest.Authority, c *tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: roots.Pool(), ServerName: goodName, GetClientCertificate: show(c)}
	}
	cert := func(c tls.Certificate) *tls.Certificate { return &c }
	good := cert(a.Issue("proxy", -time.Minute, time.Hour))
	if !served(with(a, good)) {
		t.Error("a valid certificate was refused")
	}
	for name, config := range map[string]*tls.Config{
		"no certificate": with(a, nil), "of another authority": with(a, cert(other.Issue("proxy", -time.Minute, time.Hour))),
		"expired":                   with(a, cert(a.Issue("proxy", -time.Hour, -time.Minute))),
		"not yet valid":             with(a, cert(a.Issue("proxy", 30*time.Minute, time.Hour))),
		"the client trusts another": with(other, good), "plain": nil,
		"the client wants another name": {RootCAs: a.Pool(), ServerName: "elsewhere", GetClientCertificate: show(good)},
	} {
		if served(config) {
			t.Errorf("%s: was served", name)
		}
	}
}

func httpsClient(roots *x509.CertPool, c *tls.Certificate, most uint16) *http.Client {
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, MaxVersion: most, GetClientCertificate: show(c)}}}
}

func fetchHTTPS(c *http.Client, addr string) (string, *tls.ConnectionState, error) {
	resp, err := c.Get("https://" + addr + "/v1/kv/ready?raw")
	if err != nil {
		return "", nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), resp.TLS, err
}

// TestHTTPS: what the HTTPS port demands, and that a reload changes it for new connections.
func TestHTTPS(t *testing.T) {
	a, other := wiretest.NewAuthority(t), wiretest.NewAuthority(t)
	m, addr, dir, hcl := secured(t, a, `tls_min_version = "TLSv1_3"`)
	cert := func(c tls.Certificate) *tls.Certificate { return &c }
	good := cert(a.Issue("operator", -time.Minute, time.Hour))
	if body, _, err := fetchHTTPS(httpsClient(a.Pool(), good, 0), addr); err != nil || body != "x" {
		t.Fatalf("the right certificate: %q %v", body, err)
	}
	for name, c := range map[string]*http.Client{
		"no certificate":       httpsClient(a.Pool(), nil, 0),
		"of another authority": httpsClient(a.Pool(), cert(other.Issue("operator", -time.Minute, time.Hour)), 0),
		"expired":              httpsClient(a.Pool(), cert(a.Issue("operator", -time.Hour, -time.Minute)), 0),
		"not yet valid":        httpsClient(a.Pool(), cert(a.Issue("operator", 30*time.Minute, time.Hour)), 0),
		"TLS 1.2":              httpsClient(a.Pool(), good, tls.VersionTLS12),
		"does not trust us":    httpsClient(other.Pool(), good, 0),
	} {
		if body, _, err := fetchHTTPS(c, addr); err == nil {
			t.Errorf("%s: served %q", name, body)
		}
	}
	if resp, err := http.Get("http://" + addr + "/v1/kv/ready"); err == nil {
		if resp.StatusCode < 400 {
			t.Errorf("plain HTTP on the HTTPS port: %d", resp.StatusCode)
		}
		resp.Body.Close()
	}
	// A file that holds nonsense changes nothing; then a new authority takes over.
	if err := os.WriteFile(filepath.Join(dir, "cert.pem"), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.Reload(m.config(true, hcl)); err == nil {
		t.Error("a reload took nonsense for a certificate")
	}
	if body, _, err := fetchHTTPS(httpsClient(a.Pool(), good, 0), addr); err != nil || body != "x" {
		t.Errorf("after the refused reload: %q %v", body, err)
	}
	other.Store(dir, other.Issue(goodName, -time.Minute, time.Hour))
	if err := m.Reload(m.config(true, strings.Replace(hcl, "TLSv1_3", "TLSv1_2", 1))); err != nil {
		t.Fatalf("reload: %v", err)
	}
	theirs := cert(other.Issue("operator", -time.Minute, time.Hour))
	if body, state, err := fetchHTTPS(httpsClient(other.Pool(), theirs, tls.VersionTLS12), addr); err != nil ||
		body != "x" || state.Version != tls.VersionTLS12 {
		t.Errorf("the new authority, with TLS 1.2: %q %v", body, err)
	}
	if _, _, err := fetchHTTPS(httpsClient(other.Pool(), good, 0), addr); err == nil {
		t.Error("a certificate of the former authority is still taken")
	}
	polltest.Until(t, func() bool { return m.raft.LeaseHeld() }, "the server to lead on after the reload")
}

// TestPortsInRanges: a port of ours may be one of those that sidecars may get.
func TestPortsInRanges(t *testing.T) {
	_, err := config.Load(config.Options{Server: true, Hostname: "h", Fragments: []string{`
data_dir = "/d"
bind_addr = "127.0.0.1"
ports { http = 21255, dns = 21000, sidecar_min_port = 21000, sidecar_max_port = 21255 }`}})
	if err != nil {
		t.Errorf("ports at the ends of a range: %v", err)
	}
	if _, err = config.Load(config.Options{Server: true, Hostname: "h", Fragments: []string{`
data_dir = "/d"
bind_addr = "127.0.0.1"
ports { http = 8600 }`}}); err == nil || !strings.Contains(err.Error(), "ports.http") {
		t.Errorf("two listeners on one port: %v", err)
	}
}
