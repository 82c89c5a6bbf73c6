package login

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/grants"
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

	keys []any
	algs []jose.SignatureAlgorithm
}

// asymmetric are the algorithms that may be asked for: never none, never a shared secret.
var asymmetric = []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.ES256, jose.ES384, jose.ES512,
	jose.PS256, jose.PS384, jose.PS512, jose.EdDSA}

func jwtConfigOf(m *acl.AuthMethod) (*jwtConfig, error) {
	c := &jwtConfig{}
	if err := decodeConfig(m, c); err != nil {
		return nil, err
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
		if err := checkURL(field, text); err != nil {
			return nil, err
		}
	}
	if sources != 1 {
		return nil, errors.New("Config: exactly one of 'JWTValidationPubKeys', 'JWKSURL', or 'OIDCDiscoveryURL' must be set")
	}
	if err := errors.Join(checkCA("JWKSCACert", c.JWKSCACert), checkCA("OIDCDiscoveryCACert", c.OIDCDiscoveryCACert)); err != nil {
		return nil, err
	}
	for i, text := range c.JWTValidationPubKeys {
		key, err := publicKey(text)
		if err != nil {
			return nil, fmt.Errorf("JWTValidationPubKeys[%d]: %w", i, err)
		}
		c.keys = append(c.keys, key)
	}
	for _, name := range c.JWTSupportedAlgs {
		alg := jose.SignatureAlgorithm(name)
		if !slices.Contains(asymmetric, alg) {
			return nil, fmt.Errorf("JWTSupportedAlgs: %q is not among %v", name, asymmetric)
		}
		c.algs = append(c.algs, alg)
	}
	if len(c.algs) == 0 {
		c.algs = []jose.SignatureAlgorithm{jose.RS256, jose.ES256}
	}
	return c, c.checkMappings()
}

func (c *jwtConfig) checkMappings() error {
	seen := map[string]bool{}
	for _, m := range []map[string]string{c.ClaimMappings, c.ListClaimMappings} {
		for claim, name := range m {
			if claim == "" || !plainName(name) {
				return fmt.Errorf("ClaimMappings: %q -> %q: both must be set, and the name be made of letters, digits and _", claim, name)
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

func publicKey(text string) (any, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("no PEM block")
	}
	if block.Type == "CERTIFICATE" {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		return cert.PublicKey, nil
	}
	if block.Type == "RSA PUBLIC KEY" {
		return x509.ParsePKCS1PublicKey(block.Bytes)
	}
	return x509.ParsePKIXPublicKey(block.Bytes)
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
	token, err := jwt.ParseSigned(credential, c.algs)
	if err != nil {
		return grants.Claims{}, denied("the bearer token is no JWT signed with one of %v", c.algs)
	}
	var standard jwt.Claims
	all := map[string]any{}
	if err := v.verified(ctx, c, token, &standard, &all); err != nil {
		return grants.Claims{}, err
	}
	if err := c.validate(&standard, v.clock.Now()); err != nil {
		return grants.Claims{}, err
	}
	return c.claims(all)
}

// verified decodes the token's claims when one of the method's keys has signed it.
func (v *Verifier) verified(ctx context.Context, c *jwtConfig, token *jwt.JSONWebToken, into ...any) error {
	if len(c.keys) > 0 {
		return signedBy(c.keys, token, into...)
	}
	kid := ""
	if len(token.Headers) > 0 {
		kid = token.Headers[0].KeyID
	}
	keys, issuer, err := v.keys.get(ctx, c, kid)
	if err != nil {
		return err
	}
	if c.OIDCDiscoveryURL != "" && c.BoundIssuer == "" {
		c.BoundIssuer = issuer
	}
	return signedBy(keys, token, into...)
}

func signedBy(keys []any, token *jwt.JSONWebToken, into ...any) error {
	for _, key := range keys {
		if token.Claims(key, into...) == nil {
			return nil
		}
	}
	return denied("the bearer token is signed by none of the keys of the auth method")
}

// defaultLeeway is granted to clocks that differ, when the method says nothing (0); less than 0 is none.
const (
	defaultSkew   = 60 * time.Second
	defaultLeeway = 150 * time.Second
)

func leeway(d acl.Duration, def time.Duration) time.Duration {
	switch {
	case d < 0:
		return 0
	case d == 0:
		return def
	}
	return time.Duration(d)
}

func (c *jwtConfig) validate(s *jwt.Claims, now time.Time) error {
	skew := leeway(c.ClockSkewLeeway, defaultSkew)
	if s.Expiry == nil && s.NotBefore == nil && s.IssuedAt == nil {
		return denied("the bearer token says nothing about its time: one of exp, nbf and iat is needed")
	}
	if s.Expiry != nil && now.After(s.Expiry.Time().Add(skew)) {
		return denied("the bearer token has expired")
	}
	from := s.NotBefore
	if from == nil {
		from = s.IssuedAt
	}
	if s.Expiry == nil && now.After(from.Time().Add(leeway(c.ExpirationLeeway, defaultLeeway)+skew)) {
		return denied("the bearer token has no end and is too old")
	}
	before := skew
	if s.NotBefore == nil {
		before += leeway(c.NotBeforeLeeway, defaultLeeway)
	}
	if from != nil && now.Before(from.Time().Add(-before)) {
		return denied("the bearer token is not valid yet")
	}
	if c.BoundIssuer != "" && s.Issuer != c.BoundIssuer {
		return denied("the bearer token is from another issuer")
	}
	if len(c.BoundAudiences) > 0 && !slices.ContainsFunc(c.BoundAudiences, func(a string) bool { return s.Audience.Contains(a) }) {
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
		found, ok := lookUp(all, claim)
		if !ok {
			continue
		}
		text, ok := plain(found)
		if !ok {
			return out, denied("the claim %q is no text, number or boolean", claim)
		}
		value[name], out.Vars["value."+name] = text, text
	}
	for claim, name := range c.ListClaimMappings {
		found, ok := lookUp(all, claim)
		if !ok {
			continue
		}
		items, isList := found.([]any)
		if !isList {
			items = []any{found}
		}
		texts := make([]string, 0, len(items))
		for _, item := range items {
			text, ok := plain(item)
			if !ok {
				return out, denied("the claim %q is no list of texts", claim)
			}
			texts = append(texts, text)
		}
		list[name] = texts
	}
	return out, nil
}

// lookUp finds a claim by its name, or by a JSON pointer that begins with a slash.
func lookUp(all map[string]any, claim string) (any, bool) {
	if !strings.HasPrefix(claim, "/") {
		v, ok := all[claim]
		return v, ok
	}
	var at any = all
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for part := range strings.SplitSeq(claim[1:], "/") {
		object, ok := at.(map[string]any)
		if !ok {
			return nil, false
		}
		if at, ok = object[unescape.Replace(part)]; !ok {
			return nil, false
		}
	}
	return at, true
}

func plain(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	case json.Number:
		return v.String(), true
	}
	return "", false
}
