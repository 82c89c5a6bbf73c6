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
	"corbel.dev/corbel/secrets/engine/pki/forms"
	"corbel.dev/corbel/secrets/storage"
)

// revoked is a revocation as it is stored, under "revoked/<serial>".
type revoked struct {
	Time  time.Time `json:"time"`
	Group string    `json:"group"` // of its issuer
	End   time.Time `json:"not_after"`
	Log   string    `json:"log"` // the key of its entry in the log
	Cert  []byte    `json:"certificate"`
}

func (c *call) revocation(serial string) (*revoked, error) {
	raw, ok, err := c.view.Get(c, "revoked/"+serial)
	if err != nil || !ok {
		return nil, err
	}
	return parsed[revoked](raw)
}

func (rv *revoked) show() map[string]any {
	return map[string]any{"revocation_time": rv.Time.Unix(), "revocation_time_rfc3339": rv.Time.Format(time.RFC3339Nano),
		"state": "revoked"}
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
func (c *call) issuerOf(cert *x509.Certificate) (*issuer, error) {
	list, err := c.allIssuers()
	for _, i := range list {
		if bytes.Equal(i.cert.RawSubject, cert.RawIssuer) && cert.CheckSignatureFrom(i.cert) == nil {
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
		return answer(rv.show())
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
	return answer(rv.show())
}

// addRevocation stores that a certificate is revoked: its record, and an entry in the log that lists are made of.
func (c *call) addRevocation(cert *x509.Certificate, by *issuer, now time.Time) (*revoked, error) {
	serial := forms.Hyphens(cert.SerialNumber)
	rv := &revoked{Time: now.UTC(), Group: by.group, End: cert.NotAfter, Cert: cert.Raw,
		Log: logKey(c.e.book.stamp(now), serial)}
	c.ops = append(c.ops, storage.Put(rv.Log, logEntry(rv)))
	return rv, c.put("revoked/"+serial, rv)
}

// revoke marks an issuer as revoked, and revokes its certificate where its own issuer is here.
func (c issuers) revoke() (*secrets.Response, error) {
	ch, err := c.change()
	if err != nil {
		return nil, err
	}
	id := find(ch.Issuers, c.ref, ch.Default)
	if id == "" {
		return nil, invalid("unable to find PKI issuer for reference: %v", c.ref)
	}
	i := ch.issuers[id]
	if i.Revoked.IsZero() {
		i.Revoked, ch.touched[id] = c.r.Now.UTC(), true
		var left []string
		for _, u := range i.Usage {
			if u != "issuing-certificates" {
				left = append(left, u)
			}
		}
		i.Usage = left
		by, err := c.issuerOf(i.cert)
		if err != nil {
			return nil, err
		}
		if by != nil && by.ID != id {
			if rv, err := c.revocation(forms.Hyphens(i.cert.SerialNumber)); err != nil {
				return nil, err
			} else if rv == nil {
				if _, err := c.addRevocation(i.cert, by, c.r.Now); err != nil {
					return nil, err
				}
			}
		}
		if err := ch.save(); err != nil {
			return nil, err
		}
	}
	return answer(i.show())
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
