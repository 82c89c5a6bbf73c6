package login

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/tokenreview/reviewtest"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// issuer signs tokens and serves its keys.
type issuer struct {
	testing.TB
	key   *ecdsa.PrivateKey
	kid   string
	srv   *httptest.Server
	asked atomic.Int32
}

func newIssuer(t testing.TB) *issuer {
	i := &issuer{TB: t, kid: "one"}
	i.rotate("one")
	mux := http.NewServeMux()
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		i.asked.Add(1)
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &i.key.PublicKey, KeyID: i.kid,
			Algorithm: "ES256", Use: "sig"}}})
	})
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": i.srv.URL, "jwks_uri": i.srv.URL + "/keys"})
	})
	i.srv = httptest.NewTLSServer(mux)
	t.Cleanup(i.srv.Close)
	return i
}

func (i *issuer) rotate(kid string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.Fatal(err)
	}
	i.key, i.kid = key, kid
}

func (i *issuer) ca() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.srv.Certificate().Raw}))
}

func (i *issuer) pub() string {
	der, err := x509.MarshalPKIXPublicKey(&i.key.PublicKey)
	if err != nil {
		i.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

func (i *issuer) sign(claims map[string]any) string {
	i.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: i.key, KeyID: i.kid}}, nil)
	if err != nil {
		i.Fatal(err)
	}
	text, err := jwt.Signed(s).Claims(claims).Serialize()
	if err != nil {
		i.Fatal(err)
	}
	return text
}

func method(config map[string]any) *acl.AuthMethod {
	return &acl.AuthMethod{Name: "m", Type: "jwt", Config: config}
}

func good() map[string]any {
	return map[string]any{"iss": "me", "aud": []string{"corbel", "x"}, "exp": now.Add(time.Minute).Unix(),
		"team": "blue", "n": 7,
		"nested": map[string]any{"a/b": "deep"}, "groups": []string{"g1", "g2"}}
}

