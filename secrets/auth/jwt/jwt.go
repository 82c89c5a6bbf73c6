// Package jwt logs in whoever brings a JSON Web Token that a trusted issuer signed (contract 3.5).
//
// Keys are given, or asked for at a JWKS address or by OIDC discovery. A login reads two records and writes none of
// its own: its alias is the token's user claim, its external groups are those of the groups claim. A role is for
// tokens that callers bring, or for people who log in at an OIDC provider with their browser (role_type "oidc").
package jwt

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
	"corbel.dev/corbel/kit/oidc"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/engine"
)

// Engine is one mount of the method.
type Engine struct {
	Keys *jwks.Keys

	begun oidc.Pendings
}

var _ engine.Renewer = (*Engine)(nil)

const (
	roles     = "role/"
	configKey = "config"
	urlPath   = "oidc/auth_url"
	backPath  = "oidc/callback"
)

// Special implements engine.Engine.
func (*Engine) Special() engine.Special {
	return engine.Special{Open: []string{"login", urlPath, backPath}}
}

// Serial implements engine.Engine: changes of one record follow each other.
func (*Engine) Serial(r *secrets.Request) string {
	if r.Op.Writes() && r.Rest != "login" && r.Rest != urlPath {
		return r.Rest
	}
	return ""
}

// Exists implements engine.Engine.
func (*Engine) Exists(ctx context.Context, view engine.View, r *secrets.Request) (exists, ok bool, err error) {
	return auth.Exists[role](ctx, view, roles, r.Rest)
}

// Renewable implements engine.Renewer: a role that is gone renews nothing.
func (*Engine) Renewable(ctx context.Context, view engine.View, _ *secrets.Request, l engine.Login) (engine.Terms,
	error) {
	r, err := auth.StillThere[role](ctx, view, roles, string(l.Data))
	if err != nil {
		return engine.Terms{}, err
	}
	return r.Tokens.Terms(), nil
}

// Handle implements engine.Engine.
func (e *Engine) Handle(ctx context.Context, view engine.View, r *secrets.Request) (*secrets.Response, error) {
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	write := r.Op == secrets.Create || r.Op == secrets.Update
	path := strings.TrimSuffix(r.Rest, "/")
	if path == "role" || strings.HasPrefix(path, roles) {
		return auth.Crud(ctx, view, r, roles, strings.TrimPrefix(strings.TrimPrefix(path, "role"), "/"), &role{})
	}
	switch {
	case path == "login" && write:
		return e.login(ctx, view, r, f)
	case path == urlPath && write:
		return e.authURL(ctx, view, r, f)
	case path == backPath && r.Op == secrets.Read:
		return e.callback(ctx, view, r, f)
	case path == configKey && write:
		return e.configure(ctx, view, f)
	case path == configKey && r.Op == secrets.Read:
		c, err := auth.Find[config](ctx, view, "", configKey)
		if err != nil {
			return nil, err
		}
		if c == nil {
			return nil, auth.ErrNotFound
		}
		return auth.Data(c.show())
	case path == "login" || path == configKey || path == urlPath || path == backPath:
		return nil, auth.ErrUnsupported
	}
	return nil, auth.ErrPath
}

func (e *Engine) login(ctx context.Context, view engine.View, r *secrets.Request, f *secrets.Fields) (*secrets.Response,
	error) {
	name, text := f.String("role"), f.String("jwt")
	if err := f.Err(); err != nil {
		return nil, err
	}
	c, err := configured(ctx, view)
	if err != nil {
		return nil, err
	}
	name, role, err := roleFor(ctx, view, c, name, typeJWT)
	if err != nil {
		return nil, err
	}
	if text == "" {
		return nil, errkind.New(errkind.Invalid, "missing token")
	}
	if !auth.Within(role.Tokens.CIDRs, r.Remote) {
		return nil, auth.ErrDenied
	}
	said, issuer, err := e.verified(ctx, c, text)
	if err == nil {
		err = role.accepts(&said.Standard, issuer, r.Now)
	}
	if err == nil {
		err = role.bounds(said.All)
	}
	if errkind.Is(err, errkind.Denied) { // what is wrong with a token is the caller's to mend: 400, as Vault has it
		return nil, errkind.Errorf(errkind.Invalid, "error validating token: %s", errkind.Text(err))
	}
	if err != nil {
		return nil, err
	}
	return role.token(name, r.Mount, said.All)
}

