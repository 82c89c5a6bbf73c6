package keeper

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks/jwkstest"
	"corbel.dev/corbel/secrets"
	"corbel.dev/corbel/secrets/task"
)

// claims are those of a good token, with changes.
func (h *house) claims(change map[string]any) map[string]any {
	c := map[string]any{"iss": "me", "sub": "job-1", "aud": []string{"vault"}, "exp": h.now.Add(time.Minute).Unix(),
		"iat":  h.now.Unix(),
		"team": "web", "n": 7, "groups": []string{"admins", "none"}, "nested": map[string]any{"a/b": "deep"}}
	for k, v := range change {
		if c[k] = v; v == nil {
			delete(c, k)
		}
	}
	return c
}

func (h *house) jwt(role, token string) (*task.Reply, error) {
	return h.as("", secrets.Update, "auth/jwt/login", text(h.t, map[string]string{"role": role, "jwt": token}))
}

func TestJWT(t *testing.T) {
	for _, alg := range []string{"RS256", "ES256", "EdDSA"} {
		h, i := newHouse(t), jwkstest.New(t, alg)
		h.ok(secrets.Update, "sys/auth/jwt", `{"type":"jwt"}`)
		h.ok(secrets.Update, "auth/jwt/config", text(t, map[string]any{"jwt_validation_pubkeys": i.PublicKey(),
			"bound_issuer": "me", "default_role": "app"}))
		h.ok(secrets.Update, "auth/jwt/role/app",
			`{"role_type":"jwt","user_claim":"/nested/a~1b","user_claim_json_pointer":true,"bound_audiences":"vault","bound_claims":{"team":["db","web"],"n":7},
			"groups_claim":"groups","claim_mappings":{"team":"team","n":"number","absent":"absent"},"token_policies":"app","token_period":"30m"}`)
		mount := h.gate.Load().Mounts.Get("auth/jwt/").Accessor
		ext := h.made("identity/group", `{"name":"ext","type":"external","policies":["team"]}`)
		h.made("identity/group-alias", `{"name":"admins","mount_accessor":"`+mount+`","canonical_id":"`+ext+`"}`)
		h.policy("app", `path "secret/{{identity.entity.aliases.`+mount+`.metadata.team}}/*" { capabilities = ["read"] }`)
		h.policy("team", `path "secret/team" { capabilities = ["read"] }`)
		r, err := h.jwt("", i.Sign(h.claims(nil)))
		if err != nil {
			t.Fatalf("%s: %v", alg, err)
		}
		if tok := r.Token; tok.Period != 30*time.Minute || tok.Meta["role"] != "app" || tok.Meta["number"] != "7" ||
			tok.DisplayName != "jwt-deep" || fmt.Sprint(tok.Identity) != "[team]" {
			t.Errorf("%s: the login gave %+v %q", alg, tok.Token, tok.Identity)
		}
		for path, want := range map[string]bool{"secret/web/x": true, "secret/db/x": false, "secret/team": true} {
			if _, err := h.as(r.Token.ID, secrets.Read, path, ""); errkind.Is(err, errkind.Denied) == want {
				t.Errorf("%s: %s: %v", alg, path, err)
			}
		}
		if n := h.commits(func() {
			_, err = h.jwt("app", i.Sign(h.claims(map[string]any{"groups": []string{},
				"team": "db"})))
		}); n != 1 || err != nil {
			t.Errorf("%s: a login that changes its entity: %d commits, %v", alg, n, err)
		}
		for path, want := range map[string]bool{"secret/web/x": false, "secret/db/x": true, "secret/team": false} {
			if _, err := h.as(r.Token.ID, secrets.Read, path, ""); errkind.Is(err, errkind.Denied) == want {
				t.Errorf("%s: after another login: %s: %v", alg, path, err)
			}
		}
		if _, err := h.as(r.Token.ID, secrets.Update, "auth/token/renew-self", ""); err != nil {
			t.Errorf("%s: a renewal: %v", alg, err)
		}
		for what, change := range map[string]map[string]any{"iss": {"iss": "other"}, "aud": {"aud": "other"},
			"no aud": {"aud": nil}, "expired": {"exp": h.now.Add(-2 * time.Minute).Unix()},
			"early": {"nbf": h.now.Add(3 * time.Minute).Unix()}, "timeless": {"exp": nil, "iat": nil}, "team": {"team": "x"},
			"no team": {"team": nil}, "n": {"n": 8}, "user": {"nested": 1}, "groups": {"groups": nil}} {
			if _, err := h.jwt("app", i.Sign(h.claims(change))); !errkind.Is(err, errkind.Invalid) {
				t.Errorf("%s: %s: %v", alg, what, err)
			}
		}
		if _, err := h.jwt("app", jwkstest.New(t, "ES256").Sign(h.claims(nil))); !errkind.Is(err, errkind.Invalid) {
			t.Errorf("%s: a token of another key: %v", alg, err)
		}
		h.ok(secrets.Delete, "auth/jwt/role/app", "")
		h.refused(errkind.Invalid, r.Token.ID, secrets.Update, "auth/token/renew-self", "")
		for _, body := range []string{`{"jwt":"x"}`, `{"role":"none","jwt":"x"}`, `{"role":"app"}`,
			`{"role":"app","jwt":7}`} {
			h.refused(errkind.Invalid, "", secrets.Update, "auth/jwt/login", body)
		}
	}
}

