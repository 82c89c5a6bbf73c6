package pki

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/engine/pki/forms"
)

// within applies what the issuer says of certificates that would outlive it.
func (a *authority) within(end time.Time, strict bool) (time.Time, error) {
	if !end.After(a.cert.NotAfter) || (a.NotAfter == "permit" && !strict) {
		return end, nil
	}
	if a.NotAfter == "truncate" && !strict {
		return a.cert.NotAfter, nil
	}
	return end, invalid("cannot satisfy request, as TTL would result in notAfter of %s that is beyond the expiration "+
		"of the CA certificate at %s",
		end.UTC().Format(time.RFC3339Nano), a.cert.NotAfter.Format(time.RFC3339Nano))
}

// certify makes the certificate of a template, with the issuer's URLs.
func (c *call) certify(a *authority, t *x509.Certificate, public crypto.PublicKey, bits int,
	pss bool) (*x509.Certificate, error) {
	if !c.r.Now.Before(a.cert.NotAfter) {
		return nil, invalid("the issuer %s has expired", a.ID)
	}
	var err error
	if t.SignatureAlgorithm, err = forms.SignatureOf(a.key.signer.Public(), signatureBits(a, bits), pss); err != nil {
		return nil, err
	}
	if t.SubjectKeyId == nil {
		if t.SubjectKeyId, err = forms.KeyID(public); err != nil {
			return nil, err
		}
	}
	t.SerialNumber, t.AuthorityKeyId = forms.NewSerial(), a.cert.SubjectKeyId
	if err := c.addURLs(a.issuer, t); err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, public, a.key.signer)
	if err != nil {
		return nil, invalid("error creating the certificate: %v", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, errkind.E(errkind.Internal, "read the certificate just signed", err)
	}
	if a.constrained {
		return cert, a.checkConstraints(cert, c.r.Now)
	}
	return cert, nil
}

// signatureBits is what the issuer's key can do: the curve decides where it is an EC key.
func signatureBits(a *authority, bits int) int {
	if kind, _, _ := forms.KeyShape(a.key.signer.Public()); kind == forms.KeyEC {
		return 0
	}
	return bits
}

// checkConstraints lets crypto/x509 judge whether the chain's name constraints let the names be.
func (a *authority) checkConstraints(cert *x509.Certificate, now time.Time) error {
	opts := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}, CurrentTime: now}
	for i, link := range a.chain {
		if i == len(a.chain)-1 {
			opts.Roots.AddCert(link)
		} else {
			opts.Intermediates.AddCert(link)
		}
	}
	own := *cert
	own.UnhandledCriticalExtensions = nil // copied verbatim from a request, and not for us to handle
	if _, err := own.Verify(opts); err != nil {
		return invalid("the certificate would not verify by its issuer's chain: %v", err)
	}
	return nil
}
