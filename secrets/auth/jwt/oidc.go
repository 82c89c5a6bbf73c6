package jwt

import (
	"context"
	"crypto/subtle"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/oidc"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/engine"
)

// The browser's flow (role_type "oidc"): the client asks for an address (oidc/auth_url) and opens it; the provider
// sends the browser back to the client, with a code; the client brings that (oidc/callback), and the code is
// exchanged here for the provider's ID token, with the secret that only the two know. Code, state, nonce and PKCE
// verifier are good once.

// roleFor finds the role of a request, of one type.
func roleFor(ctx context.Context, view engine.View, c *config, name, kind string) (string, *role, error) {
	if name == "" {
		name = c.DefaultRole
	}
	if name == "" {
		return "", nil, errkind.New(errkind.Invalid, "missing role")
	}
	found, err := auth.Find[role](ctx, view, roles, name)
	switch {
	case err != nil:
		return "", nil, err
	case found == nil:
		return "", nil, errkind.Errorf(errkind.Invalid, "role %q could not be found", name)
	case found.kind() != kind:
		return "", nil, errkind.Errorf(errkind.Invalid, "role with %s role_type is not allowed", found.kind())
	}
	return name, found, nil
}

// client is what the mount is at its provider.
func (c *config) client() *oidc.Client {
	return &oidc.Client{ID: c.ClientID, Secret: c.ClientSecret, CA: c.DiscoveryCA}
}

// authURL begins a login.
func (e *Engine) authURL(ctx context.Context, view engine.View, r *secrets.Request,
	f *secrets.Fields) (*secrets.Response, error) {
	c, err := configured(ctx, view)
	if err != nil {
		return nil, err
	}
	redirect, nonce, name := f.String("redirect_uri"), f.String("client_nonce"), f.String("role")
	if err := f.Err(); err != nil {
		return nil, err
	}
	switch {
	case c.ClientID == "":
		return nil, errkind.New(errkind.Invalid,
			"OIDC login is not configured for this mount: oidc_client_id is missing in its config")
	case redirect == "":
		return nil, errkind.New(errkind.Invalid, "missing redirect_uri")
	case len(redirect) > 2048 || len(nonce) > 256:
		return nil, errkind.New(errkind.Invalid, "redirect_uri has more than 2048 bytes, or client_nonce more than 256")
	}
	name, role, err := roleFor(ctx, view, c, name, typeOIDC)
	if err != nil {
		return nil, err
	}
	if !auth.Within(role.Tokens.CIDRs, r.Remote) {
		return nil, auth.ErrDenied
	}
	if !oidc.Allows(role.Redirects, redirect) { // answered as Vault does: clients look for the empty address
		resp, err := auth.Data(map[string]string{"auth_url": ""})
		resp.Warnings = []string{"redirect_uri is not among allowed_redirect_uris of the role"}
		return resp, err
	}
	ends, _, err := e.Keys.Endpoints(ctx, c.source())
	if err != nil {
		return nil, err
	}
	p := &oidc.Pending{For: name, Redirect: redirect, Client: nonce, At: r.Now, From: r.Remote}
	at, err := e.begun.Begin(c.client(), ends, p, oidc.Wish{Scopes: role.Scopes, MaxAge: role.MaxAge,
		ResponseMode: c.ResponseMode})
	if err != nil {
		return nil, err
	}
	return auth.Data(map[string]string{"auth_url": at})
}

func failed(format string, args ...any) error {
	return errkind.Errorf(errkind.Invalid, "Vault login failed. "+format, args...)
}

// callback ends a login: what the browser brought is exchanged for an ID token.
func (e *Engine) callback(ctx context.Context, view engine.View, r *secrets.Request,
	f *secrets.Fields) (*secrets.Response, error) {
	state, code, nonce, refused := f.String("state"), f.String("code"), f.String("client_nonce"), f.String("error")
	if err := f.Err(); err != nil {
		return nil, err
	}
	p := e.begun.Take(state, r.Now)
	switch {
	case p == nil:
		return nil, failed("Expired or missing OAuth state.")
	case subtle.ConstantTimeCompare([]byte(p.Client), []byte(nonce)) != 1:
		return nil, failed("Invalid client_nonce: it is not the one that this login was begun with.")
	case refused != "": // not repeated: whoever wrote the link chose it
		return nil, failed("The provider refused it: its page in the browser says why.")
	case code == "":
		return nil, failed("No code received.")
	}
	c, err := configured(ctx, view)
	if err != nil {
		return nil, err
	}
	_, role, err := roleFor(ctx, view, c, p.For, typeOIDC)
	if err != nil {
		return nil, err
	}
	if !auth.Within(role.Tokens.CIDRs, r.Remote) {
		return nil, auth.ErrDenied
	}
	ends, issuer, err := e.Keys.Endpoints(ctx, c.source())
	if err != nil {
		return nil, err
	}
	got, err := c.client().Exchange(ctx, ends, p, code)
	if err != nil {
		return nil, failed("Error exchanging oidc code: %v", err)
	}
	said, _, err := e.verified(ctx, c, got.ID)
	if err == nil {
		if c.Issuer != "" {
			issuer = c.Issuer
		}
		err = p.Vouched(said, oidc.Bounds{Client: c.ClientID, Issuer: issuer, Audiences: role.Audiences,
			Subject: role.Subject, MaxAge: role.MaxAge, Skew: role.Skew}, r.Now)
	}
	var warn []string
	if err == nil {
		warn, err = c.client().More(ctx, ends, got.Access, said)
	}
	if err == nil {
		err = role.bounds(said.All)
	}
	if errkind.Is(err, errkind.Denied) {
		return nil, failed("%s", errkind.Text(err))
	}
	if err != nil {
		return nil, err
	}
	resp, err := role.token(p.For, r.Mount, said.All)
	if err == nil {
		resp.Warnings = warn
	}
	return resp, err
}
