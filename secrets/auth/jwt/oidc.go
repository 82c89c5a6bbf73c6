package jwt

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/engine"
)

// The browser's flow (role_type "oidc"): the client asks for an address (oidc/auth_url) and opens it; the provider
// sends the browser back to the client, with a code; the client brings that (oidc/callback), and the code is
// exchanged here for the provider's ID token, with the secret that only the two know. Code, state, nonce and PKCE
// verifier are good once.

// allows reports whether the browser may be sent back to an address: one of the role's, as it is written. The port of
// an address of the client's own machine is free, since clients take the one that they find (RFC 8252, 7.3).
func (r *role) allows(redirect string) bool {
	if slices.Contains(r.Redirects, redirect) {
		return true
	}
	bare, ok := loopback(redirect)
	return ok && slices.ContainsFunc(r.Redirects, func(text string) bool {
		allowed, ok := loopback(text)
		return ok && allowed == bare
	})
}

// loopback is an address of the client's own machine without its port; ok is false for all others.
func loopback(text string) (bare string, ok bool) {
	u, err := url.Parse(text)
	if err != nil || u.User != nil || u.Fragment != "" {
		return "", false
	}
	host := u.Hostname()
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return "", false
	}
	u.Host = host
	return u.String(), true
}

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
	if !role.allows(redirect) { // answered as Vault does: clients look for the empty address
		resp, err := auth.Data(map[string]string{"auth_url": ""})
		resp.Warnings = []string{"redirect_uri is not among allowed_redirect_uris of the role"}
		return resp, err
	}
	ends, _, err := e.Keys.Endpoints(ctx, c.source())
	if err != nil {
		return nil, err
	}
	if ends.Authorization == "" || ends.Token == "" {
		return nil, errkind.New(errkind.Unavailable, "the provider names no authorization_endpoint or no token_endpoint")
	}
	at, err := url.Parse(ends.Authorization)
	if err != nil {
		return nil, errkind.E(errkind.Unavailable, "authorization_endpoint", err)
	}
	p := &pending{role: name, redirect: redirect, client: nonce, nonce: rand.Text(), verifier: rand.Text() + rand.Text(),
		at: r.Now, from: r.Remote}
	challenge := sha256.Sum256([]byte(p.verifier))
	q := at.Query()
	for name, value := range map[string]string{"response_type": "code", "client_id": c.ClientID, "redirect_uri": redirect,
		"nonce": p.nonce, "state": e.begun.add(p),
		"scope":          strings.Join(append([]string{"openid"}, role.Scopes...), " "),
		"code_challenge": base64.RawURLEncoding.EncodeToString(challenge[:]), "code_challenge_method": "S256"} {
		q.Set(name, value)
	}
	if role.MaxAge > 0 {
		q.Set("max_age", strconv.FormatInt(int64(role.MaxAge/time.Second), 10))
	}
	if c.ResponseMode != "" {
		q.Set("response_mode", c.ResponseMode)
	}
	at.RawQuery = q.Encode()
	return auth.Data(map[string]string{"auth_url": at.String()})
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
	p := e.begun.take(state, r.Now)
	switch {
	case p == nil:
		return nil, failed("Expired or missing OAuth state.")
	case subtle.ConstantTimeCompare([]byte(p.client), []byte(nonce)) != 1:
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
	_, role, err := roleFor(ctx, view, c, p.role, typeOIDC)
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
	got, err := c.exchange(ctx, ends, p, code)
	if err != nil {
		return nil, failed("Error exchanging oidc code: %v", err)
	}
	said, _, err := e.verified(ctx, c, got.ID)
	if err == nil {
		if c.Issuer != "" {
			issuer = c.Issuer
		}
		err = role.vouched(c, said, issuer, p, r.Now)
	}
	var warn []string
	if err == nil {
		warn, err = c.more(ctx, ends, got.Access, said)
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
	resp, err := role.token(p.role, r.Mount, said.All)
	if err == nil {
		resp.Warnings = warn
	}
	return resp, err
}

// tokens are what a code is exchanged for.
type tokens struct {
	ID     string `json:"id_token"`
	Access string `json:"access_token"`
}

func (c *config) exchange(ctx context.Context, ends jwks.Endpoints, p *pending, code string) (*tokens, error) {
	form := url.Values{"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {p.redirect},
		"code_verifier": {p.verifier}}
	post := slices.Contains(ends.TokenAuth, "client_secret_post") &&
		!slices.Contains(ends.TokenAuth, "client_secret_basic")
	if post {
		form.Set("client_id", c.ClientID)
		form.Set("client_secret", c.ClientSecret)
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, ends.Token, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	q.Header.Set("Accept", "application/json")
	if !post {
		q.SetBasicAuth(url.QueryEscape(c.ClientID), url.QueryEscape(c.ClientSecret))
	}
	got := &tokens{}
	if err := jwks.Ask(ctx, c.DiscoveryCA, q, got); err != nil {
		return nil, err
	}
	if got.ID == "" {
		return nil, errkind.New(errkind.Invalid, "no id_token found in response")
	}
	return got, nil
}

// vouched checks that an ID token is of this provider, for us, of this very login, and within its time.
func (r *role) vouched(c *config, said *jwks.Claims, issuer string, p *pending, now time.Time) error {
	if err := (jwks.Leeway{Skew: r.Skew}).Check(&said.Standard, now); err != nil {
		return err
	}
	nonce, _ := said.All["nonce"].(string)
	by, _ := said.All["azp"].(string)
	deny := func(text string) error { return errkind.New(errkind.Denied, text) }
	switch {
	case said.Issuer != issuer:
		return deny("invalid issuer (iss) claim")
	case !slices.Contains(said.Audience, c.ClientID), by != "" && by != c.ClientID, by == "" && len(said.Audience) > 1:
		return deny("invalid audience (aud) or authorized party (azp) claim: the token is another client's")
	case len(r.Audiences) > 0 && !slices.ContainsFunc(r.Audiences,
		func(a string) bool { return slices.Contains(said.Audience, a) }):
		return deny("invalid audience (aud) claim")
	case subtle.ConstantTimeCompare([]byte(nonce), []byte(p.nonce)) != 1:
		return deny("invalid nonce: the token is of another login")
	case r.Subject != "" && said.Subject != r.Subject:
		return deny("invalid subject (sub) claim")
	case !said.HasExpiry:
		return deny("the token has no end (exp)")
	}
	if r.MaxAge > 0 {
		number, _ := said.All["auth_time"].(json.Number)
		at, err := number.Int64()
		if err != nil || now.Sub(time.Unix(at, 0)) > r.MaxAge+time.Minute {
			return deny("the user's authentication at the provider is older than max_age, or has no time (auth_time)")
		}
	}
	return nil
}

// protected are the claims that the ID token alone says.
var protected = []string{"iss", "sub", "aud", "azp", "exp", "iat", "nbf", "nonce", "auth_time"}

// more adds what the provider says of the user beside the ID token. Where it does not answer, what it would have said
// is missing.
func (c *config) more(ctx context.Context, ends jwks.Endpoints, access string, said *jwks.Claims) (warn []string,
	err error) {
	if ends.UserInfo == "" || access == "" {
		return nil, nil
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, ends.UserInfo, nil)
	if err != nil {
		return nil, err
	}
	q.Header.Set("Authorization", "Bearer "+access)
	var info map[string]json.RawMessage
	if err := jwks.Ask(ctx, c.DiscoveryCA, q, &info); err != nil {
		return []string{"the provider's userinfo could not be had: " + errkind.Text(err)}, nil
	}
	var subject string
	if json.Unmarshal(info["sub"], &subject) != nil || subject != said.Subject {
		return nil, errkind.New(errkind.Denied, "the provider's userinfo is of somebody else")
	}
	for name, raw := range info {
		if slices.Contains(protected, name) {
			continue
		}
		dec := json.NewDecoder(strings.NewReader(string(raw)))
		dec.UseNumber()
		var v any
		if dec.Decode(&v) == nil {
			said.All[name] = v
		}
	}
	return nil, nil
}
