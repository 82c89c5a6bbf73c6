package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corbel.dev/corbel/test/fetch"
)

// gateway runs Envoy as a gateway that registers itself, as an operator does.
func (r *meshRig) gateway(kind, name string) {
	r.Helper()
	c := r.command("connect", "envoy", "--gateway", kind, "--register", "--service", name, "--address",
		fmt.Sprintf("127.0.0.1:%d", r.port(name+" public")),
		"--admin-bind", fmt.Sprintf("127.0.0.1:%d", r.port(name+" admin")), "--envoy-binary", r.envoy, "--",
		"--disable-hot-restart", "--concurrency", "1", "--log-level", "warning")
	if err := c.Start(); err != nil {
		r.Fatal(err)
	}
	r.all = append(r.all, c)
}

// pair is a certificate for names that is its own authority, as files and as a pair.
func pair(t *testing.T, dir, name string, dns ...string) (certFile, keyFile string, p tls.Certificate,
	pool *x509.CertPool) {
	t.Helper()
	certPEM, keyPEM := certificateFor(t, dns...)
	certFile, keyFile = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	for file, text := range map[string][]byte{certFile: certPEM, keyFile: keyPEM} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	block, _ := pem.Decode(certPEM)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(cert)
	return certFile, keyFile, p, pool
}

// TestTerminatingGateway: a sidecar reaches services outside of the mesh through a gateway, which speaks TLS to one
// of them by its name, and refuses whom the intentions deny.
func TestTerminatingGateway(t *testing.T) {
	r := newMeshRig(t, fetch.Need(t, "envoy"))
	caFile, _, server, _ := pair(t, r.dir, "server", "legacy.test")
	certFile, keyFile, _, clients := pair(t, r.dir, "client", "corbel.test")
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s %s", q.Host, q.TLS.ServerName, q.TLS.PeerCertificates[0].DNSNames)
	}))
	secure.TLS = &tls.Config{Certificates: []tls.Certificate{server}, ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: clients}
	secure.StartTLS()
	t.Cleanup(secure.Close)
	r.must("PUT", "/v1/config", `{"Kind":"service-defaults","Name":"Legacy","Protocol":"http"}`)
	outside := func(name, address string, port int) {
		r.must("PUT", "/v1/catalog/register", fmt.Sprintf(`{"Node":"outside","Address":"10.255.0.1",`+
			`"SkipNodeUpdate":false,"Service":{"ID":%q,"Service":%[1]q,"Address":%q,"Port":%d}}`, name, address, port))
	}
	outside("db", "127.0.0.1", echo(t))
	outside("Legacy", "localhost", secure.Listener.Addr().(*net.TCPAddr).Port)
	r.service("web", "web", "1", backend(t, "web"), map[string]int{"db": r.port("to db"), "Legacy": r.port("to legacy")})
	r.proxy("web")
	r.gateway("terminating", "out")
	r.must("PUT", "/v1/config", fmt.Sprintf(`{"Kind":"terminating-gateway","Name":"out","Services":[{"Name":"db"},{`+
		`"Name":"Legacy","CAFile":%q,"CertFile":%q,"KeyFile":%q,"SNI":"legacy.test"}]}`, caFile, certFile, keyFile))
	r.await("a connection to a service outside of the mesh", func() bool { return echoed(r.port("to db")) })
	r.await("a request over TLS to a service with a name", func() bool {
		status, body := r.get(r.port("to legacy"), "/")
		return status == http.StatusOK && body == "localhost legacy.test [corbel.test]"
	})
	r.synced(2)
	r.must("PUT", "/v1/connect/intentions/exact?source=web&destination=db", `{"Action":"deny"}`)
	r.must("PUT", "/v1/connect/intentions/exact?source=web&destination=Legacy",
		`{"Permissions":[{"Action":"allow","HTTP":{"PathPrefix":"/open"}},{"Action":"deny","HTTP":{"PathPrefix":"/"}}]}`)
	r.await("the gateway to refuse the connection", func() bool { return !echoed(r.port("to db")) })
	r.await("the gateway to refuse the request", func() bool {
		status, _ := r.get(r.port("to legacy"), "/")
		return status == http.StatusForbidden
	})
	if status, body := r.get(r.port("to legacy"), "/open"); status != http.StatusOK {
		t.Errorf("a request that is allowed: %d %s", status, body)
	}
	// Another service is linked, and one is not any more.
	outside("other", "127.0.0.1", backend(t, "other"))
	r.must("PUT", "/v1/config", `{"Kind":"terminating-gateway","Name":"out","Services":[{"Name":"*"}]}`)
	r.must("PUT", "/v1/connect/intentions/exact?source=web&destination=db", `{"Action":"allow"}`)
	r.await("the wildcard to stand for the service", func() bool { return echoed(r.port("to db")) })
	r.must("DELETE", "/v1/config/terminating-gateway/out", "")
	r.await("the service to be out of reach without its gateway", func() bool { return !echoed(r.port("to db")) })
	r.synced(2)
}

