package oidcprovider

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/identity"
	"corbel.dev/corbel/secrets/sealed"
	"corbel.dev/corbel/secrets/task"
)

// The bounds of codes that nobody has taken yet.
const (
	codeLives = 5 * time.Minute
	maxCodes  = 16384
	maxText   = 4096 // of state, nonce and the like
)

// accessName is what access tokens are sealed for.
const accessName = "oidc/access-token"

// Providers answers identity/oidc/provider and what providers are made of. All methods may be called from any
// goroutine.
type Providers struct {
	Records *sealed.Store
	Address string // where clients reach this server; "": nobody said

	mu    sync.Mutex
	codes map[string]*grant
}

// grant is what a code stands for.
type grant struct {
	provider, client, redirect, entity string
	nonce                              string
	challenge, method                  string // of PKCE; "": none
	scopes                             []string
	authTime                           time.Time // zero: not asked for
	until                              time.Time
}

// access is what an access token says.
type access struct {
	Provider string    `json:"p"`
	Entity   string    `json:"e"`
	Client   string    `json:"c"`
	Scopes   []string  `json:"s"`
	Until    time.Time `json:"u"`
}

// Is reports whether a path below identity/ is answered here.
func Is(rest string) bool {
	rest, ok := strings.CutPrefix(rest, "oidc/")
	kind, _, _ := strings.Cut(rest, "/")
	return ok && (kind == "provider" || kind == "client" || kind == "scope" || kind == "assignment")
}

// Forget drops the codes.
func (p *Providers) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.codes = nil
}

// Answer answers a request.
func (p *Providers) Answer(ctx context.Context, t *task.Task, r *secrets.Request) (*secrets.Response, error) {
	f, err := r.Fields()
	if err != nil {
		return nil, err
	}
	c := &call{Context: ctx, Task: t, p: p, book: identity.Book{View: &t.View}, f: f}
	kind, rest, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(r.Rest, "oidc/"), "/"), "/")
	name, what, _ := strings.Cut(rest, "/")
	var resp *secrets.Response
	switch {
	case kind == "provider" && what != "":
		resp, err = c.flow(name, what)
	case what != "":
		return nil, auth.ErrPath
	case kind == "provider":
		resp, err = providerKind().answer(c, name)
	case kind == "client":
		resp, err = clientKind().answer(c, name)
	case kind == "scope":
		resp, err = scopeKind().answer(c, name)
	default:
		resp, err = assignmentKind().answer(c, name)
	}
	if err != nil {
		return nil, err
	}
	if resp == nil {
		resp = &secrets.Response{}
	}
	resp.Ops = c.ops
	return resp, nil
}

// flow answers what clients and browsers ask a provider.
func (c *call) flow(name, what string) (*secrets.Response, error) {
	p, err := providerKind().find(c, &c.View, name)
	if err != nil {
		return nil, err
	}
	asks := c.Op == secrets.Read || c.writes()
	switch {
	case p == nil:
		return nil, auth.ErrNotFound
	case what == ".well-known/openid-configuration" && c.Op == secrets.Read:
		return c.discovery(name, p)
	case what == ".well-known/keys" && c.Op == secrets.Read:
		return c.published(p)
	case what == "authorize" && asks:
		return c.authorize(name, p)
	case what == "token" && c.writes():
		return c.token(name, p)
	case what == "userinfo" && asks:
		return c.userinfo(name)
	case slices.Contains([]string{".well-known/openid-configuration", ".well-known/keys", "authorize", "token",
		"userinfo"}, what):
		return nil, auth.ErrUnsupported
	}
	return nil, auth.ErrPath
}

// base is the address that the provider's URLs begin with.
func (c *call) base(p *provider) (string, error) {
	base := cmp.Or(p.Issuer, c.p.Address)
	if base == "" {
		return "", errkind.New(errkind.Unavailable,
			"nobody said at which address this server is reached: set api_addr, or the provider's issuer")
	}
	return strings.TrimSuffix(base, "/"), nil
}

func issuer(base, name string) string {
	return base + "/v1/identity/oidc/provider/" + url.PathEscape(name)
}

// bare is an answer without the envelope, for clients of OIDC.
func bare(status int, v any, headers ...string) (*secrets.Response, error) {
	text, err := json.Marshal(v)
	return &secrets.Response{Raw: &secrets.Raw{Status: status, ContentType: "application/json", Body: text,
		Headers: headers}}, err
}

