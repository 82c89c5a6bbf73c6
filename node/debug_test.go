package node

import "testing"

// TestMayReach: another member is asked for diagnostics and for nothing else.
func TestMayReach(t *testing.T) {
	for path, want := range map[string]bool{
		"/v1/agent/self": true, "/v1/agent/monitor": true, "/debug/pprof/heap": true, "/v1/agent/metrics/stream": true,
		"/v1/agent/selfish": false, "/v1/agent/leave": false, "/v1/kv/a": false, "/debug/pprof/../../v1/kv/a": false, "/": false, "": false,
		"/v1/internal/reach/other/v1/agent/self": false,
	} {
		if mayReach(path) != want {
			t.Errorf("%q: %v", path, !want)
		}
	}
}
