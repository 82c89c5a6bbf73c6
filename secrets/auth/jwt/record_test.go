package jwt

import (
	"encoding/json"
	"testing"
	"time"
)

// TestRoleRecord holds what is stored of a role: the groups of its fields are no level of the record.
func TestRoleRecord(t *testing.T) {
	r := role{User: "sub", leeways: leeways{Skew: time.Second, Expiry: 2, NotBefore: 3}, Type: "oidc",
		browser: browser{Redirects: []string{"https://a"}, Scopes: []string{"email"}, MaxAge: 4, Verbose: true}}
	got, err := json.Marshal(r)
	const want = `{"user_claim":"sub","clock_skew_leeway":1000000000,"expiration_leeway":2,"not_before_leeway":3,` +
		`"tokens":{},"role_type":"oidc","allowed_redirect_uris":["https://a"],"oidc_scopes":["email"],"max_age":4,` +
		`"verbose_oidc_logging":true}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
}
