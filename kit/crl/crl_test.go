package crl

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
)

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func issue(t *testing.T, tmpl, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if parent == nil {
		parent, parentKey = tmpl, key
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func newAuthority(t *testing.T, name string) authority {
	return issue(t, &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour)}, nil, nil)
}

func (a authority) leaf(t *testing.T, serial int64) *x509.Certificate {
	return issue(t, &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "agent"},
		NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)}, a.cert, a.key).cert
}

func (a authority) list(t *testing.T, serials ...int64) []byte {
	t.Helper()
	list := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour)}
	for _, s := range serials {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: big.NewInt(s), RevocationTime: time.Now()})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, a.cert, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// Nobody is trusted before each list was read; then those that are on none are. A list that another authority signed
// does not count.
func TestLists(t *testing.T) {
	ca, other := newAuthority(t, "ca"), newAuthority(t, "ca")
	file := filepath.Join(t.TempDir(), "list.crl")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: ca.list(t, 7)}),
		0o600); err != nil {
		t.Fatal(err)
	}
	served := other.list(t, 8)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(served) }))
	defer server.Close()
	l, err := New(Config{Sources: []string{file, server.URL}, Authorities: ca.pem, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	good := ca.leaf(t, 9)
	if l.Check(good) == nil {
		t.Error("somebody is trusted before any list was read")
	}
	for i := range l.sources {
		if err := l.load(t.Context(), &l.sources[i]); (err != nil) != (i == 1) {
			t.Error(i, err)
		}
	}
	if l.Check(good) == nil {
		t.Error("a list that another authority signed counts")
	}
	served = ca.list(t, 8)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	polltest.Until(t, func() bool { return l.Check(good) == nil }, "both lists are read")
	for _, serial := range []int64{7, 8} {
		if l.Check(ca.leaf(t, serial)) == nil {
			t.Error("a revoked certificate is trusted:", serial)
		}
	}
	server.Close()
	if err := l.load(t.Context(), &l.sources[1]); err == nil || l.Check(good) != nil {
		t.Error("what was read does not hold while the source is gone:", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestWrongSources(t *testing.T) {
	if _, err := New(Config{Sources: []string{"ldap://x"}}); err == nil {
		t.Error("ldap is taken")
	}
	if _, err := New(Config{Sources: []string{"/x.crl"}, Authorities: []byte("none")}); err == nil {
		t.Error("no authority is needed")
	}
}
