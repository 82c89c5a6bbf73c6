package doctorplane

import "testing"

// TestDiagnostics: another member is asked for diagnostics and for nothing else.
func TestDiagnostics(t *testing.T) {
	for path, want := range map[string]bool{
		"/v1/agent/self": true, "/v1/agent/monitor": true, "/debug/pprof/heap": true, "/v1/agent/metrics/stream": true,
		"/v1/internal/log": true, "/v1/internal/logs": false,
		"/v1/agent/selfish": false, "/v1/agent/leave": false, "/v1/kv/a": false, "/debug/pprof/../../v1/kv/a": false,
		"/": false, "": false,
		"/v1/internal/reach/other/v1/agent/self": false, "/v1/internal/mesh/proxies": false,
	} {
		if _, ok := diagnostic(path); ok != want {
			t.Errorf("%q: %v", path, !want)
		}
	}
}
