package local

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/kit/polltest"
)

// TestRealCheckReachesTheCatalog runs a real HTTP check and a real script against real time.
func TestRealCheckReachesTheCatalog(t *testing.T) {
	var code atomic.Int64
	code.Store(http.StatusOK)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(code.Load()))
		fmt.Fprint(w, "body")
	}))
	defer srv.Close()
	f := newFake()
	l, stop := running(t, Config{Servers: f, EnableScriptChecks: true, CheckUpdateInterval: -1})
	defer stop()
	d := mustService(t, fmt.Sprintf(`{"Name":"web","Checks":[{"CheckID":"h","HTTP":%q,"Interval":"1s"},
		{"CheckID":"s","Args":["sh","-c","echo warned; exit 1"],"Interval":"1s"}]}`, srv.URL))
	if err := l.RegisterService(t.Context(), d, RegisterOptions{}); err != nil {
		t.Fatal(err)
	}
	status := func(id string, want catalog.Health, output string) {
		t.Helper()
		polltest.Until(t, func() bool {
			c := f.check(id)
			return c != nil && c.Status == want && c.Output == output
		}, "check %s to be %v with output %q", id, want, output)
	}
	status("h", catalog.Passing, "HTTP GET "+srv.URL+": 200 OK Output: body")
	status("s", catalog.Warning, "warned\n")
	code.Store(http.StatusServiceUnavailable)
	status("h", catalog.Critical, "HTTP GET "+srv.URL+": 503 Service Unavailable Output: body")
	if got, _, _ := l.ServiceHealth("web"); got != "critical" {
		t.Errorf("the service is %s", got)
	}
}