func TestJWTWithGivenKeys(t *testing.T) {
	i, v := newIssuer(t), New(clock.NewFake(now))
	m := method(map[string]any{"JWTValidationPubKeys": []string{i.pub()}, "BoundIssuer": "me",
		"BoundAudiences":    []string{"corbel"},
		"ClaimMappings":     map[string]string{"team": "team", "n": "number", "/nested/a~1b": "deep", "absent": "absent"},
		"ListClaimMappings": map[string]string{"groups": "groups"}})
	if err := v.Check(m); err != nil {
		t.Fatal(err)
	}
	c, err := v.Login(t.Context(), m, i.sign(good()))
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"value.team": "blue", "value.number": "7",
		"value.deep": "deep"}; !reflect.DeepEqual(c.Vars, want) {
		t.Error(c.Vars)
	}
	if got := c.Selectable["list"].(map[string]any)["groups"]; !reflect.DeepEqual(got, []string{"g1", "g2"}) {
		t.Error(got)
	}
	if c.Selectable["value"].(map[string]any)["absent"] != "" {
		t.Error("a selector may speak about a claim that is not there")
	}
	for name, spoil := range map[string]func(map[string]any){
		"issuer":   func(c map[string]any) { c["iss"] = "other" },
		"audience": func(c map[string]any) { c["aud"] = "other" },
		"expired":  func(c map[string]any) { c["exp"] = now.Add(-2 * time.Minute).Unix() },
		"early":    func(c map[string]any) { c["nbf"] = now.Add(5 * time.Minute).Unix() },
		"timeless": func(c map[string]any) { delete(c, "exp") },
		"old": func(c map[string]any) {
			delete(c, "exp")
			c["iat"] = now.Add(-time.Hour).Unix()
		},
		"object claim": func(c map[string]any) { c["team"] = map[string]any{} },
	} {
		claims := good()
		spoil(claims)
		if c, err := v.Login(t.Context(), m, i.sign(claims)); !errkind.Is(err, errkind.Denied) {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
	other := newIssuer(t)
	whole := i.sign(good())
	parts := strings.Split(whole, ".")
	for name, text := range map[string]string{"another key": other.sign(good()), "garbage": "x.y.z", "empty": "",
		"cut":  whole[:len(whole)-4] + "AAAA",
		"none": "eyJhbGciOiJub25lIn0." + parts[1] + ".", "swapped": parts[0] + "." +
			strings.Split(other.sign(map[string]any{"team": "red", "exp": 9e9}), ".")[1] + "." + parts[2]} {
		if _, err := v.Login(t.Context(), m, text); !errkind.Is(err, errkind.Denied) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestJWTKeysFromAddresses(t *testing.T) {
	i, c := newIssuer(t), clock.NewFake(now)
	v := New(c)
	for _, m := range []*acl.AuthMethod{
		method(map[string]any{"JWKSURL": i.srv.URL + "/keys", "JWKSCACert": i.ca()}),
		method(map[string]any{"OIDCDiscoveryURL": i.srv.URL, "OIDCDiscoveryCACert": i.ca()}),
	} {
		i.rotate("first")
		i.asked.Store(0)
		c.Advance(time.Hour)
		claims := map[string]any{"iss": i.srv.URL, "exp": c.Now().Add(time.Minute).Unix()}
		for range 3 {
			if _, err := v.Login(t.Context(), m, i.sign(claims)); err != nil {
				t.Fatal(err)
			}
		}
		if n := i.asked.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		i.rotate("second")
		if _, err := v.Login(t.Context(), m, i.sign(claims)); !errkind.Is(err, errkind.Denied) || i.asked.Load() != 1 {
			t.Error("unknown keys may not make us ask all the time", err)
		}
		c.Advance(10 * time.Second)
		if _, err := v.Login(t.Context(), m, i.sign(claims)); err != nil || i.asked.Load() != 2 {
			t.Error("a new key is looked up", err)
		}
	}
	bare := method(map[string]any{"JWKSURL": i.srv.URL + "/keys"})
	if _, err := New(c).Login(t.Context(), bare, i.sign(good())); !errkind.Is(err, errkind.Unavailable) {
		t.Error("a certificate that nobody vouches for", err)
	}
	oidc := method(map[string]any{"OIDCDiscoveryURL": i.srv.URL, "OIDCDiscoveryCACert": i.ca()})
	if _, err := v.Login(t.Context(), oidc,
		i.sign(map[string]any{"iss": "other", "exp": c.Now().Add(time.Minute).Unix()})); !errkind.Is(err, errkind.Denied) {
		t.Error("the issuer of the discovery is the bound one", err)
	}
}

func TestConfigsThatAreRefused(t *testing.T) {
	i, v := newIssuer(t), New(nil)
	for name, m := range map[string]*acl.AuthMethod{
		"no source":   method(nil),
		"two sources": method(map[string]any{"JWTValidationPubKeys": []string{i.pub()}, "JWKSURL": i.srv.URL}),
		"bad key":     method(map[string]any{"JWTValidationPubKeys": []string{"x"}}),
		"bad address": method(map[string]any{"JWKSURL": "file:///etc/passwd"}),
		"bad ca":      method(map[string]any{"JWKSURL": i.srv.URL, "JWKSCACert": "x"}),
		"secret alg": method(map[string]any{"JWTValidationPubKeys": []string{i.pub()},
			"JWTSupportedAlgs": []string{"HS256"}}),
		"no alg":   method(map[string]any{"JWTValidationPubKeys": []string{i.pub()}, "JWTSupportedAlgs": []string{"none"}}),
		"misspelt": method(map[string]any{"JWTValidationPubKeys": []string{i.pub()}, "BoundIsuer": "x"}),
		"one name": method(map[string]any{"JWTValidationPubKeys": []string{i.pub()},
			"ClaimMappings": map[string]string{"a": "x", "b": "x"}}),
		"odd name": method(map[string]any{"JWTValidationPubKeys": []string{i.pub()},
			"ClaimMappings": map[string]string{"a": "x.y"}}),
		"no host": {Name: "k", Type: "kubernetes", Config: map[string]any{}},
	} {
		if err := v.Check(m); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKubernetes(t *testing.T) {
	api := reviewtest.New(t)
	api.Vouch("pod", "prod", "web", "u1")
	m := &acl.AuthMethod{Name: "k", Type: "kubernetes", Config: map[string]any{"Host": api.URL, "CACert": api.CA,
		"ServiceAccountJWT": reviewtest.Reviewer}}
	v := New(nil)
	if err := v.Check(m); err != nil {
		t.Fatal(err)
	}
	c, err := v.Login(t.Context(), m, "pod")
	if err != nil || c.Vars["serviceaccount.name"] != "web" || c.Vars["serviceaccount.namespace"] != "prod" {
		t.Fatal(c, err)
	}
	if _, err := v.Login(t.Context(), m, "stranger"); !errkind.Is(err, errkind.Denied) {
		t.Error(err)
	}
	m.Config["ServiceAccountJWT"] = "wrong"
	if _, err := v.Login(t.Context(), m, "pod"); !errkind.Is(err, errkind.Unavailable) {
		t.Error(err)
	}
}

func FuzzLogin(f *testing.F) {
	i := newIssuer(f)
	f.Add(i.sign(good()))
	f.Add("a.b.c")
	v := New(clock.NewFake(now))
	m := method(map[string]any{"JWTValidationPubKeys": []string{i.pub()}})
	honest := i.sign(good())
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := v.Login(t.Context(), m, text); err == nil && text != honest &&
			strings.Split(text, ".")[1] != strings.Split(honest, ".")[1] {
			t.Fatalf("%q was let in", text)
		}
	})
}
