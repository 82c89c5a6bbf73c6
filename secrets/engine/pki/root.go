package pki

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"strings"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine/pki/authority"
	"corbel.dev/corbel/secrets/engine/pki/forms"
	"corbel.dev/corbel/secrets/storage"
)

// authorities makes authorities and takes them in.
type authorities struct{ *call }

// key makes, or finds, the key of an authority that is to be made. exported tells that the
// answer gives it out.
func (c authorities) key(ch *authority.Change, kind string) (id, name string, key crypto.Signer, exported bool,
	err error) {
	switch kind {
	case "internal", "exported":
		k, err := keyring(c).fresh()
		if err != nil {
			return "", "", nil, false, err
		}
		id, _, err = ch.AddKey(k)
		return id, k.Name, k.Signer, kind == "exported", err
	case "existing":
		ref := c.f.String("key_ref")
		if ref == "" {
			ref = "default"
		}
		id = authority.Find(ch.Keys, ref, ch.DefaultKey)
		if id == "" {
			return "", "", nil, false, invalid("unable to find PKI key for reference: %v", ref)
		}
		k, err := c.Key(id)
		if err != nil {
			return "", "", nil, false, err
		}
		return id, k.Name, k.Signer, false, nil
	case "kms":
		return "", "", nil, false, invalid("type \"kms\": managed keys are not supported")
	}
	return "", "", nil, false, invalid("type %q is none of internal, exported, existing", kind)
}

// fresh makes a key as the request asks.
func (c keyring) fresh() (*authority.Key, error) {
	kind := c.f.String("key_type")
	if kind == "" {
		kind = forms.KeyRSA
	}
	bits, err := forms.KeySize(kind, c.f.Int("key_bits", 0))
	if err != nil {
		return nil, err
	}
	k := &authority.Key{Name: c.f.String("key_name")}
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	k.Signer, err = c.e.newKey(c, c.r.Remote.String(), kind, bits)
	return k, err
}

// template reads what an authority is to be named and limited to.
func (c authorities) template() (*x509.Certificate, *forms.Names, error) {
	n, err := forms.AskedNames(c.f)
	if err != nil {
		return nil, nil, err
	}
	if n.Subject.CommonName == "" {
		return nil, nil, invalid("the common_name field is required")
	}
	forms.SubjectOf(c.f, &n.Subject)
	t := &x509.Certificate{NotBefore: c.r.Now.Add(-c.f.Duration("not_before_duration", 30*time.Second))}
	if err := n.Into(t); err != nil {
		return nil, nil, err
	}
	return t, n, forms.Constraints(c.f, t)
}

func (c authorities) generateRoot() (*secrets.Response, error) {
	return c.makeRoot(c.args[0], c.f.String("issuer_name"))
}

// rotateRoot makes a root beside those that are there, called "next" where it is not named.
func (c authorities) rotateRoot() (*secrets.Response, error) {
	name := c.f.String("issuer_name")
	if name == "" {
		name = "next"
	}
	return c.makeRoot(c.args[0], name)
}

func (c authorities) makeRoot(kind, name string) (*secrets.Response, error) {
	form, err := askedForm(c.f)
	if err != nil {
		return nil, err
	}
	t, _, err := c.template()
	if err != nil {
		return nil, err
	}
	standard, longest := c.e.cfg.TTLs()
	end, warn, err := forms.EndOf(c.r.Now, c.f, "", standard, longest)
	if err != nil {
		return nil, err
	}
	if warn != "" {
		c.warn = append(c.warn, warn)
	}
	t.NotAfter = end
	ch, err := c.change()
	if err != nil {
		return nil, err
	}
	keyID, keyName, key, exported, err := c.key(ch, kind)
	if err != nil {
		return nil, err
	}
	if err := c.addURLs(nil, t); err != nil {
		return nil, err
	}
	cert, err := forms.SelfSign(t, key, c.f.Int("signature_bits", 0), c.f.Bool("use_pss", false))
	if err != nil {
		return nil, err
	}
	i, _, err := ch.AddIssuer(cert, name, keyID)
	if err != nil {
		return nil, err
	}
	if err := ch.Save(); err != nil {
		return nil, err
	}
	c.ops = append(c.ops, storage.Put("certs/"+forms.Hyphens(cert.SerialNumber), cert.Raw))
	out := map[string]any{"issuer_id": i.ID, "issuer_name": i.Name, "key_id": keyID, "key_name": keyName}
	if !exported {
		key = nil
	}
	if err := form.write(out, cert, i, key); err != nil {
		return nil, err
	}
	delete(out, "ca_chain")
	return answer(out)
}

