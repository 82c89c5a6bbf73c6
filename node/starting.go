package node

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"corbel.dev/corbel/node/raftgroup"
)

// Lacks tells what the monitor plane waits for after a start before it can answer, nothing when it can. What only
// an operator can do is not waited for: a plane that has failed, or that nobody has initialized, does not hold the
// process up.
func (m *monitorPlane) Lacks() []string {
	if m.answered.Load() || m.failed.Load() != nil {
		return nil
	}
	var list []string
	switch {
	case m.raft.LeaderAddr() == "":
		list = []string{"no leader is known"}
	case m.raft.LastContact() > raftgroup.Silent:
		list = []string{"what the leader has is not here yet"}
	case m.resources.View().Get("namespaces", "", "default") == nil:
		if name, _ := m.firstUser(); name != "" {
			list = []string{"the plane is being initialized"}
		}
	default:
		if list = m.router.Lacks(); len(list) == 0 {
			m.answered.Store(true)
		}
	}
	for i := range list {
		list[i] = "monitor: " + list[i]
	}
	return list
}

// monitorValue is the plane as the process runs it.
type monitorValue struct{ *monitorPlane }

// Drain implements plane.Plane.
func (m monitorValue) Drain(ctx context.Context) { m.router.HandOver(ctx) }

// whenUp answers 503 until the plane has what it needs to judge a request: before that it knows no users, and would
// call each password wrong. Afterwards it costs an atomic load.
func (m *monitorPlane) whenUp(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if lacks := m.Lacks(); len(lacks) > 0 {
			w.Header().Set("Retry-After", "1")
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusServiceUnavailable)
			// a client that left is noticed by the server
			_ = json.NewEncoder(w).Encode(map[string]any{"message": "not ready: " + strings.Join(lacks, "; "), "code": 0})
			return
		}
		next.ServeHTTP(w, r)
	})
}
