package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/jwks/jwkstest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/testport"
)

// A person logs in on the command line through the browser, at a provider that checks what RFC 6749 and RFC 7636 ask
// for.
func TestLoginWithABrowser(t *testing.T) {
	p := jwkstest.New(t, "RS256").Provider("vault", "shared secret")
	p.Info = map[string]any{"sub": "ann", "team": "web"}
	ca := t.TempDir() + "/ca.pem"
	if err := os.WriteFile(ca, []byte(p.CA), 0o600); err != nil {
		t.Fatal(err)
	}
	ports, err := testport.Free(1)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprint("127.0.0.1:", ports[0])
	home := t.TempDir()
	env := append(os.Environ(), "VAULT_ADDR=http://"+address, "VAULT_TOKEN=root", "HOME="+home, "XDG_CONFIG_HOME=")
	vault := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), filepath.Join(binDir, "corbel"), append([]string{"vault"}, args...)...)
		cmd.Env = env
		return cmd
	}
	server := vault("server", "-dev", "-dev-root-token-id=root", "-dev-no-store-token", "-dev-listen-address="+address)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	polltest.Until(t, func() bool { return vault("status").Run() == nil }, "the server")
	for _, args := range [][]string{
		{"auth", "enable", "oidc"},
		{"write", "auth/oidc/config", "oidc_discovery_url=" + p.URL, "oidc_discovery_ca_pem=@" + ca, "oidc_client_id=vault",
			"oidc_client_secret=shared secret", "default_role=people"},
		{"write", "auth/oidc/role/people", "user_claim=sub", "allowed_redirect_uris=http://localhost:8250/oidc/callback",
			"claim_mappings=team=team", "policies=default"},
	} {
		if out, err := vault(args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	token := throughBrowser(t, p, vault("login", "-method=oidc", "-token-only", "port=0", "skip_browser=true",
		"role=people"))
	cmd := vault("token", "lookup", "-format=json", token)
	about, err := cmd.Output()
	if err != nil || !strings.Contains(string(about), `"display_name": "oidc-ann"`) ||
		!strings.Contains(string(about), `"team": "web"`) {
		t.Errorf("the token is %s, %v", about, err)
	}
	// Corbel's own login keeps the token for the commands that follow, and shows it to nobody.
	own := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), filepath.Join(binDir, "corbel"), args...)
		cmd.Env = slices.DeleteFunc(slices.Clone(env), func(v string) bool { return strings.HasPrefix(v, "VAULT_TOKEN=") })
		return cmd
	}
	if said := throughBrowser(t, p, own("login", "--method", "oidc", "--no-browser", "--callback-port", "0")); said !=
		"Logged in at the secrets of http://"+address {
		t.Errorf("corbel login says %q", said)
	}
	files, err := filepath.Glob(filepath.Join(home, ".config", "corbel", "logins", "secrets-*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the kept logins are %q, %v", files, err)
	}
	var kept struct{ Token string }
	if text, err := os.ReadFile(files[0]); err != nil || json.Unmarshal(text, &kept) != nil {
		t.Fatal(err)
	}
	about, err = vault("token", "lookup", "-format=json", kept.Token).Output()
	if err != nil || !strings.Contains(string(about), `"display_name": "oidc-ann"`) {
		t.Errorf("the kept token is %s, %v", about, err)
	}
	if out, err := own("login", "--method", "none", "--no-browser", "--callback-port", "0").CombinedOutput(); err == nil ||
		!strings.Contains(string(out), `the method "none" of the secrets plane`) {
		t.Errorf("a method that is not there: %s, %v", out, err)
	}
}

