package sensurest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"corbel.dev/corbel/monitor/logins"
)

func pairBody(t logins.Tokens) string { return fmt.Sprintf(`{"refresh_token":%q}`, t.Refresh) }

func TestLogin(t *testing.T) {
	g := newRig(t)
	before := g.writes.Load()
	tokens := g.login("admin", adminPassword)
	if tokens.Access == "" || tokens.Refresh == "" || tokens.Expires == 0 {
		t.Fatalf("%+v", tokens)
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(tokens.Access, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	if err := json.Unmarshal(payload, &claims); err != nil {
		t.Fatal(err)
	}
	if claims["sub"] != "admin" || claims["iss"] != g.url || claims["jti"] == "" || claims["api_key"] != false ||
		fmt.Sprint(claims["groups"]) != "[cluster-admins]" {
		t.Errorf("claims: %v", claims)
	}
	if p := claims["provider"].(map[string]any); p["provider_id"] != "basic" || p["user_id"] != "admin" {
		t.Errorf("provider: %v", p)
	}
	for range 20 {
		g.login("admin", adminPassword)
	}
	if n := g.writes.Load() - before; n != 1 { // the secret that signs, once
		t.Errorf("21 logins made %d writes", n)
	}
	g.send("GET", ns+"/checks", bearer(tokens.Access), "")
	for _, c := range []struct {
		name, path, auth string
		code             int
	}{
		{"no credentials", "/auth", "", 401},
		{"a wrong password", "/auth", basic("admin", "wrong"), 401},
		{"an unknown user", "/auth", basic("nobody", adminPassword), 401},
		{"an empty name", "/auth", basic("", ""), 401},
		{"another scheme", "/auth", "Bearer x", 401},
		{"test", "/auth/test", basic("admin", adminPassword), 200},
		{"test of a wrong password", "/auth/test", basic("admin", "x"), 401},
	} {
		a := g.send("GET", c.path, c.auth, "")
		if a.code != c.code || c.code == 401 && strings.HasPrefix(a.body, "{") {
			t.Errorf("%s: %d %q", c.name, a.code, a.body)
		}
	}
	if a := g.send("POST", "/auth", basic("admin", adminPassword), ""); a.code != 405 {
		t.Error("POST /auth:", a.code)
	}
}

// A refresh token is used once; a second use ends the session on both sides.
func TestRefresh(t *testing.T) {
	g := newRig(t)
	first := g.login("admin", adminPassword)
	g.now.Store(301)
	if a := g.send("GET", ns+"/checks", bearer(first.Access), ""); a.code != 401 {
		t.Fatal("an access token holds after five minutes:", a.code)
	}
	refresh := func(t *testing.T, access string, of logins.Tokens, code int) (next logins.Tokens) {
		t.Helper()
		a := g.send("POST", "/auth/token", bearer(access), pairBody(of))
		if a.code != code {
			t.Fatalf("%d %s, not %d", a.code, a.body, code)
		}
		if code == 200 {
			a.into(t, &next)
		}
		return next
	}
	other := g.login("admin", adminPassword)
	refresh(t, other.Access, first, 401) // of two sessions
	refresh(t, first.Refresh, first, 401)
	refresh(t, "rubbish", first, 401)
	before := g.writes.Load()
	second := refresh(t, first.Access, first, 200)
	if n := g.writes.Load() - before; n != 1 {
		t.Errorf("a refresh made %d writes", n)
	}
	third := refresh(t, second.Access, second, 200)
	if a := g.send("GET", ns+"/checks", bearer(third.Access), ""); a.code != 200 {
		t.Fatal("the newest access token:", a.code)
	}
	if a := g.send("GET", ns+"/checks", bearer(third.Refresh), ""); a.code != 401 {
		t.Error("a refresh token is none to ask with:", a.code)
	}
	refresh(t, second.Access, second, 401) // a copy
	refresh(t, third.Access, third, 401)
	if a := g.send("GET", ns+"/checks", bearer(third.Access), ""); a.code != 401 {
		t.Error("the session of a copied token goes on:", a.code)
	}
	if a := g.send("GET", ns+"/checks", bearer(other.Access), ""); a.code != 200 {
		t.Error("another session of the user ended too:", a.code)
	}
	g.now.Store(12*3600 + 400)
	refresh(t, other.Access, other, 401)
	for _, body := range []string{"", "{", "{}", `{"refresh_token":1}`} {
		if a := g.send("POST", "/auth/token", bearer(other.Access), body); a.code != 400 {
			t.Errorf("%q: %d", body, a.code)
		}
	}
	if a := g.send("POST", "/auth/token", "", pairBody(other)); a.code != 401 {
		t.Error("without an access token:", a.code)
	}
	if a := g.send("GET", "/auth/token", bearer(other.Access), ""); a.code != 405 {
		t.Error(a.code)
	}
}

// Two who refresh with one token at the same time: one gets new tokens.
func TestRefreshTwiceAtOnce(t *testing.T) {
	g := newRig(t)
	tokens := g.login("admin", adminPassword)
	codes := make([]int, 8)
	var all sync.WaitGroup
	for i := range codes {
		all.Go(func() { codes[i] = g.send("POST", "/auth/token", bearer(tokens.Access), pairBody(tokens)).code })
	}
	all.Wait()
	slices.Sort(codes)
	if codes[0] != 200 || codes[1] != 401 {
		t.Error(codes)
	}
}

func TestLogout(t *testing.T) {
	g := newRig(t)
	a, b := g.login("admin", adminPassword), g.login("admin", adminPassword)
	if r := g.send("POST", "/auth/logout", bearer(a.Access), pairBody(b)); r.code != 401 {
		t.Error("tokens of two sessions:", r.code)
	}
	if r := g.send("POST", "/auth/logout", bearer(a.Access), pairBody(a)); r.code != 200 {
		t.Fatal(r.code, r.body)
	}
	for what, code := range map[string]int{a.Access: 401, b.Access: 200} {
		if r := g.send("GET", ns+"/checks", bearer(what), ""); r.code != code {
			t.Errorf("%d, not %d", r.code, code)
		}
	}
	if r := g.send("POST", "/auth/token", bearer(a.Access), pairBody(a)); r.code != 401 {
		t.Error("a session that ended is refreshed:", r.code)
	}
}

func TestUsers(t *testing.T) {
	g := newRig(t)
	const one = "/api/core/v2/users/ann"
	ann := g.user("ann", "")
	for path, code := range map[string]int{one: 200, "/api/core/v2/users/admin": 403, "/api/core/v2/users": 403,
		ns + "/checks": 403} {
		if a := g.send("GET", path, bearer(ann.Access), ""); a.code != code || strings.Contains(a.body, "$2a$") ||
			strings.Contains(a.body, "password") {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
	}
	if got := g.want(200, "GET", "/api/core/v2/users", "").body; strings.Contains(got, "password") ||
		!strings.Contains(got, "ann") {
		t.Error(got)
	}
	g.want(201, "PUT", one+"/groups/ops", "")
	g.want(201, "PUT", one+"/groups/dev", "")
	g.want(201, "PUT", one+"/groups/ops", "")
	g.want(204, "DELETE", one+"/groups/dev", "")
	if a := g.want(200, "GET", one, ""); !strings.Contains(a.body, `"groups":["ops"]`) {
		t.Error(a.body)
	}
	g.want(204, "DELETE", one+"/groups", "")
	g.want(404, "PUT", "/api/core/v2/users/nobody/groups/ops", "")

	// One changes its own password, with the one it has.
	hash, err := bcrypt.GenerateFromPassword([]byte("another one"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	put := func(auth, path, body string, code int) {
		t.Helper()
		if a := g.send("PUT", path, auth, body); a.code != code {
			t.Errorf("PUT %s %s: %d %s, not %d", path, body, a.code, a.body, code)
		}
	}
	put(bearer(ann.Access), one+"/password", fmt.Sprintf(`{"password":"wrong one","password_hash":%q}`, hash), 400)
	put(bearer(ann.Access), one+"/password", `{"password":"long enough","password_hash":"plain"}`, 400)
	put(bearer(ann.Access), one+"/password", `{"password":"long enough"}`, 400)
	put(bearer(ann.Access), "/api/core/v2/users/admin/password", fmt.Sprintf(`{"password":"x","password_hash":%q}`, hash),
		403)
	put(bearer(ann.Access), one+"/reset_password", fmt.Sprintf(`{"password_hash":%q}`, hash), 403)
	put(bearer(ann.Access), one+"/password", fmt.Sprintf(`{"password":"long enough","password_hash":%q}`, hash), 201)
	if a := g.send("GET", one, bearer(ann.Access), ""); a.code != 401 {
		t.Error("a session outlives its password:", a.code)
	}
	ann = g.login("ann", "another one")
	put(bearer(ann.Access), one+"/change_password", `{"password":"another one","password_new":"third one"}`, 201)
	put(bearer(g.login("ann", "third one").Access), one+"/change_password",
		`{"password":"third one","password_new":"short"}`, 400)
	g.want(201, "PUT", one+"/reset_password", fmt.Sprintf(`{"password_hash":%q}`, hash))
	ann = g.login("ann", "another one")

	// Who is disabled is out at once, and may come back.
	g.want(204, "DELETE", one, "")
	if a := g.send("GET", one, bearer(ann.Access), ""); a.code != 401 {
		t.Error("who is disabled goes on:", a.code)
	}
	if a := g.send("GET", "/auth", basic("ann", "another one"), ""); a.code != 401 {
		t.Error("who is disabled logs in:", a.code)
	}
	g.want(201, "PUT", one+"/reinstate", "")
	g.login("ann", "another one")
	g.want(201, "PUT", one, `{"username":"ann","groups":["x"]}`) // without a password it stays what it was
	g.login("ann", "another one")
	g.want(200, "PATCH", one, `{"groups":["y"]}`)
	g.login("ann", "another one")
	g.want(404, "GET", one+"/groups", "")
	g.want(404, "PUT", one+"/else", "")
}

func TestAPIKeys(t *testing.T) {
	g := newRig(t)
	g.user("ann", `{"verbs":["get","list"],"resources":["checks"]}`)
	a := g.want(201, "POST", "/api/core/v2/apikeys", `{"username":"ann"}`)
	at := a.header.Get("Location")
	name := at[strings.LastIndex(at, "/")+1:]
	if !strings.HasPrefix(at, "/api/core/v2/apikeys/") || len(name) != 36 || a.body != "" {
		t.Fatalf("Location %q, body %q", at, a.body)
	}
	if a := g.want(200, "GET", at, ""); !strings.Contains(a.body, `"username":"ann"`) ||
		!strings.Contains(a.body, `"created_at"`) {
		t.Error(a.body)
	}
	for path, code := range map[string]int{ns + "/checks": 200, ns + "/hooks": 403, "/api/core/v2/apikeys": 403} {
		if a := g.send("GET", path, key(name), ""); a.code != code {
			t.Errorf("%s: %d, not %d", path, a.code, code)
		}
	}
	if a := g.send("GET", ns+"/checks", key(name+"x"), ""); a.code != 401 {
		t.Error(a.code)
	}
	if got := g.want(200, "GET", "/api/core/v2/apikeys?fieldSelector=api_key.username%3D%3Dann",
		"").names(t); len(got) != 1 || got[0] != name+"ann" {
		t.Error(got)
	}
	g.want(204, "DELETE", "/api/core/v2/users/ann", "")
	if a := g.send("GET", ns+"/checks", key(name), ""); a.code != 401 {
		t.Error("the key of a disabled user:", a.code)
	}
	g.want(204, "DELETE", at, "")
	g.want(404, "GET", at, "")
}

// Every path, by every method, without a token, with a wrong one, and by somebody whose role is of something else.
func TestNobodyMay(t *testing.T) {
	g := newRig(t)
	stranger := g.user("stranger", `{"verbs":["*"],"resources":["nothing-of-this"]}`)
	paths := []string{
		ns + "/events", ns + "/events/e", ns + "/events/e/c", "/api/core/v2/events", ns + "/entities", ns + "/entities/e",
		"/api/core/v2/entities",
		ns + "/silenced/checks/c", ns + "/silenced/subscriptions/s", ns + "/checks/c/execute", ns + "/checks/c/hooks/ok",
		ns + "/checks/c/hooks/ok/hook/h",
		"/api/core/v2/users/admin/password", "/api/core/v2/users/admin/groups/x", "/api/core/v2/users/admin/groups",
		"/api/core/v2/users/admin/reinstate", "/api/core/v2/users/admin/reset_password",
		"/api/core/v2/users/admin/change_password", "/api/core/v2/apikeys", "/api/core/v2/apikeys/" + adminKey,
		"/api/core/v2/cluster/members", "/api/core/v2/cluster/members/1", "/api/core/v2/cluster/id",
		"/api/core/v2/tessen", "/api/core/v2/tessen/metrics", "/api/core/v3/namespaces/default/entity-states",
		"/api/core/v3/namespaces/default/entity-states/e",
		"/api/corbel/v1/events/watch", "/api/corbel/v1/events/export", "/api/corbel/v1/events/history",
		"/api/corbel/v1/namespaces/default/events/watch",
	}
	for _, s := range samples {
		paths = append(paths, "/api"+s.path, "/api"+s.path+"/"+s.name)
	}
	before := g.resources.View().Index()
	for _, path := range paths {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} {
			for name, auth := range map[string]string{"no token": "", "a wrong token": bearer("eyJhbGciOiJIUzI1NiJ9.e30.AAAA"),
				"a wrong key": key("11111111-1111-1111-1111-111111111111"),
				"a password":  basic("admin", adminPassword), "a scheme alone": "Bearer", "a stranger": bearer(stranger.Access)} {
				a := g.send(method, path, auth, `{"metadata":{"name":"x"}}`)
				want := http.StatusUnauthorized
				if name == "a stranger" {
					want = http.StatusForbidden
				}
				ok := a.code == want
				if !ok && name == "a stranger" { // what is no path for the method; namespaces show nothing to whom no role reaches
					ok = a.code == 404 || a.code == 405 || path == "/api/core/v2/namespaces" && a.code == 200 && (a.body == "[]" ||
						method == "HEAD")
					if path == "/api/core/v2/namespaces" && a.code == 200 {
						ok = true
					}
				}
				if !ok {
					t.Errorf("%s, %s %s: %d %s", name, method, path, a.code, a.body)
				}
				if want == a.code && method != "HEAD" && (!strings.Contains(a.body, `"Message"`) ||
					!strings.Contains(a.body, `"Code"`)) {
					t.Errorf("%s %s: %s", method, path, a.body)
				}
			}
		}
	}
	if after := g.resources.View().Index(); after != before {
		t.Errorf("%d changes were made", after-before)
	}
}

// A role allows what it says: the verb, the kind, the name, the namespace.
func TestRoles(t *testing.T) {
	g := newRig(t)
	g.want(201, "POST", "/api/core/v2/namespaces", `{"name":"dev"}`)
	g.want(201, "POST", "/api/core/v2/namespaces", `{"name":"hidden"}`)
	for _, c := range []string{"c1", "c2"} {
		g.want(201, "POST", ns+"/checks", check(c, ""))
	}
	ann := bearer(g.user("ann", `{"verbs":["get","update"],"resources":["checks"],"resource_names":["c1"]},{`+
		`"verbs":["list"],"resources":["hooks","events"]},{"verbs":["get"],"resources":["events"],`+
		`"resource_names":["web/up"]}`).Access)
	g.want(201, "PUT", ns+"/events/web/up", `{"check":{}}`)
	g.want(201, "PUT", ns+"/events/web/down", `{"check":{}}`)
	for _, c := range []struct {
		method, path string
		code         int
	}{
		{"GET", "/checks/c1", 200}, {"HEAD", "/checks/c1", 200}, {"GET", "/checks/c2", 403}, {"GET", "/checks", 403},
		{"PUT", "/checks/c1", 201}, {"PUT", "/checks/c2", 403},
		{"PATCH", "/checks/c1", 200}, {"DELETE", "/checks/c1", 403}, {"GET", "/hooks", 200}, {"GET", "/hooks/k", 403},
		{"POST", "/checks/c1/execute", 403},
		{"GET", "/events/web/up", 200}, {"GET", "/events/web/down", 403}, {"GET", "/events/web", 200},
		{"GET", "/events", 200}, {"DELETE", "/events/web/up", 403},
	} {
		body := ""
		if c.method == "PUT" || c.method == "PATCH" {
			body = check("c1", "")
		}
		if a := g.send(c.method, ns+c.path, ann, body); a.code != c.code {
			t.Errorf("%s %s: %d %s, not %d", c.method, c.path, a.code, a.body, c.code)
		}
	}
	for _, path := range []string{"/api/core/v2/hooks", "/api/core/v2/namespaces/dev/hooks", "/api/core/v2/events",
		"/api/core/v2/namespaces/default"} {
		if a := g.send("GET", path, ann, ""); a.code != 403 {
			t.Errorf("%s: %d", path, a.code)
		}
	}
	if got := g.send("GET", "/api/core/v2/namespaces", ann, "").names(t); !slices.Equal(got, []string{"default"}) {
		t.Error("namespaces that ann sees:", got)
	}
	g.want(204, "DELETE", ns+"/roles/ann", "") // a binding to a role that is gone gives nothing
	if a := g.send("GET", ns+"/checks/c1", ann, ""); a.code != 403 {
		t.Error(a.code)
	}
}
