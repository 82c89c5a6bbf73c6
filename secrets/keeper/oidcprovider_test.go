package keeper

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
)

// bare asks a provider and gives the status and the members of its answer.
func (h *house) bare(r *secrets.Request) (status int, got map[string]any) {
	h.t.Helper()
	r.Op = secrets.Update
	reply, err := h.Handle(h.t.Context(), r)
	if err != nil {
		h.t.Fatalf("%s: %v", r.Path, err)
	}
	if reply.Raw == nil || json.Unmarshal(reply.Raw.Body, &got) != nil {
		h.t.Fatalf("%s: %+v", r.Path, reply.Response)
	}
	return reply.Raw.Status, got
}

// relying is another program that logs people in.
type relying struct {
	h          *house
	id, secret string
}

func (h *house) relying(body map[string]any) *relying {
	h.t.Helper()
	h.ok(secrets.Update, "identity/oidc/client/web", text(h.t, body))
	r := h.ok(secrets.Read, "identity/oidc/client/web", "")
	secret, _ := field(h.t, r, "client_secret").(string)
	return &relying{h, fmt.Sprint(field(h.t, r, "client_id")), secret}
}

const backTo = "https://app.example/back"

func (p *relying) authorize(token string, more map[string]string) (int, map[string]any) {
	ask := map[string]string{"client_id": p.id, "redirect_uri": backTo, "response_type": "code", "scope": "openid team",
		"state": "s", "nonce": "n"}
	maps.Copy(ask, more)
	return p.h.bare(&secrets.Request{Path: "identity/oidc/provider/default/authorize",
		Caller: secrets.Caller{Token: token}, Body: []byte(text(p.h.t, ask))})
}

func (p *relying) code(token string, more map[string]string) string {
	p.h.t.Helper()
	status, got := p.authorize(token, more)
	if status != 0 || got["state"] != "s" || got["code"] == "" {
		p.h.t.Fatalf("authorize: %d, %v", status, got)
	}
	return fmt.Sprint(got["code"])
}

func (p *relying) exchange(code string, more map[string]string) (int, map[string]any) {
	ask := map[string]string{"grant_type": "authorization_code", "code": code, "redirect_uri": backTo}
	maps.Copy(ask, more)
	return p.h.bare(&secrets.Request{Path: "identity/oidc/provider/default/token", Body: []byte(text(p.h.t, ask)),
		Caller: secrets.Caller{Basic: base64.StdEncoding.EncodeToString([]byte(p.id + ":" + p.secret))}})
}

func (p *relying) userinfo(token string) (int, map[string]any) {
	return p.h.bare(&secrets.Request{Path: "identity/oidc/provider/default/userinfo",
		Caller: secrets.Caller{Token: token}})
}

func providing(t *testing.T) *house {
	h := newHouse(t)
	h.owners.identities.Providers.Address = "https://vault.example:8200"
	h.users("ann", "bob")
	h.ok(secrets.Update, "identity/oidc/scope/team",
		text(t, map[string]string{"template": `{"team":{{identity.entity.metadata.team}}}`, "description": "the team"}))
	h.ok(secrets.Update, "identity/oidc/provider/default", `{"scopes_supported":["team"]}`)
	return h
}

