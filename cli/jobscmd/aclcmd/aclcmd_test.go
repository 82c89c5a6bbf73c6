package aclcmd

import (
	"testing"

	"corbel.dev/corbel/cli/jobscmd/jobscmdtest"
)

// TestCommands: what commands print, ask and refuse.
func TestCommands(t *testing.T) {
	const token = `{"AccessorID":"a1","SecretID":"s1","Name":"ci","Type":"client","Policies":["dev"],` +
		`"CreateTime":"2026-01-02T03:04:05Z"}`
	const methods = `[{"Name":"sso","Type":"OIDC"},{"Name":"ci","Type":"JWT","Default":true}]`
	of := jobscmdtest.Of
	jobscmdtest.Run(t, []jobscmdtest.Case{
		of("the first token", ACL, map[string]string{"PUT /v1/acl/bootstrap": token}, "bootstrap", "Secret ID    = s1", ""),
		of("a token", ACL, map[string]string{"GET /v1/acl/token/a1": token}, "token info a1", "Policies     = dev", ""),
		of("a token as JSON", ACL, map[string]string{"PUT /v1/acl/token": token}, "token create --json --policy dev",
			`"SecretID": "s1"`, ""),
		of("a life that is none", ACL, nil, "token create --ttl soon", "", "-ttl=soon is no duration"),
		of("tokens", ACL, map[string]string{"GET /v1/acl/tokens": "[" + token + "]"}, "token list",
			"ci    client  false   a1           false", ""),
		of("a token that changes", ACL, map[string]string{"GET /v1/acl/token/a1": token, "PUT /v1/acl/token/a1": token},
			"token update --name ci a1", "Name         = ci", ""),
		of("a policy that is not there", ACL, nil, "policy info dev", "", "404"),
		of("a policy's file that is not there", ACL, nil, "policy apply dev no.hcl", "", "no such file"),
		of("a policy that goes", ACL, map[string]string{"DELETE /v1/acl/policy/dev": ""}, "policy delete dev",
			"Successfully deleted policy dev", ""),
		of("a role by its name", ACL, map[string]string{
			"GET /v1/acl/role/name/ops": `{"ID":"r1","Name":"ops","Policies":[{"Name":"dev"}]}`},
			"role info --by-name ops", "Policies     = dev", ""),
		of("a configuration that is no JSON", ACL, nil, "auth-method create --name ci --config {", "", "not valid JSON"),
		of("rules", ACL, map[string]string{
			"GET /v1/acl/binding-rules": `[{"ID":"b1","AuthMethod":"ci","BindType":"management"}]`},
			"binding-rule list", "b1  <none>       ci           management  <none>", ""),
		of("a login without a token", Login, nil, "--type JWT --method ci", "", "needs -login-token"),
		of("a login in a browser", Login, nil, "--type OIDC --method ci --oidc-callback-addr x", "",
			"must be host:port"),
		of("a login without a method", Login, map[string]string{"GET /v1/acl/auth-methods": `[{"Name":"ci","Type":"JWT"}]`},
			"--login-token x", "", "login needs -method"),
		of("a default method of another type", Login, map[string]string{"GET /v1/acl/auth-methods": methods},
			"--type OIDC", "", "the default auth method ci is of type JWT"),
		of("a login by the default method", Login, map[string]string{"GET /v1/acl/auth-methods": methods,
			"PUT /v1/acl/login": token}, "--login-token x", "Secret ID    = s1", ""),
		of("a default method that needs a token", Login, map[string]string{"GET /v1/acl/auth-methods": methods}, "", "",
			"needs -login-token"),
		of("methods", ACL, map[string]string{"GET /v1/acl/auth-methods": methods}, "auth-method list", "ci    JWT   true",
			""),
		of("a login", Login, map[string]string{"PUT /v1/acl/login": token}, "--method ci --login-token x",
			"Secret ID    = s1",
			""),
	})
}
