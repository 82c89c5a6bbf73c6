package agentrows

import (
	"encoding/json"
	"net/http"

	"corbel.dev/corbel/api/consulapi/rows"
)

// agentReady answers 200 while this process is ready for work, else 503 with what it waits for: for load balancers
// and those that restart one process after the other.
func (ar *Rows) agentReady(q *rows.Request) error {
	waiting := []string{}
	if lacks := ar.Lacks; lacks != nil {
		waiting = append(waiting, lacks()...)
	}
	status := http.StatusOK
	if len(waiting) > 0 {
		status = http.StatusServiceUnavailable
		q.W.Header().Set("Retry-After", "1")
	}
	body, err := json.Marshal(map[string]any{"Ready": len(waiting) == 0, "Waiting": waiting})
	if err != nil {
		return err
	}
	return q.ReplyStatus(status, body)
}