// Somebody logs in at another program: discovery, a code, tokens, who it is.
func TestOIDCProvider(t *testing.T) {
	h := providing(t)
	web := h.relying(map[string]any{"redirect_uris": []string{backTo}, "assignments": []string{"allow_all"},
		"id_token_ttl": "30m", "access_token_ttl": "10m"})
	ann := h.loginAs("ann")
	h.ok(secrets.Update, "identity/entity/id/"+ann.Entity, `{"metadata":{"team":"blue"}}`)

	r, err := h.as("", secrets.Read, "identity/oidc/provider/default/.well-known/openid-configuration", "")
	var found map[string]any
	if err != nil || json.Unmarshal(r.Raw.Body, &found) != nil {
		t.Fatalf("discovery: %v", err)
	}
	const at = "https://vault.example:8200/v1/identity/oidc/provider/default"
	if found["issuer"] != at || found["token_endpoint"] != at+"/token" || found["userinfo_endpoint"] != at+"/userinfo" ||
		found["jwks_uri"] != at+"/.well-known/keys" || fmt.Sprint(found["scopes_supported"]) != "[team openid]" {
		t.Errorf("discovery: %v", found)
	}
	if r, err = h.as("", secrets.Read, "identity/oidc/provider/default/.well-known/keys", ""); err != nil ||
		!strings.Contains(string(r.Raw.Body), `"kid"`) || strings.Contains(string(r.Raw.Body), `"d"`) {
		t.Errorf("keys: %+v, %v", r, err)
	}

	code := web.code(ann.ID, map[string]string{"max_age": "3600"})
	status, got := web.exchange(code, nil)
	if status != 0 || got["token_type"] != "Bearer" || got["expires_in"] != 600.0 {
		t.Fatalf("tokens: %d, %v", status, got)
	}
	said, err := h.verified(fmt.Sprint(got["id_token"]))
	if err != nil {
		t.Fatal(err)
	}
	if said.Issuer != at || said.Subject != ann.Entity || fmt.Sprint(said.Audience) != "["+web.id+"]" ||
		said.All["nonce"] != "n" || said.All["team"] != "blue" || said.All["at_hash"] == "" || said.All["c_hash"] == "" ||
		said.All["auth_time"] == nil || !said.Expires.Equal(h.now.Add(30*time.Minute).Truncate(time.Second)) {
		t.Errorf("the token says %+v", said)
	}
	access := fmt.Sprint(got["access_token"])
	if status, got = web.userinfo(access); status != 0 || got["sub"] != ann.Entity || got["team"] != "blue" {
		t.Errorf("userinfo: %d, %v", status, got)
	}
	if _, err := h.as(access, secrets.Read, "auth/token/lookup-self", ""); !errkind.Is(err, errkind.Denied) {
		t.Errorf("an access token at the plane's own API: %v", err)
	}
	if status, got = web.exchange(code, nil); status != 400 || got["error"] != "invalid_grant" {
		t.Errorf("a code again: %d, %v", status, got)
	}
	for _, bad := range []string{"", "x", ann.ID, access + "x"} {
		if status, _ = web.userinfo(bad); status != 401 {
			t.Errorf("userinfo with %q: %d", bad, status)
		}
	}
	// what was taken away is taken away at once
	again := web.code(ann.ID, nil)
	h.ok(secrets.Update, "identity/entity/id/"+ann.Entity, `{"disabled":true}`)
	if status, got = web.exchange(again, nil); status != 400 || got["error"] != "invalid_grant" {
		t.Errorf("the code of somebody disabled: %d, %v", status, got)
	}
	if status, _ = web.userinfo(access); status != 401 {
		t.Errorf("the access token of somebody disabled: %d", status)
	}
	h.ok(secrets.Update, "identity/entity/id/"+ann.Entity, `{"disabled":false}`)
	h.now = h.now.Add(10*time.Minute + time.Second)
	if status, _ = web.userinfo(access); status != 401 {
		t.Errorf("an access token that has ended: %d", status)
	}
	h.refused(errkind.Invalid, h.root, secrets.Delete, "identity/oidc/key/default", "") // the client uses it
	h.ok(secrets.Delete, "identity/oidc/client/web", "")
	if status, got = web.exchange("x", nil); status != 401 || got["error"] != "invalid_client" {
		t.Errorf("a client that went: %d, %v", status, got)
	}
}

