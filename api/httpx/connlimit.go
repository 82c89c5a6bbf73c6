package httpx

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
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

// connLimit counts open connections by client address.
type connLimit struct {
	slow           *slowReaders // who does not take what is written
	max            atomic.Int64 // below 0: none
	exemptLoopback bool
	refusals       *telemetry.Counter
	refused        *refusedListener

	mu    sync.Mutex // guards conns; held for a map operation only
	conns map[netip.Addr]int
}

func newConnLimit(most int, exemptLoopback bool, m *telemetry.Registry, bytes *limit.Bytes) *connLimit {
	c := &connLimit{
		exemptLoopback: exemptLoopback, conns: map[netip.Addr]int{},
		refusals: m.Counter("http.connections_refused"),
		refused:  &refusedListener{queue: make(chan net.Conn, refuseQueue), done: make(chan struct{})},
	}
	c.max.Store(int64(most))
	c.slow = newSlowReaders(m, bytes)
	return c
}

func (c *connLimit) take(a netip.Addr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if most := c.max.Load(); most >= 0 && int64(c.conns[a]) >= most {
		return false
	}
	c.conns[a]++
	return true
}

func (c *connLimit) release(a netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.conns[a]; n > 1 {
		c.conns[a] = n - 1
	} else {
		delete(c.conns, a)
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
		addr, counted := l.limit.counted(c)
		if !counted {
			return l.secure(c), nil
		}
		if l.limit.take(addr) {
			return l.secure(&countedConn{Conn: c, limit: l.limit, addr: addr}), nil
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

func (c *connLimit) counted(conn net.Conn) (netip.Addr, bool) {
	ap, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}, false
	}
	a := ap.AddrPort().Addr().Unmap()
	return a, !(c.exemptLoopback && a.IsLoopback())
}

// countedConn gives its place back once.
type countedConn struct {
	net.Conn
	limit *connLimit
	addr  netip.Addr
	once  sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.limit.release(c.addr) })
	return c.Conn.Close()
}

// SyscallConn gives the descriptor of the connection below, which the hot path reads and writes.
func (c *countedConn) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// CloseWrite lets net/http end its half before it closes, as on a bare TCP connection.
func (c *countedConn) CloseWrite() error {
	if t, ok := c.Conn.(*net.TCPConn); ok {
		return t.CloseWrite()
	}
	return nil
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
