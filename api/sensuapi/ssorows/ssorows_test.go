package ssorows_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"corbel.dev/corbel/api/sensuapi/sensurest"
	"corbel.dev/corbel/api/sensuapi/ssorows"
	"corbel.dev/corbel/kit/jwks/jwkstest"
	"corbel.dev/corbel/monitor/logins"
	"corbel.dev/corbel/monitor/resources/resourcestest"
	"corbel.dev/corbel/monitor/sso"
	"corbel.dev/corbel/monitor/users"
)

const (
	adminKey = "83abef1e-e7d7-4beb-91fc-79ad90084d5b"
	home     = "http://localhost:8000/oidc/callback"
	house    = "/api/enterprise/authentication/v2/authproviders/house"
)

// rig is the API with a provider whose claims and clock the test moves.
type rig struct {
	*testing.T
	*jwkstest.Provider
	url    string
	now    atomic.Int64 // seconds that the clock is ahead
	claims atomic.Pointer[map[string]any]
}

func newRig(t *testing.T) *rig {
	g := &rig{T: t, Provider: jwkstest.New(t, "ES256").Provider("corbel", "shared secret")}
	clock := func() time.Time { return time.Now().Add(time.Duration(g.now.Load()) * time.Second) }
	g.Now = clock
	g.claims.Store(&map[string]any{})
	g.Change = func(c map[string]any) { maps.Copy(c, *g.claims.Load()) }
	r, _ := resourcestest.New()
	ops, err := users.Seed("admin", "long enough", adminKey, bcrypt.MinCost, 1)
	if err == nil {
		err = r.Write(t.Context(), ops...)
	}
	if err != nil {
		t.Fatal(err)
	}
	l, err := logins.New(logins.Config{Resources: r, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	mux := http.NewServeMux()
	mux.Handle(ssorows.Below, ssorows.New(sso.New(sso.Config{Resources: r, Logins: l, Now: clock}), log))
	mux.Handle("/", sensurest.New(sensurest.Config{Resources: r, Logins: l, Now: clock, Log: log,
		Users: users.New(users.Config{Resources: r, Cost: bcrypt.MinCost})}))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	g.url = server.URL
	return g
}

// ask sends a request and gives status, body, and where it leads to.
func (g *rig) ask(auth, method, path, body string) (status int, text, to string) {
	g.Helper()
	r, err := http.NewRequestWithContext(g.Context(), method, g.url+path, strings.NewReader(body))
	if err != nil {
		g.Fatal(err)
	}
	r.Header.Set("Authorization", auth)
	res, err := http.DefaultTransport.RoundTrip(r) // a redirect is an answer
	if err != nil {
		g.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		g.Fatal(err)
	}
	return res.StatusCode, string(b), res.Header.Get("Location")
}

// put writes as the administrator.
func (g *rig) put(path, body string) {
	g.Helper()
	if status, text, _ := g.ask("Key "+adminKey, "PUT", path, body); status/100 != 2 {
		g.Fatalf("PUT %s: %d %s", path, status, text)
	}
}

// provider is the body of the provider, with fields of its spec changed.
func (g *rig) provider(change map[string]any) string {
	g.Helper()
	spec := map[string]any{"server": g.URL, "ca_cert": g.CA, "client_id": "corbel", "client_secret": "shared secret",
		"redirect_uri": g.url + ssorows.Below + "callback", "username_claim": "email", "username_prefix": "oidc:",
		"groups_claim": "groups", "groups_prefix": "oidc:", "additional_scopes": []string{"groups", "email"},
		"disable_offline_access": false}
	maps.Copy(spec, change)
	text, err := json.Marshal(map[string]any{"type": "oidc", "api_version": "authentication/v2",
		"metadata": map[string]string{"name": "house"}, "spec": spec})
	if err != nil {
		g.Fatal(err)
	}
	return string(text)
}

// begin goes as far as the browser's way back to the person's machine.
func (g *rig) begin() (state, code string) {
	g.Helper()
	status, text, _ := g.ask("", "POST", ssorows.Below+"authorize", `{"callback":"`+home+`","client_nonce":"mine"}`)
	var begun struct {
		Address string `json:"auth_url"`
	}
	if err := json.Unmarshal([]byte(text), &begun); err != nil || status != http.StatusOK {
		g.Fatalf("authorize: %d %s", status, text)
	}
	back := g.Browse(begun.Address)
	if !strings.HasPrefix(back.String(), g.url+ssorows.Below+"callback?") {
		g.Fatalf("the provider sends the browser to %s", back)
	}
	status, text, to := g.ask("", "GET", back.RequestURI(), "")
	if status != http.StatusFound || !strings.HasPrefix(to, home+"?") {
		g.Fatalf("the browser is sent on: %d %s to %s", status, text, to)
	}
	q := back.Query()
	if want := home + "?code=" + q.Get("code") + "&state=" + q.Get("state"); to != want {
		g.Errorf("the browser is sent on to %s, want %s", to, want)
	}
	return q.Get("state"), q.Get("code")
}

func (g *rig) end(state, code, nonce string) (status int, text string) {
	g.Helper()
	status, text, _ = g.ask("", "POST", ssorows.Below+"token",
		fmt.Sprintf(`{"state":%q,"code":%q,"client_nonce":%q}`, state, code, nonce))
	return status, text
}

// login logs in whom the claims name.
func (g *rig) login(claims map[string]any) (t logins.Tokens) {
	g.Helper()
	g.claims.Store(&claims)
	state, code := g.begin()
	status, text := g.end(state, code, "mine")
	if err := json.Unmarshal([]byte(text), &t); err != nil || status != http.StatusOK {
		g.Fatalf("the login: %d %s", status, text)
	}
	return t
}

// may tells what a token may: read checks, write one.
func (g *rig) may(access string, read, write int) {
	g.Helper()
	const checks = "/api/core/v2/namespaces/default/checks"
	if status, text, _ := g.ask("Bearer "+access, "GET", checks, ""); status != read {
		g.Errorf("checks are read: %d %s, want %d", status, text, read)
	}
	if status, text, _ := g.ask("Bearer "+access, "PUT", checks+"/c1", `{"command":"true","interval":10,`+
		`"metadata":{"name":"c1","namespace":"default"},"subscriptions":["all"]}`); status != write {
		g.Errorf("a check is written: %d %s, want %d", status, text, write)
	}
}

// TestWholeWay: a person whom a provider names acts with the roles of the groups of its claims, until the clock, the
// provider's end, or another naming ends the session.
func TestWholeWay(t *testing.T) {
	g := newRig(t)
	const begin = `{"callback":"` + home + `","client_nonce":"n"}`
	if status, text, _ := g.ask("", "POST", ssorows.Below+"authorize", begin); status != 404 ||
		!strings.Contains(text, "no authentication provider") {
		t.Errorf("without a provider: %d %s", status, text)
	}
	g.put(house, g.provider(nil))
	g.put("/api/core/v2/namespaces/default/roles/readers",
		`{"rules":[{"verbs":["get","list"],"resources":["checks"]}]}`)
	g.put("/api/core/v2/namespaces/default/rolebindings/readers", `{"subjects":[{"type":"Group","name":"oidc:ops"}],`+
		`"role_ref":{"type":"Role","name":"readers"}}`)
	g.put("/api/core/v2/clusterrolebindings/bob", `{"subjects":[{"type":"User","name":"oidc:bob@x.example"}],`+
		`"role_ref":{"type":"ClusterRole","name":"admin"}}`)
	ann := map[string]any{"email": "ann@x.example", "email_verified": true, "groups": []string{"ops", "web"}}
	first := g.login(ann)
	g.may(first.Access, 200, 403)
	g.may(g.login(map[string]any{"email": "bob@x.example", "groups": "ops"}).Access, 200, 201)
	g.may(g.login(map[string]any{"email": "eve@x.example"}).Access, 403, 403)

	g.now.Store(int64(logins.AccessTime/time.Second) + 1)
	g.may(first.Access, 401, 401)
	status, text, _ := g.ask("Bearer "+first.Access, "POST", "/auth/token", `{"refresh_token":"`+first.Refresh+`"}`)
	var next logins.Tokens
	if err := json.Unmarshal([]byte(text), &next); err != nil || status != http.StatusOK {
		t.Fatalf("the tokens are renewed: %d %s", status, text)
	}
	g.may(next.Access, 200, 403)
	if status, text, _ := g.ask("Bearer "+first.Access, "POST", "/auth/token",
		`{"refresh_token":"`+first.Refresh+`"}`); status != 401 {
		t.Errorf("a refresh token that was used: %d %s", status, text)
	}
	g.may(next.Access, 401, 401) // a copy ends the session

	late := g.login(ann)
	g.now.Add(int64(logins.RefreshTime/time.Second) - 60)
	status, text, _ = g.ask("Bearer "+late.Access, "POST", "/auth/token", `{"refresh_token":"`+late.Refresh+`"}`)
	if err := json.Unmarshal([]byte(text), &late); err != nil || status != http.StatusOK {
		t.Fatalf("renewed within the session's last minute: %d %s", status, text)
	}
	g.may(late.Access, 200, 403)
	g.now.Add(61)
	g.may(late.Access, 401, 401)
	if status, text, _ = g.ask("Bearer "+late.Access, "POST", "/auth/token",
		`{"refresh_token":"`+late.Refresh+`"}`); status != 401 {
		t.Errorf("a session whose time is over is renewed: %d %s", status, text)
	}

	again := g.login(ann)
	if status, text, _ := g.ask("Bearer "+again.Access, "POST", "/auth/logout",
		`{"refresh_token":"`+again.Refresh+`"}`); status != 200 {
		t.Errorf("logout: %d %s", status, text)
	}
	g.may(again.Access, 401, 401)
	again = g.login(ann)
	g.put(house, g.provider(map[string]any{"client_secret": "REDACTED"})) // as it is shown: nothing changes
	g.may(again.Access, 200, 403)
	g.put("/api/core/v2/users/ann", `{"username":"ann","password":"long enough"}`)
	again = g.login(ann)
	g.put(house, g.provider(map[string]any{"groups_prefix": "other:"}))
	g.may(again.Access, 401, 401)
	again = g.login(ann)
	g.may(again.Access, 403, 403) // the group has another name now
	if status, text, _ := g.ask("Key "+adminKey, "DELETE", house, ""); status != 204 {
		t.Fatalf("the provider is deleted: %d %s", status, text)
	}
	g.may(again.Access, 401, 401)
}

// TestRefusedLogins: what is not of the login that was begun, or names nobody, gives no session.
func TestRefusedLogins(t *testing.T) {
	g := newRig(t)
	g.put(house, g.provider(map[string]any{"username_prefix": ""}))
	good := map[string]any{"email": "ann", "groups": []string{"ops"}}
	with := func(change map[string]any) map[string]any {
		out := maps.Clone(good)
		maps.Copy(out, change)
		return out
	}
	for _, c := range []struct {
		name   string
		claims map[string]any
		spoil  func(state, code, nonce *string)
		says   string
	}{
		{"another's nonce", good, func(_, _, nonce *string) { *nonce = "theirs" }, "client_nonce"},
		{"no nonce", good, func(_, _, nonce *string) { *nonce = "" }, "client_nonce"},
		{"another's state", good, func(state, _, _ *string) { *state = "st_theirs" }, "state"},
		{"another's code", good, func(_, code, _ *string) { *code = "theirs" }, "exchanged no code"},
		{"no code", good, func(_, code, _ *string) { *code = "" }, "no code"},
		{"another login's token", with(map[string]any{"nonce": "x"}), nil, "nonce"},
		{"another client's token", with(map[string]any{"aud": "x"}), nil, "another client's"},
		{"another issuer's token", with(map[string]any{"iss": "https://x"}), nil, "issuer"},
		{"a stored user's name", with(map[string]any{"email": "admin"}), nil, "username_prefix"},
		{"no name", map[string]any{"groups": "ops"}, nil, "username_claim"},
		{"a name of another kind", with(map[string]any{"email": []string{"ann"}}), nil, "username_claim"},
		{"a name with a line break", with(map[string]any{"email": "a\nb"}), nil, "username_claim"},
		{"an email that nobody verified", with(map[string]any{"email_verified": false}), nil, "email"},
		{"an email that nobody verified, as a text", with(map[string]any{"email_verified": "false"}), nil, "email"},
		{"a group of another kind", with(map[string]any{"groups": []any{"ops", []string{"x"}}}), nil, "groups_claim"},
		{"too many groups", with(map[string]any{"groups": strings.Split(strings.Repeat("g,", 1001)+"g", ",")}), nil,
			"groups_claim"},
	} {
		g.claims.Store(&c.claims)
		state, code := g.begin()
		nonce := "mine"
		if c.spoil != nil {
			c.spoil(&state, &code, &nonce)
		}
		if status, text := g.end(state, code, nonce); status != 403 || !strings.Contains(text, c.says) ||
			strings.Contains(text, "access_token") {
			t.Errorf("%s: %d %s, want 403 and %q", c.name, status, text, c.says)
		}
	}
	g.claims.Store(&good)
	state, code := g.begin()
	if status, text := g.end(state, code, "mine"); status != 200 {
		t.Errorf("the login itself: %d %s", status, text)
	}
	if status, text := g.end(state, code, "mine"); status != 403 {
		t.Errorf("the second time: %d %s", status, text)
	}
	if status, text, to := g.ask("", "GET", ssorows.Below+"callback?state=st_theirs&code=x", ""); status != 403 ||
		to != "" {
		t.Errorf("a link that somebody made: %d %s %s", status, text, to)
	}
	for _, c := range []struct{ body, says string }{
		{`{"callback":"https://evil.example/oidc/callback","client_nonce":"n"}`, "callback"},
		{`{"callback":"http://localhost.evil.example/oidc/callback","client_nonce":"n"}`, "callback"},
		{`{"callback":"http://localhost:1/elsewhere","client_nonce":"n"}`, "callback"},
		{`{"callback":"/ui/oidc/callback","client_nonce":"n"}`, "callback"},
		{`{"callback":"` + home + `"}`, "client_nonce"},
		{`{"callback":"` + home + `","client_nonce":"` + strings.Repeat("n", 300) + `"}`, "client_nonce"},
		{`[`, "body"},
	} {
		if status, text, _ := g.ask("", "POST", ssorows.Below+"authorize", c.body); status != 400 ||
			!strings.Contains(text, c.says) {
			t.Errorf("%s: %d %s, want 400 and %q", c.body, status, text, c.says)
		}
	}
	if status, text, _ := g.ask("", "POST", ssorows.Below+"authorize", `{"provider":"none","callback":"`+home+
		`","client_nonce":"n"}`); status != 404 || !strings.Contains(text, "provider") {
		t.Errorf("a provider that is not there: %d %s", status, text)
	}
}

// TestProviders: the secret is never shown, and what is wrong with a provider is told with its field.
func TestProviders(t *testing.T) {
	g := newRig(t)
	g.put(house, g.provider(nil))
	for _, path := range []string{house, "/api/enterprise/authentication/v2/authproviders"} {
		if status, text, _ := g.ask("Key "+adminKey, "GET", path, ""); status != 200 ||
			strings.Contains(text, "shared secret") || !strings.Contains(text, `"client_secret":"REDACTED"`) {
			t.Errorf("GET %s: %d %s", path, status, text)
		}
		if status, text, _ := g.ask("", "GET", path, ""); status != 401 {
			t.Errorf("GET %s by nobody: %d %s", path, status, text)
		}
		if status, text, _ := g.ask("Bearer "+g.login(map[string]any{"email": "eve"}).Access, "GET", path,
			""); status != 403 {
			t.Errorf("GET %s by whoever logs in: %d %s", path, status, text)
		}
	}
	for field, value := range map[string]any{"server": "", "client_id": "", "client_secret": "", "redirect_uri": "",
		"username_claim": ""} {
		g.refuses(g.provider(map[string]any{field: value}), field)
	}
	for field, value := range map[string]any{"server": "ftp://x", "redirect_uri": "https://x/callback",
		"additional_scopes": []string{"a b"}, "ca_cert": "x", "groups_claim": 5, "username_prefix": []string{}} {
		g.refuses(g.provider(map[string]any{field: value}), field)
	}
	g.refuses(strings.Replace(g.provider(nil), `"oidc"`, `"saml"`, 1), `type \"saml\"`)
	if status, text, _ := g.ask("Key "+adminKey, "DELETE", house, ""); status != 204 {
		t.Fatalf("the provider is deleted: %d %s", status, text)
	}
	g.refuses(g.provider(map[string]any{"client_secret": "REDACTED"}), "client_secret")
}

func (g *rig) refuses(body, says string) {
	g.Helper()
	if status, text, _ := g.ask("Key "+adminKey, "PUT", house, body); status != 400 || !strings.Contains(text, says) {
		g.Errorf("%s: %d %s, want 400 and %q", body, status, text, says)
	}
}