// A code is good for who it was made for, and in the words that it was asked for in.
func TestOIDCProviderRefuses(t *testing.T) {
	h := providing(t)
	ann, bob := h.loginAs("ann"), h.loginAs("bob")
	h.ok(secrets.Update, "identity/oidc/assignment/some", text(t, map[string]any{"entity_ids": []string{ann.Entity}}))
	web := h.relying(map[string]any{"redirect_uris": []string{backTo, "http://127.0.0.1/cb"},
		"assignments": []string{"some"}})
	for name, test := range map[string]struct {
		token  string
		ask    map[string]string
		status int
		code   string
	}{
		"no such client":  {ann.ID, map[string]string{"client_id": "x"}, 400, "invalid_client_id"},
		"another address": {ann.ID, map[string]string{"redirect_uri": backTo + "x"}, 400, "invalid_redirect_uri"},
		"another path": {ann.ID, map[string]string{"redirect_uri": "http://127.0.0.1:8/x"}, 400,
			"invalid_redirect_uri"},
		"no openid":              {ann.ID, map[string]string{"scope": "team"}, 400, "invalid_scope"},
		"implicit":               {ann.ID, map[string]string{"response_type": "token"}, 400, "unsupported_response_type"},
		"a request object":       {ann.ID, map[string]string{"request": "x"}, 400, "request_not_supported"},
		"a short challenge":      {ann.ID, map[string]string{"code_challenge": "x"}, 400, "invalid_request"},
		"who has no assignment":  {bob.ID, nil, 403, "access_denied"},
		"root, who is no entity": {h.root, nil, 403, "access_denied"},
		"an old login":           {ann.ID, map[string]string{"max_age": "0"}, 400, "max_age_violation"},
	} {
		h.now = h.now.Add(time.Second)
		if status, got := web.authorize(test.token, test.ask); status != test.status || got["error"] != test.code {
			t.Errorf("%s: %d, %v; want %d, %s", name, status, got, test.status, test.code)
		}
	}
	if _, err := h.as("", secrets.Update, "identity/oidc/provider/default/authorize", `{}`); !errkind.Is(err,
		errkind.Denied) {
		t.Errorf("authorize without a token: %v", err)
	}
	// on the loopback any port will do
	web.code(ann.ID, map[string]string{"redirect_uri": "http://127.0.0.1:4711/cb"})
	verifier := strings.Repeat("v", 43)
	sum := sha256.Sum256([]byte(verifier))
	pkce := map[string]string{"code_challenge": base64.RawURLEncoding.EncodeToString(sum[:]),
		"code_challenge_method": "S256"}
	for name, test := range map[string]struct {
		begin, end map[string]string
		good       bool
	}{
		"a verifier":           {pkce, map[string]string{"code_verifier": verifier}, true},
		"no verifier":          {pkce, nil, false},
		"a wrong verifier":     {pkce, map[string]string{"code_verifier": verifier + "x"}, false},
		"a verifier of none":   {nil, map[string]string{"code_verifier": verifier}, false},
		"another redirect_uri": {nil, map[string]string{"redirect_uri": "http://127.0.0.1/cb"}, false},
		"another grant_type":   {nil, map[string]string{"grant_type": "password"}, false},
	} {
		status, got := web.exchange(web.code(ann.ID, test.begin), test.end)
		if (status == 0) != test.good {
			t.Errorf("%s: %d, %v", name, status, got)
		}
	}
	late := web.code(ann.ID, nil)
	h.now = h.now.Add(5*time.Minute + time.Second)
	if status, got := web.exchange(late, nil); status != 400 || got["error"] != "invalid_grant" {
		t.Errorf("a code after five minutes: %d, %v", status, got)
	}
	wrong := &relying{h, web.id, "x"}
	if status, got := wrong.exchange(web.code(ann.ID, nil), nil); status != 401 || got["error"] != "invalid_client" {
		t.Errorf("a wrong secret: %d, %v", status, got)
	}
	h.ok(secrets.Update, "identity/oidc/provider/default", `{"allowed_client_ids":["other"]}`)
	if status, got := web.authorize(ann.ID, nil); status != 400 || got["error"] != "unauthorized_client" {
		t.Errorf("at a provider that does not allow the client: %d, %v", status, got)
	}
}

