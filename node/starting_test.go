package node

import (
	"net/http"
	"strings"
	"testing"

	"corbel.dev/corbel/kit/polltest"
)

// TestReadyMeansAllPlanes: from the first answer of its port on, the monitor plane never calls the right password
// wrong: it says 503, with when to come again, until it knows its users. When the process calls itself ready, a login
// works at the first attempt.
func TestReadyMeansAllPlanes(t *testing.T) {
	t.Parallel()
	m := startServer(t, "s0", monitorOn+"bootstrap = true")
	api, _ := m.MonitorAddrs()
	login := func() (int, http.Header) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+api+"/auth", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.SetBasicAuth("admin", "P@ssw0rd!")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return -1, nil
		}
		resp.Body.Close()
		return resp.StatusCode, resp.Header
	}
	polltest.Until(t, func() bool {
		ready, body := m.ask("GET", "/v1/agent/health/ready", "")
		code, header := login()
		switch {
		case code == http.StatusOK:
		case ready == http.StatusOK:
			t.Fatalf("the process is ready, and a login is answered with %d", code)
		case code == http.StatusServiceUnavailable && header.Get("Retry-After") == "":
			t.Fatal("503 without Retry-After")
		case code != http.StatusServiceUnavailable && code != -1:
			t.Fatalf("before the plane is ready a login is answered with %d; the process says %s", code, body)
		}
		return ready == http.StatusOK
	}, "the process to be ready")
	if lacks := strings.Join(append(m.monitor().Lacks(), m.monitor().Unready()...), ""); lacks != "" {
		t.Errorf("ready without the monitor plane: %q", lacks)
	}
}
