package consulapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// apiForward passes requests on to another API, as an agent's do to a server's.
type apiForward struct{ to http.Handler }

func (f apiForward) Forward(w http.ResponseWriter, r *http.Request, _ bool) error {
	got := httptest.NewRecorder()
	f.to.ServeHTTP(got, r)
	w.WriteHeader(got.Code)
	_, _ = w.Write(got.Body.Bytes())
	return nil
}

func (f apiForward) ForwardStream(w http.ResponseWriter, r *http.Request, leader bool) error {
	return f.Forward(w, r, leader)
}

// TestAgentCentralConfig: an agent's answer about a proxy holds what the config entries add, and waits for its change.
func TestAgentCentralConfig(t *testing.T) {
	server := newRig(t, nil)
	agent := newRig(t, func(c *Config) {
		c.Registry, c.Operator.Group, c.Operator.Snapshots, c.Mesh.CA, c.Forward = nil, nil, nil, nil, apiForward{server.api}
	})
	for name, r := range map[string]*rig{"server": server, "agent": agent} {
		r.want("PUT", "/v1/agent/service/register",
			`{"Name":"web-proxy","Kind":"connect-proxy","Port":1,"Proxy":{"DestinationServiceName":"web"}}`, 200, "")
		before := r.do("GET", "/v1/agent/service/web-proxy", "").header.Get("X-Consul-ContentHash")
		server.want("PUT", "/v1/config", `{"Kind":"service-defaults","Name":"web","Protocol":"http"}`, 200, "true")
		a := r.do("GET", "/v1/agent/service/web-proxy?wait=5m&hash="+before, "")
		hash := a.header.Get("X-Consul-ContentHash")
		if a.status != http.StatusOK || !strings.Contains(a.body, `"protocol":"http"`) || hash == before ||
			!strings.Contains(a.body, `"ContentHash":"`+hash+`"`) {
			t.Errorf("%s: %d %s (hash before: %s)", name, a.status, a.body, before)
		}
		done := make(chan response, 1)
		go func() { done <- r.do("GET", "/v1/agent/service/web-proxy?wait=5m&hash="+hash, "") }()
		until(t, "the query to park", func() bool { return r.api.Blocking() == 1 })
		r.want("PUT", "/v1/agent/service/register",
			`{"Name":"web-proxy","Kind":"connect-proxy","Port":2,"Proxy":{"DestinationServiceName":"web"}}`, 200, "")
		if a := <-done; !strings.Contains(a.body, `"Port":2`) || !strings.Contains(a.body, `"protocol":"http"`) {
			t.Errorf("%s: %s", name, a.body)
		}
		server.want("DELETE", "/v1/config/service-defaults/web", "", 200, "*")
	}
	server.want("POST", "/v1/internal/mesh/central/web", `[`, 400, "*")
	server.want("POST", "/v1/internal/mesh/central/web", `["x"]`, 400, "*")
}
