// Package wiretest has the callers of a wire in tests: certificates, connections of those who show them, and whether a
// wire lets them in.
package wiretest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"corbel.dev/corbel/core/wire"
)

// Opener opens a connection to an address before its header; how it does makes who calls.
type Opener func(ctx context.Context, addr string) (net.Conn, error)

// Caller is somebody who may come to a port: how they connect, and as what.
type Caller struct {
	Name string
	Open Opener
	Role wire.Role
}

// Admitted tells whether a connection with this header is served: the server closes the others.
func Admitted(t *testing.T, open Opener, addr string, r wire.Route) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := open(ctx, addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	if _, err := conn.Write([]byte{byte(r.Proto), r.Group}); err != nil {
		return false
	}
	_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second))
	_, err = conn.Read(make([]byte, 1))
	var timeout net.Error
	return err == nil || errors.As(err, &timeout) && timeout.Timeout() // it speaks first, or waits for a message
}

// Authority issues certificates for a test.
type Authority struct {
	t    *testing.T
	Cert *x509.Certificate
	Key  *ecdsa.PrivateKey
	next int64
}

// NewAuthority makes one; it is good for an hour.
func NewAuthority(t *testing.T) *Authority {
	t.Helper()
	a := &Authority{t: t, next: 2}
	var err error
	if a.Key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	a.Cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, a.Cert, a.Cert, a.Key.Public(), a.Key)
	if err != nil {
		t.Fatal(err)
	}
	if a.Cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

// Pool holds the authority alone.
func (a *Authority) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.Cert)
	return p
}

// Issue makes a certificate for the name and loopback, valid from and until now plus these.
func (a *Authority) Issue(name string, from, until time.Duration) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	a.next++
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(a.next), Subject: pkix.Name{CommonName: name},
		DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(until), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, a.Cert, key.Public(), a.Key)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Store writes ca.pem, cert.pem and key.pem into dir.
func (a *Authority) Store(dir string, c tls.Certificate) {
	a.t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		a.t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"ca.pem": {Type: "CERTIFICATE", Bytes: a.Cert.Raw},
		"cert.pem": {Type: "CERTIFICATE", Bytes: c.Certificate[0]}, "key.pem": {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
}

// RPCBlock stores a server's certificate in a folder of its own and returns the part of its configuration that has the
// RPC port demand certificates of the authority. more goes into the block, a setting a line.
func (a *Authority) RPCBlock(c tls.Certificate, more string) string {
	a.t.Helper()
	dir := a.t.TempDir()
	a.Store(dir, c)
	return fmt.Sprintf(`
tls { internal_rpc {
  ca_file = "%[1]s/ca.pem"
  cert_file = "%[1]s/cert.pem"
  key_file = "%[1]s/key.pem"
  verify_incoming = true
  verify_outgoing = true
  %[2]s
} }`, dir, more)
}
