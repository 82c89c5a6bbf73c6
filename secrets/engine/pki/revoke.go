package pki

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/pki/authority"
	"corbel.dev/corbel/secrets/engine/pki/forms"
	"corbel.dev/corbel/secrets/engine/pki/revocation"
	"corbel.dev/corbel/secrets/engine/record"
)

func (c *call) revocation(serial string) (*revocation.Revoked, error) {
	raw, ok, err := c.view.Get(c, "revoked/"+serial)
	if err != nil || !ok {
		return nil, err
	}
	return record.ReadJSON[revocation.Revoked](raw)
}

// toRevoke finds the certificate that a request names.
func (c certificates) toRevoke() (*x509.Certificate, error) {
	number, text := c.f.String("serial_number"), c.f.String("certificate")
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	switch {
	case number == "" && text == "":
		return nil, invalid("the serial number or certificate to revoke must be provided")
	case number != "" && text != "":
		return nil, invalid("must provide either the certificate or the serial to revoke; not both")
	case text != "":
		block, _ := pem.Decode([]byte(text))
		if block == nil || len(text) > forms.PemBytes {
			return nil, invalid("certificate contains no PEM data")
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, invalid("the certificate cannot be read: %v", err)
		}
		return cert, nil
	}
	serial, ok := forms.ParseSerial(number)
	if !ok {
		return nil, invalid("the serial number must be provided as bytes in hexadecimal like 1a:2b")
	}
	der, ok, err := c.view.Get(c, "certs/"+serial)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, invalid("certificate with serial %s not found", number)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, errkind.Errorf(errkind.Corrupt, "the certificate %s is not what was stored", serial)
	}
	return cert, nil
}

// issuerOf returns the issuer here that signed a certificate, or nil.
func (c *call) issuerOf(cert *x509.Certificate) (*authority.Issuer, error) {
	list, err := c.allIssuers()
	for _, i := range list {
		if bytes.Equal(i.X509().RawSubject, cert.RawIssuer) && cert.CheckSignatureFrom(i.X509()) == nil {
			return i, nil
		}
	}
	return nil, err
}

func (c certificates) revoke() (*secrets.Response, error) {
	cert, err := c.toRevoke()
	if err != nil {
		return nil, err
	}
	return c.revokeCert(cert)
}

// revokeWithKey revokes for whoever holds the certificate's key.
func (c certificates) revokeWithKey() (*secrets.Response, error) {
	cert, err := c.toRevoke()
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode([]byte(c.f.String("private_key")))
	if block == nil {
		return nil, invalid("field \"private_key\": holds no key in PEM")
	}
	key, err := forms.DecodeKey(block)
	if err != nil {
		return nil, err
	}
	if !forms.SamePublic(key.Public(), cert.PublicKey) {
		return nil, invalid("provided private key does not match the certificate")
	}
	return c.revokeCert(cert)
}

func (c certificates) revokeCert(cert *x509.Certificate) (*secrets.Response, error) {
	list, err := c.allIssuers()
	if err != nil {
		return nil, err
	}
	for _, i := range list {
		if bytes.Equal(i.Cert, cert.Raw) {
			return nil, invalid("adding issuer (%s) to its own CRL is not allowed: use issuer/%s/revoke", i.ID, i.ID)
		}
	}
	by, err := c.issuerOf(cert)
	if err != nil {
		return nil, err
	}
	if by == nil {
		return nil, invalid("certificate with serial %s was issued by no issuer of this mount",
			forms.Colons(cert.SerialNumber))
	}
	if rv, err := c.revocation(forms.Hyphens(cert.SerialNumber)); err != nil || rv != nil {
		if err != nil {
			return nil, err
		}
		return answer(rv.Show())
	}
	if !c.r.Now.Before(cert.NotAfter) {
		c.warn = append(c.warn, fmt.Sprintf("certificate with serial number %s already expired; refusing to add to CRL",
			forms.Colons(cert.SerialNumber)))
		return &secrets.Response{}, nil
	}
	rv, err := c.addRevocation(cert, by, c.r.Now)
	if err != nil {
		return nil, err
	}
	return answer(rv.Show())
}

// addRevocation stores that a certificate is revoked: its record, and an entry in the log that lists are made of.
func (c *call) addRevocation(cert *x509.Certificate, by *authority.Issuer, now time.Time) (*revocation.Revoked, error) {
	serial := forms.Hyphens(cert.SerialNumber)
	rv, log := c.e.book.Revoke(cert, by, now)
	c.ops = append(c.ops, log)
	return rv, c.Put("revoked/"+serial, rv)
}

// revoke marks an issuer as revoked, and revokes its certificate where its own issuer is here.
func (c issuers) revoke() (*secrets.Response, error) {
	ch, err := c.change()
	if err != nil {
		return nil, err
	}
	id := authority.Find(ch.Issuers, c.ref, ch.Default)
	if id == "" {
		return nil, invalid("unable to find PKI issuer for reference: %v", c.ref)
	}
	i := ch.Issuer(id)
	if i.Revoked.IsZero() {
		ch.Touch(id).Revoked = c.r.Now.UTC()
		var left []string
		for _, u := range i.Usage {
			if u != "issuing-certificates" {
				left = append(left, u)
			}
		}
		i.Usage = left
		by, err := c.issuerOf(i.X509())
		if err != nil {
			return nil, err
		}
		if by != nil && by.ID != id {
			if rv, err := c.revocation(forms.Hyphens(i.X509().SerialNumber)); err != nil {
				return nil, err
			} else if rv == nil {
				if _, err := c.addRevocation(i.X509(), by, c.r.Now); err != nil {
					return nil, err
				}
			}
		}
		if err := ch.Save(); err != nil {
			return nil, err
		}
	}
	return answer(i.Show())
}

// Renew implements engine.Leaser: a certificate ends when it says so.
func (e *Engine) Renew(context.Context, engine.View, engine.Lease) (*secrets.Response, error) {
	return nil, invalid("certificates cannot be renewed: issue another")
}

// Revoke implements engine.Leaser: it revokes the lease's certificate.
func (e *Engine) Revoke(ctx context.Context, view engine.View, l engine.Lease) (*secrets.Response, error) {
	now := e.cfg.Now()
	c := &call{Context: ctx, e: e, view: view, r: &secrets.Request{Now: now}}
	serial := string(l.Internal)
	der, ok, err := view.Get(ctx, "certs/"+serial)
	if err != nil || !ok { // never stored, or tidied
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, errkind.Errorf(errkind.Corrupt, "the certificate %s is not what was stored", serial)
	}
	if rv, err := c.revocation(serial); err != nil || rv != nil || !now.Before(cert.NotAfter) {
		return nil, err
	}
	by, err := c.issuerOf(cert)
	if err != nil || by == nil { // no list would hold it
		return nil, err
	}
	_, err = c.addRevocation(cert, by, now)
	return &secrets.Response{Ops: c.ops}, err
}
