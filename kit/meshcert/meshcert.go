// Package meshcert checks the certificate that a peer of the mesh shows: identities there are URIs, and
// the names of hosts, which crypto/tls compares, mean nothing.
//
// It holds no state and is safe for concurrent use.
package meshcert

import (
	"crypto/x509"
	"errors"
	"net/url"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// Verify returns the identity that a peer's chain proves: its first certificate leads to one of the roots, is valid
// now, for both sides of a connection, is no authority's, and holds exactly one URI. Wrong identities have kind
// Denied.
func Verify(roots *x509.CertPool, now time.Time, chain []*x509.Certificate) (*url.URL, error) {
	if len(chain) == 0 {
		return nil, errors.New("the peer shows no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	// Certificates of the mesh are for both sides, and which one this is a connection's state does not tell.
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
		if _, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: now,
			KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			return nil, err
		}
	}
	return URI(chain[0])
}

// URI is the one identity of a certificate whose chain was checked.
func URI(c *x509.Certificate) (*url.URL, error) {
	if len(c.URIs) != 1 || c.IsCA {
		return nil, errkind.New(errkind.Denied, "the certificate must hold exactly one URI name, and be no authority's")
	}
	return c.URIs[0], nil
}
