package sidecar

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// source is who opened a connection.
type source struct{ URI, Serial string }

// sessions are the connections from the mesh. Safe for concurrent use; the zero value is ready.
type sessions struct {
	mu   sync.Mutex
	next uint64
	open map[uint64]session
}

type session struct {
	from   source
	cancel context.CancelFunc
}

func (s *sessions) add(from source, cancel context.CancelFunc) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[uint64]session{}
	}
	id := s.next
	s.next++
	s.open[id] = session{from, cancel}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, id)
	}
}

// bySource are the open connections of each source.
func (s *sessions) bySource() map[source][]session {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[source][]session{}
	for _, one := range s.open {
		out[one.from] = append(out[one.from], one)
	}
	return out
}

// judgeTimeout bounds the question whether a source may connect.
const judgeTimeout = 10 * time.Second

// judge asks the agent. An error is a no for who is new.
func (p *Proxy) judge(ctx context.Context, service string, from source) (allowed bool, reason string, err error) {
	ctx, cancel := context.WithTimeout(ctx, judgeTimeout)
	defer cancel()
	in := struct{ Target, ClientCertURI, ClientCertSerial string }{service, from.URI, from.Serial}
	var out struct {
		Authorized bool
		Reason     string
	}
	err = p.cfg.Client.Send(ctx, http.MethodPost, "/v1/agent/connect/authorize", nil, in, &out)
	return out.Authorized, out.Reason, err
}

// rejudge closes the connections whose source is not allowed any more. While the agent does not answer they stay.
func (p *Proxy) rejudge(ctx context.Context, service string) {
	all := p.sessions.bySource()
	for from, open := range all {
		allowed, reason, err := p.judge(ctx, service, from)
		if err != nil || allowed {
			continue
		}
		p.cfg.Log.Info("connections are closed", "source", from.URI, "count", len(open), "reason", reason)
		for _, one := range open {
			one.cancel()
		}
	}
}

// serveInbound takes one connection from the mesh to the local service.
func (p *Proxy) serveInbound(ctx context.Context, raw net.Conn, service string, pub *Public) {
	log := p.cfg.Log.With("peer", raw.RemoteAddr().String())
	c := tls.Server(raw, p.identity.server())
	timed, stop := context.WithTimeout(ctx, pub.Handshake)
	err := c.HandshakeContext(timed)
	stop()
	if err != nil {
		log.Warn("no handshake", "error", err)
		return
	}
	defer c.Close()
	cert := c.ConnectionState().PeerCertificates[0]
	from := source{cert.URIs[0].String(), serialOf(cert)}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Before it is judged, lest an intention that comes in between is missed.
	defer p.sessions.add(from, cancel)()
	allowed, reason, err := p.judge(ctx, service, from)
	if err != nil || !allowed {
		log.Warn("not allowed", "source", from.URI, "reason", reason, "error", err)
		return
	}
	d := net.Dialer{Timeout: pub.ConnectTimeout}
	local, err := d.DialContext(ctx, pub.Local.Network, pub.Local.Text)
	if err != nil {
		log.Warn("the local service does not answer", "error", err)
		return
	}
	defer local.Close()
	join(ctx, c, local)
}