// What providers are made of is kept as it is written, and refused where it makes no sense.
func TestOIDCProviderRecords(t *testing.T) {
	h := providing(t)
	h.ok(secrets.Update, "identity/oidc/client/cli", `{"client_type":"public","redirect_uris":"http://127.0.0.1/cb",
		"assignments":"allow_all"}`)
	r := h.ok(secrets.Read, "identity/oidc/client/cli", "")
	if field(t, r, "client_secret") != nil || field(t, r, "client_type") != "public" ||
		fmt.Sprint(field(t, r, "id_token_ttl")) != "86400" {
		t.Errorf("a public client: %s", r.Data)
	}
	cli := &relying{h, fmt.Sprint(field(t, r, "client_id")), ""}
	ann := h.loginAs("ann")
	if status, got := cli.authorize(ann.ID, map[string]string{"redirect_uri": "http://127.0.0.1:1/cb"}); status != 400 ||
		!strings.Contains(fmt.Sprint(got["error_description"]), "PKCE") {
		t.Errorf("a public client without PKCE: %d, %v", status, got)
	}
	for path, want := range map[string]string{"identity/oidc/provider/": "default", "identity/oidc/scope/": "team",
		"identity/oidc/assignment/": "allow_all", "identity/oidc/client/": "cli"} {
		if r := h.ok(secrets.List, path, ""); fmt.Sprint(field(t, r, "keys")) != "["+want+"]" ||
			strings.Contains(string(r.Data), "client_secret") {
			t.Errorf("%s: %s", path, r.Data)
		}
	}
	h.ok(secrets.Update, "identity/oidc/scope/other", `{"template":"{\"team\":{{identity.entity.name}}}"}`)
	for name, ask := range map[string][2]string{
		"a scope that is not there": {"provider/p", `{"scopes_supported":"x"}`},
		"scopes that clash":         {"provider/p", `{"scopes_supported":"team,other"}`},
		"openid":                    {"provider/p", `{"scopes_supported":"openid"}`},
		"an issuer with a path":     {"provider/p", `{"issuer":"https://x/y"}`},
		"the scope openid":          {"scope/openid", `{}`},
		"a reserved claim":          {"scope/s", `{"template":"{\"sub\":\"x\"}"}`},
		"a template of nothing":     {"scope/s", `{"template":"x"}`},
		"allow_all":                 {"assignment/allow_all", `{"entity_ids":"x"}`},
		"a key that is not there":   {"client/c", `{"key":"x"}`},
		"an unknown type":           {"client/c", `{"client_type":"x"}`},
		"another type":              {"client/cli", `{"client_type":"confidential"}`},
		"an assignment of none":     {"client/c", `{"assignments":"x"}`},
		"a redirect without scheme": {"client/c", `{"redirect_uris":"x"}`},
		"a script":                  {"client/c", `{"redirect_uris":"javascript:alert(1)"}`},
		"a long token":              {"client/c", `{"id_token_ttl":"1000h"}`},
	} {
		if _, err := h.as(h.root, secrets.Update, "identity/oidc/"+ask[0], ask[1]); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("%s: %v, want it refused", name, err)
		}
	}
	h.refused(errkind.Invalid, h.root, secrets.Delete, "identity/oidc/provider/default", "")
	h.refused(errkind.Invalid, h.root, secrets.Delete, "identity/oidc/assignment/allow_all", "")
	h.refused(errkind.Invalid, h.root, secrets.Delete, "identity/oidc/scope/team", "") // the provider names it
	h.refused(errkind.NotFound, h.root, secrets.Read, "identity/oidc/provider/x/.well-known/keys", "")
}

// Templates that give no object for anybody are refused; and what an entity's metadata is called sets nothing that the
// server says itself.
func TestOIDCTemplates(t *testing.T) {
	h := providing(t)
	h.ok(secrets.Update, "identity/oidc/key/k", `{"allowed_client_ids":"*"}`)
	for _, template := range []string{` null`, `[]`, `1`, `{} {}`} {
		body := text(t, map[string]string{"template": template, "key": "k"})
		for _, path := range []string{"identity/oidc/scope/s", "identity/oidc/role/r"} {
			if _, err := h.as(h.root, secrets.Update, path, body); !errkind.Is(err, errkind.Invalid) {
				t.Errorf("%s with the template %s: %v, want it refused", path, template, err)
			}
		}
	}
	h.ok(secrets.Update, "identity/oidc/scope/team", `{"template":"{{identity.entity.metadata}}"}`)
	web := h.relying(map[string]any{"redirect_uris": []string{backTo}, "assignments": []string{"allow_all"}})
	ann := h.loginAs("ann")
	h.ok(secrets.Update, "identity/entity/id/"+ann.Entity, `{"metadata":{"team":"blue","nonce":"x","sub":"y"}}`)
	_, got := web.exchange(web.code(ann.ID, map[string]string{"nonce": ""}), nil)
	said, err := h.verified(fmt.Sprint(got["id_token"]))
	if err != nil || said.Subject != ann.Entity || said.All["team"] != "blue" || said.All["nonce"] != nil {
		t.Errorf("the token says %+v, %v", said, err)
	}
}
