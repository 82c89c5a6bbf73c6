package keeper

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/jwks"
	"corbel.dev/corbel/secrets"
)

// verified checks an identity token as others do: with the keys that anybody may read.
func (h *house) verified(token string) (*jwks.Claims, error) {
	h.t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reply, err := h.as("", secrets.Read, strings.TrimPrefix(r.URL.Path, "/v1/"), "")
		if err != nil || reply.Raw == nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", reply.Raw.ContentType)
		_, _ = w.Write(reply.Raw.Body)
	}))
	defer srv.Close()
	h.ok(secrets.Update, "identity/oidc/config", `{"issuer":"`+srv.URL+`"}`)
	tok, err := jwks.Parse(token, jwks.Published)
	if err != nil {
		h.t.Fatal(err)
	}
	said, issuer, err := jwks.New(func() time.Time { return h.now }).Verify(h.t.Context(),
		jwks.Source{Discovery: srv.URL + "/v1/identity/oidc"}, tok)
	if err == nil && issuer != srv.URL+"/v1/identity/oidc" {
		h.t.Errorf("the discovery names the issuer %s", issuer)
	}
	return said, err
}

func (h *house) introspected(token, client string) bool {
	h.t.Helper()
	r := h.ok(secrets.Update, "identity/oidc/introspect", text(h.t, map[string]string{"token": token,
		"client_id": client}))
	return field(h.t, r, "active") == true
}

func TestIdentityTokens(t *testing.T) {
	for _, alg := range []string{"RS256", "ES256", "ES384", "ES512", "EdDSA"} {
		h := newHouse(t)
		mount := h.users("ann")
		h.policy("app", `path "identity/oidc/token/*" { capabilities = ["read"] }`)
		h.ok(secrets.Update, "identity/oidc/config", `{"issuer":"https://vault.example:8200"}`)
		h.ok(secrets.Update, "identity/oidc/key/k",
			`{"algorithm":"`+alg+`","allowed_client_ids":"web","rotation_period":"1h","verification_ttl":"2h"}`)
		template :=
			`{"name":{{identity.entity.name}},"groups":{{identity.entity.groups.names}},"team":{{identity.entity.metadata.team}},"none":{{ identity.entity.metadata.none }},
			"user":{{identity.entity.aliases.` + mount + `.name}},"other":{{identity.entity.aliases.x.metadata}},"soon":{{time.now.plus.10m}}}`
		h.ok(secrets.Update, "identity/oidc/role/r", text(t, map[string]string{"key": "k", "client_id": "web", "ttl": "30m",
			"template": base64.StdEncoding.EncodeToString([]byte(template))}))
		ann := h.loginAs("ann")
		h.ok(secrets.Update, "identity/entity/id/"+ann.Entity, `{"name":"ann \"the\" one","metadata":{"team":"web"}}`)
		h.made("identity/group", `{"name":"admins","member_entity_ids":["`+ann.Entity+`"]}`)
		r, err := h.as(ann.ID, secrets.Read, "identity/oidc/token/r", "")
		if err != nil {
			t.Fatal(err)
		}
		token := fmt.Sprint(field(t, r, "token"))
		if field(t, r, "client_id") != "web" || field(t, r, "ttl") != 1800.0 {
			t.Errorf("%s: %s", alg, r.Data)
		}
		if !h.introspected(token, "") || !h.introspected(token, "web") || h.introspected(token, "other") ||
			h.introspected("x"+token, "") || h.introspected("x", "") {
			t.Errorf("%s: introspection", alg)
		}
		c, err := h.verified(token)
		if err != nil {
			t.Fatalf("%s: %v", alg, err)
		}
		if c.Issuer != "https://vault.example:8200/v1/identity/oidc" || c.Subject != ann.Entity ||
			fmt.Sprint(c.Audience) != "[web]" || !c.Expires.Equal(h.now.Add(30*time.Minute).Truncate(time.Second)) ||
			c.All["name"] != `ann "the" one` || fmt.Sprint(c.All["groups"]) != "[admins]" || c.All["team"] != "web" ||
			c.All["none"] != "" || c.All["user"] != "ann" || fmt.Sprint(c.All["other"]) != "map[]" ||
			c.All["soon"] != json.Number(fmt.Sprint(h.now.Unix()+600)) || c.All["namespace"] != "root" {
			t.Errorf("%s: the token says %+v", alg, c)
		}
		h.ok(secrets.Update, "identity/entity/id/"+ann.Entity, `{"disabled":true}`)
		if h.introspected(token, "") {
			t.Errorf("%s: a token of a disabled entity is active", alg)
		}
	}
}

