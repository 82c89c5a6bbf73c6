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
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/jwks/jwkstest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/testport"
	"corbel.dev/corbel/kit/tokenreview/reviewtest"
)

// agentRig is a server with TLS, and agents that log in at it.
type agentRig struct {
	t       *testing.T
	dir     string
	address string
	env     []string
}

func newAgentRig(t *testing.T) *agentRig {
	t.Helper()
	ports, err := testport.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	r := &agentRig{t: t, dir: t.TempDir(), address: fmt.Sprint("127.0.0.1:", ports[0])}
	r.env = append(os.Environ(), "HOME="+r.dir, "VAULT_ADDR=https://"+r.address,
		"VAULT_CACERT="+filepath.Join(r.dir, "vault-ca.pem"))
	server := exec.Command(filepath.Join(binDir, "corbel"), "vault", "server", "-dev-tls", "-dev-tls-cert-dir="+r.dir,
		"-dev-root-token-id=root", "-dev-no-store-token", "-dev-listen-address="+r.address)
	server.Env = r.env
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	polltest.Within(t, time.Minute, func() bool { _, err := r.vault("root", "status"); return err == nil }, "the server")
	return r
}

// vault runs the command and returns what it prints.
func (r *agentRig) vault(token string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(binDir, "corbel"), append([]string{"vault"}, args...)...)
	cmd.Env, cmd.Dir = r.env, r.dir
	if token != "" {
		cmd.Env = append(append([]string{}, r.env...), "VAULT_TOKEN="+token)
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (r *agentRig) must(args ...string) string {
	r.t.Helper()
	out, err := r.vault("root", args...)
	if err != nil {
		r.t.Fatalf("vault %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

func (r *agentRig) file(name, text string) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// logIn has an agent log in once, and returns what the server says of the token in its sink.
func (r *agentRig) logIn(kind, config string) string {
	r.t.Helper()
	conf := r.file(kind+".hcl", fmt.Sprintf("auto_auth {\n  method %q {\n    exit_on_err = true\n    config = {\n%s\n"+
		"    }\n  }\n  sink \"file\" {\n    config = { path = %q }\n  }\n}\n",
		kind, config, filepath.Join(r.dir, kind+".token")))
	if out, err := r.vault("", "agent", "-config="+conf, "-exit-after-auth"); err != nil {
		r.t.Fatalf("%s: %v: %s", kind, err, out)
	}
	token, err := os.ReadFile(filepath.Join(r.dir, kind+".token"))
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := r.vault(string(token), "token", "lookup")
	if err != nil {
		r.t.Fatalf("%s: %v: %s", kind, err, out)
	}
	return out
}

// clientCertificate writes one that signs itself, and its key.
func (r *agentRig) clientCertificate(name string) (cert, key string) {
	r.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		r.t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		r.t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.file("client.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))),
		r.file("client-key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})))
}

// TestAgentLogins: an agent logs in by a client certificate, by a pod's account, by a name and password, and with a
// token that is there.
func TestAgentLogins(t *testing.T) {
	t.Parallel()
	r := newAgentRig(t)
	shows := func(kind, out string, words ...string) {
		t.Helper()
		for _, word := range words {
			if !strings.Contains(out, word) {
				t.Errorf("%s: %q is not in %s", kind, word, out)
			}
		}
	}
	cert, key := r.clientCertificate("web")
	r.must("auth", "enable", "cert")
	r.must("write", "auth/cert/certs/web", "certificate=@"+cert, "token_policies=default", "token_ttl=1h")
	shows("cert", r.logIn("cert", fmt.Sprintf("client_cert = %q\nclient_key = %q\nname = \"web\"", cert, key)),
		"auth/cert/login", "cert-web")

	api, issuer := reviewtest.New(t), jwkstest.New(t, "RS256")
	r.must("auth", "enable", "kubernetes")
	r.must("write", "auth/kubernetes/config", "kubernetes_host="+api.URL, "kubernetes_ca_cert="+api.CA,
		"token_reviewer_jwt="+reviewtest.Reviewer, "disable_local_ca_jwt=true")
	r.must("write", "auth/kubernetes/role/app", "bound_service_account_names=web", "bound_service_account_namespaces=shop",
		"token_policies=default", "token_ttl=1h")
	now := time.Now()
	jwt := issuer.Sign(map[string]any{"iss": "https://kubernetes.default.svc",
		"aud": []string{"https://kubernetes.default.svc"}, "exp": now.Add(time.Hour).Unix(), "nbf": now.Unix() - 10,
		"sub": "system:serviceaccount:shop:web", "kubernetes.io": map[string]any{"namespace": "shop",
			"serviceaccount": map[string]any{"name": "web", "uid": "uid-1"}}})
	api.Vouch(jwt, "shop", "web", "uid-1")
	api.Put("shop/serviceaccounts/web", map[string]any{"name": "web", "namespace": "shop", "uid": "uid-1"})
	shows("kubernetes", r.logIn("kubernetes", fmt.Sprintf("role = \"app\"\ntoken_path = %q", r.file("jwt", jwt+"\n"))),
		"auth/kubernetes/login", "service_account_name:web")

	r.must("auth", "enable", "userpass")
	r.must("write", "auth/userpass/users/ann", "password=ann-word", "token_ttl=1h")
	shows("userpass", r.logIn("userpass", fmt.Sprintf("username = \"ann\"\npassword_file_path = %q",
		r.file("word", "ann-word\n"))), "auth/userpass/login/ann")

	made := strings.TrimSpace(r.must("token", "create", "-field=token", "-policy=default", "-ttl=1h",
		"-display-name=ready"))
	shows("token_file", r.logIn("token_file", fmt.Sprintf("token_file_path = %q", r.file("ready", made+"\n"))),
		"auth/token/create", "token-ready")
	if token, err := os.ReadFile(filepath.Join(r.dir, "token_file.token")); err != nil || string(token) != made {
		t.Errorf("%q in the sink, %v", token, err)
	}
}
