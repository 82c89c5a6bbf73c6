package agents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	readBytes  = 256 << 10
	epollBatch = 512
	waitMillis = 20
	paceMillis = 2
	// events that a session sends at once, so that a server that takes them as they come does not keep
	// the loop from the others
	paceVisit  = 256
	openAtOnce = 32 // between two looks at the others, so that servers' accept queues do not overflow
	retryAfter = time.Second
	pingEvery  = 30 * time.Second
	// perSource is how many connections leave from one loopback address: an address has some 28,000 ports.
	perSource = 10000
	floodMost = 32 << 10 // bytes that a flooding session writes at once
)

type loop struct {
	f                   *Fleet
	ep                  int
	sessions            []*session
	byFD                map[int32]*session
	buf, spare          []byte
	looks               looks
	alive, pings, retry turns
	flooding            int64     // as Fleet.flood
	paced               time.Time // up to when events were offered
	owed                float64   // events that are due
	turn                int       // session that offers next
	sent                int64     // events of the fleet, when they were offered last
}

// Run opens all sessions and plays the agents until ctx ends.
func (f *Fleet) Run(ctx context.Context) error {
	runtime.LockOSThread() // waits in the kernel without handing its processor on and back
	defer runtime.UnlockOSThread()
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	l := &loop{f: f, ep: ep, byFD: map[int32]*session{}, buf: make([]byte, readBytes)}
	for i := range f.cfg.Count {
		id := f.cfg.First + i
		s := &session{id: id, name: Name(id), target: id % len(f.targets), fd: -1, seqs: make([]uint32, f.cfg.Checks)}
		if id < f.cfg.Sampled {
			s.ns = 1
		}
		l.sessions = append(l.sessions, s)
	}
	defer func() {
		for _, s := range l.sessions {
			if s.fd >= 0 {
				_ = unix.Close(s.fd)
			}
		}
		_ = unix.Close(ep)
	}()
	events := make([]unix.EpollEvent, epollBatch)
	begin, opened := time.Now(), 0
	for ctx.Err() == nil {
		now := time.Now()
		for n := 0; n < openAtOnce && opened < len(l.sessions) && l.admits(opened, now.Sub(begin)); n++ {
			l.open(l.sessions[opened])
			opened++
		}
		l.rounds(now)
		wait := waitMillis
		if f.pace.Load() > 0 {
			wait = paceMillis
		}
		n, err := unix.EpollWait(ep, events, wait)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("epoll: %w", err)
		}
		for _, e := range events[:max(n, 0)] {
			if s := l.byFD[e.Fd]; s != nil {
				if err := l.serve(s, e.Events); err != nil {
					l.lose(s, err)
				}
			}
		}
	}
	return nil
}

func (l *loop) admits(opened int, since time.Duration) bool {
	return l.f.cfg.Rate == 0 || float64(opened) < since.Seconds()*float64(l.f.cfg.Rate)
}

// rounds does what is due.
func (l *loop) rounds(now time.Time) {
	for s := l.retry.due(now); s != nil; s = l.retry.due(now) {
		l.open(s)
	}
	for s := l.alive.due(now); s != nil; s = l.alive.due(now) {
		l.f.keepalive(s)
		l.alive.add(s, now.Add(time.Duration(l.f.cfg.Keepalive)*time.Second))
		l.send(s)
	}
	for s := l.pings.due(now); s != nil; s = l.pings.due(now) {
		ping(s)
		l.pings.add(s, now.Add(pingEvery))
		l.send(s)
	}
	l.offer(now)
	flood := l.f.flood.Load()
	if l.f.quiet.Load() {
		flood = 0
	}
	if flood != l.flooding {
		l.flooding = flood
		for _, s := range l.sessions {
			if s.fd >= 0 && s.state == stateReady {
				l.send(s)
			}
		}
	}
}

// offer has the sessions send what is due at the pace that was set. What is not sent is held back, as ever.
func (l *loop) offer(now time.Time) {
	rate, since, before := l.f.pace.Load(), now.Sub(l.paced), l.sent
	l.paced, l.sent = now, l.f.events.Load()
	if rate == 0 || l.f.quiet.Load() || l.f.cfg.Checks == 0 {
		l.owed = 0
		return
	}
	l.owed += float64(rate) * since.Seconds()
	due := int(l.owed)
	l.owed -= float64(due)
	if l.flooding > 0 { // they send all the time
		l.f.held.Add(max(int64(due)-(l.sent-before), 0))
		return
	}
	each := (due + len(l.sessions) - 1) / len(l.sessions)
	for range l.sessions {
		if due == 0 {
			return
		}
		s := l.sessions[l.turn]
		l.turn = (l.turn + 1) % len(l.sessions)
		if s.ns != 0 {
			continue
		}
		n := min(each, due)
		due -= n
		for left := paceVisit; min(n, left) > 0 && s.state == stateReady && len(s.out) <= holdBytes; {
			for ; min(n, left) > 0 && len(s.out) <= holdBytes; n, left = n-1, left-1 {
				l.f.answer(s, s.next, now.Unix(), now)
				s.next = (s.next + 1) % l.f.cfg.Checks
			}
			if !s.armed {
				l.send(s)
			}
		}
		l.f.held.Add(int64(n))
	}
	l.owed += float64(due) // the share of those that are followed
}

