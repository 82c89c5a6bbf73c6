package wire

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"testing"
	"time"
)

// authority is a certificate authority that lives as long as a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newCA(t *testing.T, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &authority{cert, key, pool}
}

type leaf struct {
	name            string
	expired, future bool
	until           time.Duration // from now; an hour
}

// identity makes a certificate that serves both directions.
func (a *authority) identity(t *testing.T, l leaf) *TLS {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	from, to := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if l.expired {
		to = time.Now().Add(-time.Minute)
	}
	if l.until != 0 {
		to = time.Now().Add(l.until)
	}
	if l.future {
		from = time.Now().Add(time.Minute)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: l.name}, DNSNames: []string{l.name}, NotBefore: from,
		NotAfter:    to,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	certs := []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}
	return &TLS{OwnName: "server.dc1.consul", Domain: "consul",
		Server: &tls.Config{Certificates: certs, ClientCAs: a.pool},
		Client: &tls.Config{Certificates: certs, RootCAs: a.pool}}
}

// mixed shows the certificate of one identity and trusts as another does.
func mixed(shows, trusts *TLS) *TLS {
	client := shows.Client.Clone()
	client.RootCAs = trusts.Client.RootCAs
	// crypto/tls would rather show nothing than what the server's hints exclude.
	client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return &shows.Client.Certificates[0], nil
	}
	return &TLS{OwnName: shows.OwnName, Server: shows.Server, Client: client}
}

// bare shows no certificate.
func bare(id *TLS) *TLS {
	client := id.Client.Clone()
	client.Certificates = nil
	return &TLS{OwnName: id.OwnName, Server: id.Server, Client: client}
}
