package consulapi

import (
	"encoding/json"
	"net/http"
)

const readyPattern = "/v1/agent/health/ready"

// agentReady answers 200 while this process is ready for work, else 503 with what it waits for: for load balancers
// and those that restart one process after the other.
func agentReady(q *request) error {
	waiting := []string{}
	if lacks := q.api.cfg.Lacks; lacks != nil {
		waiting = append(waiting, lacks()...)
	}
	status := http.StatusOK
	if len(waiting) > 0 {
		status = http.StatusServiceUnavailable
		q.w.Header().Set("Retry-After", "1")
	}
	body, err := json.Marshal(map[string]any{"Ready": len(waiting) == 0, "Waiting": waiting})
	if err != nil {
		return err
	}
	return q.replyStatus(status, body)
}
