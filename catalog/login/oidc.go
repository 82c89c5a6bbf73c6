package login

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
	"corbel.dev/corbel/kit/oidc"
)

// browserConfig is what the Config of an auth method of type oidc has beside that of type jwt, in the contract's names.
type browserConfig struct {
	OIDCClientID        string
	OIDCClientSecret    string
	OIDCClientAssertion any
	OIDCClientUsePKCE   *bool // nil means true
	OIDCScopes          []string
	OIDCACRValues       []string
	AllowedRedirectURIs []string
	VerboseOIDCLogging  bool // kept and shown: claims are written to no log
}

// used names what of it is set; clients send all fields, also to methods of type jwt.
func (b *browserConfig) used() string {
	switch {
	case b.OIDCClientID != "" || b.OIDCClientSecret != "":
		return "OIDCClientID"
	case b.OIDCClientAssertion != nil:
		return "OIDCClientAssertion"
	case len(b.OIDCScopes) > 0:
		return "OIDCScopes"
	case len(b.OIDCACRValues) > 0:
		return "OIDCACRValues"
	case len(b.AllowedRedirectURIs) > 0:
		return "AllowedRedirectURIs"
	}
	return ""
}

func (c *jwtConfig) client() *oidc.Client {
	return &oidc.Client{ID: c.OIDCClientID, Secret: c.OIDCClientSecret, CA: c.OIDCDiscoveryCACert,
		NoPKCE: c.OIDCClientUsePKCE != nil && !*c.OIDCClientUsePKCE}
}

func oidcConfigOf(m *acl.AuthMethod) (*jwtConfig, error) {
	c, err := jwtConfigOf(m)
	if err != nil {
		return nil, err
	}
	b := &c.browserConfig
	switch {
	case c.OIDCDiscoveryURL == "":
		return nil, errors.New("Config: OIDCDiscoveryURL must be set for type \"oidc\"")
	case c.BoundIssuer != "":
		return nil, errors.New("Config: BoundIssuer must not be set for type \"oidc\": the issuer is the discovered one")
	case c.ExpirationLeeway != 0 || c.NotBeforeLeeway != 0 || c.ClockSkewLeeway != 0:
		return nil, errors.New("Config: ExpirationLeeway, NotBeforeLeeway and ClockSkewLeeway must not be set for type " +
			"\"oidc\"")
	case b.OIDCClientAssertion != nil:
		return nil, errors.New("Config: OIDCClientAssertion: clients that sign are not supported: use OIDCClientSecret")
	case b.OIDCClientID == "" || b.OIDCClientSecret == "":
		return nil, errors.New("Config: OIDCClientID and OIDCClientSecret must be set for type \"oidc\"")
	case len(b.AllowedRedirectURIs) == 0:
		return nil, errors.New("Config: AllowedRedirectURIs must have an address for type \"oidc\"")
	}
	for i, text := range b.AllowedRedirectURIs {
		if u, err := url.Parse(text); err != nil || u.Scheme == "" || u.Host == "" || u.Fragment != "" {
			return nil, fmt.Errorf("Config: AllowedRedirectURIs[%d]: %q is no address that a browser may come back to", i, text)
		}
	}
	for i, text := range append(append([]string{}, b.OIDCScopes...), b.OIDCACRValues...) {
		if text == "" || strings.ContainsAny(text, " \t\r\n") {
			return nil, fmt.Errorf("Config: OIDCScopes, OIDCACRValues: item %d, %q, must be one word", i, text)
		}
	}
	return c, nil
}

// bounds of what callers have kept with a login that waits
const (
	maxRedirect = 2048
	maxNonce    = 256
	maxMeta     = 1024
)

func (c *jwtConfig) source() jwks.Source {
	return jwks.Source{URL: c.JWKSURL, CA: c.JWKSCACert, Discovery: c.OIDCDiscoveryURL,
		DiscoveryCA: c.OIDCDiscoveryCACert}
}

// Begin implements grants.Verifier. Kind Invalid: the browser may not be sent back to there.
func (v *Verifier) Begin(ctx context.Context, m *acl.AuthMethod, visit *grants.Visit) (address string, err error) {
	if m.Type != "oidc" {
		return "", errkind.Errorf(errkind.Invalid, "auth method %q has the type %q: only \"oidc\" is for browsers",
			m.Name, m.Type)
	}
	c, err := oidcConfigOf(m)
	if err != nil {
		return "", err
	}
	size := 0
	for name, value := range visit.Meta {
		size += len(name) + len(value)
	}
	switch {
	case visit.Redirect == "":
		return "", errkind.New(errkind.Invalid, "missing RedirectURI")
	case len(visit.Redirect) > maxRedirect || len(visit.Nonce) > maxNonce || size > maxMeta:
		return "", errkind.Errorf(errkind.Invalid, "RedirectURI has more than %d bytes, ClientNonce more than %d, or Meta "+
			"more than %d", maxRedirect, maxNonce, maxMeta)
	case !oidc.Allows(c.AllowedRedirectURIs, visit.Redirect):
		return "", errkind.Errorf(errkind.Invalid, "unauthorized redirect_uri: AllowedRedirectURIs of the auth method do "+
			"not have %s: add it, here and at the provider", visit.Redirect)
	}
	ends, _, err := v.keys.Endpoints(ctx, c.source())
	if err != nil {
		return "", err
	}
	return v.begun.Begin(c.client(), ends, &oidc.Pending{For: m.Name, Redirect: visit.Redirect, Client: visit.Nonce,
		Meta: visit.Meta, At: v.clock.Now(), From: visit.From}, oidc.Wish{Scopes: c.OIDCScopes, ACR: c.OIDCACRValues})
}

// End implements grants.Verifier. Kind Denied: the login is not good, or nobody has begun it.
func (v *Verifier) End(ctx context.Context, m *acl.AuthMethod, back *grants.Back) (grants.Claims, map[string]string,
	error) {
	none := grants.Claims{}
	p := v.begun.Take(back.State, v.clock.Now())
	switch {
	case p == nil || p.For != m.Name || m.Type != "oidc":
		return none, nil, denied("the login's state is not known here, or has expired: begin it again")
	case subtle.ConstantTimeCompare([]byte(p.Client), []byte(back.Nonce)) != 1:
		return none, nil, denied("ClientNonce is not the one that this login was begun with")
	case back.Code == "":
		return none, nil, denied("the provider gave no code")
	}
	c, err := oidcConfigOf(m)
	if err != nil {
		return none, nil, err
	}
	ends, issuer, err := v.keys.Endpoints(ctx, c.source())
	if err != nil {
		return none, nil, err
	}
	got, err := c.client().Exchange(ctx, ends, p, back.Code)
	if err != nil {
		return none, nil, denied("the provider exchanged no code: %s", errkind.Text(err))
	}
	token, err := jwks.Parse(got.ID, c.algs)
	if err != nil {
		return none, nil, err
	}
	said, err := v.verified(ctx, c, token)
	if err == nil {
		bounds := oidc.Bounds{Client: c.OIDCClientID, Issuer: issuer, Audiences: c.BoundAudiences}
		err = p.Vouched(said, bounds, v.clock.Now())
	}
	if err == nil {
		_, err = c.client().More(ctx, ends, got.Access, said)
	}
	if err != nil {
		return none, nil, err
	}
	claims, err := c.claims(said.All)
	return claims, p.Meta, err
}
