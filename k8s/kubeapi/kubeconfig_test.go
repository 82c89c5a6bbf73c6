package kubeapi

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const kubeconfigText = `apiVersion: v1
kind: Config
current-context: fleet
contexts:
- name: other
  context: {cluster: none, user: none}
- name: fleet
  context: {cluster: fleet, user: %s}
clusters:
- name: fleet
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: token
  user: {token: abc}
- name: file
  user: {tokenFile: token}
- name: cert
  user: {client-certificate: cert.pem, client-key: key.pem}
- name: program
  user: {exec: {command: sh}}
- name: gcp
  user: {auth-provider: {name: gcp}}
- name: basic
  user: {username: u, password: p}
- name: gone
  user: {client-certificate: none.pem}
`

// TestKubeconfig asks a server with TLS as the users of a kubeconfig file.
func TestKubeconfig(t *testing.T) {
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"token": []byte("from-file\n"),
		"cert.pem": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		"key.pem":  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, `{"Who":"%s %d"}`, r.Header.Get("Authorization"), len(r.TLS.PeerCertificates))
	}))
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	defer s.Close()
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: s.Certificate().Raw}))
	path := filepath.Join(dir, "config")
	for user, want := range map[string]string{"token": "Bearer abc 0", "file": "Bearer from-file 0", "cert": " 1",
		"program": "exec: programs that give tokens are not run", "gcp": "auth-provider: is not taken",
		"basic": "username: is not taken", "gone": "client-certificate: open " + filepath.Join(dir, "none.pem"),
		"nobody": `there is no user "nobody"`} {
		if err := os.WriteFile(path, fmt.Appendf(nil, kubeconfigText, user, s.URL, ca), 0o600); err != nil {
			t.Fatal(err)
		}
		got := ""
		if cfg, err := FromFile(path); err != nil {
			got = err.Error()
		} else {
			got = asks(t, cfg)
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", user, got, want)
		}
	}
	for text, want := range map[string]string{
		"current-context: x":   `there is no context "x"`,
		"contexts: 3":          "cannot unmarshal",
		"current-context: [a]": "cannot unmarshal",
		strings.Replace(fmt.Sprintf(kubeconfigText, "token", s.URL, ca), "server:",
			"insecure-skip-tls-verify: true\n    server:", 1): "insecure-skip-tls-verify: is not taken",
		fmt.Sprintf(kubeconfigText, "token", s.URL, "a"): "certificate-authority: illegal base64",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := FromFile(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want %s", text, err, want)
		}
	}
}

// asks is whom the server takes a client with this Config for.
func asks(t *testing.T, cfg Config) string {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var answer struct{ Who string }
	if err := c.Get(t.Context(), "/version", &answer); err != nil {
		return err.Error()
	}
	return answer.Who
}
