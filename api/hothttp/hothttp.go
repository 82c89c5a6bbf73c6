// Package hothttp serves the few request shapes that a control plane gets tens
// of thousands of times a second, on plain HTTP/1.1 connections, and hands every
// other connection to net/http.
//
// A connection starts here. As long as each request on it is complete in what
// was read, small, and made of headers whose meaning is known (see parse.go),
// the Handler is asked. The first request that is not, or that the Handler
// declines, moves the connection with all its unread bytes to the fallback
// listener, where a net/http server carries on as if nothing had happened. So
// this package never has to answer a malformed or unusual request itself.
//
// A Handler may park a Call (a blocking query): the answer is then written by
// whoever wakes it, and the connection's goroutine meanwhile waits for the
// client to vanish. A parked or idle connection owns no buffer: bytes are read
// into a pooled one when there are any.
//
// Invariants: a Call is answered exactly once, in order, or its connection is
// closed; a connection belongs to exactly one of the two servers; Run returns
// after the last connection goroutine has ended.
package hothttp

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"corbel.dev/corbel/kit/rawsock"
)

// Outcome is what a Handler did with a Call.
type Outcome uint8

// The outcomes.
const (
	// Done: the Call was answered with Reply.
	Done Outcome = iota
	// Decline: nothing was done; net/http shall serve this connection from here on.
	Decline
	// Parked: Reply will be called later, from any goroutine. Call.OnGone was set.
	Parked
)

// Handler answers Calls. Serve runs on the connection's goroutine; it must not
// keep the Request's bytes after it returns.
type Handler interface {
	Serve(c *Call, r *Request) Outcome
}

// Config configures a Server.
type Config struct {
	Handler Handler
	// Log receives unexpected accept failures; nil discards.
	Log *slog.Logger
	// WriteTimeout bounds how long an answer may wait for a slow client; zero is 30 s.
	WriteTimeout time.Duration
	// FirstByteTimeout closes a connection that sends nothing for so long after it was made; zero is 10 s.
	FirstByteTimeout time.Duration
	// IdleTimeout closes a connection on which no request came for so long and no answer is owed, a quarter of it later
	// at most; zero is 2 min. A parked call holds its connection for as long as it is parked.
	IdleTimeout time.Duration
	// AcceptFailed is called when a connection could not be accepted for want of descriptors; nil is nobody.
	AcceptFailed func()
	// Waits is called when a client does not take an answer at once, with the bytes that are left, and what it returns
	// when it did, or was cut off; nil is nobody. Where the bytes may not be held, it says so, and the connection is
	// closed.
	Waits func(remote netip.AddrPort, bytes int) (end func(cut bool), ok bool)
	// HandoverQueue bounds connections waiting for net/http to accept them; zero is 1024.
	HandoverQueue int
}

// Server splits the connections of one listener between the hot path and net/http.
type Server struct {
	cfg      Config
	listener net.Listener
	fallback *fallbackListener

	mu    sync.Mutex // guards conns; taken before a conn's own
	conns map[*conn]struct{}
	wg    sync.WaitGroup

	accepted chan struct{} // closed when no more connections come
}

// New makes a Server over l. It starts nothing.
func New(l net.Listener, cfg Config) (*Server, error) {
	if cfg.Handler == nil {
		return nil, errors.New("hothttp: no handler")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.WriteTimeout == 0 {
		cfg.WriteTimeout = 30 * time.Second
	}
	if cfg.FirstByteTimeout == 0 {
		cfg.FirstByteTimeout = 10 * time.Second
	}
	if cfg.IdleTimeout == 0 {
		cfg.IdleTimeout = 2 * time.Minute
	}
	if cfg.HandoverQueue == 0 {
		cfg.HandoverQueue = 1024
	}
	s := &Server{cfg: cfg, listener: l, conns: map[*conn]struct{}{}, accepted: make(chan struct{})}
	s.fallback = &fallbackListener{addr: l.Addr(), conns: make(chan net.Conn, cfg.HandoverQueue),
		closed: make(chan struct{})}
	return s, nil
}

// Fallback is the listener on which net/http accepts the connections that are
// handed over. Closing it ends the handing over, not the hot path.
func (s *Server) Fallback() net.Listener { return s.fallback }

// Run accepts until ctx ends or somebody closes the listener; connections live
// on until ctx ends. Then idle and parked ones are closed, busy ones finish
// their request first, and Run returns when all goroutines have ended.
func (s *Server) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.listener.Close() })
	defer stop()
	s.wg.Go(func() { s.keepSweeping(ctx) })
	err := s.accept(ctx)
	close(s.accepted)
	if errors.Is(err, net.ErrClosed) {
		<-ctx.Done()
		err = nil
	}
	s.mu.Lock()
	for c := range s.conns {
		c.finish()
	}
	s.mu.Unlock()
	s.wg.Wait()
	_ = s.fallback.Close()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

