package ca

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// early is how far certificates reach into the past, for clocks that go slow.
const early = time.Minute

// Root is a root certificate with its key, as its record holds it. The field names
// are on disk and, without PrivateKey and RotatedOutAt, in the API's answers.
type Root struct {
	ID                  string
	Name                string
	SerialNumber        uint64
	SigningKeyID        string
	ExternalTrustDomain string
	NotBefore, NotAfter time.Time
	RootCert            string
	// IntermediateCerts lead from this root to the one before it: leaf certificates
	// carry them, so that who trusts only the older root can follow.
	IntermediateCerts []string
	Active            bool
	PrivateKeyType    string
	PrivateKeyBits    int
	PrivateKey        string
	// RotatedOutAt is when the root ceased to sign; zero while it is active.
	RotatedOutAt time.Time
}

// pair is an authority ready to sign.
type pair struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// given is the operator's own key and, where there is one, certificate.
func (c *Config) given() (pair, error) {
	var p pair
	var err error
	if p.key, err = parseKey(c.PrivateKey); err != nil {
		return p, fmt.Errorf("PrivateKey: %w", err)
	}
	if c.RootCert == "" {
		return p, nil
	}
	if p.cert, err = parseCert(c.RootCert); err != nil {
		return p, fmt.Errorf("RootCert: %w", err)
	}
	if !p.cert.IsCA || p.cert.KeyUsage&x509.KeyUsageCertSign == 0 {
		return p, errors.New("RootCert: is not an authority's certificate: it needs CA:TRUE and the key usage " +
			"\"certificate sign\"")
	}
	if err := p.cert.CheckSignatureFrom(p.cert); err != nil {
		return p, errors.New("RootCert: is not signed by itself")
	}
	if !samePublic(p.cert.PublicKey, p.key) {
		return p, errors.New("PrivateKey: is not the key of RootCert")
	}
	return p, nil
}

func samePublic(public crypto.PublicKey, key crypto.Signer) bool {
	k, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && k.Equal(public)
}

// pair reads the root's certificate and key.
func (r *Root) pair() (pair, error) {
	cert, err := parseCert(r.RootCert)
	key, keyErr := parseKey(r.PrivateKey)
	if err = errors.Join(err, keyErr); err != nil {
		return pair{}, errkind.E(errkind.Corrupt, "root "+r.ID, err)
	}
	return pair{cert, key}, nil
}

// NewRoot makes an active root as the configuration asks for it. clusterID is the
// cluster's identity, of which the trust domain is made.
func NewRoot(c *Config, clusterID string, now time.Time) (*Root, error) {
	p := pair{}
	text := c.PrivateKey
	var err error
	if text != "" {
		p, err = c.given()
	} else {
		p.key, text, err = NewKey(c.KeyType, c.KeyBits)
	}
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "", err)
	}
	if p.cert == nil {
		if p.cert, err = selfSign(p.key, c.RootTTL, clusterID, now); err != nil {
			return nil, errkind.E(errkind.Internal, "make a root", err)
		}
	} else if now.After(p.cert.NotAfter) || now.Before(p.cert.NotBefore) {
		return nil, errkind.New(errkind.Invalid, "RootCert: is valid from "+p.cert.NotBefore.Format(time.RFC3339)+" to "+
			p.cert.NotAfter.Format(time.RFC3339)+" only")
	}
	kind, bits, err := keyShape(p.key.Public())
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "PrivateKey", err)
	}
	return &Root{ID: fingerprint(p.cert), Name: "Consul CA Primary Cert", SerialNumber: p.cert.SerialNumber.Uint64(),
		SigningKeyID: colons(p.cert.SubjectKeyId), ExternalTrustDomain: clusterID,
		NotBefore: p.cert.NotBefore.UTC(), NotAfter: p.cert.NotAfter.UTC(), RootCert: certPEM(p.cert.Raw), Active: true,
		PrivateKeyType: kind, PrivateKeyBits: bits, PrivateKey: text}, nil
}

