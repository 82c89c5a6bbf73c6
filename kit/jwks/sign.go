package jwks

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/go-jose/go-jose/v4"
)

// Published are the algorithms that NewKey makes keys for.
var Published = []Algorithm{jose.RS256, jose.RS384, jose.RS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA}

// NewKey draws a private key for one of the Published algorithms, as PKCS 8. An RSA key takes some 100 ms of one
// processor.
func NewKey(alg Algorithm) ([]byte, error) {
	var key any
	var err error
	switch alg {
	case jose.RS256, jose.RS384, jose.RS512:
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	case jose.EdDSA:
		_, key, err = ed25519.GenerateKey(rand.Reader)
	default:
		curve := map[Algorithm]elliptic.Curve{jose.ES256: elliptic.P256(), jose.ES384: elliptic.P384(),
			jose.ES512: elliptic.P521()}[alg]
		if curve == nil {
			return nil, fmt.Errorf("%q is not among %v", alg, Published)
		}
		key, err = ecdsa.GenerateKey(curve, rand.Reader)
	}
	if err != nil {
		return nil, err
	}
	return x509.MarshalPKCS8PrivateKey(key)
}

// PublicOf is the public half of a key that NewKey made, as PKIX.
func PublicOf(private []byte) ([]byte, error) {
	key, err := x509.ParsePKCS8PrivateKey(private)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a %T does not sign", key)
	}
	return x509.MarshalPKIXPublicKey(signer.Public())
}

// HalfHash is the left half of a text's hash, as at_hash and c_hash are: SHA-256, 384 or 512, as the algorithm of the
// token has it (OpenID Connect Core 1.0, section 3.1.3.6).
func HalfHash(alg Algorithm, text string) string {
	h := sha512.New()
	switch alg {
	case jose.RS256, jose.ES256:
		h = sha256.New()
	case jose.RS384, jose.ES384:
		h = sha512.New384()
	}
	h.Write([]byte(text))
	sum := h.Sum(nil)
	return base64.RawURLEncoding.EncodeToString(sum[:len(sum)/2])
}

// SignWith makes a token that says what claims does, with a key that NewKey made; the token names it by kid.
func SignWith(alg Algorithm, private []byte, kid string, claims any) (string, error) {
	key, err := x509.ParsePKCS8PrivateKey(private)
	if err != nil {
		return "", err
	}
	o, err := newOwn(alg, jose.JSONWebKey{Key: key, KeyID: kid}, nil)
	if err != nil {
		return "", err
	}
	return o.Sign(claims)
}

// Verifier is a public key with what a set of keys says of it.
type Verifier struct {
	ID     string
	Alg    Algorithm
	Public []byte // PKIX
}

// Set writes keys as a JWKS (RFC 7517).
func Set(keys []Verifier) ([]byte, error) {
	set := struct {
		Keys []jose.JSONWebKey `json:"keys"`
	}{[]jose.JSONWebKey{}}
	for _, k := range keys {
		public, err := x509.ParsePKIXPublicKey(k.Public)
		if err != nil {
			return nil, err
		}
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: public, KeyID: k.ID, Algorithm: string(k.Alg), Use: "sig"})
	}
	return json.Marshal(set)
}
