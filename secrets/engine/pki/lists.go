package pki

import (
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine/pki/forms"
	"corbel.dev/corbel/secrets/engine/pki/revocation"
)

func (c *call) crlConfig() (*revocation.Config, error) {
	cfg, ok, err := c.e.crls.Get(c, c.view, "config/crl", func(raw []byte) (*revocation.Config, error) {
		cfg := revocation.NewConfig()
		return cfg, cfg.Params().Decode(raw)
	})
	if err != nil || !ok {
		return revocation.NewConfig(), err
	}
	return cfg, nil
}

func (c crls) readConfig() (*secrets.Response, error) {
	cfg, err := c.crlConfig()
	if err != nil {
		return nil, err
	}
	return answer(cfg.Show())
}

func (c crls) writeConfig() (*secrets.Response, error) {
	old, err := c.crlConfig()
	if err != nil {
		return nil, err
	}
	cfg := *old
	if err := cfg.Params().Read(c.f); err != nil {
		return nil, err
	}
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	raw, err := cfg.Params().Encode()
	if err != nil {
		return nil, err
	}
	c.ops = append(c.ops, secrets.Op{Key: "config/crl", Value: raw})
	return answer(cfg.Show())
}

// get is the list of the issuer that the path names.
func (c crls) get(delta, force bool) ([]byte, error) {
	cfg, err := c.crlConfig()
	if err != nil {
		return nil, err
	}
	if delta && !cfg.Delta {
		return nil, errkind.New(errkind.NotFound, "delta CRLs are not enabled: set enable_delta in config/crl")
	}
	a, err := c.authority(c.ref, "crl-signing")
	if err != nil {
		return nil, err
	}
	return c.e.book.Get(c, c.view, c.r.Now, a, cfg, delta, force)
}

func raw(kind string, body []byte) *secrets.Response {
	return &secrets.Response{Raw: &secrets.Raw{ContentType: kind, Body: body}}
}

func (c crls) raw(delta, asPEM bool) (*secrets.Response, error) {
	der, err := c.get(delta, false)
	if err != nil {
		return nil, err
	}
	if asPEM {
		return raw("application/x-pem-file", []byte(forms.EncodePEM("X509 CRL", der))), nil
	}
	return raw("application/pkix-crl", der), nil
}

func (c crls) der() (*secrets.Response, error)      { return c.raw(false, false) }
func (c crls) pem() (*secrets.Response, error)      { return c.raw(false, true) }
func (c crls) deltaDER() (*secrets.Response, error) { return c.raw(true, false) }
func (c crls) deltaPEM() (*secrets.Response, error) { return c.raw(true, true) }

func (c crls) asJSON(delta bool) (*secrets.Response, error) {
	der, err := c.get(delta, false)
	if err != nil {
		return nil, err
	}
	return answer(map[string]any{"crl": forms.EncodePEM("X509 CRL", der)})
}

func (c crls) json() (*secrets.Response, error)      { return c.asJSON(false) }
func (c crls) deltaJSON() (*secrets.Response, error) { return c.asJSON(true) }

// rotateWhole signs all lists anew.
func (c crls) rotateWhole() (*secrets.Response, error) { return c.rotate(false) }
func (c crls) rotateDelta() (*secrets.Response, error) { return c.rotate(true) }

func (c crls) rotate(delta bool) (*secrets.Response, error) {
	list, err := c.allIssuers()
	if err != nil {
		return nil, err
	}
	for _, i := range list {
		if i.KeyID == "" || !i.May("crl-signing") {
			continue
		}
		c.ref = i.ID
		if _, err := c.get(delta, true); err != nil {
			return nil, err
		}
	}
	return answer(map[string]bool{"success": true})
}
