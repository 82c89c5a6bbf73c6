package forms

import (
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"slices"
)

// Hash is the hash of some bytes; h must be available.
func Hash(h crypto.Hash, b []byte) []byte {
	sum := h.New()
	sum.Write(b)
	return sum.Sum(nil)
}

// KeyBits are the bits of the public key, which questions of OCSP are about.
func KeyBits(cert *x509.Certificate) []byte {
	var info struct {
		Algorithm asn1.RawValue
		Bits      asn1.BitString
	}
	if _, err := asn1.Unmarshal(cert.RawSubjectPublicKeyInfo, &info); err != nil {
		return nil // parsed before: cannot be
	}
	return info.Bits.RightAlign()
}

// issuers are the extensions that a request cannot bring: they are the issuer's to write.
var issuers = []asn1.ObjectIdentifier{{2, 5, 29, 14}, {2, 5, 29, 15}, {2, 5, 29, 30}, {2, 5, 29, 31},
	{2, 5, 29, 35}, {2, 5, 29, 37}, {1, 3, 6, 1, 5, 5, 7, 1, 1}}

// Brought are the extensions of a request that its certificate has as they are. A request for an authority's
// certificate is refused.
func Brought(csr *x509.CertificateRequest) (list []pkix.Extension, err error) {
	for _, ext := range csr.Extensions {
		switch {
		case ext.Id.Equal(OIDBasicConstraints):
			var basic struct {
				CA      bool `asn1:"optional"`
				PathLen int  `asn1:"optional,default:-1"`
			}
			if _, err := asn1.Unmarshal(ext.Value, &basic); err != nil || basic.CA {
				return nil, Refused("refusing to generate CA certificate")
			}
		case !slices.ContainsFunc(issuers, ext.Id.Equal):
			list = append(list, ext)
		}
	}
	return list, nil
}
