package compat

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

// guarded starts a node that denies by default, and bootstraps it.
func guarded(t *testing.T, name string) (root *api.Client, as func(secret string) *api.Client) {
	t.Helper()
	t.Setenv(api.HTTPTokenEnvName, "")
	n := run(t, "dev", name, "-hcl", `acl { enabled = true default_policy = "deny" tokens { initial_management = "" } }`)
	as = func(secret string) *api.Client {
		c, err := api.NewClient(&api.Config{Address: n.http, Token: secret})
		must(t, err)
		return c
	}
	anonymous := as("")
	var first *api.ACLToken
	eventually(t, "the bootstrap", func() (err error) {
		first, _, err = anonymous.ACL().Bootstrap()
		return err
	})
	if first.SecretID == "" || first.Policies[0].Name != "global-management" {
		t.Fatalf("%+v", first)
	}
	if _, _, err := anonymous.ACL().Bootstrap(); err == nil ||
		!strings.Contains(err.Error(), "Unexpected response code: 403 (Permission denied: ACL bootstrap no longer allowed "+
			"(reset index:") {
		t.Error(err)
	}
	return as(first.SecretID), as
}

func wantError(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want %s", err, text)
	}
}

func TestACLObjects(t *testing.T) {
	root, as := guarded(t, "acl-objects")
	acl := root.ACL()
	policy, _, err := acl.PolicyCreate(&api.ACLPolicy{Name: "app", Description: "d",
		Rules: `key_prefix "app/" { policy = "write" }`}, nil)
	must(t, err)
	policy.Description = "changed"
	policy, _, err = acl.PolicyUpdate(policy, nil)
	must(t, err)
	byName, _, err := acl.PolicyReadByName("app", nil)
	must(t, err)
	if byName.ID != policy.ID || byName.Description != "changed" || len(byName.Hash) == 0 ||
		byName.ModifyIndex <= byName.CreateIndex {
		t.Errorf("%+v", byName)
	}
	if none, _, err := acl.PolicyReadByName("none", nil); none != nil || err != nil {
		t.Error(none, err)
	}
	policies, _, err := acl.PolicyList(nil)
	must(t, err)
	if len(policies) != 3 {
		t.Errorf("%d policies", len(policies))
	}
	_, _, err = acl.PolicyCreate(&api.ACLPolicy{Name: "bad", Rules: `nonsense "x" { policy = "read" }`}, nil)
	wantError(t, err, "nonsense")

	role, _, err := acl.RoleCreate(&api.ACLRole{Name: "ops", Policies: []*api.ACLLink{{Name: "app"}},
		ServiceIdentities: []*api.ACLServiceIdentity{{ServiceName: "web"}}}, nil)
	must(t, err)
	role, _, err = acl.RoleReadByName(role.Name, nil)
	must(t, err)
	if role.Policies[0].Name != "app" || role.ServiceIdentities[0].ServiceName != "web" {
		t.Errorf("%+v", role)
	}
	if none, _, err := acl.RoleRead("11111111-2222-3333-4444-555555555555", nil); none != nil || err != nil {
		t.Error(none, err)
	}

	token, _, err := acl.TokenCreate(&api.ACLToken{Description: "t", Roles: []*api.ACLLink{{Name: "ops"}},
		ExpirationTTL:  time.Hour,
		NodeIdentities: []*api.ACLNodeIdentity{{NodeName: "n", Datacenter: "dc1"}}}, nil)
	must(t, err)
	if token.ExpirationTime == nil || token.Roles[0].ID != role.ID {
		t.Errorf("%+v", token)
	}
	expanded, _, err := acl.TokenReadExpanded(token.AccessorID, nil)
	must(t, err)
	if len(expanded.ExpandedPolicies) != 3 || len(expanded.ExpandedRoles) != 1 ||
		expanded.AgentACLDefaultPolicy != "deny" {
		t.Errorf("%+v", expanded)
	}
	own, _, err := as(token.SecretID).ACL().TokenReadSelf(nil)
	must(t, err)
	if own.AccessorID != token.AccessorID {
		t.Errorf("%+v", own)
	}
	token.Description = "new"
	token, _, err = acl.TokenUpdate(token, nil)
	must(t, err)
	clone, _, err := acl.TokenClone(token.AccessorID, "a clone", nil)
	must(t, err)
	if clone.SecretID == token.SecretID || clone.Description != "a clone" || token.Description != "new" {
		t.Errorf("%+v", clone)
	}
	tokens, _, err := acl.TokenListFiltered(api.ACLTokenFilterOptions{Role: role.ID}, nil)
	must(t, err)
	if len(tokens) != 2 {
		t.Errorf("%d tokens with the role", len(tokens))
	}

	kv := as(token.SecretID).KV()
	_, err = kv.Put(&api.KVPair{Key: "app/x", Value: []byte("v")}, nil)
	must(t, err)
	_, err = kv.Put(&api.KVPair{Key: "other", Value: []byte("v")}, nil)
	wantError(t, err, `Unexpected response code: 403 (Permission denied: token with AccessorID '`+token.AccessorID+
		`' lacks permission 'key:write' on "other"`)
	_, _, err = as("").KV().Get("app/x", nil)
	wantError(t, err, "token with AccessorID '00000000-0000-0000-0000-000000000002' lacks permission 'key:read' on "+
		"\"app/x\"")
	_, err = acl.TokenDelete(token.AccessorID, nil)
	must(t, err)
	_, _, err = kv.Get("app/x", nil)
	wantError(t, err, "Unexpected response code: 403 (ACL not found)")
	_, _, err = acl.TokenRead(token.AccessorID, nil)
	wantError(t, err, "403 (ACL not found)")
	_, err = acl.RoleDelete(role.ID, nil)
	must(t, err)
	_, err = acl.PolicyDelete(policy.ID, nil)
	must(t, err)
	if _, _, err := as(clone.SecretID).KV().Get("app/x", nil); err == nil {
		t.Error("the clone kept what was deleted")
	}
	templates, _, err := acl.TemplatedPolicyList(nil)
	must(t, err)
	if _, ok := templates["builtin/service"]; !ok || len(templates) != 7 {
		t.Errorf("%v", templates)
	}
	preview, _, err := acl.TemplatedPolicyPreview(&api.ACLTemplatedPolicy{TemplateName: "builtin/service",
		TemplateVariables: &api.ACLTemplatedPolicyVariables{Name: "web"}}, nil)
	must(t, err)
	if !strings.Contains(preview.Rules, `service "web-sidecar-proxy"`) {
		t.Error(preview.Rules)
	}
	if r, _, err := acl.Replication(nil); err != nil || r.Enabled {
		t.Error(r, err)
	}
}

