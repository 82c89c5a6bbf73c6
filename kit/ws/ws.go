// Package ws speaks WebSocket (RFC 6455, no extensions) for very many connections that are idle most of the time.
//
// A connection that waits holds no buffer: on plain TCP its reader waits for the socket to become
// readable and takes a buffer from a pool only then. Messages that many are to get are made
// once (Message) and shared. Sending never waits: it writes to the socket at once, and what the socket
// does not take is written by a goroutine of the connection's own, bounded in messages and time;
// beyond the bound the connection is closed, as is that of a peer who breaks the protocol.
// A Loop reads connections without a goroutine for each.
//
// Read belongs to one goroutine; all else may be called from any.
package ws

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/limit"
	"corbel.dev/corbel/kit/rawsock"
)

// Status codes of closing.
const (
	CloseNormal      = 1000
	CloseGoingAway   = 1001
	CloseProtocol    = 1002
	CloseInvalid     = 1007
	ClosePolicy      = 1008
	CloseTooBig      = 1009
	CloseTryAgain    = 1013
	closeNoneGiven   = 1005
	closeUnannounced = 1006
)

// CloseError is how a connection ended. Code is the peer's, or what we told the peer.
type CloseError struct {
	Code int
	Text string
}

// Error implements error.
func (e *CloseError) Error() string {
	return fmt.Sprintf("websocket closed: %d %s", e.Code, e.Text)
}

// Clean reports whether the peer ended the connection in order.
func (e *CloseError) Clean() bool { return e.Code == CloseNormal || e.Code == CloseGoingAway }

// Limits of a connection. Zero values are the defaults that are named.
type Limits struct {
	// MessageBytes is the largest message that is read (8 MiB).
	MessageBytes int64
	// Idle is how long nothing may come (90 s).
	Idle time.Duration
	// Write is how long a message may take to be written (15 s).
	Write time.Duration
	// Queue is how many messages may wait for a socket that takes nothing (128).
	Queue int
	// Bytes is the budget of what a server reads beyond limit.FreeBytes of a message: where it has no room the
	// connection ends with CloseTryAgain. Nil is none.
	Bytes *limit.Bytes
}

func (given *Limits) orDefaults() Limits {
	var l Limits
	if given != nil {
		l = *given
	}
	if l.MessageBytes == 0 {
		l.MessageBytes = 8 << 20
	}
	if l.Idle == 0 {
		l.Idle = 90 * time.Second
	}
	if l.Write == 0 {
		l.Write = 15 * time.Second
	}
	if l.Queue == 0 {
		l.Queue = 128
	}
	return l
}

// Conn is an open connection.
type Conn struct {
	nc     net.Conn
	raw    syscall.RawConn // nil over TLS
	limits *Limits
	client bool

	in      []byte  // read from the socket, not yet taken
	buffer  *[]byte // whose part in is; nil while nothing is there
	readFn  func(fd uintptr) bool
	readN   int
	readErr error
	alive   time.Time // when the read deadline was set
	between bool      // nothing of a frame has come
	first   [2]byte   // its beginning, over TLS
	onPong  func(payload []byte)
	large   *gathering // nil unless a large message is on its way, or was just read

	out out
}

const bufferBytes = 8 << 10

var buffers = sync.Pool{New: func() any { b := make([]byte, bufferBytes); return &b }}

func newConn(nc net.Conn, limits *Limits, client bool, early []byte) *Conn {
	c := &Conn{nc: nc, limits: limits, client: client, in: early}
	c.raw = rawsock.Of(nc)
	c.readFn = c.readReady
	return c
}

// readReady reads once the socket is readable; it is called by the runtime's poller, and
// once before. False waits for the socket.
func (c *Conn) readReady(fd uintptr) bool {
	b := buffers.Get().(*[]byte)
	for {
		n, err := rawsock.Read(fd, *b)
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			buffers.Put(b)
			return false
		case n == 0 && err == nil:
			err = io.EOF
		}
		c.buffer, c.readN, c.readErr = b, n, err
		return true
	}
}

