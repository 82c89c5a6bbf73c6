package vault

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Pauses before a request is sent again, as Vault's users know them: a little longer each time.
const (
	retryMin  = time.Second
	retryStep = 250 * time.Millisecond
	retryMax  = 1500 * time.Millisecond
)

// send sends a request, as often as the configuration says. A body is sent again as a whole.
func (c *Client) send(req *http.Request) (*http.Response, error) {
	for n := 0; ; n++ {
		resp, err := c.http.Do(req)
		if n >= c.cfg.Retries || req.Context().Err() != nil || err == nil && !again(resp.StatusCode) {
			return resp, err
		}
		if err == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20)) // so that the connection may serve again
			_ = resp.Body.Close()
		}
		if req.GetBody != nil {
			body, err := req.GetBody()
			if err != nil {
				return nil, err
			}
			req.Body = body
		}
		pause := time.NewTimer(min(retryMin+time.Duration(n)*retryStep, retryMax))
		select {
		case <-pause.C:
		case <-req.Context().Done():
			pause.Stop()
			return nil, req.Context().Err()
		}
	}
}

// again is whether an answer may be another one soon.
func again(status int) bool {
	return status == http.StatusPreconditionFailed || status == http.StatusTooManyRequests || status >= 500 && status != http.StatusNotImplemented
}

// bySRV dials what DNS names for the service of a host.
func bySRV(dialer *net.Dialer, host string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if h, _, err := net.SplitHostPort(addr); err == nil && h == host {
			_, list, err := net.DefaultResolver.LookupSRV(ctx, "http", "tcp", host)
			if err != nil {
				return nil, err
			}
			if len(list) > 0 {
				addr = net.JoinHostPort(list[0].Target, strconv.Itoa(int(list[0].Port)))
			}
		}
		return dialer.DialContext(ctx, network, addr)
	}
}
