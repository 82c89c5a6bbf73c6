package pki

import (
	"net/http"
	"strings"
	"time"

	"corbel.dev/corbel/secrets"
)

// rawIssuer answers with nothing where there is no issuer yet, as who waits for one expects.
func (c *call) rawIssuer(write func(i *issuer) *secrets.Response) (*secrets.Response, error) {
	i, err := c.issuerBy(c.ref)
	if err == errNoIssuer {
		return &secrets.Response{Raw: &secrets.Raw{Status: http.StatusNoContent, ContentType: "application/pkix-cert"}}, nil
	}
	if err != nil {
		return nil, err
	}
	return write(i), nil
}

func (c *call) caDER() (*secrets.Response, error) {
	return c.rawIssuer(func(i *issuer) *secrets.Response { return raw("application/pkix-cert", i.Cert) })
}

func (c *call) caPEM() (*secrets.Response, error) {
	return c.rawIssuer(func(i *issuer) *secrets.Response {
		return raw("application/pem-certificate-chain", []byte(certPEM(i.Cert)))
	})
}

func (c *call) caChain() (*secrets.Response, error) {
	return c.rawIssuer(func(i *issuer) *secrets.Response {
		return raw("application/pem-certificate-chain", []byte(strings.Join(i.pemChain(false), "\n")))
	})
}

func (c *call) issuerJSON() (*secrets.Response, error) {
	i, err := c.issuerBy(c.ref)
	if err != nil {
		return nil, err
	}
	return answer(map[string]any{"certificate": certPEM(i.Cert), "ca_chain": i.pemChain(false), "issuer_id": i.ID,
		"issuer_name": i.Name})
}

// stored is the certificate that a path names, and its revocation.
func (c *call) stored() ([]byte, *revoked, error) {
	serial, ok := parseSerial(c.args[0])
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

func (c *call) readCert() (*secrets.Response, error) {
	switch name := c.args[0]; name {
	case "ca", "ca_chain":
		i, err := c.issuerBy("default")
		if err != nil {
			return nil, err
		}
		text := certPEM(i.Cert)
		if name == "ca_chain" {
			text = strings.Join(i.pemChain(false), "\n")
		}
		return answer(map[string]any{"certificate": text, "ca_chain": i.pemChain(false), "issuer_id": i.ID,
			"revocation_time": 0, "revocation_time_rfc3339": ""})
	case "crl", "delta-crl":
		der, err := c.crl(name != "crl", false)
		if err != nil {
			return nil, err
		}
		return answer(map[string]any{"certificate": encodePEM("X509 CRL", der), "revocation_time": 0,
			"revocation_time_rfc3339": ""})
	}
	der, rv, err := c.stored()
	if err != nil {
		return nil, err
	}
	out := map[string]any{"certificate": certPEM(der), "revocation_time": 0, "revocation_time_rfc3339": "",
		"issuer_id": ""}
	if rv != nil {
		out["revocation_time"], out["revocation_time_rfc3339"] = rv.Time.Unix(), rv.Time.Format(time.RFC3339Nano)
	}
	return answer(out)
}

func (c *call) readCertRaw() (*secrets.Response, error) {
	switch c.args[0] {
	case "ca":
		return c.caDER()
	case "crl":
		return c.crlDER()
	}
	der, _, err := c.stored()
	if err != nil {
		return nil, err
	}
	return raw("application/pkix-cert", der), nil
}

func (c *call) readCertRawPEM() (*secrets.Response, error) {
	switch c.args[0] {
	case "ca":
		return c.caPEM()
	case "crl":
		return c.crlPEM()
	}
	der, _, err := c.stored()
	if err != nil {
		return nil, err
	}
	return raw("application/pem-certificate-chain", []byte(certPEM(der))), nil
}

func (c *call) listCerts() (*secrets.Response, error)   { return c.listSerials("certs/") }
func (c *call) listRevoked() (*secrets.Response, error) { return c.listSerials("revoked/") }

func (c *call) listSerials(prefix string) (*secrets.Response, error) {
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
