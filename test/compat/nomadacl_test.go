package compat

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
	"time"

	nomad "github.com/hashicorp/nomad/api"
)

// guardedNomad starts a process that denies by default, bootstraps it through Nomad's API, and returns clients by
// token.
func guardedNomad(t *testing.T, name string) (root *nomad.ACLToken, as func(secret string) *nomad.Client) {
	t.Helper()
	t.Setenv("NOMAD_TOKEN", "")
	ports, err := freePorts(1)
	must(t, err)
	run(t, "dev", name, fmt.Sprintf("-hcl=jobs { port = %d }", ports[0]),
		`-hcl=acl { enabled = true default_policy = "deny" tokens { initial_management = "" } }`)
	as = func(secret string) *nomad.Client {
		cl, err := nomad.NewClient(&nomad.Config{Address: fmt.Sprintf("http://127.0.0.1:%d", ports[0]), SecretID: secret})
		must(t, err)
		return cl
	}
	eventually(t, "the bootstrap", func() (err error) {
		root, _, err = as("").ACLTokens().Bootstrap(nil)
		return err
	})
	return root, as
}

// TestNomadACL walks through access control with Nomad's client, unmodified: the objects, and what they open.
func TestNomadACL(t *testing.T) {
	root, as := guardedNomad(t, "nomadacl")
	if root.Type != "management" || root.SecretID == "" || len(root.Policies) != 0 {
		t.Errorf("the first token: %+v", root)
	}
	_, _, err := as("").ACLTokens().Bootstrap(nil)
	wantError(t, err, "400")
	wantError(t, err, "reset index: ")
	admin := as(root.SecretID)

	rules := `namespace "default" {
		capabilities = ["list-jobs", "read-job", "dispatch-job"]
		variables { path "app/*" { capabilities = ["read", "list"] } }
	}
	node { policy = "read" }`
	_, err = admin.ACLPolicies().Upsert(&nomad.ACLPolicy{Name: "reader", Description: "d", Rules: rules}, nil)
	must(t, err)
	_, err = admin.ACLPolicies().Upsert(&nomad.ACLPolicy{Name: "reader", Description: "changed", Rules: rules}, nil)
	must(t, err)
	_, err = admin.ACLPolicies().Upsert(&nomad.ACLPolicy{Name: "bad", Rules: `namespace "x" { policy = "fly" }`}, nil)
	wantError(t, err, "use deny, read, scale, write")
	policy, _, err := admin.ACLPolicies().Info("reader", nil)
	must(t, err)
	if policy.Description != "changed" || policy.Rules != rules || policy.ModifyIndex <= policy.CreateIndex {
		t.Errorf("%+v", policy)
	}
	_, _, err = admin.ACLPolicies().Info("none", nil)
	wantError(t, err, "404")

	saved := savedNomad(t, admin)
	token, _, err := admin.ACLTokens().Create(&nomad.ACLToken{Name: "ci", Type: "client", Policies: []string{"reader"},
		ExpirationTTL: time.Hour}, nil)
	must(t, err)
	if token.Name != "ci" || token.Type != "client" || strings.Join(token.Policies, " ") != "reader" ||
		token.ExpirationTime == nil || token.Global || token.ExpirationTTL != time.Hour {
		t.Errorf("%+v", token)
	}
	_, _, err = admin.ACLTokens().Create(&nomad.ACLToken{Type: "client"}, nil)
	wantError(t, err, "missing policies or roles")
	_, _, err = admin.ACLTokens().Create(&nomad.ACLToken{Type: "client", Policies: []string{"none"}}, nil)
	wantError(t, err, "none")
	ci := as(token.SecretID)
	self, _, err := ci.ACLTokens().Self(nil)
	must(t, err)
	if self.AccessorID != token.AccessorID || self.SecretID != token.SecretID {
		t.Errorf("%+v", self)
	}
	opens(t, ci)
	_, err = admin.Operator().SnapshotRestore(bytes.NewReader(saved), nil) // tokens are the catalog's, and stay
	must(t, err)
	_, _, err = ci.Jobs().List(nil)
	must(t, err)

	token.Name, token.Policies = "other", []string{"reader"}
	changed, _, err := admin.ACLTokens().Update(token, nil)
	must(t, err)
	if changed.Name != "other" || changed.SecretID != token.SecretID {
		t.Errorf("%+v", changed)
	}
	list, _, err := admin.ACLTokens().List(nil)
	must(t, err)
	if len(list) != 3 { // the anonymous one too
		t.Errorf("%d tokens", len(list))
	}
	if _, _, err = ci.ACLTokens().List(nil); err == nil {
		t.Error("a client token lists tokens")
	}
	mine, _, err := ci.ACLPolicies().List(nil)
	must(t, err)
	if len(mine) != 1 || mine[0].Name != "reader" {
		t.Errorf("a client token sees the policies %+v", mine)
	}
	_, err = admin.ACLTokens().Delete(token.AccessorID, nil)
	must(t, err)
	_, err = admin.ACLTokens().Delete(token.AccessorID, nil)
	wantError(t, err, "400")
	_, _, err = admin.ACLTokens().Info(token.AccessorID, nil)
	wantError(t, err, "404")
	_, _, err = ci.Jobs().List(nil)
	wantError(t, err, "403")
}

