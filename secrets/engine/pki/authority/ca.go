package authority

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets/engine/pki/forms"
	"corbel.dev/corbel/secrets/engine/record"
)

// CA is an issuer with its key.
type CA struct {
	*Issuer
	Key *Key
}

// Key is a key as it is stored: PKCS 8, under "key/<id>".
type Key struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	Type string `json:"type"`
	DER  []byte `json:"pkcs8"`

	Signer crypto.Signer `json:"-"`
}

// ParseKey reads a key as it is stored.
func ParseKey(raw []byte) (*Key, error) {
	k, err := record.ReadJSON[Key](raw)
	if err != nil {
		return nil, err
	}
	any, err := x509.ParsePKCS8PrivateKey(k.DER)
	if signer, ok := any.(crypto.Signer); err == nil && ok {
		k.Signer = signer
		return k, nil
	}
	return nil, errkind.Errorf(errkind.Corrupt, "the key %s is not what was stored", k.ID)
}

// Within applies what the issuer says of certificates that would outlive it.
func (a *CA) Within(end time.Time, strict bool) (time.Time, error) {
	if !end.After(a.cert.NotAfter) || (a.NotAfter == "permit" && !strict) {
		return end, nil
	}
	if a.NotAfter == "truncate" && !strict {
		return a.cert.NotAfter, nil
	}
	return end, forms.Refused("cannot satisfy request, as TTL would result in notAfter of %s that is beyond the "+
		"expiration of the CA certificate at %s",
		end.UTC().Format(time.RFC3339Nano), a.cert.NotAfter.Format(time.RFC3339Nano))
}

// Certify makes the certificate of a template.
func (a *CA) Certify(t *x509.Certificate, public crypto.PublicKey, bits int, pss bool,
	now time.Time) (*x509.Certificate, error) {
	if !now.Before(a.cert.NotAfter) {
		return nil, forms.Refused("the issuer %s has expired", a.ID)
	}
	var err error
	if t.SignatureAlgorithm, err = forms.SignatureOf(a.Key.Signer.Public(), signatureBits(a, bits), pss); err != nil {
		return nil, err
	}
	if t.SubjectKeyId == nil {
		if t.SubjectKeyId, err = forms.KeyID(public); err != nil {
			return nil, err
		}
	}
	t.SerialNumber, t.AuthorityKeyId = forms.NewSerial(), a.cert.SubjectKeyId
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, public, a.Key.Signer)
	if err != nil {
		return nil, forms.Refused("error creating the certificate: %v", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, errkind.E(errkind.Internal, "read the certificate just signed", err)
	}
	if a.constrained {
		return cert, a.checkConstraints(cert, now)
	}
	return cert, nil
}

// signatureBits is what the issuer's key can do: the curve decides where it is an EC key.
func signatureBits(a *CA, bits int) int {
	if kind, _, _ := forms.KeyShape(a.Key.Signer.Public()); kind == forms.KeyEC {
		return 0
	}
	return bits
}

// checkConstraints lets crypto/x509 judge whether the chain's name constraints let the names be.
func (a *CA) checkConstraints(cert *x509.Certificate, now time.Time) error {
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
		return forms.Refused("the certificate would not verify by its issuer's chain: %v", err)
	}
	return nil
}

// PathLength refuses an authority that its issuer's path length does not let be, and shortens what was not asked for.
func (a *CA) PathLength(t *x509.Certificate) error {
	if a.cert.MaxPathLen < 0 || (a.cert.MaxPathLen == 0 && !a.cert.MaxPathLenZero) {
		return nil
	}
	left := a.cert.MaxPathLen - 1
	switch {
	case left < 0:
		return forms.Refused("the issuer's path length is zero: it signs no authorities")
	case t.MaxPathLen < 0:
		t.MaxPathLen, t.MaxPathLenZero = left, left == 0
	case t.MaxPathLen > left:
		return forms.Refused("field \"max_path_length\": %d is more than the issuer's path length of %d allows", t.MaxPathLen,
			a.cert.MaxPathLen)
	}
	return nil
}

// RevocationAlgorithm is what the issuer's lists and OCSP answers are signed with.
func (a *CA) RevocationAlgorithm() (x509.SignatureAlgorithm, error) {
	if a.Algorithm != "" {
		for alg := x509.MD2WithRSA; alg <= x509.PureEd25519; alg++ {
			if strings.EqualFold(alg.String(), a.Algorithm) || strings.EqualFold(strings.ReplaceAll(alg.String(), "-", "With"),
				a.Algorithm) {
				return alg, nil
			}
		}
		return 0, forms.Refused("revocation_signature_algorithm: %q is not known", a.Algorithm)
	}
	return forms.SignatureOf(a.Key.Signer.Public(), 0, false)
}
