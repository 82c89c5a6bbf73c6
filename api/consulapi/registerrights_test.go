package consulapi

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// TestRegistrationIsJudgedByWhatItResultsIn: ids, names and checks of a registration are derived, and all of them are
// judged.
func TestRegistrationIsJudgedByWhatItResultsIn(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Authorizer = tokens{"theirs": rules(`service_prefix "" { policy = "write" } node_prefix "" { policy = "write" }`),
			"mine": rules(`service "mine" { policy = "write" } service "mine-sidecar-proxy" { policy = "write" }`),
			"":     rules("")}
		c.DefaultACLPolicy = "deny"
	})
	put := func(token, path, body string) int {
		req := httptest.NewRequest("PUT", path, strings.NewReader(body))
		req.Header.Set("X-Consul-Token", token)
		w := httptest.NewRecorder()
		r.api.ServeHTTP(w, req)
		return w.Code
	}
	const register = "/v1/agent/service/register"
	for _, body := range []string{`{"Name":"theirs","Check":{"CheckID":"theirs-ttl","TTL":"1h"}}`,
		`{"Name":"theirs","ID":"web-sidecar-proxy"}`,
		`{"Name":"theirs","ID":"apart","Check":{"CheckID":"service:web:2","TTL":"1h"}}`} {
		if code := put("theirs", register, body); code != 200 {
			t.Fatalf("%s: %d", body, code)
		}
	}
	for _, body := range []string{
		`{"Name":"mine","Connect":{"SidecarService":{"Checks":[{"CheckID":"theirs-ttl","TTL":"1h","Status":"passing"}]}}}`,
		`{"Name":"mine","ID":"web","Connect":{"SidecarService":{}}}`,
		`{"Name":"mine","ID":"web","Checks":[{"TTL":"1h"},{"TTL":"1h"}]}`,
	} {
		if code := put("mine", register, body); code != 403 {
			t.Errorf("%s: %d", body, code)
		}
		if code := put("mine", "/v1/agent/services/register", "["+body+"]"); code != 403 {
			t.Errorf("%s in a list: %d", body, code)
		}
	}
	if code := put("mine", register, `{"Name":"mine","Connect":{"SidecarService":{"Name":"theirs"}}}`); code != 200 {
		t.Errorf("a sidecar's name, which is not what it gets: %d", code)
	}
	if c := r.api.Agent.Local.View().Checks["theirs-ttl"]; c.Check.ServiceID != "theirs" {
		t.Errorf("the check belongs to %q", c.Check.ServiceID)
	}
}
