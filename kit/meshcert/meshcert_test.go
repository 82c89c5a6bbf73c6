package meshcert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"math/big"
	"net/url"
	"testing"
	"time"
)

func TestVerify(t *testing.T) {
	now := time.Now()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	web := &url.URL{Scheme: "spiffe", Host: "d.consul", Path: "/ns/default/dc/dc1/svc/web"}
	serial := int64(1)
	root := &x509.Certificate{SerialNumber: big.NewInt(serial), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour)}
	issue := func(change func(*x509.Certificate)) *x509.Certificate {
		t.Helper()
		serial++
		c := &x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: now.Add(-time.Minute),
			NotAfter: now.Add(time.Minute), ExtKeyUsage: both, URIs: []*url.URL{web}, BasicConstraintsValid: true}
		change(c)
		der, err := x509.CreateCertificate(rand.Reader, c, root, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		out, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	der, err := x509.CreateCertificate(rand.Reader, root, root, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if root, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(root)
	good := issue(func(*x509.Certificate) {})
	if uri, err := Verify(roots, now, []*x509.Certificate{good}); err != nil || uri.String() != web.String() {
		t.Errorf("%v, %v", uri, err)
	}
	for name, chain := range map[string][]*x509.Certificate{
		"nothing":       nil,
		"an authority":  {issue(func(c *x509.Certificate) { c.IsCA, c.KeyUsage = true, x509.KeyUsageCertSign })},
		"no identity":   {issue(func(c *x509.Certificate) { c.URIs = nil })},
		"two":           {issue(func(c *x509.Certificate) { c.URIs = append(c.URIs, web) })},
		"one side only": {issue(func(c *x509.Certificate) { c.ExtKeyUsage = both[:1] })},
		"ended":         {issue(func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Second) })},
	} {
		if uri, err := Verify(roots, now, chain); err == nil {
			t.Errorf("%s: taken as %s", name, uri)
		}
	}
	if _, err := Verify(x509.NewCertPool(), now, []*x509.Certificate{good}); err == nil {
		t.Error("a certificate of nobody's was taken")
	}
}
