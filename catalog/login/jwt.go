package login

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/kit/jwks"
)

// jwtConfig is the Config of an auth method of type jwt, in the contract's names.
type jwtConfig struct {
	JWTValidationPubKeys []string
	JWKSURL              string
	JWKSCACert           string
	OIDCDiscoveryURL     string
	OIDCDiscoveryCACert  string
	BoundIssuer          string
	BoundAudiences       []string
	JWTSupportedAlgs     []string
	ClaimMappings        map[string]string
	ListClaimMappings    map[string]string
	ExpirationLeeway     acl.Duration
	NotBeforeLeeway      acl.Duration
	ClockSkewLeeway      acl.Duration
	browserConfig

	keys []any
	algs []jwks.Algorithm
}

func jwtConfigOf(m *acl.AuthMethod) (*jwtConfig, error) {
	c := &jwtConfig{}
	if err := decodeConfig(m, c); err != nil {
		return nil, err
	}
	if field := c.used(); field != "" && m.Type == "jwt" {
		return nil, fmt.Errorf("Config: %s is for methods of type \"oidc\" alone", field)
	}
	sources := 0
	if len(c.JWTValidationPubKeys) > 0 {
		sources++
	}
	for field, text := range map[string]string{"JWKSURL": c.JWKSURL, "OIDCDiscoveryURL": c.OIDCDiscoveryURL} {
		if text == "" {
			continue
		}
		sources++
		if err := jwks.CheckURL(field, text); err != nil {
			return nil, err
		}
	}
	if sources != 1 {
		return nil, errors.New("Config: exactly one of 'JWTValidationPubKeys', 'JWKSURL', or 'OIDCDiscoveryURL' must be set")
	}
	if err := errors.Join(jwks.CheckCA("JWKSCACert", c.JWKSCACert),
		jwks.CheckCA("OIDCDiscoveryCACert", c.OIDCDiscoveryCACert)); err != nil {
		return nil, err
	}
	for i, text := range c.JWTValidationPubKeys {
		key, err := jwks.PublicKey(text)
		if err != nil {
			return nil, fmt.Errorf("JWTValidationPubKeys[%d]: %w", i, err)
		}
		c.keys = append(c.keys, key)
	}
	var err error
	if c.algs, err = jwks.Algorithms(c.JWTSupportedAlgs, "RS256", "ES256"); err != nil {
		return nil, fmt.Errorf("JWTSupportedAlgs: %w", err)
	}
	return c, c.checkMappings()
}

func (c *jwtConfig) checkMappings() error {
	seen := map[string]bool{}
	for _, m := range []map[string]string{c.ClaimMappings, c.ListClaimMappings} {
		for claim, name := range m {
			if claim == "" || !plainName(name) {
				return fmt.Errorf("ClaimMappings: %q -> %q: both must be set, and the name be made of letters, digits and _",
					claim, name)
			}
			if seen[name] {
				return fmt.Errorf("ClaimMappings: the name %q is used twice", name)
			}
			seen[name] = true
		}
	}
	return nil
}

func plainName(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) < 0
}

func (c *jwtConfig) fields() grants.Claims {
	value, list := map[string]any{}, map[string]any{}
	vars := map[string]string{}
	for _, name := range c.ClaimMappings {
		value[name], vars["value."+name] = "x", "x"
	}
	for _, name := range c.ListClaimMappings {
		list[name] = []string{}
	}
	return grants.Claims{Vars: vars, Selectable: map[string]any{"value": value, "list": list}}
}

func (v *Verifier) jwt(ctx context.Context, m *acl.AuthMethod, credential string) (grants.Claims, error) {
	c, err := jwtConfigOf(m)
	if err != nil {
		return grants.Claims{}, err
	}
	token, err := jwks.Parse(credential, c.algs)
	if err != nil {
		return grants.Claims{}, err
	}
	said, err := v.verified(ctx, c, token)
	if err != nil {
		return grants.Claims{}, err
	}
	if err := c.validate(&said.Standard, v.clock.Now()); err != nil {
		return grants.Claims{}, err
	}
	return c.claims(said.All)
}

// verified gives the token's claims when one of the method's keys has signed it.
func (v *Verifier) verified(ctx context.Context, c *jwtConfig, token *jwks.Token) (*jwks.Claims, error) {
	if len(c.keys) > 0 {
		return token.SignedBy(c.keys)
	}
	said, issuer, err := v.keys.Verify(ctx, c.source(), token)
	if err == nil && c.OIDCDiscoveryURL != "" && c.BoundIssuer == "" {
		c.BoundIssuer = issuer
	}
	return said, err
}

func (c *jwtConfig) validate(s *jwks.Standard, now time.Time) error {
	l := jwks.Leeway{Skew: time.Duration(c.ClockSkewLeeway), Expiry: time.Duration(c.ExpirationLeeway),
		NotBefore: time.Duration(c.NotBeforeLeeway)}
	if err := l.Check(s, now); err != nil {
		return err
	}
	if c.BoundIssuer != "" && s.Issuer != c.BoundIssuer {
		return denied("the bearer token is from another issuer")
	}
	if len(c.BoundAudiences) > 0 && !slices.ContainsFunc(c.BoundAudiences,
		func(a string) bool { return slices.Contains(s.Audience, a) }) {
		return denied("the bearer token is for another audience")
	}
	return nil
}

// claims maps what the token says to the names of the method.
func (c *jwtConfig) claims(all map[string]any) (grants.Claims, error) {
	out := c.fields()
	value, list := out.Selectable["value"].(map[string]any), out.Selectable["list"].(map[string]any)
	clear(out.Vars)
	for _, name := range c.ClaimMappings {
		value[name] = ""
	}
	for _, claim := range slices.Sorted(maps.Keys(c.ClaimMappings)) {
		name := c.ClaimMappings[claim]
		found, ok := jwks.LookUp(all, claim)
		if !ok {
			continue
		}
		text, ok := jwks.Plain(found)
		if !ok {
			return out, denied("the claim %q is no text, number or boolean", claim)
		}
		value[name], out.Vars["value."+name] = text, text
	}
	for claim, name := range c.ListClaimMappings {
		found, ok := jwks.LookUp(all, claim)
		if !ok {
			continue
		}
		items, isList := found.([]any)
		if !isList {
			items = []any{found}
		}
		texts := make([]string, 0, len(items))
		for _, item := range items {
			text, ok := jwks.Plain(item)
			if !ok {
				return out, denied("the claim %q is no list of texts", claim)
			}
			texts = append(texts, text)
		}
		list[name] = texts
	}
	return out, nil
}