// throughBrowser runs a command that logs in, follows the address that it names to the provider and back as a browser
// does, and returns what it prints.
func throughBrowser(t *testing.T, p *jwkstest.Provider, login *exec.Cmd) string {
	t.Helper()
	var out strings.Builder
	login.Stdout = &out
	says, err := login.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := login.Start(); err != nil {
		t.Fatal(err)
	}
	link, told, lines := "", "", bufio.NewScanner(says)
	for link == "" && lines.Scan() {
		told += lines.Text() + "\n"
		link = regexp.MustCompile(`https://\S+`).FindString(lines.Text())
	}
	if link == "" {
		t.Fatalf("the command names no address: %s", told)
	}
	res, err := http.Get(p.Browse(link).String())
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil || !strings.Contains(string(page), "may be closed") {
		t.Errorf("the browser shows %q, %v", page, err)
	}
	_, _ = io.Copy(io.Discard, says)
	if err := login.Wait(); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out.String())
}

// TestPageLoginAtAMethodOfTheCatalog: a JWT is traded for a session of the web UI, with the rights that its binding
// rule gives and no more, and the token ends with the session.
func TestPageLoginAtAMethodOfTheCatalog(t *testing.T) {
	issuer := jwkstest.New(t, "ES256")
	d := newDev(t, "--hcl", `acl { default_policy = "deny" }`)
	d.start()
	type object map[string]any
	for _, w := range []struct {
		path string
		body object
	}{
		{"/v1/acl/policy", object{"Name": "people", "Rules": `key_prefix "app/" { policy = "read" }`}},
		{"/v1/acl/auth-method", object{"Name": "ci", "Type": "jwt", "Config": object{
			"JWTValidationPubKeys": []string{issuer.PublicKey()}, "BoundIssuer": issuer.URL,
			"JWTSupportedAlgs": []string{"ES256"}}}},
		{"/v1/acl/binding-rule", object{"AuthMethod": "ci", "BindType": "policy", "BindName": "people"}},
	} {
		text, err := json.Marshal(w.body)
		if err != nil {
			t.Fatal(err)
		}
		polltest.NoError(t, time.Minute, func() error {
			_, err := ask(d.base(), "PUT", "/ui/api/as/catalog"+w.path, string(text))
			return err
		}, "%s", w.path)
	}
	ann := &http.Client{}
	ann.Jar, _ = cookiejar.New(nil) // it fails never
	do := func(method, path, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, d.base()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := ann.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(text)
	}
	if code, text := do("POST", "/ui/api/login", `{"method":"ci","token":"made.up.words"}`); code == http.StatusOK {
		t.Errorf("a proof that is none: %d %s", code, text)
	}
	proof := issuer.Sign(map[string]any{"iss": issuer.URL, "sub": "ann", "exp": time.Now().Add(time.Hour).Unix()})
	if code, text := do("POST", "/ui/api/login", `{"method":"ci","token":"`+proof+`"}`); code != http.StatusOK {
		t.Fatalf("the login: %d %s", code, text)
	}
	if _, text := do("GET", "/ui/api/me", ""); !strings.Contains(text, `"name":"ci"`) ||
		!strings.Contains(text, `"open":false`) {
		t.Errorf("the session is %s", text)
	}
	code, self := do("GET", "/ui/api/as/catalog/v1/acl/token/self", "")
	var token struct{ AccessorID string }
	if code != http.StatusOK || json.Unmarshal([]byte(self), &token) != nil {
		t.Fatalf("its token: %d %s", code, self)
	}
	if code, text := do("GET", "/ui/api/as/catalog/v1/acl/policies", ""); code != http.StatusForbidden {
		t.Errorf("it has rights that nobody gave: %d %s", code, text)
	}
	if code, text := do("POST", "/ui/api/logout", ""); code != http.StatusNoContent {
		t.Errorf("logout: %d %s", code, text)
	}
	if text, err := ask(d.base(), "GET", "/ui/api/as/catalog/v1/acl/token/"+token.AccessorID, ""); err == nil {
		t.Errorf("the token lives on after the logout: %s", text)
	}
}

