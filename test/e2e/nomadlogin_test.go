package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/kit/jwks/jwkstest"
)

// jobsDoor is the jobs plane of a dev server, as its clients reach it, and the provider that its people log in at.
type jobsDoor struct {
	t        *testing.T
	address  string
	binary   string // under the name nomad
	provider *jwkstest.Provider
	claims   atomic.Pointer[map[string]any] // what the provider says of a person beside what it says of everybody
}

// openJobsDoor is made before the provider is asked anything.
func openJobsDoor(t *testing.T, port int, p *jwkstest.Provider) *jobsDoor {
	t.Helper()
	d := &jobsDoor{t: t, address: fmt.Sprint("http://127.0.0.1:", port), binary: t.TempDir() + "/nomad", provider: p}
	if err := os.Symlink(filepath.Join(binDir, "corbel"), d.binary); err != nil {
		t.Fatal(err)
	}
	d.claims.Store(&map[string]any{})
	p.Change = func(claims map[string]any) { maps.Copy(claims, *d.claims.Load()) }
	return d
}

func (d *jobsDoor) command(token string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(d.t.Context(), d.binary, args...)
	cmd.Env = append(os.Environ(), "NOMAD_ADDR="+d.address, "NOMAD_TOKEN="+token)
	return cmd
}

// run is a command that must succeed.
func (d *jobsDoor) run(token string, args ...string) string {
	d.t.Helper()
	out, err := d.command(token, args...).CombinedOutput()
	if err != nil {
		d.t.Fatalf("nomad %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// login logs in by the command line and a browser, and gives the token.
func (d *jobsDoor) login(claims map[string]any, args ...string) (token string) {
	d.t.Helper()
	d.claims.Store(&claims)
	said := throughBrowser(d.t, d.provider, d.command("", append([]string{"login", "-no-browser",
		"-oidc-callback-addr=localhost:0"}, args...)...))
	found := regexp.MustCompile(`Secret ID +=\s+(\S+)`).FindStringSubmatch(said)
	if len(found) < 2 {
		d.t.Fatalf("the login prints %q", said)
	}
	return found[1]
}

// call asks the API and gives status and body.
func (d *jobsDoor) call(token, method, path string, in any) (int, string) {
	d.t.Helper()
	text, err := json.Marshal(in)
	if err != nil {
		d.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(d.t.Context(), method, d.address+"/v1/"+path, strings.NewReader(string(text)))
	if err != nil {
		d.t.Fatal(err)
	}
	r.Header.Set("X-Nomad-Token", token)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// reads checks which of two jobs, each in a namespace of its own, a token may read.
func (d *jobsDoor) reads(token string, shop, bank bool) {
	d.t.Helper()
	for namespace, may := range map[string]bool{"shop": shop, "bank": bank} {
		out, err := d.command(token, "job", "status", "-namespace="+namespace, "web").CombinedOutput()
		if (err == nil) != may || !may && !strings.Contains(string(out), "403") {
			d.t.Errorf("the job of %s is read: %v, want %t\n%s", namespace, err, may, out)
		}
	}
}

// people makes two jobs, a policy and a role for them, and a method with rules over what the provider says: all by the
// command line. It returns the id of the policy's rule.
func (d *jobsDoor) people() (rule string) {
	d.t.Helper()
	dir := d.t.TempDir()
	file := func(name, text string) string {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			d.t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	for _, namespace := range []string{"shop", "bank"} {
		d.run("root", "namespace", "apply", namespace)
		d.run("root", "job", "run", "-detach", file(namespace+".nomad", fmt.Sprintf("job \"web\" {\n  namespace = %q\n"+
			"  group \"web\" {\n    count = 0\n    task \"web\" {\n      driver = \"raw_exec\"\n      config { command = "+
			"\"/bin/true\" }\n    }\n  }\n}\n", namespace)))
		d.run("root", "acl", "policy", "apply", namespace+"-read", file(namespace+".hcl",
			fmt.Sprintf("namespace %q { policy = \"read\" }\n", namespace)))
	}
	d.run("root", "acl", "role", "create", "-name=bankers", "-policy=bank-read")
	config, err := json.Marshal(map[string]any{"OIDCDiscoveryURL": d.provider.URL,
		"DiscoveryCaPem": []string{d.provider.CA}, "OIDCClientID": "corbel", "OIDCClientSecret": "shared secret",
		"SigningAlgs": []string{"RS256"}, "AllowedRedirectURIs": []string{"http://localhost:4649/oidc/callback"},
		"ClaimMappings": map[string]string{"team": "team"}, "ListClaimMappings": map[string]string{"groups": "groups"}})
	if err != nil {
		d.t.Fatal(err)
	}
	shown := d.run("root", "acl", "auth-method", "create", "-name=house", "-type=OIDC", "-token-locality=global",
		"-max-token-ttl=5m", "-config=@"+file("method.json", string(config)))
	if read := d.run("root", "acl", "auth-method", "info", "house"); strings.Contains(shown+read, "shared secret") {
		d.t.Errorf("the provider's secret is shown: %s %s", shown, read)
	}
	d.run("root", "acl", "auth-method", "update", "-config=@"+file("secret.json",
		`{"OIDCClientSecret":"redacted"}`), "house") // as it is shown: the secret stays
	shown = d.run("root", "acl", "binding-rule", "create", "-auth-method=house", "-bind-type=policy",
		"-bind-name=shop-read", `-selector="web" in list.groups`)
	d.run("root", "acl", "binding-rule", "create", "-auth-method=house", "-bind-type=role", "-bind-name=bankers",
		`-selector=value.team == people and "ops" in list.groups`)
	found := regexp.MustCompile(`ID +=\s+(\S+)`).FindStringSubmatch(shown)
	if len(found) < 2 {
		d.t.Fatalf("the rule is shown as %q", shown)
	}
	return found[1]
}

// whole goes the way of people who log in to the jobs plane with their browser: rules over claims give policies and
// roles, tokens end by the method's time, a changed rule counts at the next login, and what is not of the login that
// was begun is refused.
func (d *jobsDoor) whole() {
	rule := d.people()
	web, ops := map[string]any{"groups": []string{"web"}}, map[string]any{"groups": []string{"web", "ops"}}
	first := d.login(web, "-method=house")
	d.reads(first, true, false)
	if _, text := d.call(first, "GET", "acl/token/self", nil); true {
		var self struct {
			Type           string
			Policies       []string
			ExpirationTime *time.Time
		}
		if err := json.Unmarshal([]byte(text), &self); err != nil || self.Type != "client" ||
			len(self.Policies) != 1 || self.Policies[0] != "shop-read" || self.ExpirationTime == nil ||
			time.Until(*self.ExpirationTime) > 5*time.Minute {
			d.t.Errorf("the token of the login is %s, %v", text, err)
		}
	}
	if out, err := d.command(first, "job", "stop", "-namespace=shop", "web").CombinedOutput(); err == nil {
		d.t.Errorf("a token that reads stops a job: %s", out)
	}
	both := d.login(ops, "-method=house")
	d.reads(both, true, true)
	if self := d.run(both, "acl", "token", "self"); !strings.Contains(self, "shop-read") ||
		!strings.Contains(self, "bankers") {
		d.t.Errorf("the token of rules for a policy and a role is %s", self)
	}
	d.run("root", "acl", "binding-rule", "update", "-bind-name=bank-read", rule)
	d.reads(d.login(web, "-method=house"), false, true)
	d.reads(first, true, false) // what was given stays until it ends
	d.refuses(web)
	d.run("root", "acl", "auth-method", "delete", "house")
	d.reads(first, false, false)
}

// refuses tries what is not of the login that was begun.
func (d *jobsDoor) refuses(good map[string]any) {
	type fields = map[string]string
	begin := func(redirect string) (status int, said, state, code string) {
		d.t.Helper()
		status, said = d.call("", "PUT", "acl/oidc/auth-url", fields{"AuthMethodName": "house", "RedirectURI": redirect,
			"ClientNonce": "mine"})
		if status != http.StatusOK {
			return status, said, "", ""
		}
		var begun struct{ AuthURL string }
		if err := json.Unmarshal([]byte(said), &begun); err != nil {
			d.t.Fatal(err)
		}
		q := d.provider.Browse(begun.AuthURL).Query()
		return status, said, q.Get("state"), q.Get("code")
	}
	const back = "http://localhost:4649/oidc/callback"
	if status, said, _, _ := begin("https://elsewhere.example/oidc/callback"); status/100 != 4 ||
		!strings.Contains(said, "redirect") {
		d.t.Errorf("a way back that nobody allowed: %d %s", status, said)
	}
	for _, c := range []struct {
		what, change, value string
		claims              map[string]any
	}{
		{what: "another client's nonce", change: "ClientNonce", value: "theirs"},
		{what: "a state that nobody began", change: "State", value: "st_theirs"},
		{what: "another method", change: "AuthMethodName", value: "sso"},
		{what: "a code of another login", change: "Code", value: "theirs"},
		{what: "an ID token of another login", claims: map[string]any{"groups": []string{"web"}, "nonce": "theirs"}},
		{what: "somebody whom no rule knows", claims: map[string]any{"groups": []string{"none"}}},
		{what: "a login that ends twice"},
	} {
		d.claims.Store(&good)
		if c.claims != nil {
			d.claims.Store(&c.claims)
		}
		status, said, state, code := begin(back)
		if status != http.StatusOK {
			d.t.Fatalf("%s: %d %s", c.what, status, said)
		}
		in := fields{"AuthMethodName": "house", "ClientNonce": "mine", "State": state, "Code": code, "RedirectURI": back}
		if c.change != "" {
			in[c.change] = c.value
		} else if c.claims == nil {
			if status, said := d.call("", "PUT", "acl/oidc/complete-auth", in); status != http.StatusOK {
				d.t.Errorf("the login itself: %d %s", status, said)
			}
		}
		if status, said := d.call("", "PUT", "acl/oidc/complete-auth", in); status != http.StatusForbidden ||
			strings.Contains(said, "SecretID") {
			d.t.Errorf("%s: %d %s", c.what, status, said)
		}
	}
}
