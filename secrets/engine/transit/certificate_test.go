package transit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
)

func inPEM(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// authority is a certificate and its key, which signs others'.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{t: t, key: key}
	a.cert = a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "root"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}, &key.PublicKey)
	return a
}

func (a *authority) sign(as *x509.Certificate, public any) *x509.Certificate {
	a.t.Helper()
	as.SerialNumber, as.NotBefore, as.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour),
		time.Now().Add(time.Hour)
	by := a.cert
	if by == nil {
		by = as
	}
	der, err := x509.CreateCertificate(rand.Reader, as, by, public, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert
}

func requestOf(t *testing.T, text string) *x509.CertificateRequest {
	t.Helper()
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		t.Fatalf("no PEM: %q", text)
	}
	r, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil || r.CheckSignature() != nil {
		t.Fatalf("the request is not signed by the key in it: %v", err)
	}
	return r
}

func TestCertificates(t *testing.T) {
	ca := newAuthority(t)
	template, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: "signer", Organization: []string{"ours"}},
			DNSNames: []string{"signer.example"}}, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"rsa-2048", "ecdsa-p256", "ed25519"} {
		t.Run(kind, func(t *testing.T) {
			d := newDesk(t)
			d.OK(secrets.Update, "keys/k", body{"type": kind})
			requestOf(t, d.OK(secrets.Update, "keys/k/csr", nil).Text("csr"))
			r := requestOf(t, d.OK(secrets.Update, "keys/k/csr",
				body{"csr": inPEM("CERTIFICATE REQUEST", template)}).Text("csr"))
			if r.Subject.CommonName != "signer" || !slices.Equal(r.DNSNames, []string{"signer.example"}) {
				t.Errorf("the template's subject is lost: %v %v", r.Subject, r.DNSNames)
			}
			leaf := inPEM("CERTIFICATE", ca.sign(&x509.Certificate{Subject: r.Subject}, r.PublicKey).Raw)
			chain := leaf + inPEM("CERTIFICATE", ca.cert.Raw)
			d.OK(secrets.Update, "keys/k/set-certificate", body{"certificate_chain": chain})
			shown := d.OK(secrets.Read, "keys/k", nil)["keys"].(map[string]any)["1"].(map[string]any)
			if shown["certificate_chain"] != chain || d.OK(secrets.Read, "export/certificate-chain/k/1",
				nil)["keys"].(map[string]any)["1"] != chain {
				t.Errorf("the chain is not as it was set: %v", shown)
			}
			d.OK(secrets.Update, "keys/k/rotate", nil)
			for name, b := range map[string]body{
				"not of version 2":   {"certificate_chain": chain},
				"not signed by":      {"certificate_chain": leaf + inPEM("CERTIFICATE", newAuthority(t).cert.Raw), "version": 1},
				"an authority's":     {"certificate_chain": inPEM("CERTIFICATE", ca.cert.Raw), "version": 1},
				"no certificate":     {"certificate_chain": chain + "x", "version": 1},
				"missing":            {"version": 1},
				"invalid key versio": {"certificate_chain": chain, "version": 3},
			} {
				d.Refused(errkind.Invalid, name, secrets.Update, "keys/k/set-certificate", b)
			}
			d.Refused(errkind.Invalid, `field "csr"`, secrets.Update, "keys/k/csr", body{"csr": "x"})
			if sig := d.OK(secrets.Update, "sign/k",
				body{"input": b64("x"), "key_version": 1}).Text("signature"); !strings.HasPrefix(sig, "vault:v1:") {
				t.Errorf("a version with a certificate signs no more: %s", sig)
			}
		})
	}
	d := newDesk(t)
	d.OK(secrets.Update, "keys/a", nil)
	d.OK(secrets.Update, "keys/e", body{"type": "ed25519", "derived": true})
	d.Refused(errkind.Invalid, "certificates", secrets.Update, "keys/a/csr", nil)
	d.Refused(errkind.Invalid, "certificates", secrets.Update, "keys/e/csr", nil)
	d.Refused(errkind.Invalid, "not found", secrets.Update, "keys/none/csr", nil)
}

// A key that is set aside is used for nothing, and opens all again once it is restored.
func TestSoftDelete(t *testing.T) {
	d := newDesk(t)
	d.OK(secrets.Update, "keys/k", body{"exportable": true, "allow_plaintext_backup": true, "auto_rotate_period": "1h"})
	text := encryptOnce(d, "k", body{"plaintext": b64("x")})
	d.OK(secrets.Update, "keys/k/soft-delete", nil)
	d.OK(secrets.Update, "keys/k/soft-delete", nil)
	if k := d.OK(secrets.Read, "keys/k", nil); k["soft_deleted"] != true {
		t.Errorf("shown as %v", k)
	}
	for path, b := range map[string]body{"encrypt/k": {"plaintext": b64("x")}, "decrypt/k": {"ciphertext": text},
		"rewrap/k": {"ciphertext": text}, "hmac/k": {"input": b64("x")},
		"datakey/plaintext/k": {}, "keys/k/rotate": {}, "keys/k/config": {"deletion_allowed": true}} {
		d.Refused(errkind.Invalid, "soft-deleted", secrets.Update, path, b)
	}
	d.Refused(errkind.Invalid, "soft-deleted", secrets.Read, "export/encryption-key/k", nil)
	d.Refused(errkind.Invalid, "soft-deleted", secrets.Read, "backup/k", nil)
	d.Wait(2 * time.Hour)
	d.Tend()
	d.OK(secrets.Update, "keys/k/soft-delete-restore", nil)
	if got := d.OK(secrets.Update, "decrypt/k", body{"ciphertext": text}); got.Text("plaintext") != b64("x") {
		t.Errorf("after the restore: %v", got)
	}
	d.Wait(2 * time.Hour)
	d.Tend()
	if k := d.OK(secrets.Read, "keys/k", nil); k["latest_version"] != 2.0 {
		t.Errorf("rotations: %v, want the one after the restore", k["latest_version"])
	}
	d.Refused(errkind.Invalid, "not found", secrets.Update, "keys/none/soft-delete", nil)
}
