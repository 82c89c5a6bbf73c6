package keeper

import (
	"testing"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/secrets"
)

// A role of pki whose names are templates lets everybody have their own names, and nobody another's or a pattern.
func TestRoleTemplatesOfPKI(t *testing.T) {
	h := newHouse(t)
	mount := h.users("ann", "bob", "star")
	h.ok(secrets.Update, "sys/mounts/pki", `{"type":"pki"}`)
	h.ok(secrets.Update, "pki/root/generate/internal", `{"common_name":"root","key_type":"ec"}`)
	h.ok(secrets.Update, "pki/roles/own", `{"allowed_domains":["{{identity.entity.aliases.`+mount+
		`.name}}.example.com","{{identity.entity.metadata.zone}}"],"allowed_domains_template":true,
		"allowed_uri_sans":"spiffe://example/{{identity.entity.name}}","allowed_uri_sans_template":true,"allow_bare_domains":true,"allow_subdomains":true,"allow_glob_domains":true,"key_type":"ec","allow_localhost":false}`)
	h.policy("app", `path "pki/issue/own" { capabilities = ["update"] }`)
	tokens := map[string]string{"root": h.root}
	for _, name := range []string{"ann", "bob", "star"} {
		who := h.loginAs(name)
		tokens[name] = who.ID
		h.ok(secrets.Update, "identity/entity/id/"+who.Entity, `{"name":"`+name+`"}`)
	}
	star := h.loginAs("star")
	h.ok(secrets.Update, "identity/entity/id/"+star.Entity, `{"name":"*","metadata":{"zone":"*"}}`)
	for _, c := range []struct {
		who, body string
		good      bool
	}{
		{"ann", `{"common_name":"ann.example.com"}`, true},
		{"ann", `{"common_name":"web.ann.example.com","uri_sans":"spiffe://example/ann"}`, true},
		{"ann", `{"common_name":"bob.example.com"}`, false},
		{"ann", `{"common_name":"ann.example.com","uri_sans":"spiffe://example/bob"}`, false},
		{"ann", `{"common_name":"example.com"}`, false},
		{"bob", `{"common_name":"bob.example.com"}`, true},
		{"bob", `{"common_name":"{{identity.entity.metadata.zone}}"}`, false},
		{"star", `{"common_name":"star.example.com"}`, true},
		{"star", `{"common_name":"ann.example.com"}`, false},
		{"star", `{"common_name":"star.example.com","uri_sans":"spiffe://example/ann"}`, false},
		{"root", `{"common_name":"ann.example.com"}`, false},
	} {
		_, err := h.as(tokens[c.who], secrets.Update, "pki/issue/own", c.body)
		if (err == nil) != c.good || (err != nil && !errkind.Is(err, errkind.Invalid)) {
			t.Errorf("%s asks for %s: %v", c.who, c.body, err)
		}
	}
}
