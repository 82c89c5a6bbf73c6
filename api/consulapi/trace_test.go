package consulapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/catalog/acl"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/telemetry"
)

// slowClock is a clock to which everything seems to take time: each look at it is ten milliseconds later.
type slowClock struct {
	clock.Real
	looks atomic.Int64
}

// Now implements clock.Clock.
func (c *slowClock) Now() time.Time {
	return time.Unix(0, 0).Add(time.Duration(c.looks.Add(1)) * 10 * time.Millisecond)
}

// Since implements clock.Clock.
func (c *slowClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// TestSlowReadsKeepTheirTrace: a slow read is kept with the trace of its caller and the time that its token took;
// what waits on purpose is not slow.
func TestSlowReadsKeepTheirTrace(t *testing.T) {
	metrics := telemetry.New(telemetry.Config{})
	rig := newRig(t, func(c *Config) {
		c.Metrics, c.Clock, c.Authorizer = metrics, &slowClock{}, tokens{"": rules(acl.GlobalReadOnlyRules)}
	})
	const trace = "0af7651916cd43dd8448eb211c80319c"
	for _, path := range []string{"/v1/catalog/services", "/v1/catalog/nodes?index=1&wait=1ms"} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("traceparent", "00-"+trace+"-b7ad6b7169203331-01")
		w := httptest.NewRecorder()
		rig.api.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	slow := metrics.Slowest()
	if metrics.Traces().On() {
		t.Error("traces are exported to nobody")
	}
	if len(slow) != 1 || slow[0].Trace != trace || slow[0].Kind != "read" ||
		slow[0].Spent[telemetry.StageToken] < 10*time.Millisecond {
		t.Errorf("kept are %+v", slow)
	}
}

// TestRequestsHaveSpans: a span names the route and never the path, the status is that of the answer, and what is
// done for the request is below it.
func TestRequestsHaveSpans(t *testing.T) {
	metrics := telemetry.New(telemetry.Config{})
	rig := newRig(t, func(c *Config) { c.Metrics = metrics })
	q := telemetry.NewSpanQueue(clock.Real{}, nil)
	defer metrics.Traces().Attach(q)()
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for _, c := range []struct {
		method, path, name string
		status             int
	}{
		{http.MethodPut, "/v1/kv/a-secret-name?token=a-secret-name", "PUT /v1/kv/", 200},
		{http.MethodGet, "/v1/kv/a-secret-name", "GET /v1/kv/", 200},
		{http.MethodGet, "/v1/kv/a-secret-name/none", "GET /v1/kv/", 404},
	} {
		r := httptest.NewRequest(c.method, c.path, strings.NewReader("a-secret-name"))
		r.Header.Set("Traceparent", "00-"+trace+"-"+parent+"-01")
		w := httptest.NewRecorder()
		rig.api.ServeHTTP(w, r)
		if w.Code != c.status {
			t.Fatalf("%s %s: %d %s", c.method, c.path, w.Code, w.Body)
		}
		spans := <-q.C
		root := spans[0]
		if root.Name != c.name || root.Method != c.method || root.Status != c.status || root.Plane != "catalog" ||
			root.Trace.String() != trace || root.Parent.String() != parent ||
			strings.Contains(fmt.Sprintf("%+v", spans), "a-secret-name") {
			t.Errorf("%s %s: %+v", c.method, c.path, spans)
		}
	}
}