// fill waits for bytes when there are none.
func (c *Conn) fill() error {
	if len(c.in) > 0 {
		return nil
	}
	c.release()
	if now := time.Now(); now.Sub(c.alive) > c.limits.Idle/4 { // not each time: it costs as much as reading
		if err := c.nc.SetReadDeadline(now.Add(c.limits.Idle)); err != nil {
			return err
		}
		c.alive = now
	}
	if c.raw != nil {
		if err := c.raw.Read(c.readFn); err != nil {
			return err
		}
	} else {
		to := c.first[:] // a connection over TLS that waits for a message waits with two bytes
		if !c.between {
			c.buffer = buffers.Get().(*[]byte)
			to = *c.buffer
		}
		if c.readN, c.readErr = c.nc.Read(to); c.buffer == nil && c.readN > 0 {
			c.in = to[:c.readN]
			return nil
		}
	}
	if c.readN <= 0 {
		c.release()
		return c.readErr
	}
	c.in = (*c.buffer)[:c.readN]
	return nil
}

func (c *Conn) release() {
	if c.buffer != nil {
		buffers.Put(c.buffer)
		c.buffer = nil
	}
	c.in = nil
}

// take fills p.
func (c *Conn) take(p []byte) error {
	for len(p) > 0 {
		if err := c.fill(); err != nil {
			return err
		}
		n := copy(p, c.in)
		c.in, p = c.in[n:], p[n:]
	}
	return nil
}

// Opcodes.
const (
	opContinue = 0
	opText     = 1
	opBinary   = 2
	opClose    = 8
	opPing     = 9
	opPong     = 10
)

type header struct {
	fin    bool
	op     byte
	length int64
	masked bool
	mask   [4]byte
}

// parseHeader reads the header of a frame that a client, or a server, gets; size is how long it is, 0 asks for more
// bytes. The error is a *CloseError.
func parseHeader(b []byte, client bool) (h header, size int, err error) {
	if len(b) < 2 {
		return h, 0, nil
	}
	h.fin, h.op, h.masked, h.length = b[0]&0x80 != 0, b[0]&0x0f, b[1]&0x80 != 0, int64(b[1]&0x7f)
	if b[0]&0x70 != 0 {
		return h, 0, &CloseError{CloseProtocol, "reserved bits are set"}
	}
	if h.masked == client {
		return h, 0, &CloseError{CloseProtocol, "a client masks its frames, and a server does not"}
	}
	if h.op > opBinary && h.op < opClose || h.op > opPong {
		return h, 0, &CloseError{CloseProtocol, "an opcode that does not exist"}
	}
	if h.op >= opClose && (!h.fin || h.length > 125) {
		return h, 0, &CloseError{CloseProtocol, "a control frame that is long or in parts"}
	}
	if size = headerSize(b[1]); len(b) < size {
		return h, 0, nil
	}
	switch h.length {
	case 126:
		h.length = int64(binary.BigEndian.Uint16(b[2:]))
	case 127:
		if h.length = int64(binary.BigEndian.Uint64(b[2:])); h.length < 0 {
			return h, 0, &CloseError{CloseProtocol, "a length of more than 63 bits"}
		}
	}
	if h.masked {
		copy(h.mask[:], b[size-4:])
	}
	return h, size, nil
}

// headerSize is how long a header is whose second byte is this.
func headerSize(second byte) int {
	size := 2
	switch second & 0x7f {
	case 126:
		size += 2
	case 127:
		size += 8
	}
	if second&0x80 != 0 {
		size += 4
	}
	return size
}

// follows returns what is wrong with a data frame, where a message has begun or not.
func (h *header) follows(begun bool) error {
	switch {
	case h.op == opContinue && !begun:
		return &CloseError{CloseProtocol, "a message goes on that did not begin"}
	case h.op != opContinue && begun:
		return &CloseError{CloseProtocol, "a message begins before the one before ended"}
	}
	return nil
}

func tooBig(l *Limits) error {
	return &CloseError{CloseTooBig, fmt.Sprintf("a message has at most %d bytes", l.MessageBytes)}
}

func (c *Conn) header() (h header, err error) {
	var b [maxHeader]byte
	c.between = true
	err = c.take(b[:2])
	if c.between = false; err != nil {
		return h, err
	}
	if h, _, err = parseHeader(b[:2], c.client); err != nil {
		return h, c.refuse(err)
	}
	size := headerSize(b[1])
	if err := c.take(b[2:size]); err != nil {
		return h, err
	}
	if h, _, err = parseHeader(b[:size], c.client); err != nil {
		return h, c.refuse(err)
	}
	return h, nil
}