const settlePoll = 2 * time.Millisecond

// Settle waits until each connection has sent its first request, and each request that is being looked at was answered,
// parked, or taken by net/http; or until ctx ends. Whoever closes the listener calls it before it ends the Server and
// the one behind Fallback: a client that was let in is then answered and not cut.
func (s *Server) Settle(ctx context.Context) {
	select {
	case <-s.accepted:
	case <-ctx.Done():
		return
	}
	t := time.NewTicker(settlePoll)
	defer t.Stop()
	for !s.settled() {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

func (s *Server) settled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if !c.settled() {
			return false
		}
	}
	return len(s.fallback.conns) == 0 && s.fallback.unread.Load() == 0
}

// keepSweeping closes idle connections until ctx ends. One walk now and then instead of a deadline for each
// request: that would cost every request a change of a timer.
func (s *Server) keepSweeping(ctx context.Context) {
	t := time.NewTicker(max(s.cfg.IdleTimeout/4, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			s.sweep(now)
		}
	}
}

// sweep closes the connections that have been idle for IdleTimeout.
func (s *Server) sweep(now time.Time) {
	s.mu.Lock()
	var idle []*conn
	for c := range s.conns {
		if c.endIdle(now, s.cfg.IdleTimeout) {
			idle = append(idle, c)
		}
	}
	s.mu.Unlock()
	for _, c := range idle {
		c.shut()
	}
}

const acceptPause = 10 * time.Millisecond

func (s *Server) accept(ctx context.Context) error {
	for {
		nc, err := s.listener.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = nc.Close()
			}
			return nil
		case errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ECONNABORTED):
			s.cfg.Log.Warn("cannot accept a connection", "error", err)
			if s.cfg.AcceptFailed != nil {
				s.cfg.AcceptFailed()
			}
			t := time.NewTimer(acceptPause)
			select {
			case <-t.C:
			case <-ctx.Done():
				t.Stop()
			}
			continue
		case err != nil:
			return err
		}
		raw := rawsock.Of(nc)
		if raw == nil {
			s.fallback.hand(nc)
			continue
		}
		c := &conn{server: s, nc: nc, raw: raw}
		if a, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
			c.remote = a.AddrPort()
		}
		c.onReadable, c.onWritable, c.onHangUp = c.readOnce, c.writeOnce, c.watchHangUp
		s.mu.Lock()
		s.conns[c] = struct{}{}
		s.mu.Unlock()
		s.wg.Go(c.run)
	}
}

func (s *Server) forget(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// fallbackListener gives handed-over connections to net/http. When its queue
// is full the connection is closed: net/http has then not accepted for a while.
type fallbackListener struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	// unread counts the prefixed connections that nobody has read. What net/http has accepted it knows only a moment
	// later, by its first read at the latest; a Shutdown in that moment would not wait for it.
	unread atomic.Int64
}

func (l *fallbackListener) hand(nc net.Conn) {
	select {
	case <-l.closed:
		_ = nc.Close()
		return
	default:
	}
	select {
	case l.conns <- nc:
	case <-l.closed:
		_ = nc.Close()
	default:
		_ = nc.Close()
	}
}

// Accept implements net.Listener.
func (l *fallbackListener) Accept() (net.Conn, error) {
	select {
	case nc := <-l.conns:
		return nc, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener; connections still queued are closed.
func (l *fallbackListener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		for {
			select {
			case nc := <-l.conns:
				_ = nc.Close()
			default:
				return
			}
		}
	})
	return nil
}

// Addr implements net.Listener.
func (l *fallbackListener) Addr() net.Addr { return l.addr }

// prefixed is a connection whose first bytes were read already.
type prefixed struct {
	net.Conn
	prefix []byte
	known  sync.Once
	unread *atomic.Int64
}

// withPrefix counts the connection until it is read or closed.
func (l *fallbackListener) withPrefix(nc net.Conn, prefix []byte) *prefixed {
	l.unread.Add(1)
	return &prefixed{Conn: nc, prefix: prefix, unread: &l.unread}
}

func (p *prefixed) found() { p.known.Do(func() { p.unread.Add(-1) }) }

// Close implements net.Conn.
func (p *prefixed) Close() error {
	p.found()
	return p.Conn.Close()
}

// NetConn is the connection below.
func (p *prefixed) NetConn() net.Conn { return p.Conn }

// Read implements net.Conn.
func (p *prefixed) Read(b []byte) (int, error) {
	p.found()
	if len(p.prefix) > 0 {
		n := copy(b, p.prefix)
		if p.prefix = p.prefix[n:]; len(p.prefix) == 0 {
			p.prefix = nil
		}
		return n, nil
	}
	return p.Conn.Read(b)
}
