package check

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"corbel.dev/corbel/catalog"
)

const (
	userAgent = "Consul Health Check"
	accept    = "text/plain, text/*, */*"
	// maxBodyBytes bounds what is read of an HTTP answer; OutputMaxSizeBytes of it are kept.
	maxBodyBytes = 1 << 20
)

// probe makes the function that runs a spec once.
func (r *Runner) probe(s Spec) Probe {
	switch s.Kind {
	case KindHTTP:
		return httpProbe(s, r.cfg.TLS)
	case KindTCP:
		return tcpProbe(s, r.cfg.TLS)
	case KindUDP:
		return udpProbe(s)
	case KindGRPC:
		return grpcProbe(s, r.cfg.TLS)
	case KindH2Ping:
		return h2Probe(s, r.cfg.TLS)
	case KindScript:
		return scriptProbe(s)
	case KindAlias:
		if s.Probe != nil {
			return s.Probe
		}
	}
	return func(context.Context) Result {
		return failed(fmt.Sprintf("checks of kind %q are not supported yet", s.Kind))
	}
}

func failed(output string) Result { return Result{Status: catalog.Critical, Output: output} }

// tlsFor is the TLS configuration of a check.
func tlsFor(s Spec, base *tls.Config) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if base != nil {
		c = base.Clone()
	}
	c.InsecureSkipVerify = s.TLSSkipVerify // what the check's owner asked for
	c.ServerName = s.TLSServerName
	return c
}

// httpProbe makes one client per check; it opens a connection per run, so that
// each run also tests that the service still accepts connections.
func httpProbe(s Spec, base *tls.Config) Probe {
	client := &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, TLSClientConfig: tlsFor(s, base),
		DialContext: (&net.Dialer{Timeout: s.Timeout}).DialContext, TLSHandshakeTimeout: s.Timeout,
		MaxResponseHeaderBytes: 64 << 10,
	}}
	if s.DisableRedirects {
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	method := cmp.Or(s.Method, http.MethodGet)
	return func(ctx context.Context) Result {
		req, err := http.NewRequestWithContext(ctx, method, s.Target, strings.NewReader(s.Body))
		if err != nil {
			return failed(err.Error())
		}
		for name, values := range s.Header {
			req.Header[http.CanonicalHeaderKey(name)] = values
		}
		if host := req.Header.Get("Host"); host != "" {
			req.Host = host
			req.Header.Del("Host")
		}
		setDefault(req.Header, "User-Agent", userAgent)
		setDefault(req.Header, "Accept", accept)
		resp, err := client.Do(req)
		if err != nil {
			return failed(err.Error())
		}
		defer resp.Body.Close()
		kept := newRing(s.OutputMaxSizeBytes)
		_, _ = io.Copy(kept, io.LimitReader(resp.Body, maxBodyBytes)) // a torn body keeps the code's verdict
		out := fmt.Sprintf("HTTP %s %s: %s Output: %s", method, s.Target, resp.Status, kept.String())
		return Result{Status: httpHealth(resp.StatusCode), Output: out}
	}
}

func setDefault(h http.Header, name, value string) {
	if h.Get(name) == "" {
		h.Set(name, value)
	}
}

func httpHealth(code int) catalog.Health {
	switch {
	case code >= 200 && code <= 299:
		return catalog.Passing
	case code == http.StatusTooManyRequests:
		return catalog.Warning
	}
	return catalog.Critical
}

func tcpProbe(s Spec, base *tls.Config) Probe {
	return func(ctx context.Context) Result {
		conn, err := dial(ctx, s, base)
		if err != nil {
			return failed(err.Error())
		}
		_ = conn.Close()
		return Result{Status: catalog.Passing, Output: "TCP connect " + s.Target + ": Success"}
	}
}

// dial connects, with TLS when the spec says so.
func dial(ctx context.Context, s Spec, base *tls.Config) (net.Conn, error) {
	if !s.UseTLS {
		return (&net.Dialer{}).DialContext(ctx, "tcp", s.Target)
	}
	return (&tls.Dialer{Config: tlsFor(s, base)}).DialContext(ctx, "tcp", s.Target)
}

// udpProbe sends a datagram. Silence is a pass: most UDP services answer only
// what they understand. A refusal (ICMP) is a failure.
func udpProbe(s Spec) Probe {
	return func(ctx context.Context) Result {
		conn, err := (&net.Dialer{}).DialContext(ctx, "udp", s.Target)
		if err != nil {
			return failed(err.Error())
		}
		defer conn.Close()
		stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
		defer stop()
		if _, err := conn.Write([]byte("corbel health check")); err != nil {
			return failed(err.Error())
		}
		if _, err = conn.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return failed(fmt.Sprintf("UDP read %s: %v", s.Target, err))
		}
		return Result{Status: catalog.Passing, Output: "UDP connect " + s.Target + ": Success"}
	}
}
