package monitorplane

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"corbel.dev/corbel/node/raftgroup"
)

// Lacks tells what the monitor plane waits for after a start before it can answer, nothing when it can. What only
// an operator can do is not waited for: a plane that has failed, or that nobody has initialized, does not hold the
// process up.
func (m *Plane) Lacks() []string {
	if m.answered.Load() || m.failed.Load() != nil {
		return nil
	}
	var list []string
	switch {
	case m.Group.Raft.LeaderAddr() == "":
		list = []string{"no leader is known"}
	case m.Group.Raft.LastContact() > raftgroup.Silent:
		list = []string{"what the leader has is not here yet"}
	case !m.Group.initialized():
		if name, _ := m.Group.firstUser(); name != "" {
			list = []string{"the plane is being initialized"}
		}
	default:
		if list = m.Events.Router.Lacks(); len(list) == 0 {
			m.answered.Store(true)
		}
	}
	for i := range list {
		list[i] = "monitor: " + list[i]
	}
	return list
}

// Unready tells why the plane's own ports are not ready, nothing when they are.
func (m *Plane) Unready() (list []string) {
	if err := m.failed.Load(); err != nil {
		return []string{(*err).Error()}
	}
	if m.d.Ending.Load() {
		return []string{"the process ends"}
	}
	switch raft := m.Group.Raft; {
	case raft.LeaderAddr() == "":
		list = append(list, "no leader is known")
	case raft.LastContact() > raftgroup.Silent:
		list = append(list, "the leader was not heard for "+raft.LastContact().Round(time.Second).String())
	case !m.Group.initialized():
		list = append(list, "the plane has not been initialized: sensu-backend init does it")
	default:
		list = m.Events.Router.Lacks()
	}
	return list
}

func (m *Plane) ready() bool { return len(m.Unready()) == 0 }

// takesAgents says whether sessions begin.
func (m *Plane) takesAgents() bool {
	return m.d.Clock.Since(m.began) >= m.d.Cfg.Monitor.AgentWait && m.ready()
}

// whenUp answers 503 until the plane has what it needs to judge a request: before that it knows no users, and would
// call each password wrong. Afterwards it costs an atomic load.
func (m *Plane) whenUp(next http.Handler) http.Handler {
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
