package login

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks/jwkstest"
)

const home = "http://localhost:8550/oidc/callback"

// browser is a method at a provider, with a browser that follows the provider back to home.
type browser struct {
	testing.TB
	*Verifier
	*jwkstest.Provider
	method *acl.AuthMethod
}

func newBrowser(t testing.TB, change func(map[string]any)) *browser {
	p := jwkstest.New(t, "RS256").Provider("corbel", "shared secret")
	p.Info = map[string]any{"sub": "ann", "team": "web"}
	p.Claims = map[string]any{"groups": []string{"a", "b"}}
	config := map[string]any{"OIDCDiscoveryURL": p.URL, "OIDCDiscoveryCACert": p.CA, "OIDCClientID": "corbel",
		"OIDCClientSecret": "shared secret", "AllowedRedirectURIs": []string{home},
		"ClaimMappings": map[string]string{"team": "team"}, "ListClaimMappings": map[string]string{"groups": "groups"},
		// what a client that sends all fields sends of those for other types
		"JWKSURL": "", "JWTValidationPubKeys": nil, "ClockSkewLeeway": 0, "OIDCClientAssertion": nil}
	if change != nil {
		change(config)
	}
	return &browser{t, New(nil), p, &acl.AuthMethod{Name: "sso", Type: "oidc", Config: config}}
}

// visit begins a login and lets the browser come back.
func (b *browser) visit(v grants.Visit) grants.Back {
	b.Helper()
	address, err := b.Begin(b.Context(), b.method, &v)
	if err != nil {
		b.Fatal(err)
	}
	back := b.Browse(address)
	if !strings.HasPrefix(back.String(), v.Redirect) {
		b.Fatalf("back to %q", back)
	}
	return grants.Back{State: back.Query().Get("state"), Code: back.Query().Get("code"), Nonce: v.Nonce}
}

func TestBrowserLogin(t *testing.T) {
	b := newBrowser(t, nil)
	if err := b.Check(b.method); err != nil {
		t.Fatal(err)
	}
	meta := map[string]string{"host": "here"}
	back := b.visit(grants.Visit{Redirect: home, Nonce: "n1", Meta: meta, From: netip.MustParseAddr("10.0.0.1")})
	claims, got, err := b.End(t.Context(), b.method, &back)
	if err != nil || !reflect.DeepEqual(got, meta) || claims.Vars["value.team"] != "web" ||
		!reflect.DeepEqual(claims.Selectable["list"], map[string]any{"groups": []string{"a", "b"}}) {
		t.Errorf("%+v, %v, %v", claims, got, err)
	}
	if _, _, err := b.End(t.Context(), b.method, &back); !errkind.Is(err, errkind.Denied) {
		t.Errorf("the second time: %v", err)
	}
}

func TestBrowserLoginsThatAreNotGood(t *testing.T) {
	b := newBrowser(t, nil)
	other := *b.method
	other.Name = "other"
	for name, spoil := range map[string]func(back *grants.Back, m **acl.AuthMethod){
		"another's nonce":    func(back *grants.Back, _ **acl.AuthMethod) { back.Nonce = "n2" },
		"another's state":    func(back *grants.Back, _ **acl.AuthMethod) { back.State = "st_x" },
		"no code":            func(back *grants.Back, _ **acl.AuthMethod) { back.Code = "" },
		"another's code":     func(back *grants.Back, _ **acl.AuthMethod) { back.Code = "x" },
		"at another method":  func(_ *grants.Back, m **acl.AuthMethod) { *m = &other },
		"a token of another": func(*grants.Back, **acl.AuthMethod) { b.Change = func(c map[string]any) { c["aud"] = "x" } },
		"another login's":    func(*grants.Back, **acl.AuthMethod) { b.Change = func(c map[string]any) { c["nonce"] = "x" } },
		"another issuer":     func(*grants.Back, **acl.AuthMethod) { b.Change = func(c map[string]any) { c["iss"] = "x" } },
		"expired": func(*grants.Back, **acl.AuthMethod) {
			b.Change = func(c map[string]any) { c["exp"] = time.Now().Add(-time.Hour).Unix() }
		},
	} {
		b.Change = nil
		back, m := b.visit(grants.Visit{Redirect: home, Nonce: "n1"}), b.method
		spoil(&back, &m)
		if _, _, err := b.End(t.Context(), m, &back); !errkind.Is(err, errkind.Denied) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := b.Begin(t.Context(), b.method, &grants.Visit{Redirect: "https://evil.example/"}); !errkind.Is(err,
		errkind.Invalid) {
		t.Errorf("to somewhere else: %v", err)
	}
	if _, err := b.Begin(t.Context(), b.method, &grants.Visit{Redirect: home,
		Meta: map[string]string{"a": strings.Repeat("x", maxMeta)}}); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("with much to keep: %v", err)
	}
	if _, err := b.Login(t.Context(), b.method, "x.y.z"); err == nil || !strings.Contains(err.Error(), "auth-url") {
		t.Errorf("with a bearer token: %v", err)
	}
}

func TestBrowserMethodsAreChecked(t *testing.T) {
	for field, value := range map[string]any{"OIDCDiscoveryURL": "", "OIDCClientID": "", "OIDCClientSecret": "",
		"AllowedRedirectURIs": []string{}, "BoundIssuer": "x", "OIDCScopes": []string{"a b"}, "JWKSURL": "https://x",
		"ClockSkewLeeway": "1s", "OIDCClientAssertion": map[string]any{}} {
		b := newBrowser(t, func(c map[string]any) { c[field] = value })
		if err := b.Check(b.method); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("%s = %v: %v", field, value, err)
		}
		if b.method.Type = "jwt"; strings.HasPrefix(field, "OIDCClient") && b.Check(b.method) == nil {
			t.Errorf("%s: a method of type jwt has a client", field)
		}
	}
	b := newBrowser(t, func(c map[string]any) { c["AllowedRedirectURIs"] = []string{"/ui"} })
	if err := b.Check(b.method); err == nil || !strings.Contains(err.Error(), "AllowedRedirectURIs[0]") {
		t.Error(err)
	}
}