// A key that was turned verifies for as long as its tokens live, and the one that signs next was published before.
func TestIdentityKeysTurn(t *testing.T) {
	h := newHouse(t)
	h.users("ann")
	h.policy("app", `path "identity/oidc/token/*" { capabilities = ["read"] }`)
	h.ok(secrets.Update, "identity/oidc/key/k",
		`{"algorithm":"ES256","allowed_client_ids":"*","rotation_period":"1h","verification_ttl":"90m"}`)
	h.ok(secrets.Update, "identity/oidc/role/r", `{"key":"k","ttl":"90m"}`)
	ann := h.loginAs("ann")
	tokenNow := func() string {
		t.Helper()
		r, err := h.as(ann.ID, secrets.Read, "identity/oidc/token/r", "")
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(field(t, r, "token"))
	}
	kids := func() (list []string) {
		t.Helper()
		r, err := h.as("", secrets.Read, "identity/oidc/.well-known/keys", "")
		if err != nil {
			t.Fatal(err)
		}
		var set struct{ Keys []struct{ Kid, D string } }
		if err := json.Unmarshal(r.Raw.Body, &set); err != nil {
			t.Fatal(err)
		}
		for _, k := range set.Keys {
			if list = append(list, k.Kid); k.D != "" {
				t.Error("a private key is published")
			}
		}
		return list
	}
	h.ok(secrets.Update, "identity/oidc/config", `{"issuer":"https://vault.example"}`)
	first, before := tokenNow(), kids()
	h.wait(time.Hour)
	if n, err := h.Tend(t.Context()); err != nil || n == 0 {
		t.Fatalf("the key was not turned: %d, %v", n, err)
	}
	after := kids()
	if len(before) != 2 || len(after) != 3 || after[0] != before[1] {
		t.Errorf("keys before %v, after %v: the second signs now", before, after)
	}
	if !h.introspected(first, "") {
		t.Error("a token of the former key is active no more")
	}
	h.ok(secrets.Update, "identity/oidc/key/k/rotate", `{}`)
	h.wait(30 * time.Minute)
	if h.introspected(first, "") {
		t.Error("a token is active past its end")
	}
	h.wait(31 * time.Minute)
	if _, err := h.Tend(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(kids()); n != 5 {
		t.Errorf("%d keys are published, not the two of now and the three before them", n)
	}
	h.wait(30 * time.Minute)
	if n := len(kids()); n != 3 {
		t.Errorf("%d keys are published: those whose time is over too", n)
	}
	h.ok(secrets.Update, "identity/oidc/key/k/rotate", `{"verification_ttl":0}`)
	last := kids()
	for range 100 { // rotations by hand are bounded in what they leave
		h.ok(secrets.Update, "identity/oidc/key/k/rotate", `{"verification_ttl":"90m"}`)
	}
	if n := len(kids()); n > 2+64 {
		t.Errorf("%d keys are published (before: %d)", n, len(last))
	}
}

func TestIdentityTokensRefuse(t *testing.T) {
	h := newHouse(t)
	h.users("ann")
	h.policy("app", `path "identity/oidc/token/*" { capabilities = ["read"] }`)
	h.refused(errkind.Unavailable, "", secrets.Read, "identity/oidc/.well-known/openid-configuration",
		"") // nobody said where it is
	h.ok(secrets.Update, "identity/oidc/key/k", `{"algorithm":"ES256"}`)
	for body, names := range map[string]string{
		`{"algorithm":"none"}`: "algorithm", `{"algorithm":"HS256"}`: "algorithm", `{"algorithm":"PS256"}`: "algorithm",
		`{"rotation_period":"59s"}`:   "rotation_period",
		`{"verification_ttl":"241h"}`: "10x", `{"verification_ttl":"soon"}`: "verification_ttl",
	} {
		if _, err := h.as(h.root, secrets.Update, "identity/oidc/key/bad", body); !errkind.Is(err, errkind.Invalid) ||
			!strings.Contains(err.Error(), names) {
			t.Errorf("key %s: %v", body, err)
		}
	}
	h.refused(errkind.Invalid, h.root, secrets.Update, "identity/oidc/key/k", `{"algorithm":"RS256"}`)
	for body, names := range map[string]string{
		`{}`: "key", `{"key":"none"}`: "none", `{"key":"k","ttl":"25h"}`: "verification_ttl",
		`{"key":"k","template":"{"}`: "template", `{"key":"k","template":"[1]"}`: "template",
		`{"key":"k","template":"{\"sub\":{{identity.entity.id}}}"}`:     "not allowed",
		`{"key":"k","template":"{\"iss\":\"x\"}"}`:                      "not allowed",
		`{"key":"k","template":"{\"a\":{{identity.entity.policies}}}"}`: "no placeholder",
		`{"key":"k","template":"{\"a\":{{identity.entity.id}"}`:         "no end",
		`{"key":"k","template":"{\"a\":\"{{identity.entity.name}}\"}"}`: "JSON",
	} {
		if _, err := h.as(h.root, secrets.Update, "identity/oidc/role/bad", body); !errkind.Is(err, errkind.Invalid) ||
			!strings.Contains(err.Error(), names) {
			t.Errorf("role %s: %v", body, err)
		}
	}
	h.ok(secrets.Update, "identity/oidc/role/r", `{"key":"k"}`)
	ann := h.loginAs("ann")
	if _, err := h.as(ann.ID, secrets.Read, "identity/oidc/token/r", ""); !errkind.Is(err, errkind.Invalid) ||
		!strings.Contains(err.Error(), "allowed client ID") {
		t.Errorf("a client that the key does not allow: %v", err)
	}
	h.ok(secrets.Update, "identity/oidc/key/k", `{"allowed_client_ids":"*"}`)
	if _, err := h.as(ann.ID, secrets.Read, "identity/oidc/token/r", ""); !errkind.Is(err, errkind.Unavailable) {
		t.Errorf("without an issuer: %v", err)
	}
	h.refused(errkind.Invalid, h.root, secrets.Read, "identity/oidc/token/r", "") // root is nobody's
	h.refused(errkind.Invalid, h.root, secrets.Delete, "identity/oidc/key/k", "")
	h.refused(errkind.Invalid, h.root, secrets.Update, "identity/oidc/key/k",
		`{"verification_ttl":"1h"}`) // the role's tokens live for a day
	for _, issuer := range []string{"vault", "https://x/y", "https://u@x", "ftp://x", "https://x?y"} {
		h.refused(errkind.Invalid, h.root, secrets.Update, "identity/oidc/config", `{"issuer":"`+issuer+`"}`)
	}
	h.ok(secrets.Delete, "identity/oidc/role/r", "")
	h.ok(secrets.Delete, "identity/oidc/key/k", "")
	h.refused(errkind.NotFound, h.root, secrets.List, "identity/oidc/key/", "")
}
