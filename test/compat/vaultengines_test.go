package compat

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"io"
	"net/http"
	"strings"
	"testing"

	vault "github.com/hashicorp/vault/api"
)

func written(t *testing.T, cl *vault.Client, path string, data map[string]any) map[string]any {
	t.Helper()
	s, err := cl.Logical().Write(path, data)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if s == nil {
		return nil
	}
	return s.Data
}

func pemCert(t *testing.T, text string) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		t.Fatalf("%q is no PEM", text)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// rawBody reads a path whose answer is no envelope, without a token.
func rawBody(t *testing.T, cl *vault.Client, path string) (kind string, body []byte) {
	t.Helper()
	open, err := cl.Clone()
	if err != nil {
		t.Fatal(err)
	}
	open.ClearToken()
	resp, err := open.Logical().ReadRawWithContext(context.Background(), path)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header.Get("Content-Type"), body
}

// TestVaultPKI issues and revokes certificates by Vault's Go client.
func TestVaultPKI(t *testing.T) {
	cl, _ := newVault(t)
	if err := cl.Sys().Mount("pki", &vault.MountInput{Type: "pki",
		Config: vault.MountConfigInput{MaxLeaseTTL: "87600h"}}); err != nil {
		t.Fatal(err)
	}
	root := written(t, cl, "pki/root/generate/internal", map[string]any{"common_name": "root", "key_type": "ec",
		"ttl": "8760h"})
	ca := pemCert(t, root["certificate"].(string))
	written(t, cl, "pki/roles/web", map[string]any{"allowed_domains": []string{"example.com"}, "allow_subdomains": true,
		"key_type": "ec", "generate_lease": true, "ttl": "1h"})
	s, err := cl.Logical().Write("pki/issue/web", map[string]any{"common_name": "a.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	leaf := pemCert(t, s.Data["certificate"].(string))
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: "a.example.com"}); err != nil {
		t.Error(err)
	}
	if !strings.HasPrefix(s.LeaseID, "pki/issue/web/") || s.LeaseDuration < 3598 || s.LeaseDuration > 3600 || s.Renewable {
		t.Errorf("the lease: %s %d", s.LeaseID, s.LeaseDuration)
	}
	if _, err := cl.Logical().Write("pki/issue/web",
		map[string]any{"common_name": "example.org"}); status(err) != http.StatusBadRequest || !strings.Contains(err.Error(),
		"not allowed by this role") {
		t.Errorf("a name that is not allowed: %v", err)
	}
	if err := cl.Sys().Revoke(s.LeaseID); err != nil {
		t.Fatal(err)
	}
	kind, der := rawBody(t, cl, "pki/crl")
	list, err := x509.ParseRevocationList(der)
	if err != nil || kind != "application/pkix-crl" || list.CheckSignatureFrom(ca) != nil ||
		len(list.RevokedCertificateEntries) != 1 {
		t.Errorf("the list as %q: %v", kind, err)
	}
	if kind, text := rawBody(t, cl, "pki/ca/pem"); kind != "application/pem-certificate-chain" ||
		!bytes.Equal(pemCert(t, string(text)).Raw, ca.Raw) {
		t.Errorf("ca/pem as %q", kind)
	}
	read, err := cl.Logical().Read("pki/cert/" + s.Data["serial_number"].(string))
	if err != nil || read.Data["revocation_time"] == nil ||
		read.Data["revocation_time"].(interface{ String() string }).String() == "0" {
		t.Errorf("the certificate reads %v, %v", read, err)
	}
}

// TestVaultTransit encrypts and signs by Vault's Go client.
func TestVaultTransit(t *testing.T) {
	cl, _ := newVault(t)
	if err := cl.Sys().Mount("transit", &vault.MountInput{Type: "transit"}); err != nil {
		t.Fatal(err)
	}
	plain := base64.StdEncoding.EncodeToString([]byte("hello"))
	// makes the key
	text := written(t, cl, "transit/encrypt/made", map[string]any{"plaintext": plain})["ciphertext"].(string)
	written(t, cl, "transit/keys/made/rotate", nil)
	text = written(t, cl, "transit/rewrap/made", map[string]any{"ciphertext": text})["ciphertext"].(string)
	if !strings.HasPrefix(text, "vault:v2:") {
		t.Errorf("rewrapped: %s", text)
	}
	if got := written(t, cl, "transit/decrypt/made", map[string]any{"ciphertext": text})["plaintext"]; got != plain {
		t.Errorf("decrypted: %v", got)
	}
	written(t, cl, "transit/keys/s", map[string]any{"type": "ecdsa-p256"})
	sig := written(t, cl, "transit/sign/s", map[string]any{"input": plain})["signature"]
	if got := written(t, cl, "transit/verify/s", map[string]any{"input": plain, "signature": sig})["valid"]; got != true {
		t.Errorf("verified: %v", got)
	}
	_, err := cl.Logical().Write("transit/decrypt/made",
		map[string]any{"batch_input": []map[string]any{{"ciphertext": text}, {"ciphertext": "vault:v1:AAAA"}}})
	if status(err) != http.StatusBadRequest {
		t.Errorf("a batch of which a part fails: %v", err)
	}
	if _, err := cl.Logical().Delete("transit/keys/made"); status(err) != http.StatusBadRequest ||
		!strings.Contains(err.Error(), "deletion is not allowed") {
		t.Errorf("deletion: %v", err)
	}
}
