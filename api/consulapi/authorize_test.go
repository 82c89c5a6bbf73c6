package consulapi

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"corbel.dev/corbel/api/consulapi/rows"
)

// What came from another process is judged by the token that it brought: this process's default token is for its own
// clients.
func TestForwardedRequestsHaveNoDefaultToken(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Authorizer, c.DefaultACLPolicy = readers(), "deny"
		c.DefaultToken = func() string { return "reader" }
	})
	for _, c := range []struct {
		forwarded bool
		token     string
		want      int
	}{{false, "", http.StatusNotFound}, {true, "", http.StatusForbidden}, {true, "reader", http.StatusNotFound},
		{true, "other", http.StatusForbidden}} {
		req := httptest.NewRequest("GET", "/v1/kv/missing", nil)
		if c.token != "" {
			req.Header.Set("X-Consul-Token", c.token)
		}
		if c.forwarded {
			req = req.WithContext(rows.Forwarded(req.Context(), rows.Journey{}))
		}
		w := httptest.NewRecorder()
		r.api.ServeHTTP(w, req)
		if w.Code != c.want {
			t.Errorf("%+v: %d %s", c, w.Code, w.Body)
		}
	}
}
