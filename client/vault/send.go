package vault

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/kit/errkind"
)

// Pauses before a request is sent again, as Vault's users know them: a little longer each time.
const (
	retryMin  = time.Second
	retryStep = 250 * time.Millisecond
	retryMax  = 1500 * time.Millisecond
)

// send sends a request, as often as the configuration says. A body is sent again as a whole, whatever the method: as
// with Vault's client a write whose answer got lost may be done twice.
func (c *Client) send(req *http.Request) (*http.Response, error) {
	for n := 0; ; n++ {
		resp, err := c.once(req)
		if n >= c.cfg.Retries || req.Context().Err() != nil || err != nil && lasting(err) ||
			err == nil && !again(resp.StatusCode) {
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

// errTooMany is of a request that was not sent.
var errTooMany = errkind.New(errkind.Overloaded, "VAULT_RATE_LIMIT")

// once sends a request when the limit lets it. One that would have to wait past its deadline is not sent.
func (c *Client) once(req *http.Request) (*http.Response, error) {
	if c.limit != nil {
		if err := c.limit.Wait(req.Context()); err != nil {
			return nil, fmt.Errorf("%w: %w", errTooMany, err)
		}
	}
	return c.http.Do(req)
}

// lasting is whether an error of the way is one that no second try mends: one that was made here, or a certificate
// that is not believed.
func lasting(err error) bool {
	return !errors.As(err, new(*url.Error)) || errors.As(err, new(*tls.CertificateVerificationError)) ||
		errors.As(err, new(tls.RecordHeaderError))
}

// parseRate reads RATE or RATE:BURST, requests per second and how many at once; without a burst it is the rate, at
// least 1.
func parseRate(text string) (perSecond float64, burst int, err error) {
	before, after, two := strings.Cut(text, ":")
	perSecond, err = strconv.ParseFloat(before, 64)
	burst = int(max(1, min(perSecond, 1<<30)))
	if two && err == nil {
		burst, err = strconv.Atoi(after)
	}
	if err != nil || !(perSecond > 0) || burst < 1 {
		return 0, 0, errkind.Errorf(errkind.Invalid,
			"VAULT_RATE_LIMIT is %q; it must be requests per second, as in 10, or those and how many at once, as in 10:20", text)
	}
	return perSecond, burst, nil
}

// again is whether an answer may be another one soon.
func again(status int) bool {
	return status == http.StatusPreconditionFailed || status == http.StatusTooManyRequests ||
		status >= 500 && status != http.StatusNotImplemented
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
