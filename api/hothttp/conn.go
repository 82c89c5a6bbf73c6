package hothttp

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"corbel.dev/corbel/kit/rawsock"
)

// conn is one connection on the hot path.
type conn struct {
	server *Server
	nc     net.Conn
	raw    syscall.RawConn
	remote netip.AddrPort

	input
	call Call
	req  Request

	mu sync.Mutex // guards what follows and orders the writes
	turn

	rest

	output
}

// input is what came and was not served; owned by the connection's goroutine.
type input struct {
	// Owned by the connection's goroutine.
	buf        *[]byte // holds unread bytes between requests, else nil
	have       int     // bytes in buf
	readErr    error
	onReadable func(fd uintptr) bool
	onHangUp   func(fd uintptr) bool
}

// turn says whose turn it is; the connection's lock guards it.
type turn struct {
	// parked is set while an answer is owed by somebody else.
	parked  bool
	behind  bool // the connection's goroutine waits in settleParked for that answer
	busy    bool // a request is being served on the connection's goroutine
	closing bool // end after the request that is being served
	gone    bool // the client vanished or the server shuts down: answers are dropped
	onGone  func()
}

// rest is for how long a connection had nothing to do; the connection's lock guards it.
type rest struct {
	requests uint64    // served so far
	seen     uint64    // requests at the last sweep
	idleAt   time.Time // the first sweep that found it idle since; zero: it was not
}

// output is what writeOnce sends.
type output struct {
	onWritable func(fd uintptr) bool
	out        [2][]byte // what writeOnce still has to send: head, body
	writeErr   error
}

var readBuffers = sync.Pool{New: func() any { b := make([]byte, readBytes); return &b }}

func (c *conn) shut() {
	_ = c.nc.Close()
	c.vanish()
}

// run serves requests until the connection ends or is handed over.
func (c *conn) run() {
	defer c.server.forget(c)
	if c.firstByte() != nil {
		c.release()
		c.vanish()
		_ = c.nc.Close()
		return
	}
	for {
		if err := c.fill(); err != nil {
			break
		}
		if !c.settleParked() {
			break
		}
		n, v := parse((*c.buf)[:c.have], &c.req)
		if v == incomplete && c.have == 0 {
			continue
		}
		if v != complete {
			// An incomplete request is rare on loopback and LANs; net/http has the
			// deadlines that a slow sender needs.
			c.handOver()
			return
		}
		switch c.serveOne() {
		case Decline:
			c.handOver()
			return
		case ended:
			c.release()
			return
		case Done, Parked:
		}
		c.consume(n)
		if !c.goOn() {
			break
		}
	}
	c.release()
	c.vanish()
	_ = c.nc.Close()
}

// ended is an Outcome of this package alone: the connection was closed before the request was looked at.
const ended Outcome = 255

func (c *conn) serveOne() Outcome {
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return ended
	}
	c.busy = true
	c.requests++
	c.mu.Unlock()
	c.call.conn = c
	outcome := c.server.cfg.Handler.Serve(&c.call, &c.req)
	c.req = Request{}
	return outcome
}

// goOn ends a request and tells whether another may follow.
func (c *conn) goOn() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = false
	return !c.closing
}

// finish closes the connection, now or after the request that is being served.
func (c *conn) finish() {
	c.mu.Lock()
	c.closing = true
	busy := c.busy
	c.mu.Unlock()
	if !busy {
		c.shut()
	}
}

func (c *conn) settled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests > 0 && (!c.busy || c.parked)
}

// endIdle tells whether the connection has been idle for so long; it then takes no request any more, and
// the caller closes it. Who has not sent a request yet is firstByte's.
func (c *conn) endIdle(now time.Time, timeout time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy || c.parked || c.requests == 0 {
		c.idleAt = time.Time{}
		return false
	}
	if c.requests != c.seen || c.idleAt.IsZero() {
		c.seen, c.idleAt = c.requests, now
		return false
	}
	c.closing = c.closing || now.Sub(c.idleAt) >= timeout
	return c.closing
}

// firstByte is fill with a deadline. For requests after the first there is the sweep, so it costs nothing per request.
func (c *conn) firstByte() error {
	if err := c.nc.SetReadDeadline(time.Now().Add(c.server.cfg.FirstByteTimeout)); err != nil {
		return err
	}
	if err := c.fill(); err != nil {
		return err
	}
	return c.nc.SetReadDeadline(time.Time{})
}

