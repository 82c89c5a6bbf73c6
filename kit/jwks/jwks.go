// Package jwks checks JSON Web Tokens that others have signed: with given keys, or with those that an
// address serves (JWKS, OIDC discovery), which are kept for a while and asked for again when a token names one
// that is not among them.
//
// Of others only asymmetric algorithms are taken, from a list that the caller gives; Own is for tokens that this
// program hands out itself. Each question to the outside has a deadline and a bound on its answer; those who need the
// same keys share one question. Keys is safe for concurrent use and starts no goroutine. This package is the door to
// go-jose.
package jwks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"crypto/x509"
	"encoding/pem"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"corbel.dev/corbel/kit/errkind"
)

// Algorithm signs.
type Algorithm = jose.SignatureAlgorithm

// Asymmetric are the algorithms that may be asked for: never none, never a shared secret.
var Asymmetric = []Algorithm{jose.RS256, jose.RS384, jose.RS512, jose.ES256, jose.ES384, jose.ES512, jose.PS256,
	jose.PS384, jose.PS512, jose.EdDSA}

// MaxBytes bounds a token; none in use comes near.
const MaxBytes = 64 << 10

// Algorithms reads their names; none are those given as the default.
func Algorithms(names []string, def ...Algorithm) ([]Algorithm, error) {
	var out []Algorithm
	for _, name := range names {
		if !slices.Contains(Asymmetric, Algorithm(name)) {
			return nil, fmt.Errorf("%q is not among %v", name, Asymmetric)
		}
		out = append(out, Algorithm(name))
	}
	if len(out) == 0 {
		return def, nil
	}
	return out, nil
}

// PublicKey reads a key, or the key of a certificate, in PEM.
func PublicKey(text string) (any, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("no PEM block")
	}
	switch block.Type {
	case "CERTIFICATE":
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		return cert.PublicKey, nil
	case "RSA PUBLIC KEY":
		return x509.ParsePKCS1PublicKey(block.Bytes)
	}
	return x509.ParsePKIXPublicKey(block.Bytes)
}

// Claims are what a token says. The registered ones are in Standard too.
type Claims struct {
	Standard
	All map[string]any // numbers are json.Number
}

// Standard are the registered claims. Times are zero where they are not said.
type Standard struct {
	Issuer, Subject, ID             string
	Audience                        []string
	Expires, NotBefore, IssuedAt    time.Time
	HasExpiry, HasNotBefore, HasIAT bool
}

// Token is a token that nobody has checked yet.
type Token struct{ parsed *jwt.JSONWebToken }

// Parse reads a token signed with one of the algorithms. Errors are of kind Denied.
func Parse(text string, algs []Algorithm) (*Token, error) {
	if len(text) > MaxBytes {
		return nil, errkind.Errorf(errkind.Invalid, "the token has %d bytes, the most is %d", len(text), MaxBytes)
	}
	t, err := jwt.ParseSigned(text, algs)
	if err != nil {
		return nil, errkind.Errorf(errkind.Denied, "the token is no JWT signed with one of %v", algs)
	}
	return &Token{t}, nil
}

// KeyID is the ID of the key that the token says it is signed with.
func (t *Token) KeyID() string {
	if len(t.parsed.Headers) == 0 {
		return ""
	}
	return t.parsed.Headers[0].KeyID
}

// SignedBy gives what the token says when one of the keys has signed it, else an error of kind Denied.
func (t *Token) SignedBy(keys []any) (*Claims, error) {
	for _, key := range keys {
		var raw json.RawMessage
		if t.parsed.Claims(key, &raw) == nil {
			return decode(raw)
		}
	}
	return nil, errkind.New(errkind.Denied, "the token is signed by none of the keys of the auth method")
}

// SignedByOne is SignedBy for a key of a published set.
func (t *Token) SignedByOne(v Verifier) (*Claims, error) {
	key, err := x509.ParsePKIXPublicKey(v.Public)
	if err != nil {
		return nil, errkind.New(errkind.Corrupt, "a public key is not what was stored")
	}
	return t.SignedBy([]any{key})
}

