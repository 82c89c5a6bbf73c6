package ws

import (
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"corbel.dev/corbel/kit/limit"
)

// The bits of a peer's state.
const (
	stateRuns  = 1 << iota // it is ready, or a worker has it
	stateAgain             // something happened since the worker looked
	stateOver              // the other side, or we, ended it
)

// peer is a connection of a poller. While it waits, these fields are all there is of it.
type peer struct {
	l     *poller
	h     Handler
	slot  int32
	turn  int32
	state atomic.Uint32
	heard atomic.Uint32 // the poller's second in which something came

	// The worker's own.
	begun  bool
	within bool       // a message came in part: its frames so far are in large
	part   []byte     // the beginning of a frame
	large  *gathering // nil as long as nothing large is in part, and no message came in part

	mu     sync.Mutex // comes before the poller's blockedMu, never before its mu
	fd     int32      // -1 is closed
	closed bool       // nothing is sent any more
	cause  error      // why it was closed by us
	out    *backlog   // nil while the socket takes everything
}

// backlog is what waits for a socket that takes nothing.
type backlog struct {
	begun   []byte // goes before all else
	since   time.Time
	control [][]byte // control frames go before messages
	waiting [][]byte
	last    error // the connection ends with this once nothing waits, or in a second; nil goes on
}

// readMost is how many bytes are read of one connection before others have their turn.
const readMost = 256 << 10

// serve reads what is there, and reports whether there is more. b is to read into.
func (p *peer) serve(b []byte, patience **patience) (again bool) {
	if !p.begun {
		p.begun = true
		if err := p.h.Begin(p); err != nil {
			p.end(err)
			return false
		}
		if err := p.rest(patience); err != nil {
			p.end(err)
			return false
		}
	}
	for read := 0; read < readMost; {
		over := p.state.And(^uint32(stateAgain))&stateOver != 0
		if !p.flush() {
			p.end(net.ErrClosed)
			return false
		}
		n, full, err := p.fill(b, patience)
		if err != nil {
			p.end(err)
			return false
		}
		if read += n; n > 0 && (full || over) {
			continue // there may be more
		}
		for s := p.state.Load(); s&stateAgain == 0; s = p.state.Load() {
			if p.state.CompareAndSwap(s, s&^stateRuns) {
				return false
			}
		}
	}
	return true
}

// fill reads once and takes the frames that came whole. full says that the socket may hold more.
func (p *peer) fill(b []byte, patience **patience) (n int, full bool, err error) {
	held := len(p.part)
	if held > 0 { // a large message is gathered in its own buffer, which doubles: a length that is claimed costs nothing
		whole := limit.FreeBytes // a frame that is not known as large has no more
		if g := p.large; g != nil && g.want > 0 {
			whole = g.want
		}
		more := min(max(held, 4<<10), whole-held)
		if err := p.admit(held + more); err != nil {
			return 0, false, p.refuse(err)
		}
		p.part = slices.Grow(p.part, more)
		b = p.part[held:cap(p.part)]
	}
	for {
		n, err = unix.Read(int(p.fd), b) // the worker alone closes it
		if err != unix.EINTR {
			break
		}
	}
	switch {
	case err == unix.EAGAIN:
		return 0, false, nil
	case err != nil:
		return 0, false, os.NewSyscallError("read", err)
	case n == 0:
		return 0, false, io.EOF
	}
	p.heard.Store(p.l.seconds.Load())
	if full = n == len(b); held > 0 {
		p.part = p.part[:held+n]
		return n, full, p.rest(patience)
	}
	left, err := p.frames(b[:n], patience)
	if len(left) > 0 && err == nil {
		p.part = append([]byte(nil), left...)
	}
	return n, full, err
}

// rest takes the frames of part.
func (p *peer) rest(patience **patience) error {
	left, err := p.frames(p.part, patience)
	switch g := p.large; {
	case len(left) == 0:
		p.part = nil
		p.settle()
	case g != nil && g.want == 0: // the little that is left does not keep a large buffer
		p.part = append([]byte(nil), left...)
		p.settle()
	default:
		p.part = p.part[:copy(p.part, left)]
	}
	return err
}

// frames takes the frames that came whole, and returns what is behind them.
func (p *peer) frames(b []byte, patience **patience) (left []byte, err error) {
	for {
		h, size, err := parseHeader(b, false)
		if err != nil {
			return b, p.refuse(err)
		}
		if size == 0 {
			return b, nil
		}
		if h.op < opClose {
			if err := h.follows(p.within); err != nil {
				return b, p.refuse(err)
			}
			if int64(p.framed())+h.length > p.l.cfg.Limits.MessageBytes {
				return b, p.refuse(tooBig(&p.l.cfg.Limits))
			}
		}
		if int64(len(b)-size) < h.length {
			p.expect(size + int(h.length))
			return b, nil
		}
		payload := b[size : size+int(h.length)]
		unmask(payload, h.mask)
		if h.op >= opClose {
			err = p.control(h.op, payload)
		} else {
			err = p.data(h, payload, patience)
		}
		if err != nil {
			return b, err
		}
		b = b[size+int(h.length):]
	}
}

// data takes a frame of a message.
func (p *peer) data(h header, payload []byte, patience **patience) error {
	if p.within = !h.fin; p.within || h.op == opContinue {
		if err := p.admit(p.framed() + len(payload)); err != nil {
			return p.refuse(err)
		}
		g := p.gather()
		g.frames = append(g.frames, payload...)
		if !h.fin {
			return nil
		}
		payload, g.frames = g.frames, nil
	}
	err := p.h.Message(*patience, payload)
	*patience = (*patience).after()
	if len(p.part) == 0 {
		p.settle()
	}
	return err
}

