package pki

import (
	"crypto"
	"crypto/x509"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine/pki/authority"
	"corbel.dev/corbel/secrets/engine/pki/forms"
	"corbel.dev/corbel/secrets/engine/pki/role"
	"corbel.dev/corbel/secrets/storage"
)

// issuerRef is the issuer that a request is for: of the path, else of the role.
func (c *call) issuerRef(standard string) string {
	if c.ref != "" {
		return c.ref
	}
	return standard
}

// leaf is a certificate that is being made by a role.
type leaf struct {
	role *role.Role
	ca   *authority.CA
	t    *x509.Certificate
}

// issuing makes certificates by roles.
type issuing struct{ *call }

// leaf prepares a certificate by a role: its issuer, its lifetime and what the role says of it.
func (c issuing) leaf(r *role.Role) (*leaf, error) {
	ca, err := c.authority(c.issuerRef(r.Issuer), "issuing-certificates")
	if err != nil {
		return nil, err
	}
	ttl, longest := c.e.cfg.TTLs()
	if r.TTL > 0 {
		ttl = r.TTL
	}
	if r.MaxTTL > 0 {
		longest = min(longest, r.MaxTTL)
	}
	if !c.f.Has("ttl") {
		ttl = min(ttl, longest)
	}
	end, warn, err := forms.EndOf(c.r.Now, c.f, r.NotAfter, ttl, longest)
	if err != nil {
		return nil, err
	}
	if warn != "" {
		c.warn = append(c.warn, warn)
	}
	if end, err = ca.Within(end, false); err != nil {
		return nil, err
	}
	t, err := r.Template(c.r.Now, end)
	if err != nil {
		return nil, err
	}
	return &leaf{r, ca, t}, nil
}

// issue makes a key and its certificate.
func (c issuing) issue() (*secrets.Response, error) {
	r, err := c.role(c.args[0])
	if err != nil {
		return nil, err
	}
	if r.KeyType == "any" {
		return nil, invalid("role key type \"any\" not allowed for issuing certificates, only signing")
	}
	form, err := askedForm(c.f)
	if err != nil {
		return nil, err
	}
	n, err := forms.AskedNames(c.f)
	if err != nil {
		return nil, err
	}
	if err := r.CheckNames(n); err != nil {
		return nil, err
	}
	l, err := c.leaf(r)
	if err != nil {
		return nil, err
	}
	key, err := c.e.newKey(c, c.r.Remote.String(), r.KeyType, r.KeyBits)
	if err != nil {
		return nil, err
	}
	return c.finish(l, n, key.Public(), key, form)
}

// sign makes a certificate for a request within what the role allows.
func (c issuing) sign() (*secrets.Response, error) {
	r, err := c.role(c.args[0])
	if err != nil {
		return nil, err
	}
	return c.signBy(r)
}

func (c issuing) signBy(r *role.Role) (*secrets.Response, error) {
	csr, err := forms.DecodeRequest(c.f.String("csr"))
	if err != nil {
		return nil, err
	}
	if err := r.CheckKey(csr.PublicKey); err != nil {
		return nil, err
	}
	form, err := askedForm(c.f)
	if err != nil {
		return nil, err
	}
	n, err := forms.AskedNames(c.f)
	if err != nil {
		return nil, err
	}
	if r.CSRName && csr.Subject.CommonName != "" {
		n.Subject.CommonName = csr.Subject.CommonName
	}
	if n.Subject.SerialNumber == "" {
		n.Subject.SerialNumber = csr.Subject.SerialNumber
	}
	if len(n.UserIDs) == 0 {
		n.UserIDs = forms.UserIDs(csr.Subject)
	}
	if r.CSRSANs {
		if err := n.Take(csr); err != nil {
			return nil, err
		}
		n.DNS, n.Emails = slices.Clone(n.DNS), slices.Clone(n.Emails)
	}
	if !c.f.Bool("exclude_cn_from_sans", false) {
		n.AddName(n.Subject.CommonName)
	}
	if err := r.CheckNames(n); err != nil {
		return nil, err
	}
	l, err := c.leaf(r)
	if err != nil {
		return nil, err
	}
	return c.finish(l, n, csr.PublicKey, nil, form)
}

