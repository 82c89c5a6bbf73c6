package node

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
)

// TestSwitchesReachTheirParts: keys that tests of their parts set by hand count when they come from a configuration
// too.
func TestSwitchesReachTheirParts(t *testing.T) {
	m := startServer(t, "switched", aclOff+`
bootstrap = true
session_ttl_min = "1s"
default_query_time = "1s"
max_query_time = "2s"
discovery_max_stale = "10s"
enable_debug = false
node_meta { rack = "r1" }
check_output_max_size = 16
enable_script_checks = true
limits { kv_max_value_size = 64 txn_max_req_len = 64 }
http_config {
  max_header_bytes = 4096
  block_endpoints = ["/v1/agent/self"]
  response_headers { X-Team = "ops" }
}
telemetry { metrics_prefix = "fleet" disable_hostname = true prefix_filter = ["-fleet.runtime"] prometheus_retention_time = "1m" }
limits { http_max_conns_per_client = 50 }
`)
	m.awaitAsk("PUT", "/v1/kv/ready", "x", http.StatusOK, "true")
	m.awaitAsk("GET", "/v1/health/node/switched", "", http.StatusOK, "serfHealth")
	m.awaitAsk("GET", "/v1/catalog/node/switched", "", http.StatusOK, `"rack":"r1"`) // the agent's first sync
	for _, c := range []struct {
		method, path, body string
		status             int
		part               string
	}{
		{"PUT", "/v1/session/create", `{"TTL":"2s","NodeChecks":[]}`, 200, `"ID"`},
		{"PUT", "/v1/session/create", `{"TTL":"500ms","NodeChecks":[]}`, 500, "must be between [1s=24h0m0s]"},
		{"PUT", "/v1/kv/large", strings.Repeat("x", 65), 413, "too large, max size: 64 bytes"},
		{"PUT", "/v1/txn", `[{"KV":{"Verb":"set","Key":"a","Value":"` + strings.Repeat("eHh4", 40) + `"}}]`, 413,
			"too large"},
		{"GET", "/v1/agent/self", "", 403, "blocked"},
		{"GET", "/debug/pprof/heap", "", 403, "enable_debug"},
		{"GET", "/v1/kv/ready?index=1000000&wait=10m", "", 200, "ready"}, // capped at 2 s, and the client waits 30 s
		{"GET", "/v1/kv/ready?index=1000000", "", 200, "ready"},
	} {
		if status, text := m.ask(c.method, c.path, c.body); status != c.status || !strings.Contains(text, c.part) {
			t.Errorf("%s %s: %d %.200q, want %d %q", c.method, c.path, status, text, c.status, c.part)
		}
	}
	resp := m.get(t, "/v1/catalog/nodes", nil)
	if got := resp.Header.Get("X-Consul-Effective-Consistency"); got != "stale" || resp.Header.Get("X-Team") != "ops" {
		t.Errorf("consistency %q, headers %v", got, resp.Header)
	}
	if resp := m.get(t, "/v1/catalog/nodes",
		http.Header{"X-Long": {strings.Repeat("x", 32<<10)}}); resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("long headers: %d", resp.StatusCode)
	}
	if _, text := m.ask("GET", "/v1/agent/metrics?format=prometheus", ""); !strings.Contains(text,
		"fleet_raft_commitTime") || strings.Contains(text, "consul_raft") || strings.Contains(text,
		"fleet_runtime_num_goroutines") {
		t.Errorf("metrics: %.300s", text)
	}
	m.awaitAsk("PUT", "/v1/agent/check/register",
		`{"ID":"s","Name":"s","Args":["sh","-c","printf 0123456789abcdefghij"],"Interval":"1s"}`, 200, "")
	polltest.NoError(t, time.Minute, func() error {
		if _, text := m.ask("GET", "/v1/agent/checks", ""); !strings.Contains(text, `"Output":"456789abcdefghij"`) ||
			strings.Contains(text, `"Output":"0123`) {
			return fmt.Errorf("%s", text)
		}
		return nil
	}, "the end of the check's output")
}

// get is one GET with headers; its body is dropped.
func (m *testMember) get(t *testing.T, path string, h http.Header) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+m.http+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if h != nil {
		req.Header = h
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp
}
