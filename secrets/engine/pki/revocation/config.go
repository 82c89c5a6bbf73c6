package revocation

import (
	"strings"
	"time"

	"corbel.dev/corbel/secrets/engine/pki/forms"
	"corbel.dev/corbel/secrets/engine/record"
)

// Config says how lists and OCSP answers are made, under "config/crl".
type Config struct {
	Expiry      time.Duration
	Disable     bool
	OCSPDisable bool
	OCSPExpiry  time.Duration
	Auto        bool
	Grace       time.Duration
	Delta       bool
	DeltaEvery  time.Duration
}

func NewConfig() *Config {
	return &Config{Expiry: 72 * time.Hour, OCSPExpiry: 12 * time.Hour, Grace: 12 * time.Hour,
		DeltaEvery: 15 * time.Minute}
}

// Params are shown as the durations that Vault's clients compare: texts.
func (cfg *Config) Params() record.Params {
	return record.Params{{Name: "expiry", At: &cfg.Expiry}, {Name: "disable", At: &cfg.Disable},
		{Name: "ocsp_disable", At: &cfg.OCSPDisable},
		{Name: "ocsp_expiry", At: &cfg.OCSPExpiry}, {Name: "auto_rebuild", At: &cfg.Auto},
		{Name: "auto_rebuild_grace_period", At: &cfg.Grace},
		{Name: "enable_delta", At: &cfg.Delta}, {Name: "delta_rebuild_interval", At: &cfg.DeltaEvery}}
}

// Check refuses times that do not fit to each other.
func (cfg *Config) Check() error {
	switch {
	case cfg.Expiry <= 0 || cfg.OCSPExpiry < 0 || cfg.DeltaEvery <= 0:
		return forms.Refused("fields \"expiry\", \"delta_rebuild_interval\": must be more than zero")
	case cfg.Auto && cfg.Grace >= cfg.Expiry:
		return forms.Refused("CRL auto-rebuilding grace period (%s) must be strictly shorter than CRL expiry (%s) value "+
			"when auto-rebuilding of CRLs is enabled", cfg.Grace, cfg.Expiry)
	case cfg.Delta && cfg.DeltaEvery >= cfg.Expiry:
		return forms.Refused("CRL delta rebuild window (%s) must be strictly shorter than CRL expiry (%s) value when delta "+
			"CRLs are enabled", cfg.DeltaEvery, cfg.Expiry)
	}
	return nil
}

// Show is the configuration as the API shows it.
func (cfg *Config) Show() map[string]any {
	out := map[string]any{}
	params := cfg.Params()
	params.Show(out)
	for _, p := range params {
		if d, ok := p.At.(*time.Duration); ok {
			out[p.Name] = shortDuration(*d)
		}
	}
	return out
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
