package keeper

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks/jwkstest"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/task"
)

const cliAddress = "http://localhost:8250/oidc/callback"

// oidcHouse is a house whose mount auth/oidc asks a provider of a test's own.
func oidcHouse(t *testing.T) (*house, *jwkstest.Provider) {
	h, p := newHouse(t), jwkstest.New(t, "ES256").Provider("vault", "planted/secret")
	p.Now = func() time.Time { return h.now }
	h.ok(secrets.Update, "sys/auth/oidc", `{"type":"oidc"}`)
	h.ok(secrets.Update, "auth/oidc/config", text(t, map[string]any{"oidc_discovery_url": p.URL,
		"oidc_discovery_ca_pem": p.CA, "oidc_client_id": "vault", "oidc_client_secret": "planted/secret",
		"default_role": "people"}))
	h.ok(secrets.Update, "auth/oidc/role/people", `{"user_claim":"email","allowed_redirect_uris":["`+cliAddress+
		`","https://vault.example/ui/vault/auth/oidc/oidc/callback"],
		"oidc_scopes":"email,groups","groups_claim":"groups","claim_mappings":{"team":"team"},"token_policies":"app","bound_claims":{"team":"web"}}`)
	p.Claims, p.Info = map[string]any{"email": "ann@example", "groups": []string{"admins"}}, map[string]any{"sub": "ann",
		"team": "web", "aud": "evil"}
	return h, p
}

// oidcBegin begins a login, and gives what the browser comes back with.
func (h *house) oidcBegin(p *jwkstest.Provider, role, nonce string) url.Values {
	h.t.Helper()
	r, err := h.as("", secrets.Update, "auth/oidc/oidc/auth_url", text(h.t, map[string]string{"role": role,
		"redirect_uri": cliAddress, "client_nonce": nonce}))
	if err != nil {
		h.t.Fatal(err)
	}
	return p.Browse(fmt.Sprint(field(h.t, r, "auth_url"))).Query()
}

func (h *house) oidcEnd(q url.Values, nonce string) (*task.Reply, error) {
	values := map[string]any{"client_nonce": nonce}
	for name := range q {
		values[name] = q.Get(name)
	}
	return h.Handle(h.t.Context(), &secrets.Request{Op: secrets.Read, Path: "auth/oidc/oidc/callback",
		Query: secrets.FieldsOf(values)})
}

func TestOIDCLogin(t *testing.T) {
	h, p := oidcHouse(t)
	mount := h.gate.Load().Mounts.Get("auth/oidc/").Accessor
	ext := h.made("identity/group", `{"name":"ext","type":"external","policies":["team"]}`)
	h.made("identity/group-alias", `{"name":"admins","mount_accessor":"`+mount+`","canonical_id":"`+ext+`"}`)
	back := h.oidcBegin(p, "", "mine")
	r, err := h.oidcEnd(back, "mine")
	if err != nil {
		t.Fatal(err)
	}
	if tok := r.Token; tok.Meta["role"] != "people" || tok.Meta["team"] != "web" ||
		tok.DisplayName != "oidc-ann@example" || fmt.Sprint(tok.Identity) != "[team]" ||
		fmt.Sprint(tok.Policies) != "[app default]" {
		t.Errorf("the login gave %+v %q", tok.Token, tok.Identity)
	}
	if _, err := h.oidcEnd(back, "mine"); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("a state was good twice: %v", err)
	}
	back = h.oidcBegin(p, "people", "mine")
	h.wait(5 * time.Minute)
	if _, err := h.oidcEnd(back, "mine"); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("a state was good after its time: %v", err)
	}
	config := string(h.ok(secrets.Read, "auth/oidc/config", "").Data)
	if strings.Contains(config, "planted") || !strings.Contains(config, `"oidc_client_id":"vault"`) {
		t.Errorf("the configuration reads %s", config)
	}
	h.ok(secrets.Update, "auth/oidc/config", text(t, map[string]any{"oidc_discovery_url": p.URL,
		"oidc_discovery_ca_pem": p.CA, "oidc_client_id": "vault"})) // without its secret
	if _, err := h.oidcEnd(h.oidcBegin(p, "people", ""), ""); err != nil {
		t.Errorf("a write of the configuration lost the secret: %v", err)
	}
	p.Info = nil
	if _, err := h.oidcEnd(h.oidcBegin(p, "people", ""), ""); !errkind.Is(err, errkind.Invalid) ||
		!strings.Contains(err.Error(), `claim "team" is missing`) {
		t.Errorf("without userinfo what it would have said counts: %v", err)
	}
}

