package client

import (
	"context"
	"encoding/json"
	"net/http"

	"corbel.dev/corbel/kit/errkind"
)

// AgentService makes the read of one service of the agent for Follow: it waits on the hash of the service's content,
// as this row has no index, and counts the changes in Meta.Index. It serves one Follow.
func (c *Client) AgentService(id string) func(context.Context, Query) (json.RawMessage, Meta, error) {
	var last string
	var version uint64
	return func(ctx context.Context, q Query) (json.RawMessage, Meta, error) {
		for {
			query := q.Values()
			query.Del("index")
			if last != "" {
				query.Set("hash", last)
				query.Set("wait", "50s") // below the call's own deadline
			}
			var text json.RawMessage
			if err := c.Send(ctx, http.MethodGet, "/v1/agent/service/"+Escape(id), query, nil, &text); err != nil {
				return nil, Meta{}, err
			}
			var body struct{ ContentHash string }
			if err := json.Unmarshal(text, &body); err != nil {
				return nil, Meta{}, errkind.E(errkind.Unavailable, "read the agent's answer", err)
			}
			if body.ContentHash == last && version > 0 {
				continue
			}
			last = body.ContentHash
			version++
			return text, Meta{Index: version}, nil
		}
	}
}
