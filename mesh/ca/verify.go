package ca

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"time"

	"corbel.dev/corbel/kit/meshcert"
)

// PeerID is the identity that a verified certificate proves.
func PeerID(cert *x509.Certificate) (ID, error) {
	uri, err := meshcert.URI(cert)
	if err != nil {
		return ID{}, err
	}
	return ParseID(uri)
}

// VerifyPeer makes the check of a connection (tls.Config.VerifyConnection, beside InsecureSkipVerify or
// RequireAnyClientCert, since identities are no host names): the peer's certificate leads to one of the roots (PEM),
// is valid now, for the peer's side, and proves an identity that accept takes.
func VerifyPeer(roots []string, now func() time.Time, accept func(ID) bool) func(tls.ConnectionState) error {
	trusted := x509.NewCertPool()
	for _, text := range roots {
		trusted.AppendCertsFromPEM([]byte(text))
	}
	return func(s tls.ConnectionState) error {
		uri, err := meshcert.Verify(trusted, now(), s.PeerCertificates)
		if err != nil {
			return err
		}
		id, err := ParseID(uri)
		if err != nil {
			return err
		}
		if !accept(id) {
			return errors.New("the peer is " + id.URI().String() + ", which is not whom this connection is for")
		}
		return nil
	}
}
