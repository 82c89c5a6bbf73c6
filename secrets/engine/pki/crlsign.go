package pki

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine/pki/forms"
	"corbel.dev/corbel/secrets/engine/pki/revocation"
)

// Lists whose content the caller says: of several lists of one issuer in several places (resign-crls), or entry by
// entry (sign-revocation-list). What they revoke is not known to this mount; they are signed and forgotten.

// listForm is what is asked of such a list beside its entries.
type listForm struct {
	number, base int
	next         time.Duration
	der          bool
}

// crls answers what is asked of revocation lists.
type crls struct{ *call }

func (c crls) form() (l listForm, err error) {
	l.number, l.base, l.next = c.f.Int("crl_number", -1), c.f.Int("delta_crl_base_number", -1),
		c.f.Duration("next_update", 72*time.Hour)
	format := c.f.String("format")
	if err := c.f.Err(); err != nil {
		return l, err
	}
	switch {
	case l.number < 0:
		return l, invalid("field \"crl_number\": is missing, or negative")
	case c.f.Has("delta_crl_base_number") && l.base != -1 && (l.base < 0 || l.base >= l.number):
		return l, invalid("field \"delta_crl_base_number\": must be 0 or more, and less than crl_number (-1 is none)")
	case l.next <= 0:
		return l, invalid("field \"next_update\": must be above 0")
	case format != "" && format != "pem" && format != "der":
		return l, invalid("field \"format\": %q is neither pem nor der", format)
	}
	l.der = format == "der"
	return l, nil
}

// sign signs a list of the issuer that the path names.
func (c crls) sign(l listForm, entries []x509.RevocationListEntry, more []forms.Extension) (*secrets.Response, error) {
	a, err := c.authority(c.ref, "crl-signing")
	if err != nil {
		return nil, err
	}
	now := c.r.Now.UTC()
	t := &x509.RevocationList{Number: big.NewInt(int64(l.number)), ThisUpdate: now, NextUpdate: now.Add(l.next),
		RevokedCertificateEntries: entries, ExtraExtensions: more}
	if l.base >= 0 {
		of, err := revocation.DeltaOf(big.NewInt(int64(l.base)))
		if err != nil {
			return nil, err
		}
		t.ExtraExtensions = append(t.ExtraExtensions, of)
	}
	if t.SignatureAlgorithm, err = a.RevocationAlgorithm(); err != nil {
		return nil, err
	}
	der, err := x509.CreateRevocationList(rand.Reader, t, a.X509(), a.Key.Signer)
	if err != nil {
		return nil, errkind.Errorf(errkind.Invalid, "the list cannot be signed: %w", err)
	}
	if l.der {
		return answer(map[string]string{"crl": base64.StdEncoding.EncodeToString(der)})
	}
	return answer(map[string]string{"crl": forms.EncodePEM("X509 CRL", der)})
}

// resign signs one list of what several lists of the issuer say; without them, the mount's own list anew.
func (c crls) resign() (*secrets.Response, error) {
	if !c.f.Has("crls") {
		der, err := c.get(false, true)
		if err != nil {
			return nil, err
		}
		return answer(map[string]any{"crl": forms.EncodePEM("X509 CRL", der)})
	}
	l, err := c.form()
	if err != nil {
		return nil, err
	}
	issuer, err := c.issuerBy(c.ref)
	if err != nil {
		return nil, err
	}
	first := map[string]int{} // serial: place in entries; who was revoked first stays so
	var entries []x509.RevocationListEntry
	for i, text := range c.f.Strings("crls") {
		block, _ := pem.Decode([]byte(text))
		if block == nil {
			return nil, invalid("field \"crls\": item %d is no PEM", i)
		}
		list, err := x509.ParseRevocationList(block.Bytes)
		if err != nil {
			return nil, invalid("field \"crls\": item %d: %v", i, err)
		}
		if err := list.CheckSignatureFrom(issuer.X509()); err != nil {
			return nil, invalid("field \"crls\": item %d is not signed by the issuer: %v", i, err)
		}
		for _, e := range list.RevokedCertificateEntries {
			at, has := first[e.SerialNumber.String()]
			switch {
			case !has:
				first[e.SerialNumber.String()] = len(entries)
				entries = append(entries, revocation.Entry(e.SerialNumber, e.RevocationTime, nil))
			case e.RevocationTime.Before(entries[at].RevocationTime):
				entries[at].RevocationTime = e.RevocationTime
			}
		}
	}
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	return c.sign(l, entries, nil)
}

// signGiven signs a list of what the request says.
func (c crls) signGiven() (*secrets.Response, error) {
	l, err := c.form()
	if err != nil {
		return nil, err
	}
	more, err := revocation.Extensions("extensions", c.f.Any("extensions"))
	if err != nil {
		return nil, err
	}
	list, ok := c.f.Any("revoked_certs").([]any)
	if c.f.Any("revoked_certs") != nil && !ok {
		return nil, invalid("field \"revoked_certs\": must be a list of objects")
	}
	seen := map[string]bool{}
	var entries []x509.RevocationListEntry
	for i, one := range list {
		object, ok := one.(map[string]any)
		if !ok {
			return nil, invalid("field \"revoked_certs\": item %d is no object", i)
		}
		f := secrets.FieldsOf(object)
		text, at := f.String("serial_number"), f.String("revocation_time")
		if err := f.Err(); err != nil {
			return nil, err
		}
		serial, ok := revocation.SerialNumber(text)
		if !ok || seen[serial.String()] {
			return nil, invalid("field \"revoked_certs\": item %d: serial_number %.80q is none, or there twice", i, text)
		}
		seen[serial.String()] = true
		when := c.r.Now
		if at != "" {
			if when, err = time.Parse(time.RFC3339, at); err != nil {
				return nil, invalid("field \"revoked_certs\": item %d: revocation_time: must be a time like 2030-01-02T15:04:05Z",
					i)
			}
		}
		own, err := revocation.Extensions("revoked_certs", f.Any("extensions"))
		if err != nil {
			return nil, err
		}
		entries = append(entries, revocation.Entry(serial, when, own))
	}
	return c.sign(l, entries, more)
}