// Unchecked gives what the token says, whoever signed it: for tokens that another system vouches for.
func (t *Token) Unchecked() (*Claims, error) {
	var raw json.RawMessage
	if err := t.parsed.UnsafeClaimsWithoutVerification(&raw); err != nil {
		return nil, errkind.New(errkind.Denied, "the token's claims cannot be read")
	}
	return decode(raw)
}

func decode(raw json.RawMessage) (*Claims, error) {
	c := &Claims{All: map[string]any{}}
	var s jwt.Claims
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.UseNumber()
	if dec.Decode(&c.All) != nil || json.Unmarshal(raw, &s) != nil {
		return nil, errkind.New(errkind.Denied, "the token's claims cannot be read")
	}
	c.Standard = Standard{Issuer: s.Issuer, Subject: s.Subject, ID: s.ID, Audience: s.Audience}
	for _, d := range []struct {
		from *jwt.NumericDate
		to   *time.Time
		has  *bool
	}{{s.Expiry, &c.Expires, &c.HasExpiry}, {s.NotBefore, &c.NotBefore, &c.HasNotBefore},
		{s.IssuedAt, &c.IssuedAt, &c.HasIAT}} {
		if d.from != nil {
			*d.to, *d.has = d.from.Time(), true
		}
	}
	return c, nil
}

// Leeway is what is granted to clocks that differ. 0 is the default of each, less than 0 is none.
type Leeway struct {
	Skew      time.Duration // of all times: 60 s
	Expiry    time.Duration // of a token without exp, from its beginning: 150 s
	NotBefore time.Duration // of a token without nbf, before it was made: 150 s
}

func leeway(d, def time.Duration) time.Duration {
	switch {
	case d < 0:
		return 0
	case d == 0:
		return def
	}
	return d
}

// Check reports, as an error of kind Denied, that the token is not valid now.
func (l Leeway) Check(s *Standard, now time.Time) error {
	const whole = 150 * time.Second
	skew := leeway(l.Skew, time.Minute)
	if !s.HasExpiry && !s.HasNotBefore && !s.HasIAT {
		return errkind.New(errkind.Denied, "the token says nothing about its time: one of exp, nbf and iat is needed")
	}
	if s.HasExpiry && now.After(s.Expires.Add(skew)) {
		return errkind.New(errkind.Denied, "the token has expired")
	}
	from, begins := s.NotBefore, s.HasNotBefore
	if !begins {
		from, begins = s.IssuedAt, s.HasIAT
	}
	if !s.HasExpiry && now.After(from.Add(leeway(l.Expiry, whole)+skew)) {
		return errkind.New(errkind.Denied, "the token has no end and is too old")
	}
	before := skew
	if !s.HasNotBefore {
		before += leeway(l.NotBefore, whole)
	}
	if begins && now.Before(from.Add(-before)) {
		return errkind.New(errkind.Denied, "the token is not valid yet")
	}
	return nil
}

// LookUp finds a claim by its name, or by a JSON pointer where the text begins with a slash.
func LookUp(all map[string]any, claim string) (any, bool) {
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

// Plain is a claim as a text, where it is a text, a number or a boolean.
func Plain(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case json.Number:
		if f, err := v.Float64(); err == nil && strings.ContainsAny(string(v), ".eE") {
			return strconv.FormatFloat(f, 'f', -1, 64), true
		}
		return v.String(), true
	}
	return "", false
}

// Source says where keys are asked for: one of URL and Discovery is set.
type Source struct {
	// of the JWKS, and PEM certificates that its server's is signed by; "": the host's authorities
	URL, CA                string
	Discovery, DiscoveryCA string // of the issuer
}

// Verify gives what the token says when a key of the source has signed it, and the issuer that discovery found.
func (k *Keys) Verify(ctx context.Context, from Source, t *Token) (c *Claims, issuer string, err error) {
	keys, issuer, err := k.get(ctx, from, t.KeyID())
	if err != nil {
		return nil, "", err
	}
	c, err = t.SignedBy(keys)
	return c, issuer, err
}