// Read appends the next message to buf, and answers pings and the peer's end meanwhile. The error is
// a *CloseError when the connection ended by the protocol; whatever it is, Close is still to be called.
func (c *Conn) Read(buf []byte) ([]byte, error) {
	c.giveBack() // what the last message held is gone
	start, begun := len(buf), false
	for {
		h, err := c.header()
		if err != nil {
			return buf, c.ended(err)
		}
		if h.op >= opClose {
			if err := c.control(h); err != nil {
				return buf, c.ended(err)
			}
			continue
		}
		if err := h.follows(begun); err != nil {
			return buf, c.refuse(err)
		}
		begun = true
		if int64(len(buf)-start)+h.length > c.limits.MessageBytes {
			return buf, c.refuse(tooBig(c.limits))
		}
		if buf, err = c.payload(buf, h); err != nil {
			return buf, c.ended(err)
		}
		if h.fin {
			return buf, nil
		}
	}
}

// payload appends a frame's content as it comes, so that a length that is claimed costs nothing.
func (c *Conn) payload(buf []byte, h header) ([]byte, error) {
	begin := len(buf)
	for left := h.length; left > 0; {
		if err := c.fill(); err != nil {
			return buf, err
		}
		n := min(left, int64(len(c.in)))
		if total := len(buf) + int(n); total > limit.FreeBytes && c.limits.Bytes != nil {
			if err := c.admit(total); err != nil {
				return buf, c.refuse(err)
			}
		}
		buf = append(buf, c.in[:n]...)
		c.in, left = c.in[n:], left-n
	}
	if h.masked {
		unmask(buf[begin:], h.mask)
	}
	if len(c.in) == 0 {
		c.release()
	}
	return buf, nil
}

// admit finds room for a large message that has come as far as n bytes.
func (c *Conn) admit(n int) error {
	if c.large == nil {
		c.large = &gathering{}
	}
	return c.large.admit(n, c.limits, func() netip.Addr { return limit.AddrOf(c.nc.RemoteAddr()) })
}

// giveBack forgets a large message.
func (c *Conn) giveBack() {
	if c.large != nil {
		c.large.hold.End()
		c.large = nil
	}
}

func unmask(b []byte, mask [4]byte) {
	m := binary.LittleEndian.Uint32(mask[:])
	wide := uint64(m)<<32 | uint64(m)
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)^wide)
		b = b[8:]
	}
	for i := range b {
		b[i] ^= mask[i%4]
	}
}

// NetConn is the connection below.
func (c *Conn) NetConn() net.Conn { return c.nc }

// OnPong says what to do with pongs, in the reader's goroutine; payload is gone when fn returns. Call it before the
// first Read.
func (c *Conn) OnPong(fn func(payload []byte)) { c.onPong = fn }

// control answers a control frame.
func (c *Conn) control(h header) error {
	var space [125]byte
	b := space[:h.length]
	if err := c.take(b); err != nil {
		return err
	}
	unmask(b, h.mask)
	switch h.op {
	case opPing:
		return c.send(frame(opPong, b, c.client), true)
	case opPong:
		if c.onPong != nil {
			c.onPong(b)
		}
	case opClose:
		closed, err := closeOf(b)
		if err != nil {
			return c.refuse(err)
		}
		_ = c.send(frame(opClose, b, c.client), true) // the peer waits for it, or is gone
		return closed
	}
	return nil
}

// closeOf reads the payload of a close frame; err is what is wrong with it.
func closeOf(b []byte) (closed *CloseError, err error) {
	switch len(b) {
	case 0:
		return &CloseError{closeNoneGiven, ""}, nil
	case 1:
		return nil, &CloseError{CloseProtocol, "a status of one byte"}
	}
	return &CloseError{int(binary.BigEndian.Uint16(b)), string(b[2:])}, nil
}

// refuse tells the peer why the connection ends.
func (c *Conn) refuse(err error) error {
	if closed, ok := err.(*CloseError); ok {
		_ = c.send(closeFrame(closed.Code, closed.Text, c.client), true)
	}
	return err
}

// ended says what the end of reading was. What was closed here since the peer takes nothing is that, whatever the
// socket says.
func (c *Conn) ended(err error) error {
	c.out.mu.Lock()
	slow := c.out.slow
	c.out.mu.Unlock()
	if slow {
		return ErrSlow
	}
	return ended(err)
}

func ended(err error) error {
	if errors.Is(err, ErrSlow) {
		return ErrSlow
	}
	var closed *CloseError
	if errors.As(err, &closed) {
		return err
	}
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return &CloseError{closeUnannounced, "without a word"}
	}
	return errkind.E(errkind.Unavailable, "websocket", err)
}

// CloseWith tells the peer why, and closes.
func (c *Conn) CloseWith(code int, text string) error {
	_ = c.send(closeFrame(code, text, c.client), true)
	return c.Close()
}
