package httpx

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/telemetry"
)

// A connection over the limit is handed to a second server that answers 429 and
// closes, so that the client reads why. Those are bounded too: past the queue
// the connection is closed at once.
const (
	refuseQueue   = 64
	refuseTimeout = 2 * time.Second
)

func refuseConn(w http.ResponseWriter, _ *http.Request) {
	w.Header()["Connection"] = []string{"close"}
	WriteText(w, http.StatusTooManyRequests, "Too many concurrent connections from your address\n")
}

// connLimit bounds open connections by client address.
type connLimit struct {
	slow           *slowReaders // who does not take what is written
	conns          *limit.Conns
	exemptLoopback bool
	refusals       *telemetry.Counter
	refused        *refusedListener
}

func newConnLimit(cfg *ServerConfig) *connLimit {
	return &connLimit{
		slow:  newSlowReaders(cfg.Metrics, cfg.Bytes),
		conns: cfg.Conns, exemptLoopback: cfg.ExemptLoopback,
		refusals: cfg.Metrics.Counter("http.connections_refused"),
		refused:  &refusedListener{queue: make(chan net.Conn, refuseQueue), done: make(chan struct{})},
	}
}

func (c *connLimit) wrap(l net.Listener, t *tls.Config, http2 bool) net.Listener {
	if t != nil {
		t = t.Clone()
		t.NextProtos = []string{"http/1.1"}
		if http2 {
			t.NextProtos = []string{"h2", "http/1.1"}
		}
	}
	return &limitedListener{Listener: l, limit: c, tls: t}
}

// limitedListener passes on the connections within the limit.
type limitedListener struct {
	net.Listener
	limit *connLimit
	tls   *tls.Config
}

func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.limit.exemptLoopback && limit.AddrOf(c.RemoteAddr()).IsLoopback() {
			return l.secure(c), nil
		}
		held, ok := l.limit.conns.Admit(c, false)
		if ok {
			return l.secure(held), nil
		}
		l.limit.refusals.Add(1)
		l.limit.refused.offer(l.secure(c))
	}
}

func (l *limitedListener) secure(c net.Conn) net.Conn {
	if l.tls == nil {
		return c
	}
	return tls.Server(l.limit.slow.watch(c), l.tls)
}

// refusedListener feeds the server that says 429.
type refusedListener struct {
	queue chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (r *refusedListener) offer(c net.Conn) {
	select {
	case <-r.done:
		_ = c.Close()
		return
	default:
	}
	select {
	case r.queue <- c:
	default:
		_ = c.Close()
	}
}

func (r *refusedListener) Accept() (net.Conn, error) {
	select {
	case c := <-r.queue:
		return c, nil
	case <-r.done:
		return nil, net.ErrClosed
	}
}

func (r *refusedListener) Close() error {
	r.once.Do(func() { close(r.done) })
	for {
		select {
		case c := <-r.queue:
			_ = c.Close()
		default:
			return nil
		}
	}
}

func (r *refusedListener) Addr() net.Addr { return &net.TCPAddr{} }
