package ws

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/rawsock"
)

// Message is a binary message as a server sends it, made once for all who get it.
type Message struct {
	frame []byte
	head  int // bytes before the payload
}

// NewMessage makes a message of parts, which it copies.
func NewMessage(parts ...[]byte) Message {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	b := appendHeader(make([]byte, 0, n+maxHeader), opBinary, n, false)
	m := Message{head: len(b)}
	for _, p := range parts {
		b = append(b, p...)
	}
	m.frame = b
	return m
}

// Payload returns the message without its header. It must not be changed.
func (m Message) Payload() []byte { return m.frame[m.head:] }

// Len returns how many bytes the message takes on the wire.
func (m Message) Len() int { return len(m.frame) }

const maxHeader = 14

func appendHeader(b []byte, op byte, n int, mask bool) []byte {
	masked := byte(0)
	if mask {
		masked = 0x80
	}
	b = append(b, 0x80|op)
	switch {
	case n < 126:
		return append(b, masked|byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, masked|126), uint16(n))
	}
	return binary.BigEndian.AppendUint64(append(b, masked|127), uint64(n))
}

func frame(op byte, payload []byte, client bool) []byte {
	b := appendHeader(make([]byte, 0, len(payload)+maxHeader), op, len(payload), client)
	if !client {
		return append(b, payload...)
	}
	var mask [4]byte
	binary.LittleEndian.PutUint32(mask[:], rand.Uint32()) // against caches that are fooled, not against readers
	b = append(b, mask[:]...)
	at := len(b)
	b = append(b, payload...)
	unmask(b[at:], mask)
	return b
}

func closeFrame(code int, text string, client bool) []byte {
	const most = 123
	b := binary.BigEndian.AppendUint16(nil, uint16(code))
	return frame(opClose, append(b, text[:min(len(text), most)]...), client)
}

// out is what waits for a socket that takes nothing.
type out struct {
	mu      sync.Mutex
	begun   []byte   // the rest of a frame that the socket took a part of: it goes before all else
	control [][]byte // control frames go before messages
	waiting [][]byte
	writing bool          // drain runs
	idle    chan struct{} // closed when the drain that runs ends
	closed  bool
	slow    bool // the peer takes nothing, so the socket was closed
	done    sync.WaitGroup
}

// ErrSlow is the end of a peer that does not read.
var ErrSlow = errkind.New(errkind.Overloaded, "the peer reads too slowly")

// Send sends a message without waiting. An error is the end of the connection.
func (c *Conn) Send(m Message) error { return c.send(m.frame, false) }

// Write sends payload as a binary message of its own; for clients, whose frames are masked each.
func (c *Conn) Write(payload []byte) error { return c.send(frame(opBinary, payload, c.client), false) }

// Ping sends a ping with up to 125 bytes, which the peer's pong repeats.
func (c *Conn) Ping(payload []byte) error { return c.send(frame(opPing, payload, c.client), true) }

// Flush waits until the socket took all that was sent, which Limits.Write bounds for each message. It is for a
// sender that has much to say: one that waits after each message never fills the queue. An error is the end of the
// connection.
func (c *Conn) Flush() error {
	o := &c.out
	o.mu.Lock()
	for o.writing && !o.closed {
		idle := o.idle
		o.mu.Unlock()
		<-idle
		o.mu.Lock()
	}
	defer o.mu.Unlock()
	if o.closed {
		return net.ErrClosed
	}
	return nil
}

// send writes b at once as far as the socket takes it. Control frames do not queue behind messages.
func (c *Conn) send(b []byte, control bool) error {
	o := &c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return net.ErrClosed
	case !o.writing && c.raw != nil:
		n, err := c.writeNow(b)
		if err != nil || n == len(b) {
			return err
		}
		o.begun = b[n:]
	case len(o.waiting)+len(o.control) >= c.limits.Queue:
		o.slow = true
		_ = c.nc.Close() // the reader sees it, and ends the connection
		return ErrSlow
	case control:
		o.control = append(o.control, b)
	default:
		o.waiting = append(o.waiting, b)
	}
	if !o.writing {
		o.writing, o.idle = true, make(chan struct{})
		o.done.Add(1)
		go c.drain()
	}
	return nil
}

// next returns what is to be written next; once the connection is closed, only what says so. It ends the drain when
// there is nothing.
func (o *out) next() (b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.begun != nil:
		b, o.begun = o.begun, nil
	case len(o.control) > 0:
		b, o.control = o.control[0], o.control[1:]
	case len(o.waiting) > 0 && !o.closed:
		b, o.waiting = o.waiting[0], o.waiting[1:]
	default:
		o.writing = false
		close(o.idle)
	}
	return b
}

// writeNow writes what the socket takes without waiting.
func (c *Conn) writeNow(b []byte) (n int, err error) {
	rawErr := c.raw.Write(func(fd uintptr) bool {
		for n < len(b) {
			var k int
			k, err = rawsock.Write(fd, b[n:])
			if err == syscall.EINTR {
				continue
			}
			if err != nil {
				break
			}
			n += k
		}
		return true
	})
	if rawErr != nil {
		return 0, rawErr
	}
	if err == syscall.EAGAIN {
		err = nil
	}
	return n, err
}

// drain writes what waits, and ends when nothing does.
func (c *Conn) drain() {
	o := &c.out
	defer o.done.Done()
	for b := o.next(); b != nil; b = o.next() {
		err := c.nc.SetWriteDeadline(time.Now().Add(c.limits.Write))
		if err == nil {
			_, err = c.nc.Write(b)
		}
		if err != nil {
			o.mu.Lock()
			o.slow = o.slow || errors.Is(err, os.ErrDeadlineExceeded)
			o.mu.Unlock()
			_ = c.nc.Close() // the reader sees it, and ends the connection
			o.mu.Lock()
			o.closed, o.writing, o.begun, o.control, o.waiting = true, false, nil, nil, nil
			close(o.idle)
			o.mu.Unlock()
			return
		}
	}
}

// lastWrite bounds how long a close may wait for its own frame to be written.
const lastWrite = time.Second

// Close closes the socket and waits for what was being written, at most a second; a Read that is under way returns.
func (c *Conn) Close() error {
	o := &c.out
	o.mu.Lock()
	o.closed = true
	if o.writing {
		_ = c.nc.SetWriteDeadline(time.Now().Add(lastWrite)) // without it the connection's own holds
	}
	o.mu.Unlock()
	o.done.Wait()
	return c.nc.Close()
}