// selfSign makes the certificate of a root.
func selfSign(key crypto.Signer, ttl time.Duration, clusterID string, now time.Time) (*x509.Certificate, error) {
	keyID, err := subjectKeyID(key.Public())
	if err != nil {
		return nil, err
	}
	number, err := rootSerial()
	if err != nil {
		return nil, err
	}
	// Each root has a subject of its own: verifiers look issuers up by it. 64 characters are the limit of a common name.
	short, _, _ := strings.Cut(clusterID, "-")
	template := &x509.Certificate{SerialNumber: number,
		Subject:               pkix.Name{CommonName: fmt.Sprintf("pri-%x.consul.ca.%.16s.consul", keyID[:4], short)},
		URIs:                  []*url.URL{ID{Kind: SigningID, TrustDomain: TrustDomain(clusterID)}.URI()},
		BasicConstraintsValid: true, IsCA: true,
		KeyUsage:  x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		NotBefore: now.Add(-early), NotAfter: now.Add(ttl), SubjectKeyId: keyID, AuthorityKeyId: keyID}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// TrustDomain is the mesh's, made of the cluster's identity.
func TrustDomain(clusterID string) string { return clusterID + ".consul" }

// NeedsRotation tells whether the configuration asks for another root than the active one. Where
// it is silent about the key the root stays, also one of the operator's own.
func NeedsRotation(c *Config, active *Root) (bool, error) {
	if c.PrivateKey == "" {
		return c.sets("PrivateKeyType") && c.KeyType != active.PrivateKeyType ||
			c.sets("PrivateKeyBits") && c.KeyBits != active.PrivateKeyBits, nil
	}
	mine, err := active.pair()
	if err != nil {
		return false, err
	}
	p, err := c.given()
	if err != nil {
		return false, errkind.E(errkind.Invalid, "", err)
	}
	if p.cert != nil {
		return !p.cert.Equal(mine.cert), nil
	}
	return !samePublic(mine.cert.PublicKey, p.key), nil
}

// Rotate makes the root that follows active, cross-signed by it, and what becomes of active.
func Rotate(c *Config, active *Root, clusterID string, now time.Time) (next, old *Root, err error) {
	if next, err = NewRoot(c, clusterID, now); err != nil {
		return nil, nil, err
	}
	cross, err := crossSign(active, next, c.IntermediateTTL, now)
	switch {
	case err == nil:
		next.IntermediateCerts = []string{cross}
	case !c.ForceWithoutCrossSigning:
		return nil, nil, errkind.E(errkind.Invalid, "", fmt.Errorf("the active root cannot sign the new one (set "+
			"ForceWithoutCrossSigning to rotate at the price of broken connections): %w", err))
	}
	retired := *active
	retired.Active, retired.RotatedOutAt = false, now.UTC()
	return next, &retired, nil
}

// crossSign makes the certificate with which who trusts from trusts to.
func crossSign(from, to *Root, ttl time.Duration, now time.Time) (string, error) {
	signer, err := from.pair()
	if err != nil {
		return "", err
	}
	subject, err := to.pair()
	if err != nil {
		return "", err
	}
	if signer.cert.MaxPathLenZero {
		return "", errors.New("its certificate allows no authority below it (pathlen:0)")
	}
	until := earlier(now.Add(ttl), signer.cert.NotAfter, subject.cert.NotAfter)
	if !until.After(now) {
		return "", errors.New("it has expired")
	}
	template := *subject.cert
	if template.SerialNumber, err = serial(); err != nil {
		return "", err
	}
	template.AuthorityKeyId, template.SignatureAlgorithm = signer.cert.SubjectKeyId, x509.UnknownSignatureAlgorithm
	template.NotBefore, template.NotAfter = now.Add(-early), until
	der, err := x509.CreateCertificate(rand.Reader, &template, signer.cert, subject.cert.PublicKey, signer.key)
	if err != nil {
		return "", err
	}
	return certPEM(der), nil
}

// Expired tells whether a root that was rotated out has no certificates left in use.
// Twice the lifetime allows for servers that had not seen the rotation.
func (r *Root) Expired(leafTTL time.Duration, now time.Time) bool {
	return !r.Active && (now.After(r.RotatedOutAt.Add(2*leafTTL)) || now.After(r.NotAfter))
}

func earlier(first time.Time, more ...time.Time) time.Time {
	for _, t := range more {
		if t.Before(first) {
			first = t
		}
	}
	return first
}
