package gcsstore

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
)

// StorageScope is what a token for buckets may do.
const StorageScope = "https://www.googleapis.com/auth/devstorage.read_write"

const (
	grantType  = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	assertTime = time.Hour // the most that Google takes
	// tokenTime bounds one request for a token. tokenEarly is how long before its end one is renewed: the metadata
	// server gives a new one 5 minutes before. While the old one serves, a renewal takes tokenBrief at most, so that the
	// storage's lock is not lost by waiting, and after a failure it is tried again after tokenAgain.
	tokenTime  = 10 * time.Second
	tokenEarly = 225 * time.Second
	tokenBrief = 2 * time.Second
	tokenAgain = 30 * time.Second
)

// Tokens gets the tokens of a service account and keeps the newest. Any goroutine may use it; one asks, the others
// wait for it.
type Tokens struct {
	clock   clock.Clock
	cl      *http.Client
	request func(ctx context.Context, now time.Time) (*http.Request, error)

	turn              chan struct{} // guards what follows, also while one asks
	token             string
	renew, until, try time.Time // when to ask, when the token ends, when to ask again after a failure
}

func newTokens(c clock.Clock, t *http.Transport, request func(context.Context, time.Time) (*http.Request,
	error)) *Tokens {
	return &Tokens{clock: c, cl: client(t), request: request, turn: make(chan struct{}, 1)}
}

// Instance gets tokens from the metadata server of the virtual machine; host is "" for Google's.
func Instance(host string, c clock.Clock) *Tokens {
	if host == "" {
		host = "metadata.google.internal"
	}
	address := "http://" + host + "/computeMetadata/v1/instance/service-accounts/default/token"
	// of the machine itself: no proxy
	return newTokens(c, transport(nil), func(ctx context.Context, _ time.Time) (*http.Request, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
		if err == nil {
			r.Header.Set("Metadata-Flavor", "Google")
		}
		return r, err
	})
}

// account is the file of a service account's key.
type account struct {
	Type         string `json:"type"`
	ClientEmail  string `json:"client_email"`
	PrivateKeyID string `json:"private_key_id"`
	PrivateKey   string `json:"private_key"`
	TokenURI     string `json:"token_uri"`
}

// ServiceAccount gets tokens for the key of a service account, given as Google's JSON file of it. scope is what they
// may do.
func ServiceAccount(file []byte, scope string, c clock.Clock) (*Tokens, error) {
	a := account{TokenURI: "https://oauth2.googleapis.com/token"}
	if err := json.Unmarshal(file, &a); err != nil {
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	if a.Type != "service_account" {
		return nil, fmt.Errorf("type: is %q; only service_account is supported", a.Type)
	}
	if a.ClientEmail == "" {
		return nil, errors.New("client_email: is missing")
	}
	if u, err := url.Parse(a.TokenURI); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, fmt.Errorf("token_uri: %q is not a URL", a.TokenURI)
	}
	key, err := privateKey(a.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("private_key: %w", err)
	}
	return newTokens(c, transport(http.ProxyFromEnvironment),
		func(ctx context.Context, now time.Time) (*http.Request, error) {
			signed, err := assertion(a, key, scope, now)
			if err != nil {
				return nil, err
			}
			form := url.Values{"grant_type": {grantType}, "assertion": {signed}}
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.TokenURI, strings.NewReader(form.Encode()))
			if err == nil {
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			}
			return r, err
		}), nil
}

func privateKey(text string) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("it is missing, or not PEM")
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(*rsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("it is a %T, not RSA", parsed)
	}
	return key, nil
}

// assertion is the signed claim that the token endpoint gives a token for (RFC 7523, RS256).
func assertion(a account, key *rsa.PrivateKey, scope string, now time.Time) (string, error) {
	head, err := json.Marshal(map[string]string{"alg": "RS256", "typ": "JWT", "kid": a.PrivateKeyID})
	if err != nil {
		return "", err
	}
	claims, err := json.Marshal(map[string]any{"iss": a.ClientEmail, "scope": scope, "aud": a.TokenURI, "iat": now.Unix(),
		"exp": now.Add(assertTime).Unix()})
	if err != nil {
		return "", err
	}
	text := base64.RawURLEncoding.EncodeToString(head) + "." + base64.RawURLEncoding.EncodeToString(claims)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	return text + "." + base64.RawURLEncoding.EncodeToString(signature), err
}

// Get returns a token that is valid for a while. Its errors say that nothing was done.
func (t *Tokens) Get(ctx context.Context) (string, error) {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return "", errkind.E(errkind.Unavailable, "google: token", ctx.Err())
	}
	now := t.clock.Now()
	valid := t.token != "" && now.Before(t.until)
	if valid && (now.Before(t.renew) || now.Before(t.try)) {
		return t.token, nil
	}
	limit := tokenTime
	if valid {
		limit = tokenBrief
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	token, lifetime, err := t.ask(ctx, now)
	if err != nil && valid {
		t.try = t.clock.Now().Add(tokenAgain)
		return t.token, nil
	}
	if err != nil {
		return "", err
	}
	t.token, t.until = token, now.Add(lifetime)
	t.renew = t.until.Add(-min(tokenEarly, lifetime/4))
	return t.token, nil
}

// Drop forgets a token that the service refused.
func (t *Tokens) Drop(ctx context.Context, token string) {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return // the next request is refused too, and drops it
	}
	if t.token == token {
		t.token = ""
	}
}

// Close drops idle connections.
func (t *Tokens) Close() { t.cl.CloseIdleConnections() }

// ask does one request for a token.
func (t *Tokens) ask(ctx context.Context, now time.Time) (token string, lifetime time.Duration, err error) {
	r, err := t.request(ctx, now)
	if err != nil {
		return "", 0, errkind.E(errkind.Invalid, "google: token", err)
	}
	answer, err := t.cl.Do(r)
	if err != nil {
		return "", 0, errkind.E(errkind.Unavailable, "google: token", err)
	}
	defer answer.Body.Close()
	const most = 1 << 20
	body, err := io.ReadAll(io.LimitReader(answer.Body, most))
	if err != nil {
		return "", 0, errkind.E(errkind.Unavailable, "google: token", err)
	}
	switch status := answer.StatusCode; {
	case status == http.StatusOK:
	case status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status >= 500:
		return "", 0, errkind.Errorf(errkind.Unavailable, "google: token from %s: %d %s", r.URL.Host, status, errorText(body))
	default:
		return "", 0, errkind.Errorf(errkind.Denied, "google: token from %s: %d %s", r.URL.Host, status, errorText(body))
	}
	var grant struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int64  `json:"expires_in"` // seconds
	}
	const longest = 7 * 24 * 60 * 60
	if err := json.Unmarshal(body, &grant); err != nil || grant.AccessToken == "" || grant.ExpiresIn <= 0 {
		return "", 0, errkind.Errorf(errkind.Unavailable,
			"google: token from %s: the answer has no access_token with expires_in", r.URL.Host)
	}
	return grant.AccessToken, time.Duration(min(grant.ExpiresIn, longest)) * time.Second, nil
}
