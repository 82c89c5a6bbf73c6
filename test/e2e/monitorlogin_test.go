package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"corbel.dev/corbel/kit/jwks/jwkstest"
	"corbel.dev/corbel/kit/polltest"
)

// monitorLogins goes the way of people who log in to the monitor plane of a dev server at an OpenID provider: by
// sensuctl and by the page, which do is of. A role that is bound to a group of the claims gives the rights.
func monitorLogins(t *testing.T, d *viewedDev, p *jwkstest.Provider, do func(method, path, body string) string) {
	t.Helper()
	home, address := t.TempDir(), fmt.Sprint("http://127.0.0.1:", d.ports[4])
	sensuctl := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), filepath.Join(binDir, "corbel"), append([]string{"sensuctl"}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME=", "SENSU_API_URL="+address, "SENSU_API_KEY=")
		return cmd
	}
	run := func(args ...string) string {
		t.Helper()
		out, err := sensuctl(args...).CombinedOutput()
		if err != nil {
			t.Fatalf("sensuctl %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	provider, err := json.Marshal(map[string]any{"type": "oidc", "api_version": "authentication/v2",
		"metadata": map[string]string{"name": "people"}, "spec": map[string]any{"server": p.URL, "ca_cert": p.CA,
			"client_id": "corbel", "client_secret": "shared secret", "username_claim": "sub", "username_prefix": "oidc:",
			"groups_claim": "team", "groups_prefix": "oidc:", // which userinfo tells
			"redirect_uri": address + "/api/enterprise/authentication/v2/oidc/callback"}})
	if err != nil {
		t.Fatal(err)
	}
	file := home + "/all.json"
	if err := os.WriteFile(file, []byte(string(provider)+`
{"type":"RoleBinding","api_version":"core/v2","metadata":{"name":"people","namespace":"default"},"spec":{"subjects":[
 {"type":"Group","name":"oidc:people"}],"role_ref":{"type":"ClusterRole","name":"view"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	run("configure", "-n", "--username", "admin", "--password", "P@ssw0rd!")
	run("create", "-f", file)
	if shown := run("auth", "list"); !strings.Contains(shown, "people") || strings.Contains(shown, "shared secret") {
		t.Errorf("the providers are shown as %s", shown)
	}
	if shown := run("auth", "info", "people", "--format", "json"); !strings.Contains(shown, "REDACTED") ||
		strings.Contains(shown, "shared secret") {
		t.Errorf("the provider is shown as %s", shown)
	}
	if said := throughBrowser(t, p, sensuctl("login", "oidc", "--no-browser", "--port", "0")); said !=
		"You have been logged in at "+address {
		t.Errorf("the login says %q", said)
	}
	run("check", "list")
	for _, args := range [][]string{{"auth", "list"}, {"role", "create", "x", "--verb", "get", "--resource", "checks"}} {
		if out, err := sensuctl(args...).CombinedOutput(); err == nil {
			t.Errorf("sensuctl %v is allowed: %s", args, out)
		}
	}
	run("logout")
	if out, err := sensuctl("check", "list").CombinedOutput(); err == nil {
		t.Errorf("after the logout: %s", out)
	}

	polltest.Until(t, func() bool {
		return strings.Contains(do("GET", "/ui/api/logins", ""), `{"id":"monitor:people","name":"people"}`)
	}, "the provider on the form")
	var begun struct{ Address string }
	text := do("POST", "/ui/api/login/begin", `{"method":"monitor:people","origin":"`+d.base()+`"}`)
	if err := json.Unmarshal([]byte(text), &begun); err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", p.Browse(begun.Address).String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultTransport.RoundTrip(r) // a redirect is an answer
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close() // a redirect has none that matters
	back, err := url.Parse(res.Header.Get("Location"))
	if err != nil || back.Path != "/ui/oidc/callback" || back.Host != "" {
		t.Fatalf("the browser is sent on to %v, %v: %s", back, err, res.Status)
	}
	do("POST", "/ui/api/login/end",
		`{"state":"`+back.Query().Get("state")+`","code":"`+back.Query().Get("code")+`"}`)
	if me := do("GET", "/ui/api/me", ""); !strings.Contains(me, `"name":"oidc:ann"`) ||
		!strings.Contains(me, `"monitor":true`) {
		t.Errorf("the session is %s", me)
	}
	do("GET", "/ui/api/as/monitor/api/core/v2/namespaces/default/checks", "")
}
