package node

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/api/vaultapi"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/testport"
	"corbel.dev/corbel/node/config"
	"corbel.dev/corbel/secrets/keeper"
	"corbel.dev/corbel/secrets/storage/memstore"
)

// ask sends JSON and decodes what comes back, if anything.
func ask(t *testing.T, cl *http.Client, method, url, token, body string, into any) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Vault-Token", token)
	resp, err := cl.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if into != nil && resp.StatusCode == http.StatusOK {
		if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
			t.Fatalf("%s %s: %v", method, url, err)
		}
	}
	return resp.StatusCode
}

// TestWorkloadIdentity has a service of a mesh log in to a secrets server by the certificate that the mesh's
// authority gave it, over TLS, with nothing else to show; deregistered, it loses its token.
func TestWorkloadIdentity(t *testing.T) {
	ports, err := testport.Free(3)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("log_level = \"ERROR\"\nports { http = %d, serf_lan = %d, server = %d, secrets = -1, serf_wan "+
		"= -1, dns = -1, grpc = -1 }", ports[0], ports[1], ports[2])
	cfg, err := config.Load(config.Options{Dev: true, Style: config.Corbel, Fragments: []string{text}, Hostname: "test"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	mesh := fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	var ahead atomic.Int64 // of the secrets server's clock
	k, err := keeper.New(keeper.Config{Storage: memstore.New(),
		Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	if err != nil {
		t.Fatal(err)
	}
	first, err := k.Init(t.Context(), 1, 1, "root")
	if err == nil {
		_, err = k.Unseal(t.Context(), first.Shares[0])
	}
	if err != nil {
		t.Fatal(err)
	}
	defer k.Seal()
	srv := httptest.NewUnstartedServer(vaultapi.New(vaultapi.Config{Keeper: k, Version: "1.0.0"}))
	srv.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	srv.StartTLS()
	defer srv.Close()
	vault := srv.URL + "/v1/"
	plain := http.DefaultClient
	polltest.Until(t, func() bool {
		return ask(t, plain, "PUT", mesh+"/v1/agent/service/register", "", `{"Name":"web","Port":80}`, nil) == 200
	}, "the registration")
	var leaf struct{ CertPEM, PrivateKeyPEM, ServiceURI string }
	polltest.Until(t, func() bool {
		return ask(t, plain, "GET", mesh+"/v1/agent/connect/ca/leaf/web", "", "", &leaf) == 200
	}, "the certificate")
	for path, body := range map[string]string{"sys/mounts/secret": `{"type":"kv-v2"}`, "sys/auth/cert": `{"type":"cert"}`,
		"sys/policies/acl/web": `{"policy":"path \"secret/data/web\" { capabilities = [\"read\"] }"}`} {
		if code := ask(t, srv.Client(), "PUT", vault+path, "root", body, nil); code != 204 {
			t.Fatalf("%s: %d", path, code)
		}
	}
	polltest.Until(t, func() bool {
		return ask(t, srv.Client(), "PUT", vault+"auth/cert/config", "root", `{"mesh_address":"`+mesh+`"}`, nil) == 204
	}, "the mesh's roots")
	ask(t, srv.Client(), "PUT", vault+"auth/cert/certs/web", "root", `{"trust_mesh_roots":true,"allowed_uri_sans":"`+
		leaf.ServiceURI+`","token_policies":"web"}`, nil)
	ask(t, srv.Client(), "PUT", vault+"secret/data/web", "root", `{"data":{"a":"b"}}`, nil)

	if code := ask(t, srv.Client(), "PUT", vault+"auth/cert/login", "", "", nil); code != 400 {
		t.Errorf("a login without a certificate: %d", code)
	}
	pair, err := tls.X509KeyPair([]byte(leaf.CertPEM), []byte(leaf.PrivateKeyPEM))
	if err != nil {
		t.Fatal(err)
	}
	own := srv.Client().Transport.(*http.Transport).Clone()
	own.TLSClientConfig.Certificates = []tls.Certificate{pair}
	defer own.CloseIdleConnections()
	workload := &http.Client{Transport: own}
	var login struct {
		Auth struct {
			ClientToken string `json:"client_token"`
		}
	}
	// the catalog learns of the service in its time
	polltest.Until(t, func() bool { return ask(t, workload, "PUT", vault+"auth/cert/login", "", "", &login) == 200 },
		"the login")
	token := login.Auth.ClientToken
	if code := ask(t, workload, "GET", vault+"secret/data/web", token, "", nil); code != 200 {
		t.Errorf("the workload reads its secret: %d", code)
	}
	if n, err := k.EndWorkloads(t.Context()); n != 0 || err != nil {
		t.Errorf("%d tokens ended: %v", n, err)
	}
	if code := ask(t, plain, "PUT", mesh+"/v1/agent/service/deregister/web", "", "", nil); code != 200 {
		t.Fatalf("deregister: %d", code)
	}
	polltest.Until(t, func() bool {
		ahead.Add(int64(11 * time.Second))
		if _, err := k.EndWorkloads(t.Context()); err != nil {
			t.Error(err)
		}
		return ask(t, workload, "GET", vault+"secret/data/web", token, "", nil) == 403
	}, "the end of the token")
}