// floods says whether a session sends as fast as it can.
func (l *loop) floods(s *session) bool {
	return l.flooding > 0 && s.state == stateReady && s.ns == 0 && int64(s.id)%l.flooding == l.flooding-1
}

// open begins a session.
func (l *loop) open(s *session) {
	s.opens++
	s.state, s.alive, s.carry = stateShaking, 0, nil
	clear(s.seqs)
	err := l.connect(s)
	if err == nil {
		s.out = append([]byte(nil), l.f.handshake(s)...)
		err = l.flush(s)
	}
	if err != nil {
		l.lose(s, err)
	}
}

func (l *loop) connect(s *session) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	s.fd, s.armed = fd, false
	l.byFD[int32(fd)] = s
	target := l.f.targets[s.target]
	if target.Addr().IsLoopback() {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, byte(1 + s.id/perSource)}})
		}
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(target.Port()), Addr: target.Addr().As4()})
		if errors.Is(err, unix.EINPROGRESS) {
			err = nil
		}
	}
	if err == nil {
		err = unix.EpollCtl(l.ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
	}
	return err
}

// lose ends a session, and has it opened again on the next server after a while.
func (l *loop) lose(s *session, err error) {
	reason := fmt.Sprintf("%s at %s: %v", s.name, l.f.targets[s.target], err)
	l.f.reason.Store(&reason)
	l.f.lost.Add(1)
	if s.state == stateReady {
		l.f.sessions.Add(-1)
	}
	s.state, s.out, s.carry = stateShaking, nil, nil
	if s.fd >= 0 {
		delete(l.byFD, int32(s.fd))
		_ = unix.Close(s.fd) // closing takes it out of the epoll set
		s.fd = -1
	}
	s.opens++
	s.target = (s.target + 1) % len(l.f.targets)
	l.retry.add(s, time.Now().Add(retryAfter))
}

func (l *loop) send(s *session) {
	if err := l.flush(s); err != nil {
		l.lose(s, err)
	}
}

func (l *loop) serve(s *session, events uint32) error {
	if events&(unix.EPOLLIN|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		held := copy(l.buf, s.carry)
		n, err := unix.Read(s.fd, l.buf[held:])
		switch {
		case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
			n = 0
		case err != nil:
			return err
		case n == 0:
			return io.EOF
		}
		if len(s.out) == 0 {
			s.out = l.spare[:0]
		}
		before := s.state
		used, err := l.f.read(s, l.buf[:held+n], &l.looks)
		if err != nil {
			return err
		}
		if s.carry = nil; used < held+n { // rarely: servers' frames come in one piece
			s.carry = append([]byte(nil), l.buf[used:held+n]...)
		}
		if before != stateReady && s.state == stateReady {
			now := time.Now()
			l.f.keepalive(s)
			l.alive.add(s, now.Add(time.Duration(l.f.cfg.Keepalive)*time.Second))
			l.pings.add(s, now.Add(pingEvery))
		}
	}
	return l.flush(s)
}

// flush writes what is to be written in one call, and asks to be told when the socket takes the rest.
func (l *loop) flush(s *session) error {
	if l.floods(s) && len(s.out) < floodMost/2 {
		if len(s.out) == 0 {
			s.out = l.spare[:0]
		}
		for now := time.Now(); len(s.out) <= holdBytes && l.f.cfg.Checks > 0; s.next = (s.next + 1) % l.f.cfg.Checks {
			l.f.answer(s, s.next, now.Unix(), now)
		}
	}
	rest := s.out
	for len(rest) > 0 {
		n, err := unix.Write(s.fd, rest)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOTCONN) {
			break
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		l.f.bytes.Add(int64(max(n, 0)))
		rest = rest[max(n, 0):]
	}
	if cap(s.out) > cap(l.spare) {
		l.spare = s.out[:0]
	}
	s.out = nil
	if len(rest) > 0 {
		s.out = append(s.out, rest...)
	}
	blocked := len(s.out) > 0 || l.floods(s)
	if blocked == s.armed {
		return nil
	}
	s.armed = blocked
	want := uint32(unix.EPOLLIN)
	if blocked {
		want |= unix.EPOLLOUT
	}
	return unix.EpollCtl(l.ep, unix.EPOLL_CTL_MOD, s.fd, &unix.EpollEvent{Events: want, Fd: int32(s.fd)})
}