// refusal is an error as OAuth has it.
func refusal(status int, code, text string, headers ...string) (*secrets.Response, error) {
	return bare(status, map[string]string{"error": code, "error_description": text}, headers...)
}

func (c *call) discovery(name string, p *provider) (*secrets.Response, error) {
	base, err := c.base(p)
	if err != nil {
		return nil, err
	}
	at := issuer(base, name)
	return bare(0, map[string]any{"issuer": at, "jwks_uri": at + "/.well-known/keys",
		"authorization_endpoint": base + "/ui/vault/identity/oidc/provider/" + url.PathEscape(name) + "/authorize",
		"token_endpoint":         at + "/token", "userinfo_endpoint": at + "/userinfo",
		"request_parameter_supported": false, "request_uri_parameter_supported": false,
		"id_token_signing_alg_values_supported": jwks.Published, "response_types_supported": []string{"code"},
		"scopes_supported": append(slices.Clone(p.Scopes), openID), "claims_supported": []string{},
		"subject_types_supported": []string{"public"}, "grant_types_supported": []string{"authorization_code"},
		"token_endpoint_auth_methods_supported": []string{"none", "client_secret_basic", "client_secret_post"},
		"code_challenge_methods_supported":      []string{"plain", "S256"}})
}

// published are the keys of the clients that may use the provider.
func (c *call) published(p *provider) (*secrets.Response, error) {
	var keys []string
	err := clientKind().each(c, func(_ string, v *client) error {
		if allows(p.Clients, v.ID) && !slices.Contains(keys, v.Key) {
			keys = append(keys, v.Key)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	set, err := c.book.KeySet(c, keys, c.Now)
	return &secrets.Response{Raw: &secrets.Raw{ContentType: "application/json", Body: set}}, err
}

// clientOf finds a client by its ID; nil for none.
func (c *call) clientOf(id string) (*client, error) {
	if id == "" || strings.Contains(id, "/") || len(id) > maxName {
		return nil, nil
	}
	name, ok, err := c.View.Get(c, clientIDKey+id)
	if err != nil || !ok {
		return nil, err
	}
	v, err := clientKind().find(c, &c.View, string(name))
	if v != nil && v.ID != id {
		return nil, err
	}
	return v, err
}

// may gives who an entity is, where it may use a client; nil where it may not.
func (c *call) may(v *client, entity string) (*identity.Persona, error) {
	if entity == "" {
		return nil, nil
	}
	who, err := c.book.Resolve(c, entity)
	if err != nil || who == nil || who.Entity.Disabled {
		return nil, err
	}
	for _, name := range v.Assignments {
		a, err := assignmentKind().find(c, &c.View, name)
		if err != nil {
			return nil, err
		}
		if a != nil && a.has(who) {
			return who, nil
		}
	}
	return nil, nil
}

// authorize gives a code to whoever is logged in, for a client to get tokens with.
func (c *call) authorize(name string, p *provider) (*secrets.Response, error) {
	ask := map[string]string{}
	for _, field := range []string{"scope", "response_type", "client_id", "redirect_uri", "state", "nonce", "max_age",
		"code_challenge", "code_challenge_method", "request", "request_uri"} {
		if ask[field] = c.f.String(field); len(ask[field]) > maxText {
			return refusal(400, "invalid_request", field+": is too long")
		}
	}
	if err := c.f.Err(); err != nil {
		return refusal(400, "invalid_request", err.Error())
	}
	v, err := c.clientOf(ask["client_id"])
	if err != nil {
		return nil, err
	}
	if code, text := p.refuses(v, ask); code != "" {
		return refusal(400, code, text)
	}
	g := &grant{provider: name, client: v.ID, redirect: ask["redirect_uri"], entity: c.Whose, nonce: ask["nonce"],
		challenge: ask["code_challenge"], until: c.Now.Add(codeLives)}
	if g.challenge != "" {
		g.method = cmp.Or(ask["code_challenge_method"], "plain")
	}
	for _, s := range strings.Fields(ask["scope"]) { // unknown ones are passed over (OpenID Connect Core, 3.1.2.1)
		if slices.Contains(p.Scopes, s) && !slices.Contains(g.scopes, s) {
			g.scopes = append(g.scopes, s)
		}
	}
	if text := ask["max_age"]; text != "" {
		seconds, err := strconv.ParseInt(text, 10, 32)
		if err != nil || seconds < 0 {
			return refusal(400, "invalid_request", "max_age: must be a number of seconds")
		}
		if g.authTime = c.Bearer.Created; c.Now.Sub(g.authTime) > time.Duration(seconds)*time.Second {
			return refusal(400, "max_age_violation", "max_age: the login is older; log in again")
		}
	}
	who, err := c.may(v, c.Whose)
	if err != nil {
		return nil, err
	}
	if who == nil {
		return refusal(403, "access_denied", "the identity may not use this client: an assignment of it would allow that")
	}
	code := rand.Text()
	if !c.p.keep(code, g, c.Now) {
		return nil, errkind.New(errkind.Overloaded, "too many codes wait to be taken: try again in a minute")
	}
	answer := map[string]string{"code": code}
	if ask["state"] != "" {
		answer["state"] = ask["state"]
	}
	return bare(0, answer)
}

// refuses is why a provider gives a client no code for what it asks, as OAuth names it; "" where it does.
func (p *provider) refuses(v *client, ask map[string]string) (code, text string) {
	method := cmp.Or(ask["code_challenge_method"], "plain")
	switch {
	case v == nil:
		return "invalid_client_id", "client_id: there is no such client"
	case !allows(p.Clients, v.ID):
		return "unauthorized_client", "client_id: the client may not use this provider"
	case !v.redirects(ask["redirect_uri"]):
		return "invalid_redirect_uri", "redirect_uri: is not one of the client's"
	case ask["request"] != "":
		return "request_not_supported", "request: is not supported"
	case ask["request_uri"] != "":
		return "request_uri_not_supported", "request_uri: is not supported"
	case ask["response_type"] != "code":
		return "unsupported_response_type", "response_type: must be code"
	case !slices.Contains(strings.Fields(ask["scope"]), openID):
		return "invalid_scope", "scope: must have openid"
	case v.Type == public && ask["code_challenge"] == "":
		return "invalid_request", "code_challenge: a public client must use PKCE"
	case ask["code_challenge"] != "" && method != "plain" && method != "S256":
		return "invalid_request", "code_challenge_method: must be plain or S256"
	case ask["code_challenge"] != "" && (len(ask["code_challenge"]) < 43 || len(ask["code_challenge"]) > 128):
		return "invalid_request", "code_challenge: must have 43 to 128 characters"
	}
	return "", ""
}

// keep keeps a code until it is taken; false where there is no room.
func (p *Providers) keep(code string, g *grant, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.codes) >= maxCodes {
		for c, other := range p.codes {
			if now.After(other.until) {
				delete(p.codes, c)
			}
		}
		if len(p.codes) >= maxCodes {
			return false
		}
	}
	if p.codes == nil {
		p.codes = map[string]*grant{}
	}
	p.codes[code] = g
	return true
}

// take gives what a code stands for, once.
func (p *Providers) take(code string) *grant {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.codes[code]
	delete(p.codes, code)
	return g
}

// credentials are the client's own: in the header (RFC 6749, section 2.3.1), or in the form.
func (c *call) credentials() (id, secret string) {
	if c.Basic == "" {
		return c.f.String("client_id"), c.f.String("client_secret")
	}
	raw, err := base64.StdEncoding.DecodeString(c.Basic)
	id, secret, ok := strings.Cut(string(raw), ":")
	if err != nil || !ok {
		return "", ""
	}
	id, err = url.QueryUnescape(id)
	secret, err2 := url.QueryUnescape(secret)
	if err != nil || err2 != nil {
		return "", ""
	}
	return id, secret
}

// same compares what is secret, in the same time for all of the same length.
func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// token gives a client its tokens for a code.
func (c *call) token(name string, p *provider) (*secrets.Response, error) {
	id, secret := c.credentials()
	code, redirect, kind, verifier := c.f.String("code"), c.f.String("redirect_uri"), c.f.String("grant_type"),
		c.f.String("code_verifier")
	if err := c.f.Err(); err != nil {
		return refusal(400, "invalid_request", err.Error())
	}
	v, err := c.clientOf(id)
	if err != nil {
		return nil, err
	}
	if v == nil || v.Type == confidential && !same(v.Secret, secret) {
		return refusal(401, "invalid_client", "client_id, client_secret: are no client's", "WWW-Authenticate", "Basic")
	}
	switch {
	case !allows(p.Clients, v.ID):
		return refusal(400, "invalid_client", "the client may not use this provider")
	case kind != "authorization_code":
		return refusal(400, "unsupported_grant_type", "grant_type: must be authorization_code")
	case code == "":
		return refusal(400, "invalid_request", "code: is missing")
	}
	g := c.p.take(code)
	if g == nil || c.Now.After(g.until) || g.provider != name || g.client != v.ID || g.redirect != redirect ||
		!g.proved(verifier) {
		return refusal(400, "invalid_grant", "code: is not good, was taken before, is of another client or redirect_uri, "+
			"or its code_verifier does not fit")
	}
	who, err := c.may(v, g.entity)
	if err != nil {
		return nil, err
	}
	if who == nil {
		return refusal(400, "invalid_grant", "the identity may not use this client any more")
	}
	base, err := c.base(p)
	if err != nil {
		return nil, err
	}
	opens, err := c.p.seal(&access{Provider: name, Entity: who.Entity.ID, Client: v.ID, Scopes: g.scopes,
		Until: c.Now.Add(v.AccessTTL)})
	if err != nil {
		return nil, err
	}
	claims, err := c.claims(g.scopes, who)
	if err != nil {
		return nil, err
	}
	key, err := c.book.Signer(c, v.Key)
	if err != nil {
		return nil, err
	}
	for member, value := range map[string]any{"iss": issuer(base, name), "sub": who.Entity.ID, "aud": v.ID,
		"iat": c.Now.Unix(), "exp": c.Now.Add(v.IDTTL).Unix(), "namespace": "root",
		"at_hash": jwks.HalfHash(key.Algorithm(), opens), "c_hash": jwks.HalfHash(key.Algorithm(), code)} {
		claims[member] = value
	}
	if g.nonce != "" {
		claims["nonce"] = g.nonce
	}
	if !g.authTime.IsZero() {
		claims["auth_time"] = g.authTime.Unix()
	}
	signed, err := key.Sign(v.ID, claims)
	if err != nil {
		return nil, err
	}
	return bare(0, map[string]any{"token_type": "Bearer", "access_token": opens, "id_token": signed,
		"expires_in": auth.Seconds(v.AccessTTL)})
}

// proved reports whether a verifier is the one of the code's challenge (RFC 7636, section 4.6).
func (g *grant) proved(verifier string) bool {
	switch g.method {
	case "":
		return verifier == ""
	case "S256":
		sum := sha256.Sum256([]byte(verifier))
		verifier = base64.RawURLEncoding.EncodeToString(sum[:])
	}
	return same(g.challenge, verifier)
}

func (p *Providers) seal(a *access) (string, error) {
	plain, err := json.Marshal(a)
	if err != nil {
		return "", err
	}
	text, err := p.Records.Barrier.SealText(accessName, plain)
	return base64.RawURLEncoding.EncodeToString(text), err
}

// userinfo tells a client that has an access token about who it is of.
func (c *call) userinfo(name string) (*secrets.Response, error) {
	bad := func() (*secrets.Response, error) {
		return refusal(401, "invalid_token", "the access token is not good, or has ended", "WWW-Authenticate",
			`Bearer error="invalid_token"`)
	}
	text, err := base64.RawURLEncoding.DecodeString(c.Token)
	if err != nil || len(text) == 0 {
		return bad()
	}
	plain, err := c.p.Records.Barrier.OpenText(accessName, text)
	if errkind.Is(err, errkind.Corrupt) {
		return bad()
	}
	if err != nil {
		return nil, err
	}
	var a access
	if json.Unmarshal(plain, &a) != nil || a.Provider != name || c.Now.After(a.Until) {
		return bad()
	}
	v, err := c.clientOf(a.Client)
	if err != nil {
		return nil, err
	}
	if v == nil {
		return bad()
	}
	who, err := c.may(v, a.Entity)
	if err != nil {
		return nil, err
	}
	if who == nil {
		return bad()
	}
	claims, err := c.claims(a.Scopes, who)
	if err != nil {
		return nil, err
	}
	claims["sub"] = who.Entity.ID
	return bare(0, claims)
}
