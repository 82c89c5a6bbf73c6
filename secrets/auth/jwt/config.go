package jwt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
)

// config is where a mount's keys are from.
type config struct {
	JWKS        string   `json:"jwks_url,omitempty"`
	JWKSCA      string   `json:"jwks_ca_pem,omitempty"`
	Discovery   string   `json:"oidc_discovery_url,omitempty"`
	DiscoveryCA string   `json:"oidc_discovery_ca_pem,omitempty"`
	PubKeys     []string `json:"jwt_validation_pubkeys,omitempty"`
	Issuer      string   `json:"bound_issuer,omitempty"`
	Algs        []string `json:"jwt_supported_algs,omitempty"`
	DefaultRole string   `json:"default_role,omitempty"`
}

func (c *config) source() jwks.Source {
	return jwks.Source{URL: c.JWKS, CA: c.JWKSCA, Discovery: c.Discovery, DiscoveryCA: c.DiscoveryCA}
}

func (c *config) show() map[string]any {
	return map[string]any{"jwks_url": c.JWKS, "jwks_ca_pem": c.JWKSCA, "oidc_discovery_url": c.Discovery, "oidc_discovery_ca_pem": c.DiscoveryCA,
		"jwt_validation_pubkeys": auth.List(c.PubKeys), "bound_issuer": c.Issuer, "jwt_supported_algs": auth.List(c.Algs), "default_role": c.DefaultRole,
		"oidc_client_id": "", "oidc_response_mode": "", "oidc_response_types": []string{}, "provider_config": map[string]any{}, "namespace_in_state": true}
}

// browsers are the fields of the flow that is not there.
var browsers = []string{"oidc_client_id", "oidc_client_secret", "oidc_response_mode"}

// configure takes the whole configuration anew.
func (e *Engine) configure(ctx context.Context, f *secrets.Fields) (*secrets.Response, error) {
	c := &config{JWKS: f.String("jwks_url"), JWKSCA: f.String("jwks_ca_pem"), Discovery: f.String("oidc_discovery_url"), DiscoveryCA: f.String("oidc_discovery_ca_pem"),
		Issuer: f.String("bound_issuer"), Algs: f.Strings("jwt_supported_algs"), DefaultRole: f.String("default_role")}
	c.PubKeys = f.Strings("jwt_validation_pubkeys")
	skip := f.Bool("skip_jwks_validation", false)
	for _, field := range browsers {
		if f.String(field) != "" {
			return nil, errkind.Errorf(errkind.Invalid, "field %q: logins by browser (OIDC) are not supported: roles have role_type \"jwt\"", field)
		}
	}
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
			return nil, errkind.Errorf(errkind.Invalid, "error checking jwks_url or oidc_discovery_url: %w (skip_jwks_validation takes it all the same)", err)
		}
		resp.Warnings = []string{"the keys cannot be had now: " + err.Error()}
	}
	return resp, nil
}

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
	if len(c.PubKeys) > 0 {
		sources++
	}
	if sources != 1 {
		return errors.New("exactly one of 'jwt_validation_pubkeys', 'jwks_url' or 'oidc_discovery_url' must be set")
	}
	for i, text := range c.PubKeys {
		if _, err := jwks.PublicKey(text); err != nil {
			return fmt.Errorf("jwt_validation_pubkeys[%d]: %w", i, err)
		}
	}
	if _, err := jwks.Algorithms(c.Algs); err != nil {
		return fmt.Errorf("jwt_supported_algs: %w", err)
	}
	return errors.Join(jwks.CheckCA("jwks_ca_pem", c.JWKSCA), jwks.CheckCA("oidc_discovery_ca_pem", c.DiscoveryCA))
}

// role says whose tokens log in, and as what.
type role struct {
	User        string              `json:"user_claim"`
	UserPointer bool                `json:"user_claim_json_pointer,omitempty"`
	Audiences   []string            `json:"bound_audiences,omitempty"`
	Subject     string              `json:"bound_subject,omitempty"`
	Claims      map[string][]string `json:"bound_claims,omitempty"`
	Glob        bool                `json:"glob,omitempty"`
	Groups      string              `json:"groups_claim,omitempty"`
	Mappings    map[string]string   `json:"claim_mappings,omitempty"`
	Skew        time.Duration       `json:"clock_skew_leeway,omitempty"`
	Expiry      time.Duration       `json:"expiration_leeway,omitempty"`
	NotBefore   time.Duration       `json:"not_before_leeway,omitempty"`
	Tokens      auth.Params         `json:"tokens"`
}

