package sidecars

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// openAtOnce bounds the connections that a loop opens between two looks at
	// the others, so that a fleet's start does not overrun the agents' accept queues.
	openAtOnce = 32
	epollBatch = 512
	waitMillis = 50
)

// Run opens all connections and serves them until ctx ends.
func (f *Fleet) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	errs := make([]error, len(f.loops))
	for i, l := range f.loops {
		wg.Go(func() { errs[i] = l.run(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (l *loop) run(ctx context.Context) error {
	runtime.LockOSThread() // waits in the kernel without handing its processor on and back
	defer runtime.UnlockOSThread()
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	defer func() {
		for _, c := range l.conns {
			if c.fd >= 0 {
				_ = unix.Close(c.fd)
			}
		}
		_ = unix.Close(ep)
	}()
	events := make([]unix.EpollEvent, epollBatch)
	opened, sidecars := 0, 0
	for ctx.Err() == nil {
		wait := waitMillis
		for n := 0; opened < len(l.conns) && n < openAtOnce && l.admits(sidecars); n++ {
			c := l.conns[opened]
			l.open(ep, c)
			opened, sidecars = opened+1, sidecars+len(c.host.Proxies)
			wait = 0
		}
		l.reopen(ep)
		n, err := unix.EpollWait(ep, events, wait)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("epoll: %w", err)
		}
		for _, e := range events[:max(n, 0)] {
			c := l.conns[e.Fd]
			if err := l.serve(ep, c, e.Events); err != nil {
				l.lose(c, err)
			}
		}
	}
	return nil
}

// admits reports whether another connection may be opened when so many sidecars were begun.
func (l *loop) admits(sidecars int) bool {
	window := l.fleet.cfg.Window / len(l.fleet.loops)
	return window == 0 || sidecars-int(l.warm.Load()) < window
}

// open connects and sends its first requests. On loopback a connection is there
// at once, so connecting may block.
func (l *loop) open(ep int, c *conn) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		l.lose(c, fmt.Errorf("socket: %w", err))
		return
	}
	c.fd = fd
	l.connected.Add(1)
	err = unix.Connect(fd, &unix.SockaddrInet4{Port: c.port, Addr: c.addr})
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	if err == nil {
		c.writable = false
		err = unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(c.place)})
	}
	if err == nil {
		c.open()
		err = l.flush(ep, c)
	}
	if err != nil {
		l.lose(c, fmt.Errorf("connect to %s: %w", c.host.Addr, err))
	}
}

// lose closes the connection and has it opened again after a while.
func (l *loop) lose(c *conn, err error) {
	l.fleet.because(fmt.Errorf("%s: %w", c.host.Addr, err))
	l.lost.Add(1)
	c.cold()
	if c.fd >= 0 {
		_ = unix.Close(c.fd) // closing takes it out of the epoll set
		c.fd = -1
		l.connected.Add(-1)
	}
	if c.down == 0 { // otherwise it is in the list
		l.later(c)
	}
	c.down = 0
}

func (l *loop) reopen(ep int) {
	if len(l.retry) == 0 || time.Now().Before(l.retryAt) {
		return
	}
	list := l.retry
	l.retry = nil
	for _, c := range list {
		switch {
		case c.fd < 0:
			l.open(ep, c)
		case c.down > 0:
			err := c.revive()
			if err == nil {
				err = l.flush(ep, c)
			}
			if err != nil {
				l.lose(c, err)
			}
		}
	}
}

func (l *loop) serve(ep int, c *conn, events uint32) error {
	if c.fd < 0 {
		return nil
	}
	if events&(unix.EPOLLIN|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		held := copy(l.buf, c.carry)
		n, err := unix.Read(c.fd, l.buf[held:])
		l.reads.Add(1)
		switch {
		case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
			n = 0
		case err != nil:
			return err
		case n == 0:
			return io.EOF
		}
		l.bytes.Add(int64(n))
		if len(c.out) == 0 {
			c.out = l.spare[:0]
		}
		used, err := c.read(l.buf[:held+n])
		if err != nil {
			return err
		}
		if used == held+n { // as nearly always: an agent's frames come in one piece
			c.carry = nil
		} else {
			c.carry = append([]byte(nil), l.buf[used:held+n]...)
		}
	}
	return l.flush(ep, c)
}

// flush writes what is to be written in one call, and asks to be told when the socket takes the rest.
func (l *loop) flush(ep int, c *conn) error {
	rest := c.out
	for len(rest) > 0 {
		n, err := unix.Write(c.fd, rest)
		l.writes.Add(1)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		rest = rest[max(n, 0):]
	}
	if cap(c.out) > cap(l.spare) {
		l.spare = c.out[:0]
	}
	c.out = nil
	if len(rest) > 0 {
		c.out = append(c.out, rest...)
	}
	if blocked := len(c.out) > 0; blocked != c.writable {
		c.writable = blocked
		want := uint32(unix.EPOLLIN)
		if blocked {
			want |= unix.EPOLLOUT
		}
		return unix.EpollCtl(ep, unix.EPOLL_CTL_MOD, c.fd, &unix.EpollEvent{Events: want, Fd: int32(c.place)})
	}
	return nil
}