// TestLoginsAtAProviderOfTheCatalog: an auth method of type oidc gives tokens to people, through the page, through the
// command line of both names, and through that of the jobs plane (nomadlogin_test.go), and the provider's secret stays
// with the servers. The monitor's providers are tried at the same server (monitorlogin_test.go).
func TestLoginsAtAProviderOfTheCatalog(t *testing.T) {
	p := jwkstest.New(t, "RS256").Provider("corbel", "shared secret")
	p.Info = map[string]any{"sub": "ann", "team": "people"}
	d := newDev(t, "--hcl", `acl { default_policy = "deny" }`)
	jobs := openJobsDoor(t, d.ports[6], p)
	d.start()
	type object map[string]any
	for _, w := range []struct {
		path string
		body object
	}{
		{"/v1/acl/policy", object{"Name": "people", "Rules": `key_prefix "app/" { policy = "read" }`}},
		{"/v1/acl/auth-method", object{"Name": "sso", "Type": "oidc", "DisplayName": "The house", "Default": true,
			"Config": object{
				"OIDCDiscoveryURL": p.URL, "OIDCDiscoveryCACert": p.CA, "OIDCClientID": "corbel",
				"OIDCClientSecret":    "shared secret",
				"AllowedRedirectURIs": []string{d.base() + "/ui/oidc/callback", "http://localhost:8550/oidc/callback"},
				"ClaimMappings":       object{"team": "team"}}}},
		{"/v1/acl/binding-rule", object{"AuthMethod": "sso", "BindType": "policy", "BindName": "${value.team}"}},
	} {
		text, err := json.Marshal(w.body)
		if err != nil {
			t.Fatal(err)
		}
		polltest.NoError(t, time.Minute, func() error {
			_, err := ask(d.base(), "PUT", "/ui/api/as/catalog"+w.path, string(text))
			return err
		}, "%s", w.path)
	}
	ann := &http.Client{}
	ann.Jar, _ = cookiejar.New(nil) // it fails never
	do := func(method, path, body string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, d.base()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := ann.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode/100 != 2 {
			t.Fatalf("%s %s: %s, %s, %v", method, path, res.Status, text, err)
		}
		return string(text)
	}
	// The page learns of a new method within its quarter of a minute.
	polltest.Until(t, func() bool {
		return strings.Contains(do("GET", "/ui/api/logins", ""), `{"id":"catalog:sso","name":"The house"}`)
	}, "the method on the form")
	var begun struct{ Address string }
	text := do("POST", "/ui/api/login/begin", `{"method":"catalog:sso","origin":"`+d.base()+`"}`)
	if err := json.Unmarshal([]byte(text), &begun); err != nil {
		t.Fatal(err)
	}
	back := p.Browse(begun.Address)
	if !strings.HasPrefix(back.String(), d.base()+"/ui/oidc/callback?") {
		t.Fatalf("the provider sends the browser to %s", back)
	}
	do("POST", "/ui/api/login/end", `{"state":"`+back.Query().Get("state")+`","code":"`+back.Query().Get("code")+`"}`)
	if self := do("GET", "/ui/api/as/catalog/v1/acl/token/self", ""); !strings.Contains(self, `"Name": "people"`) ||
		!strings.Contains(self, `"AuthMethod": "sso"`) {
		t.Errorf("its token is %s", self)
	}
	sink := t.TempDir() + "/token"
	login := exec.CommandContext(t.Context(), filepath.Join(binDir, "corbel"), "consul", "login", "-type=oidc",
		"-method=sso", "-oidc-callback-listen-addr=localhost:0", "-token-sink-file="+sink)
	login.Env = append(os.Environ(), "CONSUL_HTTP_ADDR="+d.base(), "PATH=") // opens no browser
	throughBrowser(t, p, login)
	secret, err := os.ReadFile(sink)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", d.base()+"/v1/acl/token/self", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Consul-Token", string(secret))
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if self, err := io.ReadAll(res.Body); err != nil || !strings.Contains(string(self), `"AuthMethod": "sso"`) {
		t.Errorf("the command line's token is %s, %v", self, err)
	}
	// The jobs plane's login, which names no method: it is by the default one.
	token := jobs.login(map[string]any{})
	if self := jobs.run(token, "acl", "token", "self"); !strings.Contains(self, "people") {
		t.Errorf("its token is %s", self)
	}
	jobs.whole()
	monitorLogins(t, d, p, do)
}
