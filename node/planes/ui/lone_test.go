package uiplane

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"corbel.dev/corbel/kit/jwks/jwkstest"
	secretsplane "corbel.dev/corbel/node/planes/secrets"
	"corbel.dev/corbel/node/planes/ui/secretlogin"
)

// vault is a server of the secrets plane alone, with a page, as an operator opens it.
type vault struct {
	t  *testing.T
	at string
}

func startVault(t *testing.T) *vault {
	t.Helper()
	s, err := secretsplane.NewDevServer(secretsplane.DevConfig{Address: "127.0.0.1:0", RootToken: "root",
		LogLevel: "error", LogOutput: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	SecretsAlone(s.Page, s.API())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return &vault{t, "http://" + s.Addr().String()}
}

func (v *vault) browser() *http.Client {
	jar, err := cookiejar.New(nil)
	if err != nil {
		v.t.Fatal(err)
	}
	c := &http.Client{Jar: jar, Transport: &http.Transport{}}
	v.t.Cleanup(c.CloseIdleConnections)
	return c
}

func (v *vault) do(c *http.Client, method, path string, body any, headers ...string) (int, string) {
	v.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		v.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(v.t.Context(), method, v.at+path, strings.NewReader(string(text)))
	if err != nil {
		v.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w, err := c.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	defer func() { _ = w.Body.Close() }() // it was read
	out, err := io.ReadAll(w.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return w.StatusCode, string(out)
}

// asRoot writes to the secrets plane.
func (v *vault) asRoot(path string, body map[string]any) string {
	v.t.Helper()
	code, text := v.do(v.browser(), "POST", "/v1/"+path, body, "X-Vault-Token", "root")
	if code/100 != 2 {
		v.t.Fatalf("%s: %d %s", path, code, text)
	}
	return text
}

// people sets a provider up at a mount.
func (v *vault) people(mount string, p *jwkstest.Provider, visible bool) {
	visibility := map[bool]string{true: "unauth", false: "hidden"}[visible]
	v.asRoot("sys/auth/"+mount, map[string]any{"type": "oidc", "description": "the house's " + mount,
		"config": map[string]any{"listing_visibility": visibility}})
	v.asRoot("auth/"+mount+"/config", map[string]any{"oidc_discovery_url": p.URL, "oidc_discovery_ca_pem": p.CA,
		"oidc_client_id": p.ClientID, "oidc_client_secret": p.ClientSecret, "default_role": "people"})
	v.asRoot("auth/"+mount+"/role/people", map[string]any{"user_claim": "sub", "policies": "default",
		"allowed_redirect_uris": secretlogin.BackTo(v.at, mount+"/")})
}

// begin begins a login in a browser and gives what the provider sends it back with.
func (v *vault) begin(c *http.Client, p *jwkstest.Provider) map[string]string {
	v.t.Helper()
	code, text := v.do(c, "POST", "/ui/api/login/begin", map[string]string{"method": "secrets:oidc/", "origin": v.at})
	var to struct{ Address string }
	if code != http.StatusOK || json.Unmarshal([]byte(text), &to) != nil {
		v.t.Fatalf("begin: %d %s", code, text)
	}
	back := p.Browse(to.Address)
	if want := secretlogin.BackTo(v.at, "oidc/"); !strings.HasPrefix(back.String(), want+"?") {
		v.t.Fatalf("the provider sends the browser to %s, want %s", back, want)
	}
	return map[string]string{"state": back.Query().Get("state"), "code": back.Query().Get("code")}
}

func (v *vault) end(c *http.Client, back map[string]string) (int, string) {
	return v.do(c, "POST", "/ui/api/login/end", back)
}

// TestOIDC: a person logs in at a provider; rights end when they are taken, and the token with the session.
func TestOIDC(t *testing.T) {
	v, p := startVault(t), jwkstest.New(t, "ES256").Provider("corbel", "shared/secret")
	ann := v.browser()
	methods := func() string {
		_, text := v.do(ann, "GET", "/ui/api/logins", nil)
		return strings.TrimSpace(text)
	}
	v.people("hidden", p, false)
	v.asRoot("sys/auth/machines", map[string]any{"type": "jwt", "config": map[string]any{"listing_visibility": "unauth"}})
	v.people("oidc", p, true)
	if got, want := methods(), `[{"id":"secrets:oidc/","name":"the house's oidc"}]`; got != want {
		t.Fatalf("the form offers %s, want %s", got, want)
	}
	if code, text := v.do(ann, "POST", "/ui/api/login/begin", map[string]string{"method": "secrets:oidc/",
		"origin": "https://elsewhere.example"}); code != http.StatusBadRequest ||
		!strings.Contains(text, "allowed_redirect") {
		t.Errorf("a page at an address that no role allows: %d %s", code, text)
	}
	if code, text := v.end(ann, v.begin(ann, p)); code != http.StatusOK || !strings.Contains(text, "oidc-ann") {
		t.Fatalf("the login: %d %s", code, text)
	}
	lookup := func() (int, string) {
		return v.do(ann, "GET", "/ui/api/as/secrets/v1/auth/token/lookup-self", nil)
	}
	code, text := lookup()
	var self struct{ Data struct{ Accessor string } }
	if code != http.StatusOK || json.Unmarshal([]byte(text), &self) != nil {
		t.Fatalf("the session has no rights: %d %s", code, text)
	}
	if code, text := v.do(ann, "GET", "/ui/api/topic/secrets", nil); code != http.StatusOK ||
		!strings.Contains(text, `"sealed":false`) {
		t.Errorf("the screen of secrets: %d %s", code, text)
	}
	v.asRoot("auth/token/revoke-accessor", map[string]any{"accessor": self.Data.Accessor})
	if code, text := lookup(); code != http.StatusForbidden {
		t.Errorf("rights that were taken go on: %d %s", code, text)
	}
	if code, text := v.end(ann, v.begin(ann, p)); code != http.StatusOK {
		t.Fatalf("the second login: %d %s", code, text)
	}
	if _, text = lookup(); json.Unmarshal([]byte(text), &self) != nil {
		t.Fatal(text)
	}
	if code, _ := v.do(ann, "POST", "/ui/api/logout", nil); code != http.StatusNoContent {
		t.Errorf("logout: %d", code)
	}
	if code, _ := v.do(v.browser(), "POST", "/v1/auth/token/lookup-accessor", map[string]any{
		"accessor": self.Data.Accessor}, "X-Vault-Token", "root"); code == http.StatusOK {
		t.Error("the token that the login made lives on after the logout")
	}
}

// TestOIDCStrangers: a login that was begun elsewhere, or ended before, ends none here, and no cookie that a browser
// brings becomes a session.
func TestOIDCStrangers(t *testing.T) {
	v, p := startVault(t), jwkstest.New(t, "ES256").Provider("corbel", "shared/secret")
	v.people("oidc", p, true)
	mallory, ann := v.browser(), v.browser()
	theirs := v.begin(mallory, p)
	denied := func(what string, c *http.Client, back map[string]string) {
		t.Helper()
		if code, text := v.end(c, back); code != http.StatusForbidden || strings.Contains(text, back["state"]) {
			t.Errorf("%s: %d %s", what, code, text)
		}
		if code, text := v.do(c, "GET", "/ui/api/me", nil); code != http.StatusUnauthorized {
			t.Errorf("%s: a session: %d %s", what, code, text)
		}
	}
	denied("a stranger's login in a browser that began none", ann, theirs)
	mine := v.begin(ann, p)
	denied("a stranger's state", ann, theirs)
	denied("the browser's own state after a failure", ann, mine)
	mine = v.begin(ann, p)
	denied("a stranger's code", ann, map[string]string{"state": mine["state"], "code": theirs["code"]})
	mine = v.begin(ann, p)
	denied("no code", ann, map[string]string{"state": mine["state"]})
	mine = v.begin(ann, p)
	denied("the provider's refusal", ann, map[string]string{"state": mine["state"], "error": "<b>no</b>"})
	p.Change = func(c map[string]any) { c["nonce"] = "another login's" }
	denied("the token of another login", ann, v.begin(ann, p))
	p.Change = nil

	// A session's cookie, and a login's, that somebody planted.
	at, err := url.Parse(v.at)
	if err != nil {
		t.Fatal(err)
	}
	planted := func() []string {
		var out []string
		for _, c := range ann.Jar.Cookies(at) {
			out = append(out, c.Value)
		}
		return out
	}
	ann.Jar.SetCookies(at, []*http.Cookie{{Name: "corbel_session", Value: "planted", Path: "/"}})
	mine = v.begin(ann, p)
	if code, text := v.end(ann, mine); code != http.StatusOK {
		t.Fatalf("the login: %d %s", code, text)
	}
	if got := fmt.Sprint(planted()); got == "[planted]" || len(planted()) != 1 {
		t.Errorf("the session is %s", got)
	}
	denied("a login that was ended", v.browser(), mine)
	if code, _ := v.end(ann, mine); code != http.StatusForbidden {
		t.Errorf("a code that was used is good again: %d", code)
	}
	if code, _ := v.do(ann, "POST", "/ui/api/login/begin", map[string]string{"method": "secrets:oidc/", "origin": v.at},
		"Sec-Fetch-Site", "cross-site"); code != http.StatusForbidden {
		t.Errorf("another site's page begins a login: %d", code)
	}
	for _, method := range []string{"", "oidc/", "secrets:", "secrets:oidc", "secrets:../sys/",
		"secrets:oidc/../token/"} {
		if code, text := v.do(ann, "POST", "/ui/api/login/begin", map[string]string{"method": method,
			"origin": v.at}); code != http.StatusBadRequest {
			t.Errorf("the method %q: %d %s", method, code, text)
		}
	}
	for _, origin := range []string{"", "javascript:alert(1)", "corbel.example", "https://u@corbel.example"} {
		if code, text := v.do(ann, "POST", "/ui/api/login/begin", map[string]string{"method": "secrets:oidc/",
			"origin": origin}); code != http.StatusBadRequest || !strings.Contains(text, "origin") {
			t.Errorf("the origin %q: %d %s", origin, code, text)
		}
	}
}

// key gives the entity of an alias at a mount a key of a method, and the engine at totp/ the same in the place of an
// app.
func (v *vault) key(method, alias, mount string) {
	v.t.Helper()
	var at, entity struct {
		Data struct {
			Accessor, ID, URL string
		}
	}
	_, text := v.do(v.browser(), "GET", "/v1/sys/auth/"+mount, nil, "X-Vault-Token", "root")
	if err := json.Unmarshal([]byte(text), &at); err != nil {
		v.t.Fatal(err)
	}
	text = v.asRoot("identity/lookup/entity", map[string]any{"alias_name": alias,
		"alias_mount_accessor": at.Data.Accessor})
	if err := json.Unmarshal([]byte(text), &entity); err != nil {
		v.t.Fatal(err)
	}
	text = v.asRoot("identity/mfa/method/totp/admin-generate", map[string]any{"method_id": method,
		"entity_id": entity.Data.ID})
	if err := json.Unmarshal([]byte(text), &entity); err != nil {
		v.t.Fatal(err)
	}
	v.asRoot("totp/keys/"+mount, map[string]any{"url": entity.Data.URL})
}

// TestSecondFactor: no session before the passcode, by password and through a provider; a code is good once.
func TestSecondFactor(t *testing.T) {
	v, p := startVault(t), jwkstest.New(t, "ES256").Provider("corbel", "shared/secret")
	v.people("oidc", p, true)
	v.asRoot("sys/auth/userpass", map[string]any{"type": "userpass"})
	v.asRoot("auth/userpass/users/eve", map[string]any{ // pw, hashed with the least cost
		"password_hash": "$2a$04$beKgeTU7vxgQYCHA3mDDOuKHs.V7qxmuVUiTBuV8.Q4odmiIaIGQK"})
	v.asRoot("sys/mounts/totp", map[string]any{"type": "totp"})
	var made struct {
		Data struct {
			ID string `json:"method_id"`
		}
	}
	text := v.asRoot("identity/mfa/method/totp", map[string]any{"issuer": "Corbel", "method_name": "app"})
	if err := json.Unmarshal([]byte(text), &made); err != nil {
		t.Fatal(err)
	}
	v.asRoot("identity/mfa/login-enforcement/people", map[string]any{"mfa_method_ids": made.Data.ID,
		"auth_method_types": "userpass,oidc"})
	b := v.browser()
	login := func() (int, string) {
		return v.do(b, "POST", "/ui/api/login", map[string]string{"user": "eve", "password": "pw"})
	}
	lacks := func(code int, text string) string {
		t.Helper()
		var in struct{ Factor struct{ Handle string } }
		if code != http.StatusOK || json.Unmarshal([]byte(text), &in) != nil || in.Factor.Handle == "" ||
			!strings.Contains(text, `"asks":[{"name":"people","methods":[{"id":"`+made.Data.ID+`","name":"app"}]}]`) {
			t.Fatalf("a login that lacks a factor: %d %s", code, text)
		}
		if code, text := v.do(b, "GET", "/ui/api/me", nil); code != http.StatusUnauthorized {
			t.Errorf("a session without it: %d %s", code, text)
		}
		return in.Factor.Handle
	}
	give := func(handle, code string) (int, string) {
		return v.do(b, "POST", "/ui/api/login/factor", map[string]any{"handle": handle,
			"codes": map[string]string{made.Data.ID: code}})
	}
	now := func(mount string) string {
		var in struct{ Data struct{ Code string } }
		_, text := v.do(v.browser(), "GET", "/v1/totp/code/"+mount, nil, "X-Vault-Token", "root")
		if json.Unmarshal([]byte(text), &in) != nil || in.Data.Code == "" {
			t.Fatal(text)
		}
		return in.Data.Code
	}
	handle := lacks(login()) // and makes the entity
	v.key(made.Data.ID, "eve", "userpass")
	if code, text := give(handle, "none"); code != http.StatusForbidden ||
		!strings.Contains(text, "the passcode is wrong") {
		t.Errorf("a wrong passcode: %d %s", code, text)
	}
	used := now("userpass")
	if code, text := give(handle, " "+used+" "); code != http.StatusOK || !strings.Contains(text, `"name":"eve"`) {
		t.Fatalf("the passcode: %d %s", code, text)
	}
	if code, text := v.do(b, "GET", "/ui/api/as/secrets/v1/auth/token/lookup-self", nil); code != http.StatusOK ||
		!strings.Contains(text, "userpass-eve") {
		t.Errorf("the session: %d %s", code, text)
	}
	if code, text := v.do(b, "POST", "/ui/api/logout", nil); code != http.StatusNoContent {
		t.Errorf("logout: %d %s", code, text)
	}
	if code, text := give(lacks(login()), used); code != http.StatusForbidden || !strings.Contains(text, "already used") {
		t.Errorf("the same passcode again: %d %s", code, text)
	}
	handle = lacks(v.end(b, v.begin(b, p)))
	v.key(made.Data.ID, "ann", "oidc")
	if code, text := give(handle, now("oidc")); code != http.StatusOK || !strings.Contains(text, "oidc-ann") {
		t.Errorf("through a provider: %d %s", code, text)
	}
	// What the plane has forgotten, as after a failover or with the method, is over.
	b = v.browser()
	handle = lacks(login())
	if code, text := v.do(b, "DELETE", "/v1/sys/auth/userpass", nil, "X-Vault-Token", "root"); code/100 != 2 {
		t.Fatalf("%d %s", code, text)
	}
	if code, text := give(handle, "123456"); code != http.StatusForbidden || !strings.Contains(text, "Log in again") {
		t.Errorf("a login at a method that went: %d %s", code, text)
	}
}

// TestSecretsAlone: a server of the secrets plane alone serves the page, its own screens, and why it has no others.
func TestSecretsAlone(t *testing.T) {
	v := startVault(t)
	c := v.browser()
	if code, text := v.do(c, "GET", "/ui/secrets", nil); code != http.StatusOK || !strings.Contains(text, `id="app"`) {
		t.Fatalf("the page: %d %s", code, text)
	}
	if code, _ := v.do(c, "GET", "/ui/api/topic/secrets", nil); code != http.StatusUnauthorized {
		t.Errorf("without a login: %d", code)
	}
	for _, body := range []map[string]string{{"token": "wrong"}, {"user": "ann", "password": "wrong"}} {
		if code, text := v.do(c, "POST", "/ui/api/login", body); code != http.StatusForbidden {
			t.Errorf("%v: %d %s", body, code, text)
		}
	}
	if code, text := v.do(c, "POST", "/ui/api/login", map[string]string{"token": "root"}); code != http.StatusOK {
		t.Fatalf("login: %d %s", code, text)
	}
	for path, want := range map[string]string{
		"/ui/api/me":              `"planes":{"secrets":true}`,
		"/ui/api/topic/secrets":   `"secret/"`,
		"/ui/api/topic/overview":  `"words":"unsealed"`,
		"/ui/api/topic/services":  "the catalog does not run on this server",
		"/ui/api/topic/incidents": "the monitor does not run on this server",
		"/ui/api/topic/doctor":    "a server in dev mode has no doctor",
		"/ui/api/search?q=x":      "[]",
		"/v1/sys/seal-status":     `"sealed":false`,
	} {
		if _, text := v.do(c, "GET", path, nil); !strings.Contains(text, want) {
			t.Errorf("%s: %s, want %s", path, text, want)
		}
	}
}
