package jwt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/engine"
)

// config is where a mount's keys are from, and who we are at the provider.
type config struct {
	JWKS         string   `json:"jwks_url,omitempty"`
	JWKSCA       string   `json:"jwks_ca_pem,omitempty"`
	Pairs        []pair   `json:"jwks_pairs,omitempty"`
	Discovery    string   `json:"oidc_discovery_url,omitempty"`
	DiscoveryCA  string   `json:"oidc_discovery_ca_pem,omitempty"`
	ClientID     string   `json:"oidc_client_id,omitempty"`
	ClientSecret string   `json:"oidc_client_secret,omitempty"`
	ResponseMode string   `json:"oidc_response_mode,omitempty"`
	Types        []string `json:"oidc_response_types,omitempty"`
	PubKeys      []string `json:"jwt_validation_pubkeys,omitempty"`
	Issuer       string   `json:"bound_issuer,omitempty"`
	Algs         []string `json:"jwt_supported_algs,omitempty"`
	DefaultRole  string   `json:"default_role,omitempty"`
	NoNamespace  bool     `json:"no_namespace_in_state,omitempty"` // kept and shown: there are no namespaces
}

// pair is one of several JWKS addresses.
type pair struct {
	URL string `json:"jwks_url"`
	CA  string `json:"jwks_ca_pem"`
}

// source is the first place that keys are asked for.
func (c *config) source() jwks.Source {
	if len(c.Pairs) > 0 {
		return jwks.Source{URL: c.Pairs[0].URL, CA: c.Pairs[0].CA}
	}
	return jwks.Source{URL: c.JWKS, CA: c.JWKSCA, Discovery: c.Discovery, DiscoveryCA: c.DiscoveryCA}
}

func (c *config) show() map[string]any {
	pairs := c.Pairs
	if pairs == nil {
		pairs = []pair{}
	}
	return map[string]any{"jwks_url": c.JWKS, "jwks_ca_pem": c.JWKSCA, "jwks_pairs": pairs,
		"oidc_discovery_url": c.Discovery, "oidc_discovery_ca_pem": c.DiscoveryCA,
		"jwt_validation_pubkeys": auth.List(c.PubKeys), "bound_issuer": c.Issuer, "jwt_supported_algs": auth.List(c.Algs),
		"default_role":   c.DefaultRole,
		"oidc_client_id": c.ClientID, "oidc_response_mode": c.ResponseMode, "oidc_response_types": auth.List(c.Types),
		"provider_config":    map[string]any{},
		"namespace_in_state": !c.NoNamespace}
}

// configured gives the mount's configuration; that there is none is an error.
func configured(ctx context.Context, view engine.View) (*config, error) {
	c, err := auth.Find[config](ctx, view, "", configKey)
	if err == nil && c == nil {
		err = errkind.New(errkind.Invalid, "could not load configuration: write it to auth/.../config first")
	}
	return c, err
}

// configure takes the whole configuration anew; the client's secret, which nobody reads, stays where it is not given.
func (e *Engine) configure(ctx context.Context, view engine.View, f *secrets.Fields) (*secrets.Response, error) {
	c := &config{JWKS: f.String("jwks_url"), JWKSCA: f.String("jwks_ca_pem"), Discovery: f.String("oidc_discovery_url"),
		DiscoveryCA: f.String("oidc_discovery_ca_pem"),
		ClientID:    f.String("oidc_client_id"), ClientSecret: f.String("oidc_client_secret"),
		ResponseMode: f.String("oidc_response_mode"), Types: f.Strings("oidc_response_types"),
		Issuer: f.String("bound_issuer"), Algs: f.Strings("jwt_supported_algs"), DefaultRole: f.String("default_role"),
		NoNamespace: !f.Bool("namespace_in_state", true)}
	c.PubKeys = f.Strings("jwt_validation_pubkeys")
	var err error
	if c.Pairs, err = pairs(f.Any("jwks_pairs")); err != nil {
		return nil, err
	}
	if !f.Has("oidc_client_secret") && c.ClientID != "" {
		old, err := auth.Find[config](ctx, view, "", configKey)
		if err != nil {
			return nil, err
		}
		// it goes where it was given for
		if old != nil && old.ClientID == c.ClientID && old.Discovery == c.Discovery && old.DiscoveryCA == c.DiscoveryCA {
			c.ClientSecret = old.ClientSecret
		}
	}
	skip := f.Bool("skip_jwks_validation", false)
	if provider, ok := f.Any("provider_config").(map[string]any); ok && len(provider) > 0 {
		return nil, errkind.New(errkind.Invalid, "field \"provider_config\": no provider has settings of its own here")
	}
	if err := f.Err(); err != nil {
		return nil, err
	}
	if err := c.check(); err != nil {
		return nil, errkind.E(errkind.Invalid, "", err)
	}
	resp, err := auth.Keep(configKey, c)
	if err != nil || len(c.PubKeys) > 0 {
		return resp, err
	}
	if err := e.Keys.Try(ctx, c.source()); err != nil {
		if !skip {
			return nil, errkind.Errorf(errkind.Invalid,
				"error checking jwks_url or oidc_discovery_url: %w (skip_jwks_validation takes it all the same)", err)
		}
		resp.Warnings = []string{"the keys cannot be had now: " + err.Error()}
	}
	return resp, nil
}

