package consulapi

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/api/consulapi/rows"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/telemetry"
)

func fetch(t *testing.T, method, addr, path string) (status int, body, retry string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, strings.NewReader("v"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header.Get("Retry-After")
}

// TestRequestLimits asks through both front doors, on a clock that stands still.
func TestRequestLimits(t *testing.T) {
	clk := clock.NewFake(time.Unix(1_700_000_000, 0))
	metrics := telemetry.New(telemetry.Config{})
	s := newStage(t, func(c *Config) {
		c.Clock, c.Metrics = clk, metrics
		c.RequestLimits = rows.RequestLimits{Mode: "enforcing", ReadRate: 1, WriteRate: 2}
	})
	for _, door := range []struct{ name, addr string }{{"hot", s.addr}, {"net/http", s.slow}} {
		t.Run(door.name, func(t *testing.T) {
			clk.Advance(time.Minute)
			for i := range 10 {
				if code, body, _ := fetch(t, "GET", door.addr, "/v1/kv/a"); code >= http.StatusTooManyRequests {
					t.Fatalf("read %d: %d %q", i, code, body)
				}
			}
			over := func(method, path string, want int) {
				t.Helper()
				code, body, retry := fetch(t, method, door.addr, path)
				if code != want || !strings.Contains(body, "rate limit exceeded") || retry != "1" {
					t.Errorf("%s %s over the limit: %d %q Retry-After %q, want %d", method, path, code, body, retry, want)
				}
			}
			over("GET", "/v1/kv/a", http.StatusTooManyRequests)
			over("GET", "/v1/health/service/web", http.StatusTooManyRequests)
			over("GET", "/v1/catalog/nodes", http.StatusTooManyRequests)
			for _, path := range []string{"/v1/status/leader", "/v1/agent/version"} {
				if code, body, _ := fetch(t, "GET", door.addr, path); code == http.StatusTooManyRequests {
					t.Errorf("%s is limited: %q", path, body)
				}
			}
			for i := range 20 { // reads do not use up writes
				if code, body, _ := fetch(t, "PUT", door.addr, "/v1/kv/a?flags=1"); code != http.StatusOK {
					t.Fatalf("write %d: %d %q", i, code, body)
				}
			}
			over("PUT", "/v1/kv/a", http.StatusServiceUnavailable)
			s.store.mu.Lock()
			s.store.contact = registry.Contact{KnownLeader: true}
			s.store.mu.Unlock()
			over("PUT", "/v1/kv/a", http.StatusTooManyRequests) // another server may be the leader, and take it
			s.store.mu.Lock()
			s.store.contact = registry.Contact{KnownLeader: true, Leader: true}
			s.store.mu.Unlock()
			clk.Advance(time.Second)
			if code, body, _ := fetch(t, "GET", door.addr, "/v1/kv/a"); code != http.StatusOK {
				t.Errorf("a second later: %d %q", code, body)
			}
			over("GET", "/v1/kv/a", http.StatusTooManyRequests)
			if err := s.api.AdmitRead("Catalog.NodeServices", ""); err == nil {
				t.Error("what agents read past the HTTP API is not limited")
			}
		})
	}
	exceeded := func(labels ...string) uint64 { return metrics.Counter("rpc.rate_limit.exceeded", labels...).Value() }
	if n := exceeded("limit_type", "global/read", "op", "GET /v1/kv/", "mode", "enforcing"); n != 4 {
		t.Errorf("%d reads of keys are counted as over the limit, want 4", n)
	}
	if n := exceeded("limit_type", "global/write", "op", "PUT /v1/kv/", "mode", "enforcing"); n != 4 {
		t.Errorf("%d writes of keys are counted as over the limit, want 4", n)
	}
}

func TestRequestLimitsPermissiveAndReload(t *testing.T) {
	clk := clock.NewFake(time.Unix(1_700_000_000, 0))
	metrics := telemetry.New(telemetry.Config{})
	s := newStage(t, func(c *Config) {
		c.Clock, c.Metrics = clk, metrics
		c.RequestLimits = rows.RequestLimits{Mode: "permissive", ReadRate: 1, WriteRate: -1}
	})
	for range 15 {
		if code, body, _ := fetch(t, "GET", s.slow, "/v1/kv/a"); code != http.StatusNotFound {
			t.Fatalf("permissive refuses: %d %q", code, body)
		}
	}
	if n := metrics.Counter("rpc.rate_limit.exceeded", "limit_type", "global/read", "op", "GET /v1/kv/", "mode",
		"permissive").Value(); n != 5 {
		t.Errorf("%d counted, want 5", n)
	}
	s.api.SetRequestLimits(rows.RequestLimits{Mode: "enforcing", ReadRate: 0, WriteRate: -1})
	if code, _, _ := fetch(t, "GET", s.addr, "/v1/kv/a"); code != http.StatusTooManyRequests {
		t.Errorf("after the reload: %d", code)
	}
	for range 50 {
		if code, body, _ := fetch(t, "PUT", s.addr, "/v1/kv/a"); code != http.StatusOK {
			t.Fatalf("writes without a limit: %d %q", code, body)
		}
	}
	s.api.SetRequestLimits(rows.RequestLimits{})
	if code, _, _ := fetch(t, "GET", s.addr, "/v1/kv/a"); code != http.StatusOK {
		t.Errorf("after they were disabled: %d", code)
	}
	for range 30 {
		s.api.SetRequestLimits(rows.RequestLimits{Mode: "permissive", ReadRate: 0})
		_ = s.api.AdmitRead("Catalog.NodeServices", "")
	}
	if n := metrics.Counter("rpc.rate_limit.log_dropped").Value(); n == 0 {
		t.Error("a flood is logged line by line")
	}
}
