package wire

import (
	"context"
	"net"
	"os"
	"sync"
	"time"
)

// Faults is the fault hook of a real process: it is asked before each dial, read
// and write, with the peer's address as host:port. It returns how long to hold
// the operation and whether to fail it. A negative hold is a stall: the question
// is asked again every StallPoll until the answer changes, the deadline passes or
// the connection closes. An error breaks the connection, as a reset does.
//
// A function value with plain types, so that a fault library needs no import of
// this package. It is called from many goroutines and must not block.
type Faults func(op, peer string) (hold time.Duration, err error)

// The operations that Faults is asked about.
const (
	OpDial  = "dial"
	OpRead  = "read"
	OpWrite = "write"
)

// StallPoll is how often a stalled operation asks whether the stall is over.
const StallPoll = 20 * time.Millisecond

// await holds until ctx ends or the hook lets go.
func (f Faults) await(ctx context.Context, op, peer string) error {
	for {
		hold, err := f(op, peer)
		if err != nil || hold == 0 {
			return err
		}
		wait(ctx, holdFor(hold))
		if err := ctx.Err(); err != nil {
			return err
		}
		if hold > 0 {
			return nil
		}
	}
}

func holdFor(hold time.Duration) time.Duration {
	if hold < 0 {
		return StallPoll
	}
	return hold
}

// faulty asks the hook before each read and write. It exists only while a process is armed.
type faulty struct {
	net.Conn
	ask         Faults
	peer        string
	once        sync.Once
	closed      chan struct{}
	read, write deadline
	kept        []byte // read off the socket but held past a deadline; owned by the reader
}

func newFaulty(conn net.Conn, ask Faults, peer string) *faulty {
	return &faulty{Conn: conn, ask: ask, peer: peer, closed: make(chan struct{}), read: newDeadline(),
		write: newDeadline()}
}

func (c *faulty) hold(op string, d *deadline) error {
	for {
		hold, err := c.ask(op, c.peer)
		if err != nil {
			c.Close()
			return err
		}
		if hold == 0 {
			return nil
		}
		t := time.NewTimer(holdFor(hold))
		select {
		case <-t.C:
		case <-c.closed:
			err = net.ErrClosed
		case <-d.passed():
			err = os.ErrDeadlineExceeded
		}
		t.Stop()
		if err != nil || hold > 0 {
			return err
		}
	}
}

// Read asks after the bytes arrived as well, so that a cut or stall that begins
// while a read waits still hides what comes.
func (c *faulty) Read(p []byte) (int, error) {
	if len(c.kept) > 0 {
		if err := c.hold(OpRead, &c.read); err != nil {
			return 0, err
		}
		n := copy(p, c.kept)
		c.kept = c.kept[n:]
		return n, nil
	}
	n, err := c.Conn.Read(p)
	if faultErr := c.hold(OpRead, &c.read); faultErr != nil {
		c.kept = append(c.kept, p[:n]...)
		return 0, faultErr
	}
	return n, err
}

func (c *faulty) Write(p []byte) (int, error) {
	if err := c.hold(OpWrite, &c.write); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

func (c *faulty) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (c *faulty) SetDeadline(t time.Time) error {
	c.read.set(t)
	c.write.set(t)
	return c.Conn.SetDeadline(t)
}

func (c *faulty) SetReadDeadline(t time.Time) error {
	c.read.set(t)
	return c.Conn.SetReadDeadline(t)
}

func (c *faulty) SetWriteDeadline(t time.Time) error {
	c.write.set(t)
	return c.Conn.SetWriteDeadline(t)
}

// deadline is a settable deadline whose passing closes a channel.
type deadline struct {
	mu    *sync.Mutex
	timer *time.Timer
	ch    chan struct{}
}

func newDeadline() deadline { return deadline{mu: new(sync.Mutex), ch: make(chan struct{})} }

func (d *deadline) passed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ch
}

// set moves the deadline. Those who wait on an older channel are woken by its
// closing when time is up, and otherwise look again when they ask next.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	select {
	case <-d.ch:
		d.ch = make(chan struct{})
	default:
	}
	if t.IsZero() {
		return
	}
	ch := d.ch
	if left := time.Until(t); left > 0 {
		d.timer = time.AfterFunc(left, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			// A timer that set could not stop in time must not close a newer deadline.
			if d.ch == ch && d.timer != nil && time.Until(t) <= 0 {
				closeOnce(ch)
			}
		})
		return
	}
	closeOnce(ch)
}

func closeOnce(ch chan struct{}) {
	select {
	case <-ch:
	default:
		close(ch)
	}
}
