package ui_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"corbel.dev/corbel/kit/jwks/jwkstest"
	"corbel.dev/corbel/kit/polltest"
	secretsplane "corbel.dev/corbel/node/planes/secrets"
	uiplane "corbel.dev/corbel/node/planes/ui"
)

// TestLoginAtAProvider: by keyboard alone, at a server of secrets alone, through a provider on another site and back to
// where the person was.
func TestLoginAtAProvider(t *testing.T) {
	t.Parallel()
	chromium(t)
	v, err := secretsplane.NewDevServer(secretsplane.DevConfig{Address: "127.0.0.1:0", RootToken: "root",
		LogLevel: "error", LogOutput: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	uiplane.SecretsAlone(v.Page, v.API())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- v.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	p := jwkstest.New(t, "ES256").Provider("corbel", "shared/secret")
	_, port, _ := strings.Cut(v.Addr().String(), ":")
	s := &stage{t: t, addr: "localhost:" + port, also: p.URL + "/"} // localhost and 127.0.0.1 are two sites
	for _, w := range []struct {
		path string
		body fields
	}{
		{"sys/auth/oidc", fields{"type": "oidc", "description": "the house",
			"config": fields{"listing_visibility": "unauth"}}},
		{"auth/oidc/config", fields{"oidc_discovery_url": p.URL, "oidc_discovery_ca_pem": p.CA, "oidc_client_id": "corbel",
			"oidc_client_secret": "shared/secret", "default_role": "people"}},
		{"sys/policies/acl/people", fields{"policy": `path "secret/*" { capabilities = ["list", "read"] }`}},
		{"auth/oidc/role/people", fields{"user_claim": "sub", "policies": "people",
			"allowed_redirect_uris": "http://" + s.addr + "/ui/vault/auth/oidc/oidc/callback"}},
		{"secret/data/hello", fields{"data": fields{"who": "world"}}},
	} {
		text, err := json.Marshal(w.body)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+v.Addr().String()+"/v1/"+w.path,
			bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Vault-Token", "root")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		said, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close() // it was read
		if answer.StatusCode/100 != 2 {
			t.Fatalf("%s: %s %s", w.path, answer.Status, said)
		}
	}
	s.browse("http://"+s.addr+"/ui/secrets", chromedp.Flag("ignore-certificate-errors", true))
	s.see("button", "Log in with the house")
	s.axe("the form")
	s.run(chromedp.Focus("input[name=password]"))
	s.keys(kb.Tab + kb.Tab) // past the button of user and password
	s.keys(kb.Enter)
	s.see("h1", "Secrets")
	s.see(".foot", "oidc-ann")
	if at, err := evaluate[string](s, "location.pathname + location.search"); err != nil || at != "/ui/secrets" {
		t.Errorf("the login leads to %s, %v", at, err)
	}
	if cookies, err := evaluate[string](s, "document.cookie"); err != nil || cookies != "" {
		t.Errorf("scripts read the cookies %q, %v", cookies, err)
	}
	s.keys("gs")
	s.see(".empty", "This server runs the secrets plane alone.")
	s.axe("a screen of another plane")
	s.keys("go")
	s.see(".planes", "unsealed")
	s.well()
	// A link that somebody made ends no login, and says so.
	s.run(chromedp.Navigate("http://" + s.addr + "/ui/vault/auth/oidc/oidc/callback?state=st_theirs&code=theirs"))
	s.see("[role=alert]", "this login was not begun in this browser")
	s.axe("a login that was refused")
	s.keys(kb.Tab + kb.Enter)
	s.see("h1", "Log in")
}

// axe looks for what keeps people from using the page (axe-core, which stands beside the tests of whole processes).
func (s *stage) axe(what string) {
	s.t.Helper()
	f, err := os.Open("../test/e2e/testdata/axe/axe.min.js.gz")
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		s.t.Fatal(err)
	}
	source, err := io.ReadAll(z)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := evaluate[string](s, string(source)+`; window.found = ''; axe.run().then(r => { window.found =
		JSON.stringify(r.violations.map(v => v.id + ': ' + v.nodes.map(n => n.html.slice(0, 120)).join(' | '))) });
		''`); err != nil {
		s.t.Fatal(err)
	}
	var violations []string
	polltest.Until(s.t, func() bool {
		text, err := evaluate[string](s, "window.found")
		return err == nil && text != "" && json.Unmarshal([]byte(text), &violations) == nil
	}, "axe on %s", what)
	for _, one := range violations {
		s.t.Errorf("%s: axe: %s", what, one)
	}
}
