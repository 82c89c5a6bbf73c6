package pki

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine/enginetest"
)

func listOf(t *testing.T, d *enginetest.Desk, text string) *x509.RevocationList {
	t.Helper()
	der, err := base64.StdEncoding.DecodeString(text)
	if block, _ := pem.Decode([]byte(text)); block != nil {
		der, err = block.Bytes, nil
	}
	if err != nil {
		t.Fatal(err)
	}
	l, err := x509.ParseRevocationList(der)
	if err != nil {
		t.Fatal(err)
	}
	ca := cert(t, string(d.Raw(secrets.Read, "ca/pem", nil)))
	if err := l.CheckSignatureFrom(ca); err != nil {
		t.Errorf("the list is not the issuer's: %v", err)
	}
	return l
}

// Lists of one issuer in several places become one, and others may be signed entry by entry.
func TestListsThatAreAskedFor(t *testing.T) {
	d := withRoot(t)
	d.OK(secrets.Update, "roles/any", body{"allow_any_name": true, "key_type": "ec"})
	var lists, serials []string
	for i := range 3 {
		serial := d.OK(secrets.Update, "issue/any", body{"common_name": "a.b"}).Text("serial_number")
		d.OK(secrets.Update, "revoke", body{"serial_number": serial})
		serials = append(serials, serial)
		lists = append(lists, string(d.Raw(secrets.Read, "crl/pem", nil)))
		if i == 0 {
			d.Wait(time.Hour)
		}
	}
	merged := listOf(t, d, d.OK(secrets.Update, "issuer/default/resign-crls",
		body{"crls": lists, "crl_number": 7, "next_update": "1h"}).Text("crl"))
	if len(merged.RevokedCertificateEntries) != 3 || merged.Number.Int64() != 7 ||
		merged.NextUpdate.Sub(merged.ThisUpdate) != time.Hour {
		t.Errorf("merged: %d entries, number %v", len(merged.RevokedCertificateEntries), merged.Number)
	}
	at := "2030-01-02T03:04:05Z"
	signed := listOf(t, d, d.OK(secrets.Update, "issuer/default/sign-revocation-list",
		body{"crl_number": 9, "delta_crl_base_number": 8, "format": "der",
			"revoked_certs": []any{body{"serial_number": serials[0], "revocation_time": at,
				"extensions": []any{body{"id": "2.5.29.21", "value": "CgEB"}}}, body{"serial_number": "0f:ff"}},
			"extensions": []any{body{"id": "1.2.3.4", "critical": false, "value": "BAA="}}}).Text("crl"))
	if n := len(signed.RevokedCertificateEntries); n != 2 || signed.RevokedCertificateEntries[0].ReasonCode != 1 ||
		signed.RevokedCertificateEntries[0].RevocationTime.Format(time.RFC3339) != at ||
		signed.RevokedCertificateEntries[1].SerialNumber.Int64() != 0xfff {
		t.Errorf("signed: %+v", signed.RevokedCertificateEntries)
	}
	seen := map[string]bool{}
	for _, e := range signed.Extensions {
		seen[fmt.Sprint(e.Id, e.Critical)] = true
	}
	if !seen["2.5.29.27 true"] || !seen["1.2.3.4 false"] {
		t.Errorf("extensions %v", seen)
	}
	foreign := withRoot(t)
	for name, b := range map[string]body{
		"crl_number":               {"crls": lists},
		"not signed by the":        {"crls": []string{string(foreign.Raw(secrets.Read, "crl/pem", nil))}, "crl_number": 1},
		"no PEM":                   {"crls": []string{"x"}, "crl_number": 1},
		"delta_crl_base_number":    {"crls": lists, "crl_number": 1, "delta_crl_base_number": 1},
		"neither pem nor der":      {"crls": lists, "crl_number": 1, "format": "txt"},
		`field "next_update": mus`: {"crls": lists, "crl_number": 1, "next_update": "soon"},
	} {
		d.Refused(errkind.Invalid, name, secrets.Update, "issuer/default/resign-crls", b)
	}
	for name, b := range map[string]body{
		"serial_number":   {"revoked_certs": []any{body{"serial_number": "x"}}},
		"there twice":     {"revoked_certs": []any{body{"serial_number": "01"}, body{"serial_number": "00:01"}}},
		"revocation_time": {"revoked_certs": []any{body{"serial_number": "01", "revocation_time": "now"}}},
		"no object":       {"revoked_certs": []any{"01"}},
		"list of objects": {"revoked_certs": "01"},
		"by the signing":  {"extensions": []any{body{"id": "2.5.29.20", "value": "AgEB"}}},
		"base64":          {"extensions": []any{body{"id": "1.2.3", "value": "?"}}},
	} {
		b["crl_number"] = 1
		d.Refused(errkind.Invalid, name, secrets.Update, "issuer/default/sign-revocation-list", b)
	}
}

// The lists and answers of all clusters are those of the one that there is.
func TestUnified(t *testing.T) {
	d := withRoot(t)
	d.OK(secrets.Update, "roles/any", body{"allow_any_name": true, "key_type": "ec"})
	serial := d.OK(secrets.Update, "issue/any", body{"common_name": "a.b"}).Text("serial_number")
	d.OK(secrets.Update, "revoke", body{"serial_number": serial})
	for one, other := range map[string]string{"crl": "unified-crl", "crl/pem": "unified-crl/pem",
		"issuer/default/crl/der": "issuer/default/unified-crl/der"} {
		if !bytes.Equal(d.Raw(secrets.Read, one, nil), d.Raw(secrets.Read, other, nil)) {
			t.Errorf("%s is not %s", other, one)
		}
	}
	if l := d.OK(secrets.List, "certs/unified-revoked/", nil); fmt.Sprint(l["keys"]) != "["+serial+"]" {
		t.Errorf("revoked: %v", l)
	}
}
