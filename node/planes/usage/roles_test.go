package usageplane

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestRoles: a server refuses what another role is for, answers what is everybody's, and has all roles by default.
func TestRoles(t *testing.T) {
	api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	for roles, refused := range map[string]string{"": "", "router": "/v1/usage/estimates /v1/usage/top",
		"aggregator": "/v1/usage/events /v1/usage/batch", "counter": "/v1/usage/events /v1/usage/corrections/7",
		"router aggregator": ""} {
		p := &peers{own: strings.Fields(roles)}
		for _, path := range []string{"/v1/usage/events", "/v1/usage/batch", "/v1/usage/products/x", "/v1/usage/limits"} {
			checkGate(t, p, api, path, strings.Contains(refused, path) || roles == "counter" && strings.Contains(path, "batch"))
		}
		for path := range strings.FieldsSeq(refused) {
			checkGate(t, p, api, path, true)
		}
	}
	if err := checkRoles([]string{"router", "cache"}); err == nil || !strings.Contains(err.Error(), "usage.cache.port") {
		t.Error(err)
	}
}

func checkGate(t *testing.T, p *peers, api http.Handler, path string, refused bool) {
	t.Helper()
	w := httptest.NewRecorder()
	p.gated(api).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	if (w.Code == http.StatusServiceUnavailable) != refused {
		t.Errorf("%v: %s: %d", p.own, path, w.Code)
	}
}
