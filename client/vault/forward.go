package vault

import (
	"bytes"
	"context"
	"net/http"
)

// Forward sends somebody else's request and returns the answer as it came, whatever its status. target is the path with
// its query, as it stands in a request line. The headers are the request's own: the client adds none, no token either.
// A body may be sent several times, so it is in memory. Its deadline is ctx's. The caller closes the answer's body.
func (c *Client) Forward(ctx context.Context, method, target string, header http.Header, body []byte) (*http.Response,
	error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+target, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = header
	resp, err := c.send(req)
	if err != nil {
		return nil, c.unreached(err)
	}
	return resp, nil
}