// gather is what is known of a message that does not come at once.
func (p *peer) gather() *gathering {
	if p.large == nil {
		p.large = &gathering{}
	}
	return p.large
}

// expect notes how long the frame is that comes, where it is large.
func (p *peer) expect(n int) {
	switch {
	case n > limit.FreeBytes:
		p.gather().want = n
	case p.large != nil:
		p.large.want = 0
	}
}

// framed is how many bytes came of a message in parts.
func (p *peer) framed() int {
	if p.large == nil {
		return 0
	}
	return len(p.large.frames)
}

// admit finds room for n bytes of a message. Small ones cost nothing.
func (p *peer) admit(n int) error {
	if n <= limit.FreeBytes {
		return nil
	}
	return p.gather().admit(n, &p.l.cfg.Limits, p.address)
}

// settle gives back what a large message held, once nothing of one is here.
func (p *peer) settle() {
	if g := p.large; g != nil && !p.within {
		g.hold.End()
		p.large = nil
	}
}

// address is where the peer is; the zero address where that cannot be told.
func (p *peer) address() netip.Addr {
	at, err := unix.Getpeername(int(p.fd))
	if err != nil {
		return netip.Addr{}
	}
	switch at := at.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(at.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(at.Addr).Unmap()
	}
	return netip.Addr{}
}

func (p *peer) control(op byte, b []byte) error {
	switch op {
	case opPing:
		return p.send(frame(opPong, b, false), true)
	case opClose:
		closed, err := closeOf(b)
		if err != nil {
			return p.refuse(err)
		}
		_ = p.send(frame(opClose, b, false), true) // the peer waits for it, or is gone
		return closed
	}
	return nil
}

// refuse tells the peer why the connection ends.
func (p *peer) refuse(err error) error {
	if c, ok := err.(*CloseError); ok {
		_ = p.send(closeFrame(c.Code, c.Text, false), true)
	}
	return err
}

// end closes the socket and tells the handler. The worker alone calls it, once.
func (p *peer) end(err error) {
	p.mu.Lock()
	if p.cause != nil {
		err = p.cause
	}
	fd := p.fd
	p.fd, p.closed = -1, true
	p.unblock()
	p.mu.Unlock()
	p.l.drop(p)
	_ = unix.Close(int(fd))
	p.part, p.within = nil, false
	p.settle()
	p.h.Ended(ended(err))
}

// Send implements Link.
func (p *peer) Send(m Message) error { return p.send(m.frame, false) }

// send writes b at once as far as the socket takes it. Control frames do not queue behind messages.
func (p *peer) send(b []byte, control bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sendLocked(b, control)
}

func (p *peer) sendLocked(b []byte, control bool) error {
	o := p.out
	switch {
	case p.closed || o != nil && o.last != nil:
		return net.ErrClosed
	case o == nil:
		n, err := p.write(b)
		if err != nil {
			p.cutLocked(err)
			return err
		}
		if n < len(b) {
			p.out = &backlog{begun: b[n:], since: time.Now()}
			p.l.blockedMu.Lock()
			p.l.blocked[p] = struct{}{}
			p.l.blockedMu.Unlock()
		}
	case len(o.waiting)+len(o.control) >= p.l.cfg.Limits.Queue:
		p.cutLocked(ErrSlow)
		return ErrSlow
	case control:
		o.control = append(o.control, b)
	default:
		o.waiting = append(o.waiting, b)
	}
	return nil
}

// write writes what the socket takes.
func (p *peer) write(b []byte) (n int, err error) {
	for n < len(b) {
		k, err := unix.Write(int(p.fd), b[n:])
		switch err {
		case nil:
			n += k
		case unix.EINTR:
		case unix.EAGAIN:
			return n, nil
		default:
			return n, os.NewSyscallError("write", err)
		}
	}
	return n, nil
}

// flush writes what waits. It reports whether the connection goes on.
func (p *peer) flush() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for o := p.out; o != nil && !p.closed; o = p.out {
		n, err := p.write(o.begun)
		if err != nil {
			p.cutLocked(err)
			break
		}
		if n < len(o.begun) {
			o.begun = o.begun[n:]
			break
		}
		o.since = time.Now()
		switch {
		case len(o.control) > 0:
			o.begun, o.control = o.control[0], o.control[1:]
		case len(o.waiting) > 0:
			o.begun, o.waiting = o.waiting[0], o.waiting[1:]
		case o.last != nil:
			p.cutLocked(o.last)
		default:
			p.unblock()
		}
	}
	return !p.closed
}

// unblock forgets what waits. The lock is held.
func (p *peer) unblock() {
	if p.out == nil {
		return
	}
	p.out = nil
	p.l.blockedMu.Lock()
	delete(p.l.blocked, p)
	p.l.blockedMu.Unlock()
}

// late ends the connection when its socket took too long.
func (p *peer) late(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch o := p.out; {
	case o == nil:
	case o.last != nil && now.Sub(o.since) > lastWrite:
		p.cutLocked(o.last)
	case now.Sub(o.since) > p.l.cfg.Limits.Write:
		p.cutLocked(ErrSlow)
	}
}

func (p *peer) cut(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutLocked(why)
}

// cutLocked ends the connection: its worker finds it over.
func (p *peer) cutLocked(why error) {
	if p.closed {
		return
	}
	p.cause, p.closed = why, true
	p.unblock()
	_ = unix.Shutdown(int(p.fd), unix.SHUT_RDWR)
}

// CloseWith implements Link. It never waits.
func (p *peer) CloseWith(code int, text string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	why := &CloseError{code, text}
	if err := p.sendLocked(closeFrame(code, text, false), true); err != nil {
		return err
	}
	if p.out == nil {
		p.cutLocked(why)
		return nil
	}
	p.out.waiting, p.out.last, p.out.since = nil, why, time.Now()
	return nil
}
