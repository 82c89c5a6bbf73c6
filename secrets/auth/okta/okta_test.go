package okta

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/auth"
	"corbel.dev/corbel/secrets/engine"
	"corbel.dev/corbel/secrets/engine/enginetest"
)

type body = map[string]any

// cloud answers as the reference of Okta's authentication and users APIs has it.
type cloud struct {
	mu     sync.Mutex
	polls  int // of a push, before it is answered
	push   string
	status int
	groups []string
	asked  int
	pages  int    // of groups before that of groups
	link   string // in place of the origin, of a next page
}

func (c *cloud) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// ServeHTTP implements http.Handler.
func (c *cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	say := func(status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	wrong := func(status int, code, summary string) {
		say(status, body{"errorCode": code, "errorSummary": summary, "errorLink": code, "errorId": "oae1"})
	}
	if c.status != 0 {
		wrong(c.status, "E0000047", "API call exceeded rate limit due to too many requests.")
		return
	}
	if r.Method == http.MethodGet {
		switch {
		case r.Header.Get("Authorization") != "SSWS hidden-token":
			wrong(401, "E0000011", "Invalid token provided")
		case r.URL.Path != "/api/v1/users/00u1/groups":
			wrong(404, "E0000007", "Not found")
		default:
			list, names := []any{}, c.groups
			if after, _ := strconv.Atoi(r.URL.Query().Get("after")); after < c.pages {
				names = []string{fmt.Sprint("page ", after)}
				origin := cmp.Or(c.link, "http://"+r.Host)
				w.Header().Add("Link", fmt.Sprintf(`<%s%s>; rel="self"`, origin, r.URL))
				w.Header().Add("Link", fmt.Sprintf(`<%s%s?after=%d&limit=200>; rel="next"`, origin, r.URL.Path, after+1))
			}
			for _, name := range names {
				list = append(list, body{"id": "00g" + name, "type": "OKTA_GROUP", "profile": body{"name": name}})
			}
			say(200, list)
		}
		return
	}
	var in map[string]string
	_ = json.NewDecoder(r.Body).Decode(&in)
	done := body{"status": "SUCCESS", "sessionToken": "s", "_embedded": body{"user": body{"id": "00u1"}}}
	if r.URL.Path == "/api/v1/authn" {
		switch user := in["username"]; {
		case in["password"] != "right":
			wrong(401, "E0000004", "Authentication failed")
		case user == "mfa":
			say(200, body{"stateToken": "state", "status": "MFA_REQUIRED", "_embedded": body{"user": body{"id": "00u1"},
				"factors": []body{{"id": "push1", "factorType": "push", "provider": "OKTA"},
					{"id": "totp1", "factorType": "token:software:totp", "provider": "GOOGLE"}}}})
		case user == "expired":
			say(200, body{"stateToken": "state", "status": "PASSWORD_EXPIRED", "_embedded": body{"user": body{"id": "00u1"}}})
		case user == "locked":
			say(200, body{"status": "LOCKED_OUT"})
		default:
			say(200, done)
		}
		return
	}
	switch {
	case in["stateToken"] != "state":
		wrong(401, "E0000011", "Invalid token provided")
	case r.URL.Path == "/api/v1/authn/factors/totp1/verify" && in["passCode"] == "123456":
		say(200, done)
	case r.URL.Path == "/api/v1/authn/factors/totp1/verify":
		wrong(403, "E0000068", "Invalid Passcode/Answer")
	case r.URL.Path == "/api/v1/authn/factors/push1/verify" && c.polls > 0:
		c.polls--
		say(200, body{"stateToken": "state", "status": "MFA_CHALLENGE", "factorResult": "WAITING"})
	case r.URL.Path == "/api/v1/authn/factors/push1/verify" && c.push == "":
		say(200, done)
	default:
		say(200, body{"stateToken": "state", "status": "MFA_CHALLENGE", "factorResult": c.push})
	}
}

func desk(t *testing.T) (*enginetest.Desk, *cloud) {
	t.Helper()
	c := &cloud{groups: []string{"Site Ops", "Everyone"}}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	e := New(&auth.Lockout{}, auth.LockoutRules{After: 3, For: time.Minute, Reset: time.Minute}, "m")
	e.origin = func(*config) string { return server.URL }
	d := enginetest.New(t, e, "auth/okta/")
	d.Refused(errkind.Invalid, "not configured", secrets.Update, "login/ann", body{"password": "right"})
	d.OK(secrets.Update, "config", body{"org_name": "shop", "api_token": "hidden-token", "token_policies": "all",
		"token_ttl": "20m"})
	return d, c
}

// TestLogin: users log in with the policies of their name, of their groups here and of those at Okta, and renew as long
// as these are the same.
func TestLogin(t *testing.T) {
	d, c := desk(t)
	got := d.OK(secrets.Read, "config", nil)
	if got["api_token"] != nil || got["org_name"] != "shop" || got["base_url"] != "okta.com" ||
		got["token_ttl"] != 1200.0 {
		t.Errorf("%v", got)
	}
	d.OK(secrets.Update, "groups/Site Ops", body{"policies": "ops"})
	d.OK(secrets.Update, "groups/local", body{"policies": "locals"})
	d.OK(secrets.Update, "users/ann", body{"policies": "anns", "groups": "local"})
	resp, err := d.Ask(secrets.Update, "login/ann", body{"password": "right"})
	if err != nil {
		t.Fatal(err)
	}
	a := resp.Auth
	if !slices.Equal(a.Policies, []string{"all", "anns", "locals", "ops"}) ||
		!slices.Equal(a.Groups, []string{"Everyone", "Site Ops", "local"}) || a.Alias != "ann" ||
		strings.Contains(string(a.Login), "right") {
		t.Errorf("%+v", a)
	}
	of := engine.Login{Data: a.Login, Policies: append([]string{"default"}, a.Policies...)}
	renewer := d.Engine.(engine.Renewer)
	if terms, err := renewer.Renewable(t.Context(), d.Store, nil, of); err != nil || terms.TTL != 20*time.Minute {
		t.Errorf("%+v, %v", terms, err)
	}
	c.set(func() { c.groups = nil })
	if _, err := renewer.Renewable(t.Context(), d.Store, nil, of); err == nil {
		t.Error("no member of the group any more, and it is renewed")
	}
	for user, want := range map[string]string{"ann": "name or password is wrong", "expired": "PASSWORD_EXPIRED",
		"locked": "locked the user out"} {
		word := "right"
		if user == "ann" {
			word = "wrong"
		}
		d.Refused(errkind.Invalid, want, secrets.Update, "login/"+user, body{"password": word})
	}
	d.Refused(errkind.Invalid, "cannot be empty", secrets.Update, "login/ann", body{})
	d.OK(secrets.Update, "config", body{"api_token": "hidden-other"})
	d.Refused(errkind.Unavailable, "api_token", secrets.Update, "login/ann", body{"password": "right"})
	c.set(func() { c.status = 429 })
	d.Refused(errkind.Unavailable, "too many requests", secrets.Update, "login/ann", body{"password": "right"})
}

// TestSecondFactor: a passcode, a push that is answered after a while, one that is refused, and none where the mount
// says so.
func TestSecondFactor(t *testing.T) {
	d, c := desk(t)
	d.OK(secrets.Update, "login/mfa", body{"password": "right", "totp": "123456"})
	d.Refused(errkind.Invalid, "is wrong", secrets.Update, "login/mfa", body{"password": "right", "totp": "654321"})
	d.Refused(errkind.Invalid, "no passcodes", secrets.Update, "login/mfa", body{"password": "right", "totp": "123456",
		"provider": "okta"})
	c.set(func() { c.polls = 1 })
	d.OK(secrets.Update, "login/mfa", body{"password": "right"})
	c.set(func() { c.push = "REJECTED" })
	d.Refused(errkind.Invalid, "refused (rejected)", secrets.Update, "login/mfa", body{"password": "right"})
	d.OK(secrets.Update, "config", body{"bypass_okta_mfa": true})
	d.OK(secrets.Update, "login/mfa", body{"password": "right"})
}

// TestGuessesEnd: who guesses is locked out, and Okta is not asked.
func TestGuessesEnd(t *testing.T) {
	d, c := desk(t)
	for range 3 {
		d.Refused(errkind.Invalid, "is wrong", secrets.Update, "login/ann", body{"password": "guess"})
	}
	before, after := 0, 0
	c.set(func() { before = c.asked })
	d.Refused(errkind.Denied, "", secrets.Update, "login/ann", body{"password": "right"})
	c.set(func() { after = c.asked })
	if after != before {
		t.Error("Okta was asked about who is locked out")
	}
}

func TestConfigRefuses(t *testing.T) {
	d, _ := desk(t)
	for want, change := range map[string]body{
		`"org_name": is required`: {"org_name": "evil.example/"},
		`"base_url": must be`:     {"base_url": "evil.example/x"},
		`"api_token": is req`:     {"base_url": "oktapreview.com"},
		`"api_token": must`:       {"api_token": "a b"},
	} {
		d.Refused(errkind.Invalid, want, secrets.Update, "config", change)
	}
	d.OK(secrets.Update, "config", body{"base_url": "oktapreview.com", "api_token": "x"})
	d.Refused(errkind.Invalid, `"provider"`, secrets.Update, "login/ann", body{"password": "x", "provider": "duo"})
}

// TestPagesOfGroups: groups of all pages count, up to a bound; no link has the API token go elsewhere.
func TestPagesOfGroups(t *testing.T) {
	d, c := desk(t)
	c.set(func() { c.pages = 3 })
	resp, err := d.Ask(secrets.Update, "login/ann", body{"password": "right"})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"Everyone", "Site Ops", "page 0", "page 1", "page 2"}; !slices.Equal(resp.Auth.Groups, want) {
		t.Errorf("%q", resp.Auth.Groups)
	}
	c.set(func() { c.pages, c.asked = 1_000_000, 0 })
	d.Refused(errkind.Unavailable, "pages", secrets.Update, "login/ann", body{"password": "right"})
	c.set(func() {
		if c.asked != maxPages+1 {
			t.Errorf("%d questions", c.asked)
		}
	})
	for _, many := range []int{maxGroups, maxGroups + 1} { // on one page
		c.set(func() {
			c.pages, c.groups = 0, nil
			for i := range many {
				c.groups = append(c.groups, fmt.Sprint("group ", i))
			}
		})
		if many > maxGroups {
			d.Refused(errkind.Unavailable, "groups", secrets.Update, "login/ann", body{"password": "right"})
		} else {
			d.OK(secrets.Update, "login/ann", body{"password": "right"})
		}
	}
	var stolen atomic.Value
	evil := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		stolen.Store(r.Header.Get("Authorization"))
	}))
	defer evil.Close()
	c.set(func() { c.pages, c.link = 1, evil.URL })
	d.Refused(errkind.Unavailable, "another place", secrets.Update, "login/ann", body{"password": "right"})
	if stolen.Load() != nil {
		t.Errorf("the API token went elsewhere: %v", stolen.Load())
	}
}