// opens checks what the reader's token opens, and what not.
func opens(t *testing.T, ci *nomad.Client) {
	t.Helper()
	if _, _, err := ci.Jobs().List(nil); err != nil {
		t.Error(err)
	}
	if _, _, err := ci.Nodes().List(nil); err != nil {
		t.Error(err)
	}
	for what, ask := range map[string]func() error{
		"run a job": func() error { _, _, err := ci.Jobs().Register(sleeper("x", 1), nil); return err },
		"read another namespace": func() error {
			_, _, err := ci.Jobs().List(&nomad.QueryOptions{Namespace: "other"})
			return err
		},
		"write a variable": func() error {
			_, _, err := ci.Variables().Create(&nomad.Variable{Path: "app/a", Items: map[string]string{"a": "b"}}, nil)
			return err
		},
		"read a variable elsewhere": func() error { _, _, err := ci.Variables().Peek("db/a", nil); return err },
		"read the settings":         func() error { _, _, err := ci.Operator().SchedulerGetConfiguration(nil); return err },
		"sweep":                     func() error { return ci.System().GarbageCollect() },
		"save the state":            func() error { _, err := ci.Operator().Snapshot(nil); return err },
		"replace the state": func() error {
			_, err := ci.Operator().SnapshotRestore(strings.NewReader("x"), nil)
			return err
		},
	} {
		if err := ask(); err == nil || !strings.Contains(err.Error(), "403") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestNomadACLObjects: roles, auth methods, binding rules and one-time tokens.
func TestNomadACLObjects(t *testing.T) {
	root, as := guardedNomad(t, "nomadroles")
	admin := as(root.SecretID)
	for _, name := range []string{"a", "b"} {
		_, err := admin.ACLPolicies().Upsert(&nomad.ACLPolicy{Name: name, Rules: `agent { policy = "read" }`}, nil)
		must(t, err)
	}
	role, _, err := admin.ACLRoles().Create(&nomad.ACLRole{Name: "ops",
		Policies: []*nomad.ACLRolePolicyLink{{Name: "a"}}}, nil)
	must(t, err)
	role.Policies = append(role.Policies, &nomad.ACLRolePolicyLink{Name: "b"})
	role, _, err = admin.ACLRoles().Update(role, nil)
	must(t, err)
	if role.Name != "ops" || len(role.Policies) != 2 {
		t.Errorf("%+v", role)
	}
	byName, _, err := admin.ACLRoles().GetByName("ops", nil)
	must(t, err)
	if byName.ID != role.ID {
		t.Errorf("%+v", byName)
	}
	roles, _, err := admin.ACLRoles().List(nil)
	must(t, err)
	if len(roles) != 1 {
		t.Errorf("%d roles", len(roles))
	}
	token, _, err := admin.ACLTokens().Create(&nomad.ACLToken{Type: "client",
		Roles: []*nomad.ACLTokenRoleLink{{Name: "ops"}}}, nil)
	must(t, err)
	if len(token.Roles) != 1 || token.Roles[0].ID != role.ID || token.Roles[0].Name != "ops" {
		t.Errorf("%+v", token)
	}
	if _, err := as(token.SecretID).Agent().Self(); err != nil {
		t.Error("a role gives nothing:", err)
	}
	once, _, err := as(token.SecretID).ACLTokens().UpsertOneTimeToken(nil)
	must(t, err)
	got, _, err := as("").ACLTokens().ExchangeOneTimeToken(once.OneTimeSecretID, nil)
	must(t, err)
	if got.SecretID != token.SecretID {
		t.Errorf("a one-time token gave %+v", got)
	}
	_, _, err = as("").ACLTokens().ExchangeOneTimeToken(once.OneTimeSecretID, nil)
	wantError(t, err, "403")

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	must(t, err)
	public := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	method := &nomad.ACLAuthMethod{Name: "jwt", Type: "JWT", TokenLocality: "global", MaxTokenTTL: time.Hour,
		Default: true, Config: &nomad.ACLAuthMethodConfig{JWTValidationPubKeys: []string{public},
			BoundAudiences: []string{"me"}, BoundIssuer: []string{"me"}, SigningAlgs: []string{"ES256"}, ClaimMappings: map[string]string{"team": "team"}}}
	made, _, err := admin.ACLAuthMethods().Create(method, nil)
	must(t, err)
	if made.Type != "JWT" || made.MaxTokenTTL != time.Hour || !made.Default || made.Config.BoundIssuer[0] != "me" ||
		made.Config.SigningAlgs[0] != "ES256" {
		t.Errorf("%+v %+v", made, made.Config)
	}
	browser := &nomad.ACLAuthMethod{Name: "oidc", Type: "OIDC", TokenLocality: "local", MaxTokenTTL: time.Hour,
		Config: &nomad.ACLAuthMethodConfig{OIDCDiscoveryURL: "https://127.0.0.1:1", OIDCClientID: "corbel"}}
	_, _, err = admin.ACLAuthMethods().Create(browser, nil)
	wantError(t, err, "OIDCClientID and OIDCClientSecret must be set")
	browser.Config.OIDCClientSecret = "s"
	browser.Config.AllowedRedirectURIs = []string{"http://localhost:4649/oidc/callback"}
	browser.Default = true
	_, _, err = admin.ACLAuthMethods().Create(browser, nil)
	wantError(t, err, `"jwt" is the default auth method already`)
	method.Default = false
	_, _, err = admin.ACLAuthMethods().Update(method, nil)
	must(t, err)
	made, _, err = admin.ACLAuthMethods().Create(browser, nil)
	must(t, err)
	if made.Type != "OIDC" || made.Config.OIDCClientID != "corbel" || !made.Default {
		t.Errorf("%+v %+v", made, made.Config)
	}
	methods, _, err := as("").ACLAuthMethods().List(nil) // a login asks for them before it has a token
	must(t, err)
	if len(methods) != 2 || methods[0].Default || methods[1].Name != "oidc" || !methods[1].Default {
		t.Errorf("methods for one who is about to log in: %+v %+v", methods[0], methods)
	}
	_, _, err = as("").ACLAuth().GetAuthURL(&nomad.ACLOIDCAuthURLRequest{AuthMethodName: "oidc", ClientNonce: "n",
		RedirectURI: "http://elsewhere/oidc/callback"}, nil)
	wantError(t, err, "edirect")
	rule, _, err := admin.ACLBindingRules().Create(&nomad.ACLBindingRule{AuthMethod: "jwt", BindType: "management",
		Selector: `value.team == "ops"`}, nil)
	must(t, err)
	if rule.BindType != "management" || rule.BindName != "" {
		t.Errorf("%+v", rule)
	}
	rule.BindType, rule.BindName = "role", "ops"
	rule, _, err = admin.ACLBindingRules().Update(rule, nil)
	must(t, err)
	if rule.BindType != "role" || rule.BindName != "ops" || rule.Selector == "" {
		t.Errorf("%+v", rule)
	}
	logged, _, err := as("").ACLAuth().Login(&nomad.ACLLoginRequest{AuthMethodName: "jwt", LoginToken: signed(t, key,
		map[string]any{"iss": "me", "aud": "me", "team": "ops", "exp": time.Now().Add(time.Hour).Unix()})}, nil)
	must(t, err)
	if len(logged.Roles) != 1 || logged.Roles[0].Name != "ops" || logged.ExpirationTime == nil {
		t.Errorf("a login gave %+v", logged)
	}
	_, _, err = as("").ACLAuth().Login(&nomad.ACLLoginRequest{AuthMethodName: "jwt", LoginToken: "x.y.z"}, nil)
	wantError(t, err, "403")
	_, err = admin.ACLAuthMethods().Delete("jwt", nil)
	must(t, err)
	rules, _, err := admin.ACLBindingRules().List(nil)
	must(t, err)
	if len(rules) != 0 {
		t.Errorf("%d binding rules are left", len(rules))
	}
	_, err = admin.ACLRoles().Delete(role.ID, nil)
	must(t, err)
	_, err = admin.ACLRoles().Delete(role.ID, nil)
	wantError(t, err, "500")
}