// TestAPIGateway: an api gateway lets requests and connections in from outside of the mesh, over TLS with its own
// certificate, by host and path, and into the mesh as itself.
func TestAPIGateway(t *testing.T) {
	r := newMeshRig(t, fetch.Need(t, "envoy"))
	certPEM, keyPEM := certificateFor(t, "shop.test")
	block, _ := pem.Decode(certPEM)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	put := func(kind, name string, fields map[string]any) {
		t.Helper()
		fields["Kind"], fields["Name"] = kind, name
		text, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		r.must("PUT", "/v1/config", string(text))
	}
	type m = map[string]any
	type list = []any
	for _, name := range []string{"shop", "cart"} {
		put("service-defaults", name, m{"Protocol": "http"})
		r.service(name, name, "1", backend(t, name), nil)
		r.proxy(name)
	}
	r.service("db", "db", "1", echo(t), nil)
	r.proxy("db")
	r.gateway("api", "edge")
	put("inline-certificate", "shop", m{"Certificate": string(certPEM), "PrivateKey": string(keyPEM)})
	put("api-gateway", "edge", m{"Listeners": list{
		m{"Name": "plain", "Port": r.port("plain"), "Protocol": "http"},
		m{"Name": "secure", "Port": r.port("secure"), "Protocol": "http", "Hostname": "shop.test",
			"TLS": m{"Certificates": list{m{"Kind": "inline-certificate", "Name": "shop"}}}},
		m{"Name": "db", "Port": r.port("db in"), "Protocol": "tcp"}}})
	put("http-route", "shop", m{"Parents": list{m{"Name": "edge"}}, "Rules": list{
		m{"Services": list{m{"Name": "shop"}}},
		m{"Matches": list{m{"Path": m{"Match": "prefix", "Value": "/cart"}}}, "Services": list{m{"Name": "cart"}}}}})
	put("tcp-route", "db", m{"Parents": list{m{"Name": "edge", "SectionName": "db"}}, "Services": list{m{"Name": "db"}}})
	r.await("a request through the gateway", func() bool { _, body := r.get(r.port("plain"), "/"); return body == "shop" })
	r.await("a request by path", func() bool { _, body := r.get(r.port("plain"), "/cart/1"); return body == "cart" })
	r.await("a connection through the gateway", func() bool { return echoed(r.port("db in")) })
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "shop.test"}}
	defer tr.CloseIdleConnections()
	r.await("a request over TLS with the gateway's certificate", func() bool {
		q, err := http.NewRequest("GET", fmt.Sprintf("https://127.0.0.1:%d/cart", r.port("secure")), nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Host = "shop.test"
		resp, err := (&http.Client{Transport: tr}).Do(q)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return err == nil && string(text) == "cart"
	})
	r.synced(4)
	if text := r.must("GET", "/v1/config/http-route/shop", ""); !strings.Contains(text, `"Reason": "Bound"`) {
		t.Errorf("the route does not say that it is bound: %s", text)
	}
	// In the mesh the gateway is itself.
	r.must("PUT", "/v1/connect/intentions/exact?source=edge&destination=cart", `{"Action":"deny"}`)
	r.await("the intention", func() bool {
		status, _ := r.get(r.port("plain"), "/cart")
		return status == http.StatusForbidden
	})
	if _, body := r.get(r.port("plain"), "/"); body != "shop" {
		t.Errorf("the other service answered %q", body)
	}
	r.must("DELETE", "/v1/config/http-route/shop", "")
	r.await("no route", func() bool { status, _ := r.get(r.port("plain"), "/"); return status == http.StatusNotFound })
	r.synced(4)
}

// TestTransparentUpstreams: what comes to the listener of redirected traffic goes to the upstream whose virtual
// address it was for. Nothing is redirected here: the address is one that reaches the listener by itself.
func TestTransparentUpstreams(t *testing.T) {
	r := newMeshRig(t, fetch.Need(t, "envoy"))
	r.must("PUT", "/v1/agent/service/register",
		fmt.Sprintf(
			`{"Name":"db","Address":"127.0.0.1","Port":%d,"TaggedAddresses":{"consul-virtual":{"Address":"127.0.0.1","Port":1}},
		"Connect":{"SidecarService":{"Port":%d,"Checks":[{"Name":"alias","AliasService":"db"}]}}}`, echo(t), r.port("db public")))
	r.must("PUT", "/v1/agent/service/register",
		fmt.Sprintf(
			`{"Name":"web","Address":"127.0.0.1","Port":%d,"Connect":{"SidecarService":{"Port":%d,"Checks":[{"Name":"alias","AliasService":"web"}],
		"Proxy":{"Mode":"transparent","TransparentProxy":{"OutboundListenerPort":%d},"Upstreams":[{"DestinationName":"db"}]}}}}`, backend(t, "web"), r.port("web public"), r.port("redirected")))
	r.proxy("db")
	r.proxy("web")
	r.await("a connection to a virtual address", func() bool { return echoed(r.port("redirected")) })
	r.must("PUT", "/v1/connect/intentions/exact?source=web&destination=db", `{"Action":"deny"}`)
	r.await("the intention", func() bool { return !echoed(r.port("redirected")) })
	r.synced(2)
}
