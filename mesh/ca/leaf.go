package ca

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// maxCSRBytes bounds a request; one with an RSA key of 4096 bits has 2 KB.
const maxCSRBytes = 16 << 10

// Grant is what a requester was found to have the right to.
type Grant struct {
	ID ID
	// DNSNames and IPs are the further names that the request may hold.
	DNSNames []string
	IPs      []net.IP
}

// Leaf is an issued certificate.
type Leaf struct {
	SerialNumber string // aa:bb:cc
	// CertPEM is the certificate and what leads from it to older roots.
	CertPEM                 string
	ValidAfter, ValidBefore time.Time
	// RootID is the root that signed.
	RootID string
}

// NewRequest makes a key (PEM) and a request for a certificate (PEM) that is to prove id.
func NewRequest(id ID, dnsNames []string, ips []net.IP) (key, csr string, err error) {
	signer, key, err := NewKey(keyEC, 256)
	if err != nil {
		return "", "", err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{URIs: []*url.URL{id.URI()},
		DNSNames: dnsNames, IPAddresses: ips}, signer)
	return key, encodePEM("CERTIFICATE REQUEST", der), err
}

// ParseRequest reads a request and the id it asks for. The error is of kind Invalid.
func ParseRequest(text string) (*x509.CertificateRequest, ID, error) {
	bad := func(why string) (*x509.CertificateRequest, ID, error) {
		return nil, ID{}, errkind.New(errkind.Invalid, "CSR: "+why)
	}
	if len(text) > maxCSRBytes {
		return bad("is too long")
	}
	block, _ := pem.Decode([]byte(text))
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return bad("holds no certificate request in PEM")
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return bad(err.Error())
	}
	if err := csr.CheckSignature(); err != nil {
		return bad("is not signed by its own key")
	}
	if _, _, err := keyShape(csr.PublicKey); err != nil {
		return bad(err.Error())
	}
	if len(csr.URIs) != 1 {
		return bad("must hold exactly one URI name")
	}
	if len(csr.EmailAddresses) != 0 {
		return bad("must hold no e-mail addresses")
	}
	id, err := ParseID(csr.URIs[0])
	if err != nil {
		return nil, ID{}, err
	}
	if id.Kind == SigningID {
		return bad("asks for an authority's id, which is never issued")
	}
	return csr, id, nil
}

// check tells whether the request asks for nothing beyond the grant.
func (g *Grant) check(csr *x509.CertificateRequest, id ID) error {
	if id != g.ID {
		return errkind.New(errkind.Denied, "CSR: asks for "+id.URI().String()+" where only "+g.ID.URI().String()+
			" may be issued")
	}
	for _, name := range csr.DNSNames {
		if !slices.ContainsFunc(g.DNSNames, func(s string) bool { return strings.EqualFold(s, name) }) {
			return errkind.New(errkind.Denied, "CSR: the DNS name "+name+" may not be issued")
		}
	}
	for _, ip := range csr.IPAddresses {
		if !slices.ContainsFunc(g.IPs, ip.Equal) {
			return errkind.New(errkind.Denied, "CSR: the address "+ip.String()+" may not be issued")
		}
	}
	return nil
}

// Signer signs with one root. It is made once for each root: to read a key costs
// as much as to sign with it.
type Signer struct {
	root  *Root
	with  pair
	chain string
}

// NewSigner reads the root's key.
func NewSigner(r *Root) (*Signer, error) {
	with, err := r.pair()
	if err != nil {
		return nil, err
	}
	return &Signer{r, with, strings.Join(r.IntermediateCerts, "")}, nil
}

// Sign issues a certificate for a request within the grant. The certificate lasts
// ttl, or until the root ends.
func (s *Signer) Sign(request string, grant Grant, ttl time.Duration, now time.Time) (*Leaf, error) {
	csr, id, err := ParseRequest(request)
	if err != nil {
		return nil, err
	}
	return s.SignParsed(csr, id, grant, ttl, now)
}

// SignParsed is Sign for what ParseRequest gave: to check a request's signature costs as much as to sign.
func (s *Signer) SignParsed(csr *x509.CertificateRequest, id ID, grant Grant, ttl time.Duration,
	now time.Time) (*Leaf, error) {
	if err := grant.check(csr, id); err != nil {
		return nil, err
	}
	until := earlier(now.Add(ttl), s.with.cert.NotAfter)
	if !until.After(now) {
		return nil, errkind.New(errkind.Unavailable,
			"the active root has expired: rotate it with PUT /v1/connect/ca/configuration and a new PrivateKey")
	}
	der, number, err := s.issue(csr.PublicKey, csr, max(now.Add(-early).Unix(), s.with.cert.NotBefore.Unix()), until)
	if err != nil {
		return nil, errkind.E(errkind.Internal, "sign a certificate", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, errkind.E(errkind.Internal, "read the certificate just signed", err)
	}
	return &Leaf{SerialNumber: colons(number), CertPEM: certPEM(der) + s.chain,
		ValidAfter: cert.NotBefore.UTC(), ValidBefore: cert.NotAfter.UTC(), RootID: s.root.ID}, nil
}

func (s *Signer) issue(public crypto.PublicKey, csr *x509.CertificateRequest, from int64, until time.Time) (der,
	number []byte, err error) {
	n, err := serial()
	if err != nil {
		return nil, nil, err
	}
	keyID, err := subjectKeyID(public)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{SerialNumber: n, URIs: csr.URIs, DNSNames: csr.DNSNames, IPAddresses: csr.IPAddresses,
		BasicConstraintsValid: true, SubjectKeyId: keyID, AuthorityKeyId: s.with.cert.SubjectKeyId,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageKeyAgreement |
			x509.KeyUsageDataEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		NotBefore:   time.Unix(from, 0), NotAfter: until}
	der, err = x509.CreateCertificate(rand.Reader, template, s.with.cert, public, s.with.key)
	return der, n.Bytes(), err
}