// Every token of another login, client, issuer or time is refused, and so is every address but the role's.
func TestOIDCRefuses(t *testing.T) {
	h, p := oidcHouse(t)
	for what, change := range map[string]map[string]any{
		"another nonce":        {"nonce": "x"},
		"no nonce":             {"nonce": nil},
		"another client":       {"aud": "other"},
		"two clients":          {"aud": []string{"vault", "other"}},
		"another party":        {"azp": "other"},
		"another issuer":       {"iss": "https://evil"},
		"its time is over":     {"exp": h.now.Add(-time.Hour).Unix()},
		"no end":               {"exp": nil},
		"no user":              {"email": nil},
		"no groups":            {"groups": nil},
		"somebody else's info": {"sub": "bob"},
	} {
		p.Change = func(c map[string]any) {
			for name, v := range change {
				if c[name] = v; v == nil {
					delete(c, name)
				}
			}
		}
		if r, err := h.oidcEnd(h.oidcBegin(p, "people", "n"), "n"); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("%s: %v %v", what, r, err)
		}
	}
	p.Change = nil
	h.ok(secrets.Update, "auth/oidc/role/fresh",
		`{"role_type":"oidc","user_claim":"sub","allowed_redirect_uris":"`+cliAddress+`","max_age":60}`)
	p.Change = func(c map[string]any) { c["auth_time"] = h.now.Add(-time.Hour).Unix() }
	if _, err := h.oidcEnd(h.oidcBegin(p, "fresh", "n"), "n"); err == nil {
		t.Error("an authentication of an hour ago is good for max_age=60")
	}
	p.Change = nil
	for address, allowed := range map[string]bool{
		cliAddress: true, "http://localhost:1/oidc/callback": true,
		"https://vault.example/ui/vault/auth/oidc/oidc/callback":     true,
		"https://vault.example:444/ui/vault/auth/oidc/oidc/callback": false, "http://localhost:8250/oidc/callback/..": false,
		"http://localhost.evil:8250/oidc/callback": false,
		"http://localhost:8250@evil/oidc/callback": false, "http://localhost:8250/oidc/callback#x": false,
		"https://localhost:8250/oidc/callback": false, "http://127.0.0.1:8250/oidc/callback": false,
		"http://localhost:8250/oidc/callback?x=1": false, "https://VAULT.example/ui/vault/auth/oidc/oidc/callback": false,
	} {
		r, err := h.as("", secrets.Update, "auth/oidc/oidc/auth_url", text(t, map[string]string{"redirect_uri": address}))
		if err != nil || (field(t, r, "auth_url") != "") != allowed {
			t.Errorf("%s: %v, want %t", address, err, allowed)
		}
	}
	h.ok(secrets.Update, "auth/oidc/role/machine", `{"role_type":"jwt","user_claim":"sub","bound_subject":"x"}`)
	for _, body := range []string{`{}`, `{"role":"none","redirect_uri":"x"}`,
		`{"role":"machine","redirect_uri":"` + cliAddress + `"}`, `{"role":"people","redirect_uri":""}`} {
		h.refused(errkind.Invalid, "", secrets.Update, "auth/oidc/oidc/auth_url", body)
	}
	h.refused(errkind.Invalid, "", secrets.Update, "auth/oidc/login", text(t, map[string]string{"role": "people",
		"jwt": p.Sign(h.claims(nil))}))
	for body, names := range map[string]string{
		`{"user_claim":"sub"}`: "allowed_redirect_uris",
		`{"user_claim":"sub","allowed_redirect_uris":"not an address"}`:         "allowed_redirect_uris",
		`{"user_claim":"sub","allowed_redirect_uris":"https://u@x/y"}`:          "allowed_redirect_uris",
		`{"role_type":"saml","user_claim":"sub","allowed_redirect_uris":"a:b"}`: "role_type",
	} {
		if _, err := h.as(h.root, secrets.Update, "auth/oidc/role/r", body); !errkind.Is(err, errkind.Invalid) ||
			!strings.Contains(err.Error(), names) {
			t.Errorf("%s: %v", body, err)
		}
	}
	for body, names := range map[string]string{
		`"oidc_client_id":"x"`: "oidc_client_secret",
		`"oidc_client_id":"x","oidc_client_secret":"y","oidc_response_mode":"form_post"`: "oidc_response_mode",
		`"oidc_client_id":"x","oidc_client_secret":"y","oidc_response_types":"id_token"`: "oidc_response_types",
		`"jwks_pairs":[{"jwks_url":"https://x"}]`:                                        "exactly one",
	} {
		if _, err := h.as(h.root, secrets.Update, "auth/oidc/config",
			`{"oidc_discovery_url":"https://x",`+body+`}`); !errkind.Is(err, errkind.Invalid) || !strings.Contains(err.Error(),
			names) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// CVE-2026-33757: with callback_mode=direct whoever got somebody to open a link was logged in as them. Only the
// client that began a login ends it here, with the code and a nonce of its own, and there is nothing to poll.
func TestCVE_2026_33757_StrangersDoNotEndALogin(t *testing.T) {
	h, p := oidcHouse(t)
	for _, mode := range []string{"direct", "device", "Direct"} {
		h.refused(errkind.Invalid, h.root, secrets.Update, "auth/oidc/role/r",
			`{"user_claim":"sub","allowed_redirect_uris":"`+cliAddress+`","callback_mode":"`+mode+`"}`)
	}
	h.refused(errkind.NotFound, h.root, secrets.Update, "auth/oidc/oidc/poll", `{"state":"x","client_nonce":"x"}`)
	for _, nonce := range []string{"", "theirs", "MINE"} {
		back := h.oidcBegin(p, "people", "mine")
		if _, err := h.oidcEnd(back, nonce); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("with the nonce %q of another client: %v", nonce, err)
		}
		if _, err := h.oidcEnd(back, "mine"); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("after a stranger's try the login can still be ended: %v", err)
		}
	}
	mine, theirs := h.oidcBegin(p, "people", "mine"), h.oidcBegin(p, "people", "theirs")
	mine.Set("code", theirs.Get("code"))
	if _, err := h.oidcEnd(mine, "mine"); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("with the code of another login: %v", err)
	}
}

// CVE-2026-33758: the provider's error stood in a page as it came in the link.
func TestCVE_2026_33758_ErrorsOfALinkAreNotRepeated(t *testing.T) {
	h, p := oidcHouse(t)
	for _, name := range []string{"error", "error_description", "error_uri", "state", "code", "client_nonce"} {
		back := h.oidcBegin(p, "people", "mine")
		back.Set("error", "access_denied")
		back.Set(name, "<script>alert(1)</script>")
		r, err := h.oidcEnd(back, "mine")
		if err == nil || strings.Contains(err.Error(), "script") || r != nil {
			t.Errorf("%s: %v %v", name, r, err)
		}
	}
}