// verified checks the signature, and gives the issuer that the token must be of.
func (e *Engine) verified(ctx context.Context, c *config, text string) (*jwks.Claims, string, error) {
	algs, err := jwks.Algorithms(c.Algs, jwks.Asymmetric...)
	if err != nil {
		return nil, "", errkind.E(errkind.Corrupt, "config", err)
	}
	tok, err := jwks.Parse(text, algs)
	if err != nil {
		return nil, "", err
	}
	if len(c.PubKeys) > 0 {
		var keys []any
		for _, pem := range c.PubKeys {
			key, err := jwks.PublicKey(pem)
			if err != nil {
				return nil, "", errkind.E(errkind.Corrupt, "config", err)
			}
			keys = append(keys, key)
		}
		said, err := tok.SignedBy(keys)
		return said, c.Issuer, err
	}
	said, issuer, err := e.Keys.Verify(ctx, c.source(), tok)
	for i := 1; i < len(c.Pairs) && err != nil; i++ { // another of several addresses may have the key
		var next error
		if said, issuer, next = e.Keys.Verify(ctx, jwks.Source{URL: c.Pairs[i].URL, CA: c.Pairs[i].CA}, tok); next == nil ||
			!errkind.Is(err, errkind.Unavailable) {
			err = next
		}
	}
	if c.Issuer != "" {
		issuer = c.Issuer
	}
	return said, issuer, err
}

// accepts checks time, issuer, subject and audience.
func (r *role) accepts(s *jwks.Standard, issuer string, now time.Time) error {
	if err := (jwks.Leeway{Skew: r.Skew, Expiry: r.Expiry, NotBefore: r.NotBefore}).Check(s, now); err != nil {
		return err
	}
	switch {
	case issuer != "" && s.Issuer != issuer:
		return errkind.New(errkind.Denied, "invalid issuer (iss) claim")
	case r.Subject != "" && s.Subject != r.Subject:
		return errkind.New(errkind.Denied, "invalid subject (sub) claim")
	case len(r.Audiences) == 0 && len(s.Audience) > 0:
		return errkind.New(errkind.Denied, "audience claim found in JWT but no audiences bound to the role")
	case len(r.Audiences) > 0 && !slices.ContainsFunc(r.Audiences,
		func(a string) bool { return slices.Contains(s.Audience, a) }):
		return errkind.New(errkind.Denied, "invalid audience (aud) claim")
	}
	return nil
}

// bounds checks the claims that the role asks for.
func (r *role) bounds(all map[string]any) error {
	for _, claim := range slices.Sorted(maps.Keys(r.Claims)) {
		found, ok := jwks.LookUp(all, claim)
		if !ok {
			return errkind.Errorf(errkind.Denied, "claim %q is missing", claim)
		}
		if !slices.ContainsFunc(texts(found), func(got string) bool {
			return slices.ContainsFunc(r.Claims[claim], func(want string) bool {
				return got == want || (r.Glob && auth.Glob(want, got))
			})
		}) {
			return errkind.Errorf(errkind.Denied, "claim %q does not match any associated bound claim values", claim)
		}
	}
	return nil
}

// texts are the values of a claim: one, or a list of them.
func texts(v any) (out []string) {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for _, item := range list {
		if text, ok := jwks.Plain(item); ok {
			out = append(out, text)
		}
	}
	return out
}

// token is the login of a token that was found good.
func (r *role) token(name, mount string, all map[string]any) (*secrets.Response, error) {
	found := all[r.User]
	if r.UserPointer {
		found, _ = jwks.LookUp(all, r.User)
	}
	user, ok := found.(string)
	if !ok || user == "" {
		return nil, errkind.Errorf(errkind.Invalid, "claim %q not found in token, or no text", r.User)
	}
	a := r.Tokens.Auth()
	a.Alias, a.DisplayName = user, auth.DisplayName(mount, user)
	a.Metadata = map[string]string{"role": name}
	for claim, key := range r.Mappings {
		found, ok := jwks.LookUp(all, claim)
		if !ok {
			continue
		}
		text, ok := jwks.Plain(found)
		if !ok {
			raw, err := json.Marshal(found)
			if err != nil {
				return nil, err
			}
			text = string(raw)
		}
		a.Metadata[key] = text
	}
	a.AliasMeta, a.Login = a.Metadata, []byte(name)
	if r.Groups != "" {
		found, ok := jwks.LookUp(all, r.Groups)
		if !ok {
			return nil, errkind.Errorf(errkind.Invalid, "%q claim not found in token", r.Groups)
		}
		a.Groups = append([]string{}, texts(found)...)
	}
	return &secrets.Response{Auth: a}, nil
}