// fill waits until at least one unread byte is there. Bytes left over from the
// last read (a pipelined request) count.
func (c *conn) fill() error {
	if c.have > 0 {
		return nil
	}
	c.readErr = nil
	if err := c.raw.Read(c.onReadable); err != nil {
		return err
	}
	return c.readErr
}

// readOnce takes what the socket has into a pooled buffer; false asks the
// runtime to wait until there is something.
func (c *conn) readOnce(fd uintptr) bool {
	buf := readBuffers.Get().(*[]byte)
	for {
		n, err := rawsock.Read(fd, *buf)
		if err == syscall.EINTR {
			continue
		}
		if n > 0 {
			c.buf, c.have = buf, n
			return true
		}
		readBuffers.Put(buf)
		switch {
		case err == syscall.EAGAIN:
			return false
		case err == nil:
			c.readErr = io.EOF
		default:
			c.readErr = err
		}
		return true
	}
}

// consume drops a served request; what follows it stays.
func (c *conn) consume(n int) {
	c.have = copy(*c.buf, (*c.buf)[n:c.have])
	if c.have == 0 {
		c.release()
	}
}

func (c *conn) release() {
	if c.buf != nil {
		readBuffers.Put(c.buf)
		c.buf = nil
	}
	c.have = 0
}

// settleParked waits until a parked call is answered: a client that sends its
// next request early gets its answers in order all the same. What it sent hides
// from a read that it has left, so the end of its stream is watched for meanwhile.
func (c *conn) settleParked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.parked && !c.gone {
		c.behind = true
		c.mu.Unlock()
		c.readErr = nil
		err := c.raw.Read(c.onHangUp)
		if err == nil {
			err = c.readErr
		}
		if errors.Is(err, os.ErrDeadlineExceeded) { // endBehindLocked's
			err = c.nc.SetReadDeadline(time.Time{})
		}
		c.mu.Lock()
		c.behind = false
		if err != nil {
			return false
		}
	}
	return !c.gone
}

// watchHangUp asks to be called again until the client has left.
func (c *conn) watchHangUp(fd uintptr) bool {
	if HungUp(int(fd)) {
		c.readErr = io.EOF
		return true
	}
	return false
}

// endBehindLocked has settleParked look again.
func (c *conn) endBehindLocked() {
	if c.behind {
		_ = c.nc.SetReadDeadline(time.Unix(1, 0)) // a connection that is closed already wakes it too
	}
}

// vanish tells the owner of a parked call that nobody waits any more.
func (c *conn) vanish() {
	c.mu.Lock()
	c.gone = true
	fn := c.onGone
	c.onGone = nil
	c.parked = false
	c.endBehindLocked()
	c.mu.Unlock()
	if fn != nil {
		fn()
	}
}

func (c *conn) handOver() {
	prefix := append([]byte(nil), (*c.buf)[:c.have]...)
	c.release()
	c.server.fallback.hand(c.server.fallback.withPrefix(c.nc, prefix))
}

// errNotHeld closes a connection whose client does not take its answer, where there is no room to keep it.
var errNotHeld = errors.New("the rest of the answer may not be held")

// writeSlow sends what a client did not take at once, within the write timeout.
func (c *conn) writeSlow(parts ...[]byte) (err error) {
	if c.server.cfg.Waits != nil {
		n := 0
		for _, p := range parts {
			n += len(p)
		}
		end, ok := c.server.cfg.Waits(c.remote, n)
		if !ok {
			return errNotHeld
		}
		defer func() { end(errors.Is(err, os.ErrDeadlineExceeded)) }()
	}
	if err := c.nc.SetWriteDeadline(time.Now().Add(c.server.cfg.WriteTimeout)); err != nil {
		return err
	}
	for _, p := range parts {
		if _, err := c.nc.Write(p); err != nil {
			return err
		}
	}
	return c.nc.SetWriteDeadline(time.Time{})
}

// writeOnce writes what the socket takes at once; it never waits.
func (c *conn) writeOnce(fd uintptr) bool {
	for len(c.out[0])+len(c.out[1]) > 0 {
		var n int
		var err error
		if len(c.out[1]) == 0 {
			n, err = rawsock.Write(fd, c.out[0])
		} else {
			n, err = rawsock.Writev(fd, c.out[:])
		}
		if n > 0 {
			first := min(n, len(c.out[0]))
			c.out[0], c.out[1] = c.out[0][first:], c.out[1][n-first:]
		}
		switch err {
		case nil, syscall.EINTR:
		case syscall.EAGAIN:
			return true
		default:
			c.writeErr = err
			return true
		}
	}
	return true
}