// signVerbatim makes a certificate that says what the request says, whatever it is, but no authority.
func (c issuing) signVerbatim() (*secrets.Response, error) {
	r := role.New()
	r.ExtKeyUsage, r.Server, r.Client = nil, false, false
	if len(c.args) > 0 {
		of, err := c.role(c.args[0])
		if err != nil {
			return nil, err
		}
		r.Issuer, r.Lifetimes, r.KeepRule = of.Issuer, of.Lifetimes, of.KeepRule
		r.KeyUsage, r.ExtKeyUsage, r.ExtKeyUsageOIDs = of.KeyUsage, of.ExtKeyUsage, of.ExtKeyUsageOIDs
	}
	for name, at := range map[string]*[]string{"key_usage": &r.KeyUsage, "ext_key_usage": &r.ExtKeyUsage,
		"ext_key_usage_oids": &r.ExtKeyUsageOIDs} {
		if c.f.Has(name) {
			*at = c.f.Strings(name)
		}
	}
	r.KeyType, r.SignatureBits, r.PSS = "any", c.f.Int("signature_bits", 0), c.f.Bool("use_pss", false)
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	if err := r.Complete(); err != nil {
		return nil, err
	}
	csr, err := forms.DecodeRequest(c.f.String("csr"))
	if err != nil {
		return nil, err
	}
	form, err := askedForm(c.f)
	if err != nil {
		return nil, err
	}
	l, err := c.leaf(r)
	if err != nil {
		return nil, err
	}
	l.t.RawSubject = csr.RawSubject
	if l.t.ExtraExtensions, err = forms.Brought(csr); err != nil {
		return nil, err
	}
	return c.finish(l, &forms.Names{Subject: csr.Subject}, csr.PublicKey, nil, form)
}

// format is how an answer's certificates and keys are written.
type format struct {
	cert      string // pem, der, pem_bundle
	key       string // "", der, pem: as cert says; pkcs8
	withRoots bool
}

func askedForm(f *secrets.Fields) (format, error) {
	form := format{cert: f.String("format"), key: f.String("private_key_format"),
		withRoots: !f.Bool("remove_roots_from_chain", false)}
	if form.cert == "" {
		form.cert = "pem"
	}
	if !slices.Contains([]string{"pem", "der", "pem_bundle"}, form.cert) {
		return form, invalid("the \"format\" path parameter must be \"pem\", \"der\", or \"pem_bundle\"")
	}
	if !slices.Contains([]string{"", "der", "pem", "pkcs8"}, form.key) {
		return form, invalid("field \"private_key_format\": must be der, pem or pkcs8")
	}
	return form, f.Err()
}

// certificate writes a certificate.
func (form format) certificate(der []byte) string {
	if form.cert == "der" {
		return forms.Base64DER(der)
	}
	return forms.CertPEM(der)
}

// write puts a certificate with its chain and, where it is given out, its key into an answer.
func (form format) write(out map[string]any, cert *x509.Certificate, ca *authority.Issuer, key crypto.Signer) error {
	chain := make([]string, 0, len(ca.Links()))
	for _, link := range ca.Links() {
		if form.withRoots || !authority.SelfSigned(link) {
			chain = append(chain, form.certificate(link.Raw))
		}
	}
	out["certificate"], out["issuing_ca"], out["ca_chain"] = form.certificate(cert.Raw), form.certificate(ca.Cert), chain
	out["serial_number"], out["expiration"], out["not_before"] = forms.Colons(cert.SerialNumber), cert.NotAfter.Unix(),
		cert.NotBefore.Unix()
	if form.cert == "pem_bundle" {
		out["certificate"] = strings.Join(append([]string{forms.CertPEM(cert.Raw)}, chain...), "\n")
	}
	return form.writeKey(out, key)
}

// writeKey puts a private key into an answer; in a bundle it stands in front of the certificate too.
func (form format) writeKey(out map[string]any, key crypto.Signer) error {
	if key == nil {
		return nil
	}
	kind, _, err := forms.KeyShape(key.Public())
	if err != nil {
		return err
	}
	der, block, err := forms.EncodeKey(key, form.key)
	if err != nil {
		return err
	}
	text := forms.EncodePEM(block, der)
	out["private_key_type"], out["private_key"] = kind, text
	for _, name := range []string{"certificate", "csr"} {
		if bundled, ok := out[name].(string); ok && form.cert == "pem_bundle" {
			out[name] = text + "\n" + bundled
		}
	}
	if form.cert == "der" && form.key != "pem" {
		out["private_key"] = forms.Base64DER(der)
	}
	return nil
}

// finish signs, stores and answers.
func (c issuing) finish(l *leaf, n *forms.Names, public crypto.PublicKey, key crypto.Signer,
	form format) (*secrets.Response,
	error) {
	if l.t.RawSubject == nil {
		l.role.Subject(&n.Subject)
		if err := n.Into(l.t); err != nil {
			return nil, err
		}
	}
	cert, err := c.certify(l.ca, l.t, public, l.role.SignatureBits, l.role.PSS)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	if err := form.write(out, cert, l.ca.Issuer, key); err != nil {
		return nil, err
	}
	resp, err := answer(out)
	if err != nil {
		return nil, err
	}
	if l.role.NoStore {
		return resp, nil
	}
	name := forms.Hyphens(cert.SerialNumber)
	c.ops = append(c.ops, storage.Put("certs/"+name, cert.Raw))
	if l.role.Lease {
		left := max(cert.NotAfter.Sub(c.r.Now).Truncate(time.Second), time.Second) // 0 would be the mount's default
		resp.Lease = &secrets.Lease{TTL: left, MaxTTL: left, Internal: []byte(name)}
	}
	return resp, nil
}