// signed is a JWT by ES256 with these claims.
func signed(t *testing.T, key *ecdsa.PrivateKey, claims map[string]any) string {
	t.Helper()
	part := func(v any) string {
		b, err := json.Marshal(v)
		must(t, err)
		return base64.RawURLEncoding.EncodeToString(b)
	}
	text := part(map[string]string{"alg": "ES256", "typ": "JWT"}) + "." + part(claims)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	must(t, err)
	var sig [64]byte
	r.FillBytes(sig[:32])
	s.FillBytes(sig[32:])
	return text + "." + base64.RawURLEncoding.EncodeToString(sig[:])
}

func TestACLLogin(t *testing.T) {
	root, as := guarded(t, "acl-login")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	must(t, err)
	_, _, err = root.ACL().AuthMethodCreate(&api.ACLAuthMethod{Name: "jwt", Type: "jwt", MaxTokenTTL: 5 * time.Minute,
		Config: map[string]any{
			"JWTValidationPubKeys": []string{string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))},
			"BoundIssuer":          "test", "BoundAudiences": []string{"corbel"},
			"ClaimMappings": map[string]string{"svc": "service"}}}, nil)
	must(t, err)
	method, _, err := root.ACL().AuthMethodRead("jwt", nil)
	must(t, err)
	if method.MaxTokenTTL != 5*time.Minute || method.Config["BoundIssuer"] != "test" {
		t.Errorf("%+v", method)
	}
	rule, _, err := root.ACL().BindingRuleCreate(&api.ACLBindingRule{AuthMethod: "jwt",
		BindType: api.BindingRuleBindTypeService, BindName: "${value.service}", Selector: `value.service matches "^web"`},
		nil)
	must(t, err)
	claims := map[string]any{"iss": "test", "aud": "corbel", "exp": time.Now().Add(time.Minute).Unix(), "svc": "web-1"}
	token, _, err := as("").ACL().Login(&api.ACLLoginParams{AuthMethod: "jwt", BearerToken: signed(t, key, claims),
		Meta: map[string]string{"job": "j"}}, nil)
	must(t, err)
	if token.AuthMethod != "jwt" || token.ExpirationTime == nil || token.ServiceIdentities[0].ServiceName != "web-1" {
		t.Errorf("%+v", token)
	}
	mine := as(token.SecretID)
	must(t, mine.Agent().ServiceRegister(&api.AgentServiceRegistration{Name: "web-1", Port: 1}))
	wantError(t, mine.Agent().ServiceRegister(&api.AgentServiceRegistration{Name: "db", Port: 1}),
		"lacks permission 'service:write' on \"db\"")
	eventually(t, "the service that its own token registered", func() error {
		list, _, err := mine.Health().Service("web-1", "", false, nil)
		if err == nil && len(list) != 1 {
			err = errors.New("not there yet")
		}
		return err
	})
	claims["svc"] = "db"
	_, _, err = as("").ACL().Login(&api.ACLLoginParams{AuthMethod: "jwt", BearerToken: signed(t, key, claims)}, nil)
	wantError(t, err, "403 (Permission denied")
	claims["svc"], claims["aud"] = "web-2", "else"
	_, _, err = as("").ACL().Login(&api.ACLLoginParams{AuthMethod: "jwt", BearerToken: signed(t, key, claims)}, nil)
	wantError(t, err, "403 (Permission denied")
	_, err = mine.ACL().Logout(nil)
	must(t, err)
	_, _, err = mine.ACL().TokenReadSelf(nil)
	wantError(t, err, "403 (ACL not found)")
	_, err = root.ACL().BindingRuleDelete(rule.ID, nil)
	must(t, err)
	_, err = root.ACL().AuthMethodDelete("jwt", nil)
	must(t, err)
	if none, _, err := root.ACL().AuthMethodRead("jwt", nil); none != nil || err != nil {
		t.Error(none, err)
	}
}