// replaceRoot makes another issuer the default: "next" where it is not named.
func (c authorities) replaceRoot() (*secrets.Response, error) {
	ref := c.f.String("default")
	if ref == "" {
		ref = "next"
	}
	return issuers(c).setDefault(ref, nil)
}

// deleteRoot takes away all issuers and keys.
func (c authorities) deleteRoot() (*secrets.Response, error) {
	x, err := c.index()
	if err != nil {
		return nil, err
	}
	for _, p := range x.Issuers {
		c.ops = append(c.ops, storage.Delete("issuer/"+p.ID))
	}
	for _, p := range x.Keys {
		c.ops = append(c.ops, storage.Delete("key/"+p.ID))
	}
	return &secrets.Response{}, c.Put(authority.IndexKey, authority.Index{Follows: x.Follows})
}

// generateIntermediate makes a key and a request that another authority signs.
func (c authorities) generateIntermediate() (*secrets.Response, error) { return c.request(c.args[0]) }

// crossSign makes a request for a key that is there, so that another authority signs it too.
func (c authorities) crossSign() (*secrets.Response, error) { return c.request("existing") }

func (c authorities) request(kind string) (*secrets.Response, error) {
	form, err := askedForm(c.f)
	if err != nil {
		return nil, err
	}
	t, n, err := c.template()
	if err != nil {
		return nil, err
	}
	ch, err := c.change()
	if err != nil {
		return nil, err
	}
	keyID, keyName, key, exported, err := c.key(ch, kind)
	if err != nil {
		return nil, err
	}
	q := &x509.CertificateRequest{Subject: t.Subject, DNSNames: t.DNSNames, EmailAddresses: t.EmailAddresses,
		IPAddresses: t.IPAddresses, URIs: t.URIs, ExtraExtensions: t.ExtraExtensions}
	if q.SignatureAlgorithm, err = forms.SignatureOf(key.Public(), c.f.Int("signature_bits", 0),
		c.f.Bool("use_pss", false)); err != nil {
		return nil, err
	}
	if c.f.Bool("add_basic_constraints", false) {
		q.ExtraExtensions = append(q.ExtraExtensions, forms.Extension{Id: forms.OIDBasicConstraints, Critical: true,
			Value: []byte{0x30, 0x03, 0x01, 0x01, 0xff}})
	}
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, q, key)
	if err != nil {
		return nil, invalid("error creating the request for %s: %v", n.Subject.CommonName, err)
	}
	if err := ch.Save(); err != nil {
		return nil, err
	}
	out := map[string]any{"csr": forms.EncodePEM("CERTIFICATE REQUEST", der), "key_id": keyID, "key_name": keyName}
	if form.cert == "der" {
		out["csr"] = forms.Base64DER(der)
	}
	if !exported {
		key = nil
	}
	if err := form.writeKey(out, key); err != nil {
		return nil, err
	}
	return answer(out)
}

// setSigned takes in the certificate that was made for generateIntermediate's request.
func (c authorities) setSigned() (*secrets.Response, error) {
	text := c.f.String("certificate")
	if text == "" {
		return nil, invalid("no certificate provided in the \"certificate\" parameter")
	}
	return c.takeIn(text, false)
}

func (c authorities) importBundle() (*secrets.Response, error) {
	return c.takeIn(c.f.String("pem_bundle"), true)
}
func (c authorities) importCerts() (*secrets.Response, error) {
	return c.takeIn(c.f.String("pem_bundle"), false)
}

