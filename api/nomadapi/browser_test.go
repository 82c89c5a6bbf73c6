package nomadapi

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/kit/errkind"
)

// catalogued is an access control that remembers what it was asked and answers by path.
type catalogued struct {
	answers map[string]string // what is not there is Denied
	asked   string            // path and body of the last
}

// Ask implements nomadrows.AccessControl.
func (c *catalogued) Ask(_ context.Context, call nomadrows.AccessCall, out any) (uint64, error) {
	body, err := json.Marshal(call.In)
	c.asked = call.Path + " " + string(body)
	answer, ok := c.answers[call.Method+" "+call.Path]
	if !ok {
		return 0, errkind.New(errkind.Denied, "Permission denied")
	}
	return 7, errors.Join(err, json.Unmarshal([]byte(answer), out))
}

// TestBrowserLogins: methods and logins of type OIDC as the catalog is sent and shows them.
func TestBrowserLogins(t *testing.T) {
	const sso = `{"Name":"sso","Type":"oidc","Config":{"OIDCClientID":"corbel","OIDCClientSecret":"hush",` +
		`"OIDCDiscoveryCACert":"pem",` +
		`"JWTSupportedAlgs":["ES256"],"OIDCClientUsePKCE":true},"ModifyIndex":7}`
	answers := map[string]string{"GET auth-methods": "[" + sso + "]", "GET auth-method/sso": sso, "PUT auth-method": sso,
		"PUT auth-method/sso": sso,
		"POST oidc/auth-url":  `{"AuthURL":"https://id.example/authorize"}`,
		"POST oidc/callback":  `{"AccessorID":"a1","SecretID":"s1","Policies":[{"Name":"dev"}]}`}
	for _, c := range []struct {
		method, path, body string
		status             int
		has, asked         string
	}{
		{"GET", "auth-methods", "", 200, `"Type":"OIDC"`, ""},
		{"GET", "auth-method/sso", "", 200, `"DiscoveryCaPem":["pem"]`, ""},
		{"GET", "auth-method/sso", "", 200, `"OIDCEnablePKCE":true`, ""},
		{"PUT", "auth-method", `{"Name":"sso","Type":"OIDC","Config":{"OIDCClientID":"corbel","SigningAlgs":["ES256"],` +
			`"DiscoveryCaPem":["pem"],"OIDCEnablePKCE":false,"AllowedRedirectURIs":["http://localhost:4649/oidc/callback"],` +
			`"BoundIssuer":null,"VerboseLogging":true}}`, 200, `"Name":"sso"`,
			`"Type":"oidc","Default":false,"Config":{"AllowedRedirectURIs":["http://localhost:4649/oidc/callback"],` +
				`"JWTSupportedAlgs":["ES256"],"OIDCClientID":"corbel","OIDCDiscoveryCACert":"pem"}`},
		{"GET", "auth-method/sso", "", 200, `"OIDCClientSecret":"redacted"`, ""},
		{"PUT", "auth-method/sso", `{"Name":"sso","Config":{"OIDCClientSecret":"redacted"}}`, 200,
			`"OIDCClientSecret":"redacted"`, `"OIDCClientSecret":"hush"`},
		{"PUT", "auth-method/sso", `{"Name":"sso"}`, 200, `"DiscoveryCaPem":["pem"]`, `"OIDCDiscoveryCACert":"pem"`},
		{"PUT", "auth-method/sso", `{"Name":"sso","Config":{"OIDCClientSecret":"other"}}`, 200,
			`"OIDCClientSecret":"redacted"`, `"OIDCClientSecret":"other"`},
		{"PUT", "auth-method", `{"Name":"new","Type":"OIDC","Config":{"OIDCClientSecret":"redacted"}}`, 400,
			"OIDCClientSecret", ""},
		{"PUT", "auth-method", `{"Name":"sso","Type":"OIDC","Config":{"OIDCDisableUserInfo":true}}`, 400,
			"OIDCDisableUserInfo", ""},
		{"PUT", "auth-method", `{"Name":"sso","Type":"OIDC","Default":true}`, 200, `"Default":false`, `"Default":true`},
		{"PUT", "auth-method", `{"Name":"sso","Type":"LDAP"}`, 400, "must be JWT or OIDC", ""},
		{"PUT", "oidc/auth-url", `{"AuthMethodName":"sso","RedirectURI":"http://localhost:4649/oidc/callback",` +
			`"ClientNonce":"n"}`, 200, `{"AuthURL":"https://id.example/authorize"}`,
			`oidc/auth-url {"AuthMethod":"sso","RedirectURI":"http://localhost:4649/oidc/callback","ClientNonce":"n"}`},
		{"PUT", "oidc/auth-url", `{}`, 400, "missing auth method name", ""},
		{"PUT", "oidc/auth-url", `{"AuthMethodName":"sso"}`, 400, "missing redirect URI", ""},
		{"PUT", "oidc/auth-url", `{"AuthMethodName":"sso","RedirectURI":"x"}`, 400, "missing client nonce", ""},
		{"PUT", "oidc/complete-auth", `{"AuthMethodName":"sso","State":"st","Code":"c","ClientNonce":"n","Iss":"i"}`, 200,
			`"SecretID":"s1"`, `oidc/callback {"AuthMethod":"sso","State":"st","Code":"c","ClientNonce":"n"}`},
		{"PUT", "oidc/complete-auth", `{"AuthMethodName":"sso","Code":"c"}`, 400, "missing state", ""},
		{"PUT", "oidc/complete-auth", `{"AuthMethodName":"sso","State":"st"}`, 400, "missing code", ""},
	} {
		access := &catalogued{answers: answers}
		needs := filled().needs()
		needs.Access = access
		w := call(New(Config{Needs: needs}), c.method, "/v1/acl/"+c.path, c.body)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.has) || !strings.Contains(access.asked, c.asked) {
			t.Errorf("%s %s: %d %.300q, want %d with %q; the catalog was asked %q", c.method, c.path, w.Code, w.Body, c.status,
				c.has, access.asked)
		}
	}
	needs := filled().needs()
	needs.Access = &catalogued{answers: map[string]string{
		"GET login-methods": `[{"Name":"sso","Type":"oidc","Default":true}]`}}
	if w := call(New(Config{Needs: needs}), "GET", "/v1/acl/auth-methods", ""); w.Code != 200 ||
		!strings.Contains(w.Body.String(), `"Default":true`) {
		t.Errorf("methods for one who is about to log in: %d %s", w.Code, w.Body)
	}
	needs.Access = &catalogued{}
	if w := call(New(Config{Needs: needs}), "PUT", "/v1/acl/oidc/complete-auth",
		`{"AuthMethodName":"sso","State":"st","Code":"c"}`); w.Code != 403 {
		t.Errorf("a login that the catalog refuses: %d %s", w.Code, w.Body)
	}
}