// Read implements auth.Record.
func (r *role) Read(f *secrets.Fields) error {
	if err := r.Tokens.Read(f); err != nil {
		return err
	}
	if kind := f.String("role_type"); kind != "jwt" && (kind != "" || r.User == "") { // without a word Vault takes "oidc"
		return errkind.New(errkind.Invalid, "field \"role_type\": must be \"jwt\": logins by browser (\"oidc\", which is meant where nothing is said) are not supported")
	}
	for field, into := range map[string]*string{"user_claim": &r.User, "bound_subject": &r.Subject, "groups_claim": &r.Groups} {
		if f.Has(field) {
			*into = f.String(field)
		}
	}
	for field, into := range map[string]*time.Duration{"clock_skew_leeway": &r.Skew, "expiration_leeway": &r.Expiry, "not_before_leeway": &r.NotBefore} {
		*into = f.Duration(field, *into)
	}
	r.UserPointer = f.Bool("user_claim_json_pointer", r.UserPointer)
	if f.Has("bound_audiences") {
		r.Audiences = f.Strings("bound_audiences")
	}
	if f.Has("claim_mappings") {
		r.Mappings = auth.Pairs(f, "claim_mappings")
	}
	if f.Has("bound_claims") {
		var err error
		if r.Claims, err = boundClaims(f.Any("bound_claims")); err != nil {
			return err
		}
	}
	if kind := f.String("bound_claims_type"); kind != "" {
		if kind != "string" && kind != "glob" {
			return errkind.Errorf(errkind.Invalid, "field \"bound_claims_type\": %q is neither string nor glob", kind)
		}
		r.Glob = kind == "glob"
	}
	if err := f.Err(); err != nil {
		return err
	}
	return r.check()
}

func (r *role) check() error {
	if r.User == "" {
		return errkind.New(errkind.Invalid, "a user claim must be defined on the role: field \"user_claim\"")
	}
	if len(r.Audiences) == 0 && len(r.Tokens.CIDRs) == 0 && r.Subject == "" && len(r.Claims) == 0 {
		return errkind.New(errkind.Invalid, "must have at least one bound constraint when creating/updating a role: bound_audiences, bound_subject, bound_claims or token_bound_cidrs")
	}
	seen := []string{"role"}
	for claim, key := range r.Mappings {
		if claim == "" || key == "" || slices.Contains(seen, key) {
			return errkind.Errorf(errkind.Invalid, "field \"claim_mappings\": %q -> %q: both must be set, and the key be no other's and not \"role\"", claim, key)
		}
		seen = append(seen, key)
	}
	return nil
}

// boundClaims reads claims with their values: one, or a list of them.
func boundClaims(v any) (map[string][]string, error) {
	object, ok := v.(map[string]any)
	if text, is := v.(string); is {
		ok = json.Unmarshal([]byte(text), &object) == nil || text == ""
	}
	if !ok && v != nil {
		return nil, errkind.New(errkind.Invalid, "field \"bound_claims\": must be an object of claims with their values")
	}
	out := map[string][]string{}
	for claim, values := range object {
		list, many := values.([]any)
		if !many {
			list = []any{values}
		}
		for _, value := range list {
			if n, ok := value.(float64); ok { // of an object that came as a text
				value = json.Number(fmt.Sprint(n))
			}
			text, ok := jwks.Plain(value)
			if !ok {
				return nil, errkind.Errorf(errkind.Invalid, "field \"bound_claims\": claim %q: a value must be a text, a number, true or false", claim)
			}
			out[claim] = append(out[claim], text)
		}
		if len(out[claim]) == 0 {
			return nil, errkind.Errorf(errkind.Invalid, "field \"bound_claims\": claim %q has no values", claim)
		}
	}
	return out, nil
}

// Show implements auth.Record.
func (r *role) Show() map[string]any {
	kind, claims := "string", map[string]any{}
	if r.Glob {
		kind = "glob"
	}
	for claim, values := range r.Claims {
		if claims[claim] = values; len(values) == 1 {
			claims[claim] = values[0]
		}
	}
	out := map[string]any{"role_type": "jwt", "user_claim": r.User, "user_claim_json_pointer": r.UserPointer, "bound_audiences": auth.List(r.Audiences),
		"bound_subject": r.Subject, "bound_claims": claims, "bound_claims_type": kind, "groups_claim": r.Groups, "claim_mappings": r.Mappings,
		"clock_skew_leeway": auth.Seconds(r.Skew), "expiration_leeway": auth.Seconds(r.Expiry), "not_before_leeway": auth.Seconds(r.NotBefore),
		"oidc_scopes": nil, "allowed_redirect_uris": nil, "verbose_oidc_logging": false, "max_age": 0}
	r.Tokens.Show(out)
	return out
}