// Of several addresses each may have the key.
func TestJWTKeysOfPairs(t *testing.T) {
	h, one, two, other := newHouse(t), jwkstest.New(t, "ES256"), jwkstest.New(t, "EdDSA"), jwkstest.New(t, "ES256")
	h.ok(secrets.Update, "sys/auth/jwt", `{"type":"jwt"}`)
	pair := func(i *jwkstest.Issuer) map[string]string {
		return map[string]string{"jwks_url": i.URL + "/keys", "jwks_ca_pem": i.CA}
	}
	h.ok(secrets.Update, "auth/jwt/config", text(t, map[string]any{"jwks_pairs": []any{pair(one), pair(two)}}))
	h.ok(secrets.Update, "auth/jwt/role/r", `{"role_type":"jwt","user_claim":"sub","bound_audiences":["vault"]}`)
	for _, i := range []*jwkstest.Issuer{one, two} {
		if _, err := h.jwt("r", i.Sign(h.claims(nil))); err != nil {
			t.Error(err)
		}
	}
	if _, err := h.jwt("r", other.Sign(h.claims(nil))); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("a token of nobody's: %v", err)
	}
	dead := map[string]string{"jwks_url": "https://127.0.0.1:1/keys"}
	h.ok(secrets.Update, "auth/jwt/config", text(t, map[string]any{"jwks_pairs": []any{dead, pair(two)},
		"skip_jwks_validation": true}))
	if _, err := h.jwt("r", two.Sign(h.claims(nil))); err != nil {
		t.Errorf("beside an address that does not answer: %v", err)
	}
	if _, err := h.jwt("r", other.Sign(h.claims(nil))); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("it may be of the address that does not answer: %v", err)
	}
	if pairs := field(t, h.ok(secrets.Read, "auth/jwt/config", ""), "jwks_pairs").([]any); len(pairs) != 2 {
		t.Errorf("the configuration shows %v", pairs)
	}
	for _, bad := range []string{`[{"jwks_url":"x"}]`, `"x"`, `[7]`, `[{"jwks_url":"https://x","jwks_ca_pem":"no"}]`} {
		h.refused(errkind.Invalid, h.root, secrets.Update, "auth/jwt/config", `{"jwks_pairs":`+bad+`}`)
	}
}

func TestJWTKeysOfAnIssuer(t *testing.T) {
	h, i := newHouse(t), jwkstest.New(t, "ES256")
	h.ok(secrets.Update, "sys/auth/jwt", `{"type":"jwt"}`)
	h.refused(errkind.Invalid, "", secrets.Update, "auth/jwt/login", `{"role":"r","jwt":"x"}`)
	h.refused(errkind.Invalid, h.root, secrets.Update, "auth/jwt/config", `{"jwks_url":"https://127.0.0.1:1/keys"}`)
	if r := h.ok(secrets.Update, "auth/jwt/config",
		`{"jwks_url":"https://127.0.0.1:1/keys","skip_jwks_validation":true}`); len(r.Warnings) == 0 {
		t.Error("no warning of an address that does not answer")
	}
	h.ok(secrets.Update, "auth/jwt/role/r",
		`{"role_type":"jwt","user_claim":"sub","bound_subject":"job-1","bound_audiences":["vault"]}`)
	if _, err := h.jwt("r", i.Sign(h.claims(nil))); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("without the issuer: %v", err)
	}
	h.ok(secrets.Update, "auth/jwt/config", text(t, map[string]any{"oidc_discovery_url": i.URL,
		"oidc_discovery_ca_pem": i.CA}))
	if _, err := h.jwt("r", i.Sign(h.claims(nil))); !errkind.Is(err, errkind.Invalid) {
		t.Errorf("the issuer of the discovery is the bound one: %v", err)
	}
	good := h.claims(map[string]any{"iss": i.URL})
	for range 3 {
		if _, err := h.jwt("r", i.Sign(good)); err != nil {
			t.Errorf("login: %v", err)
		}
	}
	if n := i.Asked.Load(); n != 1 {
		t.Errorf("the keys were asked for %d times", n)
	}
	i.Rotate("two")
	h.wait(10 * time.Second)
	if _, err := h.jwt("r", i.Sign(good)); err != nil {
		t.Errorf("with a new key: %v", err)
	}
	if _, err := h.jwt("r", i.Sign(h.claims(map[string]any{"iss": i.URL, "sub": "other"}))); !errkind.Is(err,
		errkind.Invalid) {
		t.Errorf("another subject: %v", err)
	}
}

