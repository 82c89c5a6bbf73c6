package pki

import (
	"net/http"
	"strings"
	"time"

	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine/pki/authority"
	"corbel.dev/corbel/secrets/engine/pki/forms"
	"corbel.dev/corbel/secrets/engine/pki/revocation"
)

// raw answers with nothing where there is no issuer yet, as who waits for one expects.
func (c issuers) raw(write func(i *authority.Issuer) *secrets.Response) (*secrets.Response, error) {
	i, err := c.issuerBy(c.ref)
	if err == errNoIssuer {
		return &secrets.Response{Raw: &secrets.Raw{Status: http.StatusNoContent, ContentType: "application/pkix-cert"}}, nil
	}
	if err != nil {
		return nil, err
	}
	return write(i), nil
}

func (c issuers) der() (*secrets.Response, error) {
	return c.raw(func(i *authority.Issuer) *secrets.Response { return raw("application/pkix-cert", i.Cert) })
}

func (c issuers) pem() (*secrets.Response, error) {
	return c.raw(func(i *authority.Issuer) *secrets.Response {
		return raw("application/pem-certificate-chain", []byte(forms.CertPEM(i.Cert)))
	})
}

func (c issuers) chain() (*secrets.Response, error) {
	return c.raw(func(i *authority.Issuer) *secrets.Response {
		return raw("application/pem-certificate-chain", []byte(strings.Join(i.PEMChain(false), "\n")))
	})
}

func (c issuers) json() (*secrets.Response, error) {
	i, err := c.issuerBy(c.ref)
	if err != nil {
		return nil, err
	}
	return answer(map[string]any{"certificate": forms.CertPEM(i.Cert), "ca_chain": i.PEMChain(false), "issuer_id": i.ID,
		"issuer_name": i.Name})
}

// certificates answers what is asked of certificates that were issued.
type certificates struct{ *call }

// stored is the certificate that a path names, and its revocation.
func (c certificates) stored() ([]byte, *revocation.Revoked, error) {
	serial, ok := forms.ParseSerial(c.args[0])
	if !ok {
		return nil, nil, invalid("the serial number must be bytes in hexadecimal like 1a:2b")
	}
	der, ok, err := c.view.Get(c, "certs/"+serial)
	if err != nil {
		return nil, nil, err
	}
	rv, err := c.revocation(serial)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case !ok && rv != nil:
		der = rv.Cert
	case !ok:
		return nil, nil, errNotFound
	}
	return der, rv, nil
}

func (c certificates) read() (*secrets.Response, error) {
	switch name := c.args[0]; name {
	case "ca", "ca_chain":
		i, err := c.issuerBy("default")
		if err != nil {
			return nil, err
		}
		text := forms.CertPEM(i.Cert)
		if name == "ca_chain" {
			text = strings.Join(i.PEMChain(false), "\n")
		}
		return answer(map[string]any{"certificate": text, "ca_chain": i.PEMChain(false), "issuer_id": i.ID,
			"revocation_time": 0, "revocation_time_rfc3339": ""})
	case "crl", "delta-crl":
		der, err := crls(c).get(name != "crl", false)
		if err != nil {
			return nil, err
		}
		return answer(map[string]any{"certificate": forms.EncodePEM("X509 CRL", der), "revocation_time": 0,
			"revocation_time_rfc3339": ""})
	}
	der, rv, err := c.stored()
	if err != nil {
		return nil, err
	}
	out := map[string]any{"certificate": forms.CertPEM(der), "revocation_time": 0, "revocation_time_rfc3339": "",
		"issuer_id": ""}
	if rv != nil {
		out["revocation_time"], out["revocation_time_rfc3339"] = rv.Time.Unix(), rv.Time.Format(time.RFC3339Nano)
	}
	return answer(out)
}

func (c certificates) readDER() (*secrets.Response, error) {
	switch c.args[0] {
	case "ca":
		return issuers(c).der()
	case "crl":
		return crls(c).der()
	}
	der, _, err := c.stored()
	if err != nil {
		return nil, err
	}
	return raw("application/pkix-cert", der), nil
}

func (c certificates) readPEM() (*secrets.Response, error) {
	switch c.args[0] {
	case "ca":
		return issuers(c).pem()
	case "crl":
		return crls(c).pem()
	}
	der, _, err := c.stored()
	if err != nil {
		return nil, err
	}
	return raw("application/pem-certificate-chain", []byte(forms.CertPEM(der))), nil
}

func (c certificates) list() (*secrets.Response, error)        { return c.listSerials("certs/") }
func (c certificates) listRevoked() (*secrets.Response, error) { return c.listSerials("revoked/") }

func (c certificates) listSerials(prefix string) (*secrets.Response, error) {
	after, limit := strings.ReplaceAll(c.f.String("after"), ":", "-"), max(c.f.Int("limit", 0), 0)
	if err := c.f.Err(); err != nil {
		return nil, err
	}
	names, err := c.view.List(c, prefix, after, limit)
	for i := range names {
		names[i] = strings.ReplaceAll(names[i], "-", ":")
	}
	if err != nil {
		return nil, err
	}
	return keys(names)
}
