package limit

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
)

// Conns bounds the open connections of each address at one port, and of these the strangers: those that have not shown
// yet who they are. One beyond a bound is closed as soon as it is accepted. Sockets of this host, which have no
// address, are not counted; a nil *Conns counts nothing. Safe for concurrent use.
type Conns struct {
	most, strangers atomic.Int64 // 0 is no bound
	told            func()

	mu  sync.Mutex // guards who; held for a map operation only
	who map[netip.Addr]tally
}

// tally is what an address has open.
type tally struct{ open, strangers int32 }

// NewConns makes a counter with its bounds, as Set has them. refused, where it is not nil, is called for each
// connection that is closed.
func NewConns(most, strangers int, refused func()) *Conns {
	c := &Conns{told: refused, who: map[netip.Addr]tally{}}
	c.Set(most, strangers)
	return c
}

// Set changes the bounds for connections to come; 0 is none.
func (c *Conns) Set(most, strangers int) {
	c.most.Store(int64(most))
	c.strangers.Store(int64(strangers))
}

// Open is how many connections an address has, and how many of them are strangers.
func (c *Conns) Open(who netip.Addr) (open, strangers int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.who[who.Unmap()]
	return int(t.open), int(t.strangers)
}

// Take counts a connection of an address: as a stranger, or as one that is known. False is beyond a bound.
func (c *Conns) Take(who netip.Addr, stranger bool) (Place, bool) {
	if c == nil || !who.IsValid() {
		return Place{}, true
	}
	who = who.Unmap()
	most, strangers := c.most.Load(), c.strangers.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.who[who]
	if most > 0 && int64(t.open) >= most || stranger && strangers > 0 && int64(t.strangers) >= strangers {
		if c.told != nil {
			c.told()
		}
		return Place{}, false
	}
	t.open++
	if stranger {
		t.strangers++
	}
	c.who[who] = t
	return Place{c, who, stranger}, true
}

// Place is that of one connection. The zero Place is of one that is not counted. It belongs to one goroutine at a time.
type Place struct {
	conns    *Conns
	who      netip.Addr
	stranger bool
}

// Know says that the connection has shown who it is.
func (p *Place) Know() {
	if p.stranger {
		p.stranger = false
		p.conns.less(p.who, 0, 1)
	}
}

// Release gives the place back. It may be called twice.
func (p *Place) Release() {
	if p.conns != nil {
		strangers := int32(0)
		if p.stranger {
			strangers = 1
		}
		p.conns.less(p.who, 1, strangers)
		*p = Place{}
	}
}

func (c *Conns) less(who netip.Addr, open, strangers int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.who[who]
	if t.open, t.strangers = t.open-open, t.strangers-strangers; t.open <= 0 {
		delete(c.who, who)
	} else {
		c.who[who] = t
	}
}

// Listener has the connections of l counted as strangers, until Known or Claim, and closes those beyond a bound.
func (c *Conns) Listener(l net.Listener) net.Listener {
	if c == nil {
		return l
	}
	return &countingListener{l, c}
}

type countingListener struct {
	net.Listener
	conns *Conns
}

// Accept implements net.Listener.
func (l *countingListener) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if held, ok := l.conns.Admit(nc, true); ok {
			return held, nil
		}
		_ = nc.Close()
	}
}

// Admit counts an accepted connection until it is closed, as a stranger until Known or Claim. False is beyond a bound:
// it is the caller's to close.
func (c *Conns) Admit(nc net.Conn, stranger bool) (net.Conn, bool) {
	place, ok := c.Take(AddrOf(nc.RemoteAddr()), stranger)
	if !ok || place == (Place{}) {
		return nc, ok
	}
	return &placedConn{Conn: nc, place: place}, true
}

// placedConn gives its place back when it is closed.
type placedConn struct {
	net.Conn
	mu    sync.Mutex // guards place: who claims it may not be who closes
	place Place
}

// Close implements net.Conn.
func (c *placedConn) Close() error {
	c.mu.Lock()
	c.place.Release()
	c.mu.Unlock()
	return c.Conn.Close()
}

// SyscallConn gives the descriptor of the connection below.
func (c *placedConn) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// CloseWrite lets net/http end its half before it closes, as on a bare TCP connection.
func (c *placedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// placed finds the connection that a Listener gave out, below TLS too.
func placed(nc net.Conn) *placedConn {
	for {
		switch c := nc.(type) {
		case *placedConn:
			return c
		case interface{ NetConn() net.Conn }:
			nc = c.NetConn()
		default:
			return nil
		}
	}
}

// Known says that a connection of a Listener has shown who it is. Others are let be.
func Known(nc net.Conn) {
	if c := placed(nc); c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.place.Know()
	}
}

// Claim takes the place of a connection that is known out of it, for an owner that goes on with its descriptor, and
// releases it.
func Claim(nc net.Conn) (p Place) {
	if c := placed(nc); c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.place.Know()
		p, c.place = c.place, Place{}
	}
	return p
}