func TestJWTConfigRefuses(t *testing.T) {
	h := newHouse(t)
	h.ok(secrets.Update, "sys/auth/jwt", `{"type":"jwt"}`)
	for body, names := range map[string]string{
		`{}`:                              "jwks_url",
		`{"jwks_url":"ftp://x"}`:          "jwks_url",
		`{"jwt_validation_pubkeys":"no"}`: "jwt_validation_pubkeys[0]",
		`{"jwks_url":"https://x","oidc_discovery_url":"https://x"}`:  "exactly one",
		`{"jwks_url":"https://x","jwks_ca_pem":"no"}`:                "jwks_ca_pem",
		`{"jwks_url":"https://x","jwt_supported_algs":"HS256,none"}`: "jwt_supported_algs",
		`{"jwks_url":"https://x","oidc_client_id":"me"}`:             "oidc_client_id",
		`{"jwks_url":["x"]}`: "jwks_url",
	} {
		if _, err := h.as(h.root, secrets.Update, "auth/jwt/config", body); !errkind.Is(err, errkind.Invalid) ||
			!strings.Contains(err.Error(), names) {
			t.Errorf("%s: %v", body, err)
		}
	}
	const role = `{"role_type":"jwt","user_claim":"sub","bound_subject":"x"`
	for body, names := range map[string]string{
		`{"user_claim":"sub","bound_subject":"x"}`:                    "role_type",
		`{"role_type":"oidc","user_claim":"sub","bound_subject":"x"}`: "role_type",
		`{"role_type":"jwt","bound_subject":"x"}`:                     "user_claim",
		`{"role_type":"jwt","user_claim":"sub"}`:                      "at least one bound constraint",
		role + `,"bound_claims":7}`:                                   "bound_claims",
		role + `,"bound_claims":{"a":{"b":1}}}`:                       "bound_claims",
		role + `,"bound_claims_type":"regexp"}`:                       "bound_claims_type",
		role + `,"claim_mappings":{"a":"role"}}`:                      "claim_mappings",
		role + `,"claim_mappings":{"a":"x","b":"x"}}`:                 "claim_mappings",
		role + `,"clock_skew_leeway":"soon"}`:                         "clock_skew_leeway",
		role + `,"token_type":"batch","token_period":"1h"}`:           "token_type",
	} {
		if _, err := h.as(h.root, secrets.Update, "auth/jwt/role/r", body); !errkind.Is(err, errkind.Invalid) ||
			!strings.Contains(err.Error(), names) {
			t.Errorf("%s: %v", body, err)
		}
	}
	h.ok(secrets.Update, "auth/jwt/role/r",
		role+`,"bound_claims":"{\"ref\":\"refs/*\"}","bound_claims_type":"glob","claim_mappings":"a=b"}`)
	r := h.ok(secrets.Read, "auth/jwt/role/r", "")
	if fmt.Sprint(field(t, r, "bound_claims")) != "map[ref:refs/*]" || fmt.Sprint(field(t, r,
		"claim_mappings")) != "map[a:b]" || field(t, r, "bound_claims_type") != "glob" {
		t.Errorf("the role reads %s", r.Data)
	}
	h.ok(secrets.Delete, "auth/jwt/role/r", "")
	h.refused(errkind.NotFound, h.root, secrets.Read, "auth/jwt/role/r", "")
}
