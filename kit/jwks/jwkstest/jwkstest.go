// Package jwkstest signs tokens for tests, with keys that it serves as issuers do: a JWKS address and OIDC
// discovery over TLS. An Issuer may be used from any goroutine but for Rotate.
package jwkstest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Issuer signs tokens.
type Issuer struct {
	URL   string       // of the issuer; the keys are at /keys
	CA    string       // PEM: what its server's certificate is signed by
	Asked atomic.Int32 // how often the keys were asked for
	Hold  chan struct{}

	t   testing.TB
	alg jose.SignatureAlgorithm
	key crypto.Signer
	kid string

	server   *httptest.Server
	provider *Provider
}

// New starts an issuer that signs with RS256, ES256 or EdDSA. It ends with the test.
func New(t testing.TB, alg string) *Issuer {
	i := &Issuer{t: t, alg: jose.SignatureAlgorithm(alg)}
	i.Rotate("one")
	mux := http.NewServeMux()
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		i.Asked.Add(1)
		if i.Hold != nil {
			<-i.Hold
		}
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: i.key.Public(), KeyID: i.kid,
			Algorithm: alg, Use: "sig"}}})
	})
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		found := map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys"}
		if i.provider != nil {
			found["authorization_endpoint"], found["token_endpoint"], found["userinfo_endpoint"] = i.URL+"/authorize?tenant=1",
				i.URL+"/token", i.URL+"/userinfo"
		}
		_ = json.NewEncoder(w).Encode(found)
	})
	i.provide(mux)
	srv := httptest.NewTLSServer(mux)
	t.Cleanup(srv.Close)
	i.server = srv
	i.URL, i.CA = srv.URL, block("CERTIFICATE", srv.Certificate().Raw)
	return i
}

func block(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// Rotate draws another key.
func (i *Issuer) Rotate(kid string) {
	var err error
	i.kid = kid
	switch i.alg {
	case jose.RS256:
		i.key, err = rsa.GenerateKey(rand.Reader, 2048)
	case jose.EdDSA:
		_, i.key, err = ed25519.GenerateKey(rand.Reader)
	default:
		i.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		i.t.Fatal(err)
	}
}

// PublicKey is the key's public half as PEM.
func (i *Issuer) PublicKey() string {
	der, err := x509.MarshalPKIXPublicKey(i.key.Public())
	if err != nil {
		i.t.Fatal(err)
	}
	return block("PUBLIC KEY", der)
}

// Sign makes a token.
func (i *Issuer) Sign(claims map[string]any) string {
	i.t.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: i.alg, Key: jose.JSONWebKey{Key: i.key, KeyID: i.kid}}, nil)
	if err != nil {
		i.t.Fatal(err)
	}
	text, err := jwt.Signed(s).Claims(claims).Serialize()
	if err != nil {
		i.t.Fatal(err)
	}
	return text
}
