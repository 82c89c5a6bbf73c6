package ca

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// PeerID is the identity that a verified certificate proves.
func PeerID(cert *x509.Certificate) (ID, error) {
	if len(cert.URIs) != 1 || cert.IsCA {
		return ID{}, errkind.New(errkind.Denied, "the certificate must hold exactly one URI name, and be no authority's")
	}
	return ParseID(cert.URIs[0])
}

// VerifyPeer makes the check of a connection (tls.Config.VerifyConnection, beside InsecureSkipVerify or RequireAnyClientCert,
// since identities are no host names): the peer's certificate leads to one of the roots (PEM), is valid now, for
// the peer's side, and proves an identity that accept takes.
func VerifyPeer(roots []string, now func() time.Time, accept func(ID) bool) func(tls.ConnectionState) error {
	trusted := x509.NewCertPool()
	for _, text := range roots {
		trusted.AppendCertsFromPEM([]byte(text))
	}
	return func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return errors.New("the peer shows no certificate")
		}
		between := x509.NewCertPool()
		for _, c := range s.PeerCertificates[1:] {
			between.AddCert(c)
		}
		// Certificates of the mesh are for both sides, and which one this is a connection's state does not tell.
		for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
			if _, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: trusted, Intermediates: between, CurrentTime: now(), KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
				return err
			}
		}
		id, err := PeerID(s.PeerCertificates[0])
		if err != nil {
			return err
		}
		if !accept(id) {
			return errors.New("the peer is " + id.URI().String() + ", which is not whom this connection is for")
		}
		return nil
	}
}
