package revocation

import (
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"math/big"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine/pki/forms"
)

var oidDeltaIndicator = asn1.ObjectIdentifier{2, 5, 29, 27}

// DeltaOf is the extension of a list that has only what the list of this number lacks.
func DeltaOf(number *big.Int) (forms.Extension, error) {
	value, err := asn1.Marshal(number)
	return forms.Extension{Id: oidDeltaIndicator, Critical: true, Value: value}, err
}

// Entry makes an entry; its reason, which is an extension, has a field of its own in crypto/x509.
func Entry(serial *big.Int, at time.Time, more []forms.Extension) x509.RevocationListEntry {
	e := x509.RevocationListEntry{SerialNumber: serial, RevocationTime: at.UTC()}
	for _, one := range more {
		var reason asn1.Enumerated
		if rest, err := asn1.Unmarshal(one.Value, &reason); one.Id.Equal(oidReason) && err == nil && len(rest) == 0 {
			e.ReasonCode = int(reason)
			continue
		}
		e.ExtraExtensions = append(e.ExtraExtensions, one)
	}
	return e
}

var oidReason = asn1.ObjectIdentifier{2, 5, 29, 21}

// SerialNumber reads a serial as it is shown (hexadecimal with colons or dashes).
func SerialNumber(text string) (*big.Int, bool) {
	plain, ok := forms.ParseSerial(text)
	if !ok {
		return nil, false
	}
	hex := ""
	for _, r := range plain {
		if r != '-' && r != ':' {
			hex += string(r)
		}
	}
	return new(big.Int).SetString(hex, 16)
}

// reservedExtensions are those that signing sets itself: the key of the issuer, the number, and which list a delta is
// of.
var reservedExtensions = []asn1.ObjectIdentifier{{2, 5, 29, 35}, {2, 5, 29, 20}, oidDeltaIndicator}

// Extensions reads objects of id, critical and value (base64 of DER).
func Extensions(field string, v any) (out []forms.Extension, err error) {
	list, ok := v.([]any)
	if v != nil && !ok {
		return nil, forms.Refused("field %q: extensions must be a list of objects", field)
	}
	for i, one := range list {
		object, ok := one.(map[string]any)
		if !ok {
			return nil, forms.Refused("field %q: extension %d is no object", field, i)
		}
		f := secrets.FieldsOf(object)
		id, ok := forms.ParseOID(f.String("id"))
		value, derr := base64.StdEncoding.DecodeString(f.String("value"))
		critical := f.Bool("critical", false)
		if err := f.Err(); err != nil {
			return nil, err
		}
		if !ok || derr != nil || len(value) == 0 {
			return nil, forms.Refused("field %q: extension %d: id must be an object identifier, and value base64 of its DER",
				field, i)
		}
		for _, r := range reservedExtensions {
			if id.Equal(r) {
				return nil, forms.Refused("field %q: extension %d: %s is set by the signing itself", field, i, id)
			}
		}
		out = append(out, forms.Extension{Id: id, Critical: critical, Value: value})
	}
	return out, nil
}
