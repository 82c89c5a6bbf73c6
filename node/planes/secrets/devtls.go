package secretsplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	devTLSLife = 30 * 24 * time.Hour // how long the certificates of dev mode hold
	devCAFile  = "vault-ca.pem"
)

// devTLS makes an authority and a certificate for host, localhost and the machine's name, leaves them in dir under the
// names that Vault's dev mode gives them, and returns what a listener needs.
func devTLS(dir, host string) (*tls.Config, error) {
	now := time.Now()
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Vault dev CA"},
		NotBefore: now.Add(-time.Minute), NotAfter: now.Add(devTLSLife),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, BasicConstraintsValid: true, IsCA: true}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "localhost"},
		DNSNames:    []string{"localhost", hostname()},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if ip := net.ParseIP(host); ip != nil {
		leaf.IPAddresses = append(leaf.IPAddresses, ip)
	} else if host != "" {
		leaf.DNSNames = append(leaf.DNSNames, host)
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	for _, f := range []struct {
		name  string
		block *pem.Block
	}{{devCAFile, &pem.Block{Type: "CERTIFICATE", Bytes: caDER}},
		{"vault-cert.pem", &pem.Block{Type: "CERTIFICATE", Bytes: der}},
		{"vault-key.pem", &pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}}} {
		if err := os.WriteFile(filepath.Join(dir, f.name), pem.EncodeToMemory(f.block), 0o600); err != nil {
			return nil, fmt.Errorf("dev-tls-cert-dir: %w", err)
		}
	}
	return &tls.Config{MinVersion: tls.VersionTLS12,
			Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, ClientAuth: tls.RequestClientCert},
		nil
}
