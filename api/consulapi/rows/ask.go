package rows

import (
	"bytes"
	"context"
	"net/http"

	"corbel.dev/corbel/api/consulapi/answer"
)

// AskServers asks with a token: this process where it is a server, else one of them.
func (c *Core) AskServers(ctx context.Context, method, path string, body []byte, token string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.RequestURI, r.RemoteAddr = path, "127.0.0.1:0"
	if token != "" {
		r.Header.Set("X-Consul-Token", token)
	}
	told := &Recorder{}
	if c.Registry != nil {
		c.Self(told, r)
	} else if c.Forward == nil {
		return nil, answer.ErrNoServers
	} else if err := c.Forward.Forward(told, r, false); err != nil {
		return nil, err
	}
	if told.Status != http.StatusOK {
		return nil, answer.FailAs(told.Status, told.Header(), told.Body)
	}
	return bytes.TrimSpace(told.Body), nil
}
