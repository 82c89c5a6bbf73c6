// Package oidc logs people in at an OpenID provider with their browser: the authorization code flow of a confidential
// client with PKCE (RFC 6749, RFC 7636, OpenID Connect Core). A caller asks for an address (Begin) and opens it; the
// provider sends the browser back to the caller with a code; the caller brings that, and the code is exchanged
// (Exchange) for the provider's ID token with the secret that only the two know. What the token must say to be of this
// very login is Vouched. Code, state, nonce and PKCE verifier are good once.
//
// Each question to the provider has a deadline and a bound on its answer (kit/jwks). Safe for concurrent use; nothing
// is started.
package oidc

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
)

// Client is what we are at a provider.
type Client struct {
	ID, Secret string
	CA         string // PEM of the provider's authority; "" means the host's
	NoPKCE     bool   // for a provider that refuses a code challenge
}

// Wish is what a login asks of the provider beside who it is of.
type Wish struct {
	Scopes       []string      // openid is asked for always
	ACR          []string      // ways of authentication, the preferred first
	MaxAge       time.Duration // how old the user's authentication may be; 0 means any age
	ResponseMode string
}

// Allows reports whether the browser may be sent back to an address: one of the list, as it is written. The port of
// an address of the client's own machine is free, since clients take the one that they find (RFC 8252, 7.3).
func Allows(list []string, redirect string) bool {
	if slices.Contains(list, redirect) {
		return true
	}
	bare, ok := loopback(redirect)
	return ok && slices.ContainsFunc(list, func(text string) bool {
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

// Begin keeps a login and gives the address that its browser goes to. Kind Unavailable: the provider names no place.
func (b *Pendings) Begin(c *Client, ends jwks.Endpoints, p *Pending, w Wish) (address string, err error) {
	if ends.Authorization == "" || ends.Token == "" {
		return "", errkind.New(errkind.Unavailable, "the provider names no authorization_endpoint or no token_endpoint")
	}
	at, err := url.Parse(ends.Authorization)
	if err != nil {
		return "", errkind.E(errkind.Unavailable, "authorization_endpoint", err)
	}
	p.nonce, p.verifier = rand.Text(), rand.Text()+rand.Text()
	q := at.Query()
	for name, value := range map[string]string{"response_type": "code", "client_id": c.ID, "redirect_uri": p.Redirect,
		"nonce": p.nonce, "state": b.Add(p), "scope": strings.Join(append([]string{"openid"}, w.Scopes...), " ")} {
		q.Set(name, value)
	}
	if !c.NoPKCE {
		challenge := sha256.Sum256([]byte(p.verifier))
		q.Set("code_challenge", base64.RawURLEncoding.EncodeToString(challenge[:]))
		q.Set("code_challenge_method", "S256")
	}
	if len(w.ACR) > 0 {
		q.Set("acr_values", strings.Join(w.ACR, " "))
	}
	if w.MaxAge > 0 {
		q.Set("max_age", strconv.FormatInt(int64(w.MaxAge/time.Second), 10))
	}
	if w.ResponseMode != "" {
		q.Set("response_mode", w.ResponseMode)
	}
	at.RawQuery = q.Encode()
	return at.String(), nil
}

// Tokens are what a code is exchanged for.
type Tokens struct {
	ID     string `json:"id_token"`
	Access string `json:"access_token"`
}

// Exchange gives the tokens of a code. Kind Unavailable: the provider does not answer, or not with tokens.
func (c *Client) Exchange(ctx context.Context, ends jwks.Endpoints, p *Pending, code string) (*Tokens, error) {
	form := url.Values{"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {p.Redirect}}
	if !c.NoPKCE {
		form.Set("code_verifier", p.verifier)
	}
	post := slices.Contains(ends.TokenAuth, "client_secret_post") &&
		!slices.Contains(ends.TokenAuth, "client_secret_basic")
	if post {
		form.Set("client_id", c.ID)
		form.Set("client_secret", c.Secret)
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, ends.Token, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	q.Header.Set("Accept", "application/json")
	if !post {
		q.SetBasicAuth(url.QueryEscape(c.ID), url.QueryEscape(c.Secret))
	}
	got := &Tokens{}
	if err := jwks.Ask(ctx, c.CA, q, got); err != nil {
		return nil, err
	}
	if got.ID == "" {
		return nil, errkind.New(errkind.Invalid, "no id_token found in response")
	}
	return got, nil
}

// Bounds are what an ID token must say beside the nonce of its login.
type Bounds struct {
	Client, Issuer string
	Audiences      []string // one of these too; none means any
	Subject        string   // "" means any
	MaxAge, Skew   time.Duration
}

// Vouched checks that an ID token is of this provider, for us, of this very login, and within its time. Errors are of
// kind Denied.
func (p *Pending) Vouched(said *jwks.Claims, b Bounds, now time.Time) error {
	if err := (jwks.Leeway{Skew: b.Skew}).Check(&said.Standard, now); err != nil {
		return err
	}
	nonce, _ := said.All["nonce"].(string)
	by, _ := said.All["azp"].(string)
	deny := func(text string) error { return errkind.New(errkind.Denied, text) }
	switch {
	case said.Issuer != b.Issuer:
		return deny("invalid issuer (iss) claim")
	case !slices.Contains(said.Audience, b.Client), by != "" && by != b.Client, by == "" && len(said.Audience) > 1:
		return deny("invalid audience (aud) or authorized party (azp) claim: the token is another client's")
	case len(b.Audiences) > 0 && !slices.ContainsFunc(b.Audiences,
		func(a string) bool { return slices.Contains(said.Audience, a) }):
		return deny("invalid audience (aud) claim")
	case subtle.ConstantTimeCompare([]byte(nonce), []byte(p.nonce)) != 1:
		return deny("invalid nonce: the token is of another login")
	case b.Subject != "" && said.Subject != b.Subject:
		return deny("invalid subject (sub) claim")
	case !said.HasExpiry:
		return deny("the token has no end (exp)")
	}
	if b.MaxAge > 0 {
		number, _ := said.All["auth_time"].(json.Number)
		at, err := number.Int64()
		if err != nil || now.Sub(time.Unix(at, 0)) > b.MaxAge+time.Minute {
			return deny("the user's authentication at the provider is older than max_age, or has no time (auth_time)")
		}
	}
	return nil
}

// protected are the claims that the ID token alone says.
var protected = []string{"iss", "sub", "aud", "azp", "exp", "iat", "nbf", "nonce", "auth_time", "acr", "amr"}

// More adds what the provider says of the user beside the ID token. Where it does not answer, what it would have said
// is missing, and warn tells so.
func (c *Client) More(ctx context.Context, ends jwks.Endpoints, access string, said *jwks.Claims) (warn []string,
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
	if err := jwks.Ask(ctx, c.CA, q, &info); err != nil {
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