// takeIn imports certificates, and keys where they are let in.
func (c authorities) takeIn(text string, withKeys bool) (*secrets.Response, error) {
	certs, keys, err := forms.DecodeBundle(text)
	if err != nil {
		return nil, err
	}
	if len(keys) > 0 && !withKeys {
		return nil, invalid("private keys found in the PEM bundle but not allowed by the path; use /issuers/import/bundle")
	}
	ch, err := c.change()
	if err != nil {
		return nil, err
	}
	imported, existing := map[string][]string{"issuers": {}, "keys": {}}, map[string][]string{"issuers": {}, "keys": {}}
	for _, key := range keys {
		id, isNew, err := ch.AddKey(&authority.Key{Signer: key})
		if err != nil {
			return nil, err
		}
		if isNew {
			imported["keys"] = append(imported["keys"], id)
		} else {
			existing["keys"] = append(existing["keys"], id)
		}
	}
	mapping := map[string]string{}
	for _, cert := range certs {
		if !cert.BasicConstraintsValid || !cert.IsCA {
			return nil, invalid("the certificate %q is no authority's: refusing to import it as an issuer", cert.Subject)
		}
		key, err := ch.KeyOf(cert)
		if err != nil {
			return nil, err
		}
		i, isNew, err := ch.AddIssuer(cert, "", key)
		if err != nil {
			return nil, err
		}
		into := existing
		if isNew {
			into = imported
		}
		into["issuers"], mapping[i.ID] = append(into["issuers"], i.ID), i.KeyID
	}
	if err := ch.Save(); err != nil {
		return nil, err
	}
	return answer(map[string]any{"imported_issuers": imported["issuers"], "imported_keys": imported["keys"],
		"existing_issuers": existing["issuers"], "existing_keys": existing["keys"], "mapping": mapping})
}

// signIntermediate makes another authority.
func (c authorities) signIntermediate() (*secrets.Response, error) {
	form, err := askedForm(c.f)
	if err != nil {
		return nil, err
	}
	csr, err := forms.DecodeRequest(c.f.String("csr"))
	if err != nil {
		return nil, err
	}
	n, err := forms.AskedNames(c.f)
	if err != nil {
		return nil, err
	}
	ref := c.f.String("issuer_ref")
	ca, err := c.authority(c.issuerRef(ref), "issuing-certificates")
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{NotBefore: c.r.Now.Add(-c.f.Duration("not_before_duration", 30*time.Second))}
	if c.f.Bool("use_csr_values", false) {
		if err := n.Take(csr); err != nil {
			return nil, err
		}
		t.RawSubject = csr.RawSubject
	} else {
		if n.Subject.CommonName == "" {
			n.Subject.CommonName = csr.Subject.CommonName
		}
		if n.Subject.CommonName == "" {
			return nil, invalid("the common_name field is required, or must be provided in a CSR")
		}
		forms.SubjectOf(c.f, &n.Subject)
	}
	if err := n.Into(t); err != nil {
		return nil, err
	}
	if err := forms.Constraints(c.f, t); err != nil {
		return nil, err
	}
	if err := ca.PathLength(t); err != nil {
		return nil, err
	}
	standard, longest := c.e.cfg.TTLs()
	end, warn, err := forms.EndOf(c.r.Now, c.f, "", standard, longest)
	if err != nil {
		return nil, err
	}
	if warn != "" {
		c.warn = append(c.warn, warn)
	}
	if !end.After(ca.X509().NotAfter) || ca.NotAfter != "permit" || c.f.Bool("enforce_leaf_not_after_behavior", false) {
		if end, err = ca.Within(end, false); err != nil {
			return nil, err
		}
	}
	t.NotAfter = end
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	cert, err := c.certify(ca, t, csr.PublicKey, c.f.Int("signature_bits", 0), c.f.Bool("use_pss", false))
	if err != nil {
		return nil, err
	}
	c.ops = append(c.ops, storage.Put("certs/"+forms.Hyphens(cert.SerialNumber), cert.Raw))
	out := map[string]any{}
	if err := form.write(out, cert, ca.Issuer, nil); err != nil {
		return nil, err
	}
	return answer(out)
}