// TestACLOnAClientAgent asks an agent that has no records: it resolves tokens through the server.
func TestACLOnAClientAgent(t *testing.T) {
	const conf = `acl { enabled = true default_policy = "deny" token_ttl = "1s" policy_ttl = "1s" role_ttl = "1s"
		tokens { initial_management = "9d1d6c3a-0000-4000-8000-000000000001" agent = "9d1d6c3a-0000-4000-8000-000000000001" } }`
	t.Setenv(api.HTTPTokenEnvName, "")
	srv := run(t, "dev", "acl-server", "-hcl", conf)
	agent := run(t, "agent", "acl-agent", "-data-dir="+t.TempDir(), "-retry-join="+srv.gossip, "-hcl", conf)
	as := func(n *node, secret string) *api.Client {
		c, err := api.NewClient(&api.Config{Address: n.http, Token: secret})
		must(t, err)
		return c
	}
	root := as(srv, "9d1d6c3a-0000-4000-8000-000000000001")
	var token *api.ACLToken
	eventually(t, "a token", func() (err error) {
		token, _, err = root.ACL().TokenCreate(
			&api.ACLToken{ServiceIdentities: []*api.ACLServiceIdentity{{ServiceName: "web"}}}, nil)
		return err
	})
	mine := as(agent, token.SecretID).Agent()
	eventually(t, "the agent to know the token", func() error {
		return mine.ServiceRegister(&api.AgentServiceRegistration{Name: "web", Port: 1})
	})
	wantError(t, mine.ServiceRegister(&api.AgentServiceRegistration{Name: "db", Port: 1}),
		"lacks permission 'service:write' on \"db\"")
	if list, err := as(agent, "").Agent().Services(); err != nil || len(list) != 0 {
		t.Error(list, err)
	}
	wantError(t, as(agent, "no-such-token").Agent().ServiceDeregister("web"), "403 (ACL not found)")
	eventually(t, "the service in the catalog, by its own token", func() error {
		list, _, err := root.Catalog().Service("web", "", nil)
		if err == nil && (len(list) != 1 || list[0].Node != "acl-agent") {
			err = errors.New("not there yet")
		}
		return err
	})
	_, err := root.ACL().TokenDelete(token.AccessorID, nil)
	must(t, err)
	eventually(t, "the agent to refuse the revoked token", func() error {
		if _, err := mine.Services(); err == nil || !strings.Contains(err.Error(), "ACL not found") {
			return errors.New("still accepted")
		}
		return nil
	})
}
