package transit

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"time"

	"corbel.dev/corbel/secrets"
)

// certificates gives keys their certificates.
type certificates struct{ *call }

// version finds the version that a request for or with a certificate is about; 0 asks for the latest.
func (c certificates) version(k *key) (int, *version, error) {
	f := k.family()
	if !f.signs || k.Derived {
		return 0, nil, invalid("key type %s does not support certificates, or is derived for a context", k.Type)
	}
	n := c.f.Int("version", 0)
	if err := c.f.Err(); err != nil {
		return 0, nil, err
	}
	if n == 0 {
		n = k.Latest
	}
	v := k.Versions[n]
	if v == nil || n < k.MinDecrypt {
		return 0, nil, invalid("invalid key version %d: it is not there, or too old by min_decryption_version", n)
	}
	return n, v, v.ready(k)
}

// csr signs a request for a certificate of the key: an empty one, or with the subject and the extensions of a template.
func (c certificates) csr() (*secrets.Response, error) {
	k, err := c.need()
	if err != nil {
		return nil, err
	}
	_, v, err := c.version(k)
	if err != nil {
		return nil, err
	}
	if v.signer == nil {
		return nil, invalid("the private half of this version of the key is not here")
	}
	as := &x509.CertificateRequest{}
	if text := c.f.String("csr"); text != "" {
		block, rest := pem.Decode([]byte(text))
		if block == nil || len(bytes.TrimSpace(rest)) > 0 {
			return nil, invalid("field \"csr\": must be one certificate request in PEM")
		}
		template, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil {
			return nil, invalid("field \"csr\": %v", err)
		}
		// Who made the template does not matter: the key's holder signs anew what it asks for.
		as.RawSubject, as.ExtraExtensions = template.RawSubject, template.Extensions
	}
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, as, v.signer)
	if err != nil {
		return nil, invalid("the request cannot be signed: %v", err)
	}
	return answer(map[string]string{"name": k.Name, "type": k.Type,
		"csr": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))})
}

// set keeps a chain beside the version of the key that its first certificate is of.
func (c certificates) set() (*secrets.Response, error) {
	k, err := keyring(c).changing()
	if err != nil {
		return nil, err
	}
	n, v, err := c.version(k)
	if err != nil {
		return nil, err
	}
	chain, err := chainOf(c.f.String("certificate_chain"))
	if err != nil {
		return nil, err
	}
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	if public, ok := v.public.(interface{ Equal(x crypto.PublicKey) bool }); !ok || !public.Equal(chain[0].PublicKey) {
		return nil, invalid("field \"certificate_chain\": the first certificate is not of version %d of the key %s", n,
			k.Name)
	}
	own := &version{Key: v.Key, Public: v.Public, HMAC: v.HMAC, Made: v.Made}
	for _, cert := range chain {
		own.Chain = append(own.Chain, cert.Raw)
	}
	k.Versions[n] = own
	return &secrets.Response{}, c.save(k, k.Next)
}

// chainOf reads certificates in PEM, that of an end entity first and each signed by the one behind it.
func chainOf(text string) (chain []*x509.Certificate, err error) {
	rest := []byte(text)
	for len(bytes.TrimSpace(rest)) > 0 {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil || block.Type != "CERTIFICATE" {
			return nil, invalid("field \"certificate_chain\": holds something that is no certificate in PEM")
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, invalid("field \"certificate_chain\": %v", err)
		}
		if n := len(chain); n > 0 {
			if err := chain[n-1].CheckSignatureFrom(cert); err != nil {
				return nil, invalid("field \"certificate_chain\": certificate %d is not signed by the one behind it: %v", n, err)
			}
		}
		chain = append(chain, cert)
	}
	switch {
	case len(chain) == 0:
		return nil, invalid("missing certificate_chain")
	case chain[0].IsCA:
		return nil, invalid("field \"certificate_chain\": the first certificate must be an end entity's, not an authority's")
	}
	return chain, nil
}

// chainPEM is the version's chain as it is shown.
func (v *version) chainPEM() string {
	var out []byte
	for _, der := range v.Chain {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return string(out)
}

// keyring answers what is asked of keys themselves.
type keyring struct{ *call }

// softDelete takes a key out of use; what it made opens again once it is restored.
func (c keyring) softDelete() (*secrets.Response, error) { return c.setAside(true) }

func (c keyring) softRestore() (*secrets.Response, error) { return c.setAside(false) }

func (c keyring) setAside(aside bool) (*secrets.Response, error) {
	k, err := c.find(c.name)
	if err != nil {
		return nil, err
	}
	if k == nil {
		return nil, errNoKey
	}
	if k.SoftDeleted == aside {
		return &secrets.Response{}, nil
	}
	c.e.forget(c.name)
	own := *k
	own.SoftDeleted, own.Next = aside, time.Time{} // what is set aside is not rotated either
	if !aside && k.Every > 0 {
		own.Next = c.r.Now.UTC().Add(k.Every)
	}
	return &secrets.Response{}, c.save(&own, k.Next)
}