// signSelfIssued signs the root of another hierarchy, as it is, with our issuer's key.
func (c authorities) signSelfIssued() (*secrets.Response, error) {
	text := c.f.String("certificate")
	certs, _, err := forms.DecodeBundle(text)
	if err != nil {
		return nil, err
	}
	if len(certs) != 1 {
		return nil, invalid("field \"certificate\": must hold one certificate")
	}
	cert := certs[0]
	ref := c.f.String("issuer_ref")
	ca, err := c.authority(c.issuerRef(ref), "issuing-certificates")
	if err != nil {
		return nil, err
	}
	matching := c.f.Bool("require_matching_certificate_algorithms", false)
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	ours, _, _ := forms.KeyShape(ca.X509().PublicKey)
	theirs, _, err := forms.KeyShape(cert.PublicKey)
	switch {
	case err != nil:
		return nil, err
	case !cert.IsCA:
		return nil, invalid("given certificate is not a CA certificate")
	case !bytes.Equal(cert.RawIssuer, cert.RawSubject):
		return nil, invalid("given certificate is not self-issued")
	case cert.CheckSignatureFrom(cert) != nil:
		return nil, invalid("given certificate is not signed by its own key")
	case matching && ours != theirs:
		return nil, invalid("the certificate's algorithm %s is not the issuer's, %s", theirs, ours)
	}
	t := *cert
	t.ExtraExtensions = nil
	if t.NotAfter, err = ca.Within(cert.NotAfter, false); err != nil {
		return nil, err
	}
	t.IssuingCertificateURL, t.CRLDistributionPoints, t.OCSPServer = nil, nil, nil
	if err := ca.PathLength(&t); err != nil {
		return nil, err
	}
	signed, err := c.certify(ca, &t, cert.PublicKey, 0, false)
	if err != nil {
		return nil, err
	}
	c.ops = append(c.ops, storage.Put("certs/"+forms.Hyphens(signed.SerialNumber), signed.Raw))
	return answer(map[string]any{"certificate": forms.CertPEM(signed.Raw), "issuing_ca": forms.CertPEM(ca.Cert),
		"serial_number": forms.Colons(signed.SerialNumber)})
}

// generate makes a key alone.
func (c keyring) generate() (*secrets.Response, error) {
	kind := c.args[0]
	if kind != "internal" && kind != "exported" {
		return nil, invalid("type %q is neither internal nor exported", kind)
	}
	k, err := c.fresh()
	if err != nil {
		return nil, err
	}
	ch, err := c.change()
	if err != nil {
		return nil, err
	}
	if _, _, err := ch.AddKey(k); err != nil {
		return nil, err
	}
	if err := ch.Save(); err != nil {
		return nil, err
	}
	out := map[string]any{"key_id": k.ID, "key_name": k.Name, "key_type": k.Type}
	if kind == "exported" {
		der, block, err := forms.EncodeKey(k.Signer, c.f.String("private_key_format"))
		if err != nil {
			return nil, err
		}
		out["private_key"] = forms.EncodePEM(block, der)
	}
	return answer(out)
}

// take takes in a key.
func (c keyring) take() (*secrets.Response, error) {
	certs, list, err := forms.DecodeBundle(c.f.String("pem_bundle"))
	if err != nil {
		return nil, err
	}
	if len(list) != 1 || len(certs) > 0 {
		return nil, invalid("field \"pem_bundle\": must hold one private key and nothing else")
	}
	ch, err := c.change()
	if err != nil {
		return nil, err
	}
	k := &authority.Key{Name: strings.TrimSpace(c.f.String("key_name")), Signer: list[0]}
	id, isNew, err := ch.AddKey(k)
	if err != nil {
		return nil, err
	}
	if !isNew {
		if k, err = c.Key(id); err != nil {
			return nil, err
		}
	}
	if err := ch.Save(); err != nil {
		return nil, err
	}
	return answer(map[string]any{"key_id": k.ID, "key_name": k.Name, "key_type": k.Type})
}
