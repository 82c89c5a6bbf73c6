// Package aclrows answers /v1/acl: tokens, policies, roles, auth methods, binding rules, logging in. Objects change
// through grants.Keeper on the leader; reads come from any State, with secrets hidden from who may not write ACLs.
package aclrows

import (
	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/catalog/grants"
)

// Config is what the rows of ACL objects need.
type Config struct {
	Keeper        *grants.Keeper // changes ACL objects; nil on client agents and while ACLs are off
	DownACLPolicy string
}

// Rows are the rows of ACL objects.
type Rows struct{ Config }

// New makes the rows; it starts nothing.
func New(cfg Config) *Rows { return &Rows{cfg} }

// Routes are the rows of this part of the contract.
func (al *Rows) Routes() []rows.Row {
	return []rows.Row{
		rows.Write("PUT", "/v1/acl/bootstrap", acl.NoResource, al.aclBootstrap).ForAnyone(),
		rows.Write("POST", "/v1/acl/login", acl.NoResource, al.aclLogin).ForAnyone(),
		rows.Write("POST", "/v1/acl/oidc/auth-url", acl.NoResource, al.oidcBegin).ForAnyone(),
		rows.Write("POST", "/v1/acl/oidc/callback", acl.NoResource, al.oidcEnd).ForAnyone(),
		rows.Read("GET", "/v1/internal/ui/oidc-auth-methods", acl.NoResource, al.oidcMethods),
		rows.Read("GET", "/v1/internal/acl/login-methods", acl.NoResource, al.loginMethods),
		rows.Write("POST", "/v1/acl/logout", acl.NoResource, al.aclLogout),
		rows.Read("GET", "/v1/acl/replication", acl.NoResource, al.aclReplication),
		rows.Write("PUT", "/v1/acl/token", acl.ACL, set(al, createToken)),
		rows.Read("GET", "/v1/acl/token/self", acl.NoResource, al.aclTokenSelf),
		rows.Read("GET", "/v1/acl/token/", acl.ACL, al.aclTokenRead),
		rows.Write("PUT", "/v1/acl/token/", acl.ACL, al.aclTokenUpdate),
		rows.Write("DELETE", "/v1/acl/token/", acl.ACL, al.drop(missingAccessor, (*grants.Keeper).DeleteToken)),
		rows.Read("GET", "/v1/acl/tokens", acl.ACL, al.aclTokens),
		rows.Write("PUT", "/v1/acl/policy", acl.ACL, set(al, setPolicy)),
		rows.Read("GET", "/v1/acl/policy/", acl.ACL, one(al, catalog.RecordACLPolicy, "policy", grants.PolicyByID, nil)),
		rows.Read("GET", "/v1/acl/policy/name/", acl.ACL,
			one(al, catalog.RecordACLPolicy, "policy", grants.PolicyByName, nil)),
		rows.Write("PUT", "/v1/acl/policy/", acl.ACL, set(al, setPolicy)),
		rows.Write("DELETE", "/v1/acl/policy/", acl.ACL, al.drop("", (*grants.Keeper).DeletePolicy)),
		rows.Read("GET", "/v1/acl/policies", acl.ACL, al.aclPolicies),
		rows.Write("PUT", "/v1/acl/role", acl.ACL, set(al, setRole)),
		rows.Read("GET", "/v1/acl/role/", acl.ACL, one(al, catalog.RecordACLRole, "role", grants.RoleByID, showRole)),
		rows.Read("GET", "/v1/acl/role/name/", acl.ACL, one(al, catalog.RecordACLRole, "role", grants.RoleByName, showRole)),
		rows.Write("PUT", "/v1/acl/role/", acl.ACL, set(al, setRole)),
		rows.Write("DELETE", "/v1/acl/role/", acl.ACL, al.drop("", (*grants.Keeper).DeleteRole)),
		rows.Read("GET", "/v1/acl/roles", acl.ACL, al.aclRoles),
		rows.Write("PUT", "/v1/acl/auth-method", acl.ACL, set(al, createMethod)),
		rows.Read("GET", "/v1/acl/auth-method/", acl.ACL, one(al, catalog.RecordACLAuthMethod, "auth method",
			grants.AuthMethodByName, nil)),
		rows.Write("PUT", "/v1/acl/auth-method/", acl.ACL, set(al, updateMethod)),
		rows.Write("DELETE", "/v1/acl/auth-method/", acl.ACL, al.drop("", (*grants.Keeper).DeleteAuthMethod)),
		rows.Read("GET", "/v1/acl/auth-methods", acl.ACL, al.aclMethods),
		rows.Write("PUT", "/v1/acl/binding-rule", acl.ACL, set(al, setRule)),
		rows.Read("GET", "/v1/acl/binding-rule/", acl.ACL, one(al, catalog.RecordACLBindingRule, "binding rule",
			grants.BindingRuleByID, nil)),
		rows.Write("PUT", "/v1/acl/binding-rule/", acl.ACL, set(al, setRule)),
		rows.Write("DELETE", "/v1/acl/binding-rule/", acl.ACL, al.drop("", (*grants.Keeper).DeleteBindingRule)),
		rows.Read("GET", "/v1/acl/binding-rules", acl.ACL, al.aclRules),
		rows.Read("GET", "/v1/acl/templated-policies", acl.ACL, al.aclTemplates),
		rows.Read("GET", "/v1/acl/templated-policy/name/", acl.ACL, al.aclTemplate),
		rows.Read("POST", "/v1/acl/templated-policy/preview/", acl.ACL, al.aclTemplatePreview),
		rows.Write("POST", "/v1/internal/acl/one-time", acl.NoResource, al.aclOneTime),
		rows.Write("POST", "/v1/internal/acl/one-time/exchange", acl.NoResource, al.aclExchange).ForAnyone(),
		rows.Read("POST", "/v1/internal/acl/authorize", acl.NoResource, al.aclAuthorize),
	}
}
