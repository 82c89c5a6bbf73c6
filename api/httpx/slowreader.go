package httpx

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/telemetry"
)

const (
	// maxSlowReaders bounds the clients that get series of their own; the rest is others.
	maxSlowReaders = 16
	// slowReaderEvery is how often their lag is told.
	slowReaderEvery = time.Second
)

// slowReaders follows clients of the hot path and of TLS listeners that do not take their answers, and tells
// subscriber.lag_ms{kind,who} and subscriber.cut{kind,who}, by the client's address. Safe for concurrent use.
type slowReaders struct {
	metrics *telemetry.Registry
	bytes   *limit.Bytes // of answers that wait

	mu    sync.Mutex // guards what follows
	waits map[*slowWait]struct{}
	names map[netip.Addr]bool // those that have series
	open  map[*watchedConn]struct{}
}

type slowWait struct {
	who   netip.Addr
	began time.Time
}

func newSlowReaders(m *telemetry.Registry, bytes *limit.Bytes) *slowReaders {
	return &slowReaders{metrics: m, bytes: bytes, waits: map[*slowWait]struct{}{}, names: map[netip.Addr]bool{},
		open: map[*watchedConn]struct{}{}}
}

// begin notes that a client does not take an answer at once; what it returns ends that. False: the budget has no room
// for the answer.
func (s *slowReaders) begin(remote netip.AddrPort, bytes int) (end func(cut bool), ok bool) {
	hold := s.bytes.Hold(remote.Addr())
	if bytes > limit.FreeBytes && hold.Add(int64(bytes)) != nil {
		return nil, false
	}
	w := &slowWait{who: remote.Addr().Unmap(), began: time.Now()}
	s.mu.Lock()
	s.waits[w] = struct{}{}
	s.mu.Unlock()
	return func(cut bool) {
		hold.End()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waits, w)
		if cut {
			s.metrics.Counter("subscriber.cut", "kind", "http", "who", s.nameLocked(w.who)).Add(1)
		}
	}, true
}

func (s *slowReaders) nameLocked(a netip.Addr) string {
	if !s.names[a] {
		if len(s.names) >= maxSlowReaders {
			return "others"
		}
		s.names[a] = true
	}
	return a.String()
}

// run tells the lag until ctx ends.
func (s *slowReaders) run(ctx context.Context) {
	t := time.NewTicker(slowReaderEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			s.tell(now)
		}
	}
}

// tell sets what the slowest of each client waits; who never waited for a whole turn has no series.
func (s *slowReaders) tell(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lags := map[string]time.Duration{}
	for a := range s.names {
		lags[a.String()] = 0
	}
	for c := range s.open {
		if began := c.began.Load(); began != 0 {
			if lag := now.Sub(time.Unix(0, began)); lag >= slowReaderEvery {
				name := s.nameLocked(c.who)
				lags[name] = max(lags[name], lag)
			}
		}
	}
	for w := range s.waits {
		if lag := now.Sub(w.began); lag >= slowReaderEvery {
			name := s.nameLocked(w.who)
			lags[name] = max(lags[name], lag)
		}
	}
	for name, lag := range lags {
		s.metrics.Gauge("subscriber.lag_ms", "kind", "http", "who", name).Set(float64(lag) / float64(time.Millisecond))
	}
	if len(s.names) >= maxSlowReaders && lags["others"] == 0 {
		s.metrics.Gauge("subscriber.lag_ms", "kind", "http", "who", "others").Set(0)
	}
}

// watchedConn is a connection under TLS. A write that its client does not take blocks in it.
type watchedConn struct {
	net.Conn
	slow  *slowReaders
	who   netip.Addr
	began atomic.Int64 // of the write under way, in nanoseconds since 1970; 0 is none
}

// watch follows a TCP connection until it is closed.
func (s *slowReaders) watch(c net.Conn) net.Conn {
	tcp, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return c
	}
	w := &watchedConn{Conn: c, slow: s, who: tcp.AddrPort().Addr().Unmap()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[w] = struct{}{}
	return w
}

// Write implements net.Conn.
func (c *watchedConn) Write(b []byte) (int, error) {
	c.began.Store(time.Now().UnixNano())
	defer c.began.Store(0)
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *watchedConn) Close() error {
	c.slow.mu.Lock()
	delete(c.slow.open, c)
	c.slow.mu.Unlock()
	return c.Conn.Close()
}

// NetConn is the connection below.
func (c *watchedConn) NetConn() net.Conn { return c.Conn }

// CloseWrite lets net/http end its half before it closes, as on a bare TCP connection.
func (c *watchedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
