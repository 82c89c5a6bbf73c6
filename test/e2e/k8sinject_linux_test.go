package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
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

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/tokenreview/reviewtest"
)

// selfSigned writes a certificate and its key for localhost, and trusts it.
func selfSigned(t *testing.T) (certFile, keyFile string, trusts *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "webhook"},
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true,
		BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	certFile, keyFile = filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	for path, text := range map[string][]byte{certFile: cert,
		keyFile: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	trusts = x509.NewCertPool()
	trusts.AppendCertsFromPEM(cert)
	return certFile, keyFile, trusts
}

// call sends JSON with a token and wants a success.
func call(t *testing.T, c *http.Client, method, url, token string, body any) []byte {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest(method, url, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Consul-Token", token)
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode/100 != 2 {
		t.Fatalf("%s %s: %s %v\n%s", method, url, resp.Status, err, out)
	}
	return out
}

// sidecarOf asks the webhook about a pod of an account, and returns the arguments of the sidecar that it gets, with the
// pod's variables filled in.
func sidecarOf(t *testing.T, c *http.Client, webhook, account, ip string, annotations map[string]any) []string {
	t.Helper()
	text, err := os.ReadFile("../../k8s/inject/testdata/review.json")
	if err != nil {
		t.Fatal(err)
	}
	var review map[string]any
	if err := json.Unmarshal(text, &review); err != nil {
		t.Fatal(err)
	}
	pod := review["request"].(map[string]any)["object"].(map[string]any)
	pod["metadata"].(map[string]any)["annotations"] = annotations
	pod["spec"].(map[string]any)["serviceAccountName"] = account
	var answer struct {
		Response struct {
			Allowed bool
			Patch   []byte
			Status  any
		}
	}
	if err := json.Unmarshal(call(t, c, http.MethodPost, webhook, "", review), &answer); err != nil {
		t.Fatal(err)
	}
	var patch []struct {
		Value json.RawMessage
	}
	if err := json.Unmarshal(answer.Response.Patch, &patch); err != nil {
		t.Fatalf("%v: %+v", err, answer.Response)
	}
	var containers []struct{ Args []string }
	if err := json.Unmarshal(patch[0].Value, &containers); err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("$(POD_IP)", ip, "$(POD_NAME)", account+"-1", "$(POD_NAMESPACE)", "shop", "$$", "$")
	args := containers[0].Args
	for i := range args {
		args[i] = fill.Replace(args[i])
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(account+"-token"), 0o600); err != nil {
		t.Fatal(err)
	}
	return append(args, "--account-token-file="+token)
}

// Two pods get their sidecars from the webhook, these log in with the pods' accounts, register them, and the pods talk
// through the mesh as intentions allow; with their end they are gone from the catalog, and so are their tokens.
func TestKubernetesSidecars(t *testing.T) {
	t.Parallel()
	const root = "8f6f1c0e-6f0e-4d0c-9a55-0d6d2b6d5a11"
	addr := devAt(t, fmt.Sprintf(`acl { enabled = true, default_policy = "deny", tokens { initial_management = %q } }`,
		root))
	kube := reviewtest.New(t)
	for _, account := range []string{"web", "db"} {
		kube.Vouch(account+"-token", "shop", account, "uid-"+account)
	}
	plain := http.DefaultClient
	call(t, plain, http.MethodPut, addr+"/v1/acl/auth-method", root, map[string]any{"Name": "k8s", "Type": "kubernetes",
		"Config": map[string]any{"Host": kube.URL, "CACert": kube.CA, "ServiceAccountJWT": reviewtest.Reviewer}})
	call(t, plain, http.MethodPut, addr+"/v1/acl/binding-rule", root, map[string]any{"AuthMethod": "k8s",
		"BindType": "service", "BindName": "${serviceaccount.name}", "Selector": `serviceaccount.namespace=="shop"`})
	call(t, plain, http.MethodPut, addr+"/v1/config", root, map[string]any{"Kind": "service-intentions", "Name": "db",
		"Sources": []map[string]any{{"Name": "web", "Action": "allow"}}})

	certFile, keyFile, trusts := selfSigned(t)
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprintf("127.0.0.1:%d", port)
	startProcess(t, "k8s", "inject", "--listen", at, "--tls-cert-file", certFile, "--tls-key-file", keyFile, "--image",
		"corbel:1", "--agent", addr, "--auth-method", "k8s")
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusts}}}
	t.Cleanup(c.CloseIdleConnections)
	polltest.Within(t, time.Minute, func() bool {
		conn, err := net.Dial("tcp", at)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, "the webhook to listen")

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("rows"))
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-served
	})
	local, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	const prefix = "consul.hashicorp.com/"
	_, dbPort, _ := net.SplitHostPort(l.Addr().String())
	db, _ := startProcess(t, sidecarOf(t, c, "https://"+at+"/mutate", "db", "127.0.0.2", map[string]any{
		prefix + "connect-inject": "true", prefix + "connect-service-port": dbPort, prefix + "service-tags": "v2"})...)
	startProcess(t, sidecarOf(t, c, "https://"+at+"/mutate", "web", "127.0.0.3", map[string]any{
		prefix + "connect-inject": "true", prefix + "connect-service-upstreams": fmt.Sprintf("db:%d", local)})...)
	polltest.Within(t, time.Minute, func() bool {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", local))
		if err != nil {
			return false
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		text, _ := io.ReadAll(conn)
		return string(text) == "rows"
	}, "web to reach db through the mesh")
	var instances []struct {
		ServiceID, ServiceAddress string
		ServiceTags               []string
	}
	text := call(t, plain, http.MethodGet, addr+"/v1/catalog/service/db", root, nil)
	if err := json.Unmarshal(text, &instances); err != nil ||
		len(instances) != 1 || instances[0].ServiceID != "db-1-db" || instances[0].ServiceAddress != "127.0.0.2" ||
		len(instances[0].ServiceTags) != 1 {
		t.Errorf("%+v, %v", instances, err)
	}

	logins := func() int {
		return strings.Count(string(call(t, plain, http.MethodGet, addr+"/v1/acl/tokens?authmethod=k8s", root, nil)),
			`"AccessorID"`)
	}
	if n := logins(); n != 2 {
		t.Errorf("%d logins of two pods", n)
	}
	_ = db.Process.Signal(os.Interrupt)
	polltest.Within(t, time.Minute, func() bool {
		return string(call(t, plain, http.MethodGet, addr+"/v1/catalog/service/db", root, nil)) == "[]" && logins() == 1
	}, "db and its token to be gone")
}