// pairs reads jwks_pairs: objects, or texts of JSON as the command line sends them.
func pairs(v any) (out []pair, err error) {
	list, ok := v.([]any)
	if v == nil {
		return nil, nil
	}
	for i, one := range list {
		object, is := one.(map[string]any)
		if text, plain := one.(string); plain {
			is = json.Unmarshal([]byte(text), &object) == nil
		}
		if !is {
			return nil, errkind.Errorf(errkind.Invalid, "field \"jwks_pairs\": item %d is no object of jwks_url and jwks_ca_pem",
				i)
		}
		f := secrets.FieldsOf(object)
		out = append(out, pair{f.String("jwks_url"), f.String("jwks_ca_pem")})
		if err := f.Err(); err != nil {
			return nil, err
		}
	}
	if !ok || len(out) > maxPairs {
		return nil, errkind.Errorf(errkind.Invalid, "field \"jwks_pairs\": must be a list of %d objects at most", maxPairs)
	}
	return out, nil
}

// maxPairs bounds how many addresses are asked because of one token.
const maxPairs = 16

func (c *config) check() error {
	sources := 0
	for field, text := range map[string]string{"jwks_url": c.JWKS, "oidc_discovery_url": c.Discovery} {
		if text != "" {
			sources++
			if err := jwks.CheckURL(field, text); err != nil {
				return err
			}
		}
	}
	for i, p := range c.Pairs {
		field := fmt.Sprintf("jwks_pairs[%d]", i)
		if err := errors.Join(jwks.CheckURL(field+".jwks_url", p.URL), jwks.CheckCA(field+".jwks_ca_pem", p.CA)); err != nil {
			return err
		}
	}
	for _, has := range []bool{len(c.PubKeys) > 0, len(c.Pairs) > 0} {
		if has {
			sources++
		}
	}
	if sources != 1 {
		return errors.New("exactly one of 'jwt_validation_pubkeys', 'jwks_url', 'jwks_pairs' or 'oidc_discovery_url' must " +
			"be set")
	}
	for i, text := range c.PubKeys {
		if _, err := jwks.PublicKey(text); err != nil {
			return fmt.Errorf("jwt_validation_pubkeys[%d]: %w", i, err)
		}
	}
	if _, err := jwks.Algorithms(c.Algs); err != nil {
		return fmt.Errorf("jwt_supported_algs: %w", err)
	}
	return errors.Join(jwks.CheckCA("jwks_ca_pem", c.JWKSCA), jwks.CheckCA("oidc_discovery_ca_pem", c.DiscoveryCA),
		c.checkClient())
}

// checkClient checks what the browser's flow needs.
func (c *config) checkClient() error {
	switch {
	case (c.ClientID == "") != (c.ClientSecret == ""):
		return errors.New("both 'oidc_client_id' and 'oidc_client_secret' must be set for OIDC")
	case c.ClientID != "" && c.Discovery == "":
		return errors.New("'oidc_discovery_url' must be set for OIDC")
	case c.ResponseMode != "" && c.ResponseMode != "query":
		return fmt.Errorf("oidc_response_mode: %q is not supported: browsers are sent back with a query", c.ResponseMode)
	case slices.ContainsFunc(c.Types, func(t string) bool { return t != "code" }):
		return fmt.Errorf("oidc_response_types: %q: only code is supported", c.Types)
	}
	return nil
}
