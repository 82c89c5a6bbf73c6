package authority

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine/pki/forms"
	"corbel.dev/corbel/secrets/engine/record"
)

// Issuer is an issuer as it is stored, under "issuer/<id>".
type Issuer struct {
	ID     string   `json:"id"`
	Name   string   `json:"name,omitempty"`
	KeyID  string   `json:"key,omitempty"`
	Cert   []byte   `json:"certificate"`
	Chain  [][]byte `json:"chain"` // its own certificate first
	Manual []string `json:"manual_chain,omitempty"`

	NotAfter  string    `json:"leaf_not_after_behavior"`
	Usage     []string  `json:"usage"`
	Algorithm string    `json:"revocation_signature_algorithm,omitempty"`
	URLs      *URLs     `json:"urls,omitempty"` // its own, in the place of the mount's
	Revoked   time.Time `json:"revoked,omitzero"`

	cert        *x509.Certificate
	chain       []*x509.Certificate
	constrained bool   // names are constrained by some certificate of the chain
	group       string // issuers of one subject and key, which share their revocations
}

// Usages are what an issuer may be good for.
var Usages = []string{"read-only", "issuing-certificates", "crl-signing", "ocsp-signing"}

// ParseIssuer reads an issuer as it is stored.
func ParseIssuer(raw []byte) (*Issuer, error) {
	i, err := record.ReadJSON[Issuer](raw)
	if err == nil {
		err = i.parse()
	}
	return i, err
}

// parse reads the certificates.
func (i *Issuer) parse() (err error) {
	i.chain = nil
	if len(i.Chain) == 0 || !bytes.Equal(i.Chain[0], i.Cert) {
		i.Chain = [][]byte{i.Cert}
	}
	for _, der := range i.Chain {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return errkind.Errorf(errkind.Corrupt, "the issuer %s is not what was stored", i.ID)
		}
		i.chain = append(i.chain, cert)
		i.constrained = i.constrained || constrains(cert)
	}
	i.cert = i.chain[0]
	sum := sha256.Sum256(append(append([]byte{}, i.cert.RawSubject...), i.cert.RawSubjectPublicKeyInfo...))
	i.group = hex.EncodeToString(sum[:8])
	return nil
}

var oidNameConstraints = []int{2, 5, 29, 30}

func constrains(cert *x509.Certificate) bool {
	return slices.ContainsFunc(cert.Extensions, func(ext forms.Extension) bool { return ext.Id.Equal(oidNameConstraints) })
}

// X509 is the issuer's certificate.
func (i *Issuer) X509() *x509.Certificate { return i.cert }

// Links are the certificates of its chain, its own first.
func (i *Issuer) Links() []*x509.Certificate { return i.chain }

// Group is that of all issuers of one subject and key, which share their revocations.
func (i *Issuer) Group() string { return i.group }

// May reports whether the issuer is good for a usage.
func (i *Issuer) May(usage string) bool { return slices.Contains(i.Usage, usage) }

// PEMChain is the chain without, where asked, certificates that sign themselves.
func (i *Issuer) PEMChain(withoutRoots bool) []string {
	out := []string{}
	for _, cert := range i.chain {
		if !withoutRoots || !SelfSigned(cert) {
			out = append(out, forms.CertPEM(cert.Raw))
		}
	}
	return out
}

// SelfSigned reports whether a certificate is a root's.
func SelfSigned(cert *x509.Certificate) bool {
	return bytes.Equal(cert.RawIssuer, cert.RawSubject) && cert.CheckSignatureFrom(cert) == nil
}

// Show is the issuer as the API shows it.
func (i *Issuer) Show() map[string]any {
	out := map[string]any{"issuer_id": i.ID, "issuer_name": i.Name, "key_id": i.KeyID,
		"certificate":  forms.CertPEM(i.Cert),
		"manual_chain": i.Manual, "ca_chain": i.PEMChain(false),
		"leaf_not_after_behavior": i.NotAfter, "usage": strings.Join(i.Usage, ","),
		"revocation_signature_algorithm": i.Algorithm, "revoked": !i.Revoked.IsZero(),
		"issuing_certificates": []string{}, "crl_distribution_points": []string{}, "ocsp_servers": []string{},
		"enable_aia_url_templating": false}
	if i.URLs != nil {
		i.URLs.Params().Show(out)
		out["enable_aia_url_templating"] = i.URLs.Expand
		delete(out, "enable_templating")
	}
	if !i.Revoked.IsZero() {
		out["revocation_time"], out["revocation_time_rfc3339"] = i.Revoked.Unix(), i.Revoked.Format(time.RFC3339Nano)
	}
	return out
}

// ReadURLs takes the issuer's own URLs; three empty lists are the mount's again.
func (i *Issuer) ReadURLs(f *secrets.Fields) error {
	if !slices.ContainsFunc([]string{"issuing_certificates", "crl_distribution_points", "ocsp_servers",
		"enable_aia_url_templating"}, f.Has) {
		return nil
	}
	u := &URLs{}
	if i.URLs != nil {
		*u = *i.URLs
	}
	if err := u.Params()[:3].Read(f); err != nil {
		return err
	}
	u.Expand = f.Bool("enable_aia_url_templating", u.Expand)
	if i.URLs = u; len(u.Issuing)+len(u.CRLs)+len(u.OCSP) == 0 {
		i.URLs = nil
	}
	return u.Check()
}
