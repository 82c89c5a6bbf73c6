package pki

import (
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/engine/pki/forms"
	"corbel.dev/corbel/secrets/engine/record"
)

// crlConfig says how lists and OCSP answers are made, under "config/crl".
type crlConfig struct {
	Expiry      time.Duration
	Disable     bool
	OCSPDisable bool
	OCSPExpiry  time.Duration
	Auto        bool
	Grace       time.Duration
	Delta       bool
	DeltaEvery  time.Duration
}

func newCRLConfig() *crlConfig {
	return &crlConfig{Expiry: 72 * time.Hour, OCSPExpiry: 12 * time.Hour, Grace: 12 * time.Hour,
		DeltaEvery: 15 * time.Minute}
}

// params are shown as the durations that Vault's clients compare: texts.
func (cfg *crlConfig) params() record.Params {
	return record.Params{{Name: "expiry", At: &cfg.Expiry}, {Name: "disable", At: &cfg.Disable},
		{Name: "ocsp_disable", At: &cfg.OCSPDisable},
		{Name: "ocsp_expiry", At: &cfg.OCSPExpiry}, {Name: "auto_rebuild", At: &cfg.Auto},
		{Name: "auto_rebuild_grace_period", At: &cfg.Grace},
		{Name: "enable_delta", At: &cfg.Delta}, {Name: "delta_rebuild_interval", At: &cfg.DeltaEvery}}
}

func (cfg *crlConfig) show() (*secrets.Response, error) {
	out := map[string]any{}
	params := cfg.params()
	params.Show(out)
	for _, p := range params {
		if d, ok := p.At.(*time.Duration); ok {
			out[p.Name] = shortDuration(*d)
		}
	}
	return answer(out)
}

// shortDuration is "72h" where Go writes "72h0m0s".
func shortDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func (c *call) crlConfig() (*crlConfig, error) {
	cfg, ok, err := c.e.crls.Get(c, c.view, "config/crl", func(raw []byte) (*crlConfig, error) {
		cfg := newCRLConfig()
		return cfg, cfg.params().Decode(raw)
	})
	if err != nil || !ok {
		return newCRLConfig(), err
	}
	return cfg, nil
}

func (c crls) readConfig() (*secrets.Response, error) {
	cfg, err := c.crlConfig()
	if err != nil {
		return nil, err
	}
	return cfg.show()
}

func (c crls) writeConfig() (*secrets.Response, error) {
	old, err := c.crlConfig()
	if err != nil {
		return nil, err
	}
	cfg := *old
	if err := cfg.params().Read(c.f); err != nil {
		return nil, err
	}
	switch {
	case cfg.Expiry <= 0 || cfg.OCSPExpiry < 0 || cfg.DeltaEvery <= 0:
		return nil, invalid("fields \"expiry\", \"delta_rebuild_interval\": must be more than zero")
	case cfg.Auto && cfg.Grace >= cfg.Expiry:
		return nil, invalid("CRL auto-rebuilding grace period (%s) must be strictly shorter than CRL expiry (%s) value "+
			"when auto-rebuilding of CRLs is enabled", cfg.Grace, cfg.Expiry)
	case cfg.Delta && cfg.DeltaEvery >= cfg.Expiry:
		return nil, invalid("CRL delta rebuild window (%s) must be strictly shorter than CRL expiry (%s) value when delta "+
			"CRLs are enabled", cfg.DeltaEvery, cfg.Expiry)
	}
	raw, err := cfg.params().Encode()
	if err != nil {
		return nil, err
	}
	c.ops = append(c.ops, secrets.Op{Key: "config/crl", Value: raw})
	return cfg.show()
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
	s, err := c.e.book.get(c.call, a, cfg, delta, force)
	if err != nil {
		return nil, err
	}
	return s.der, nil
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
		if i.KeyID == "" || !i.may("crl-signing") {
			continue
		}
		c.ref = i.ID
		if _, err := c.get(delta, true); err != nil {
			return nil, err
		}
	}
	return answer(map[string]bool{"success": true})
}
