package wire

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// half is one direction of a memory connection.
type half struct {
	m        *Memory
	from, to string

	mu     sync.Mutex // guards all below
	chunks []chunk
	size   int           // bytes in chunks, at most memoryWindowBytes
	closed bool          // the writer closed: EOF after the last chunk
	broken error         // both ends fail at once
	wake   chan struct{} // closed and replaced at each change
}

type chunk struct {
	due  time.Time
	data []byte
}

func newHalf(m *Memory, from, to string) *half {
	return &half{m: m, from: from, to: to, wake: make(chan struct{})}
}

func (h *half) changedLocked() {
	close(h.wake)
	h.wake = make(chan struct{})
}

func (h *half) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken == nil {
		h.broken = err
		h.changedLocked()
	}
}

func (h *half) finish() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.closed = true
		h.changedLocked()
	}
}

// memoryConn is one end of a connection; near is the dialling end, under which it is registered.
type memoryConn struct {
	m                *Memory
	from, to         string
	local, remote    memoryAddr
	in, out          *half
	near             *memoryConn
	shut             atomic.Bool
	reading, writing deadline
}

// Read waits for bytes that are due on a link that is not held.
func (c *memoryConn) Read(p []byte) (int, error) {
	h := c.in
	for {
		link, relinked := c.m.state(h.from, h.to)
		h.mu.Lock()
		if h.broken != nil {
			err := h.broken
			h.mu.Unlock()
			if c.shut.Load() {
				err = net.ErrClosed
			}
			return 0, err
		}
		select {
		case <-c.reading.passed():
			h.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		default:
		}
		var due <-chan time.Time
		held := link.cut || link.stall
		if !held && len(h.chunks) > 0 {
			head := &h.chunks[0]
			left := time.Until(head.due)
			if left <= 0 {
				n := copy(p, head.data)
				if head.data = head.data[n:]; len(head.data) == 0 {
					h.chunks = h.chunks[1:]
				}
				h.size -= n
				h.changedLocked()
				h.mu.Unlock()
				return n, nil
			}
			timer := time.NewTimer(left)
			defer timer.Stop()
			due = timer.C
		}
		if !held && h.closed && len(h.chunks) == 0 {
			h.mu.Unlock()
			return 0, io.EOF
		}
		wake := h.wake
		h.mu.Unlock()
		select {
		case <-due:
		case <-wake:
		case <-relinked:
		case <-c.reading.passed():
		}
	}
}

// Write queues bytes, waiting while the window is full.
func (c *memoryConn) Write(p []byte) (int, error) {
	h, done := c.out, 0
	for {
		link, _ := c.m.state(h.from, h.to)
		h.mu.Lock()
		if h.broken != nil || h.closed {
			err := h.broken
			h.mu.Unlock()
			if err == nil {
				err = net.ErrClosed
			}
			return done, err
		}
		select {
		case <-c.writing.passed():
			h.mu.Unlock()
			return done, os.ErrDeadlineExceeded
		default:
		}
		if room := memoryWindowBytes - h.size; room > 0 {
			n := min(room, len(p)-done)
			if n > 0 {
				h.chunks = append(h.chunks, chunk{time.Now().Add(link.delay), append([]byte(nil), p[done:done+n]...)})
				h.size += n
				done += n
				h.changedLocked()
			}
		}
		wake := h.wake
		h.mu.Unlock()
		if done == len(p) {
			return done, nil
		}
		select {
		case <-wake:
		case <-c.writing.passed():
		}
	}
}

// Close ends both directions: the peer reads what was sent, then EOF; our own reads fail at once.
func (c *memoryConn) Close() error {
	c.shut.Store(true)
	c.out.finish()
	c.in.fail(syscall.EPIPE)
	c.forget()
	return nil
}

func (c *memoryConn) breakBoth(err error) {
	c.in.fail(err)
	c.out.fail(err)
	c.forget()
}

func (c *memoryConn) forget() {
	c.m.mu.Lock()
	delete(c.m.conns, c.near)
	c.m.mu.Unlock()
}

func (c *memoryConn) LocalAddr() net.Addr  { return c.local }
func (c *memoryConn) RemoteAddr() net.Addr { return c.remote }

func (c *memoryConn) SetDeadline(t time.Time) error {
	c.reading.set(t)
	c.writing.set(t)
	return nil
}

func (c *memoryConn) SetReadDeadline(t time.Time) error {
	c.reading.set(t)
	return nil
}

func (c *memoryConn) SetWriteDeadline(t time.Time) error {
	c.writing.set(t)
	return nil
}
