package ws

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"corbel.dev/corbel/kit/errkind"
)

// eventsAtOnce is how many connections one look at the epoll instance names.
const eventsAtOnce = 256

// poller reads plain sockets. The epoll instance is itself a file that the runtime's poller waits on, so nobody
// blocks a thread in it.
type poller struct {
	cfg  *LoopConfig
	crew crew
	file *os.File
	raw  syscall.RawConn
	ep   int

	seconds atomic.Uint32 // since the start, as sweep counts them
	workers sync.WaitGroup

	// blockedMu comes after a peer's mu.
	blockedMu sync.Mutex
	blocked   map[*peer]struct{} // those whose sockets take nothing

	mu      sync.Mutex
	table   slotTable
	ready   []*peer // from head on: those to be read, each once
	head    int
	on, off bool
}

// crew counts the workers.
type crew struct {
	most    int // workers
	working int // workers that do not wait
	extra   int // workers beyond most, where all seem to be stuck
	taken   uint64
}

// slotTable has the peers by number.
type slotTable struct {
	slots []*peer
	turns []int32 // how often each slot was used: events of one before are void
	free  []int32
}

func (l *poller) open(cfg *LoopConfig) error {
	l.cfg, l.crew.most, l.blocked = cfg, cfg.Workers, map[*peer]struct{}{}
	if l.crew.most == 0 {
		l.crew.most = 2 * runtime.GOMAXPROCS(0)
	}
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return errkind.E(errkind.Unavailable, "epoll", err)
	}
	if err := unix.SetNonblock(ep, true); err != nil { // os.NewFile asks for it
		return errors.Join(err, unix.Close(ep))
	}
	l.ep, l.file = ep, os.NewFile(uintptr(ep), "epoll")
	if err := l.file.SetReadDeadline(time.Time{}); err != nil { // it can be waited on
		return errkind.E(errkind.Unavailable, "epoll", errors.Join(err, l.file.Close()))
	}
	l.raw, err = l.file.SyscallConn()
	return err
}

func (l *poller) takes(c *Conn) bool { return c.raw != nil }

// serve takes the descriptor out of Go's hands, and begins.
func (l *poller) serve(c *Conn, h Handler) error {
	fd := -1
	var err error
	if e := c.raw.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) }); e != nil ||
		err != nil {
		return errors.Join(e, err)
	}
	if err := c.nc.Close(); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	// Limits.Idle says it sooner, without packets of its own
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 0)
	p := &peer{l: l, h: h, fd: int32(fd), part: c.in}
	p.heard.Store(l.seconds.Load())
	p.state.Store(stateRuns)
	l.mu.Lock()
	if l.off {
		l.mu.Unlock()
		return errors.Join(net.ErrClosed, unix.Close(fd))
	}
	l.place(p)
	l.mu.Unlock()
	e := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET&0xffffffff, Fd: p.slot,
		Pad: p.turn}
	if err := unix.EpollCtl(l.ep, unix.EPOLL_CTL_ADD, fd, &e); err != nil {
		l.drop(p)
		return errors.Join(errkind.E(errkind.Unavailable, "epoll", err), unix.Close(fd))
	}
	l.push(p)
	return nil
}

// place gives a peer a slot. The lock is held.
func (l *poller) place(p *peer) {
	if n := len(l.table.free); n > 0 {
		p.slot, l.table.free = l.table.free[n-1], l.table.free[:n-1]
	} else {
		p.slot, l.table.slots, l.table.turns = int32(len(l.table.slots)), append(l.table.slots, nil), append(l.table.turns, 0)
	}
	l.table.turns[p.slot]++
	p.turn = l.table.turns[p.slot]
	l.table.slots[p.slot] = p
}

func (l *poller) drop(p *peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.table.slots[p.slot] = nil
	l.table.free = append(l.table.free, p.slot)
}

// push has a peer read whose state says that it is.
func (l *poller) push(p *peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ready = append(l.ready, p)
	l.hire()
}

// hire starts workers for those who are ready. The lock is held.
func (l *poller) hire() {
	if !l.on {
		return
	}
	for n := min(len(l.ready)-l.head, l.crew.most+l.crew.extra-l.crew.working); n > 0; n-- {
		l.crew.working++
		l.workers.Go(l.work)
	}
}

// scratch is what workers read into. A message that waits keeps one, and thousands may; who sends more than this at
// once is read into a buffer of its own.
var scratch = sync.Pool{New: func() any { b := make([]byte, 8<<10); return &b }}

// work reads who is ready until nobody is.
func (l *poller) work() {
	b := scratch.Get().(*[]byte)
	defer scratch.Put(b)
	p := newPatience(l.cfg.Take, l.waits)
	for again := (*peer)(nil); ; {
		one := l.next(again)
		if one == nil {
			return
		}
		if again = nil; one.serve(*b, &p) {
			again = one
		}
	}
}

// next returns who is to be read now, after putting the one who was and has more to say at the end of the row; nil
// ends the worker.
func (l *poller) next(again *peer) *peer {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.crew.taken++
	if again != nil {
		l.ready = append(l.ready, again)
	}
	if l.head == len(l.ready) || l.crew.working > l.crew.most+l.crew.extra {
		l.crew.working--
		l.hire() // those that this worker leaves, if the others have ended
		return nil
	}
	one := l.ready[l.head]
	l.ready[l.head] = nil
	if l.head++; l.head > len(l.ready)/2 {
		n := copy(l.ready, l.ready[l.head:])
		clear(l.ready[n:])
		l.ready, l.head = l.ready[:n], 0
	}
	return one
}

// waits is told when a message waits for something: its worker does not count meanwhile.
func (l *poller) waits(begins bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if begins {
		l.crew.working--
		l.hire()
	} else {
		l.crew.working++
	}
}

func (l *poller) run(ctx context.Context) error {
	l.mu.Lock()
	l.on = true
	l.hire()
	l.mu.Unlock()
	wake := context.AfterFunc(ctx, func() { _ = l.file.SetReadDeadline(time.Unix(1, 0)) })
	defer wake()
	swept := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(swept)
		l.sweep(stop)
	}()
	err := l.watch(ctx)
	close(stop)
	<-swept
	l.mu.Lock()
	l.off = true
	all := append([]*peer(nil), l.table.slots...)
	l.mu.Unlock()
	for _, p := range all {
		if p != nil {
			p.cut(net.ErrClosed)
			if p.state.Or(stateRuns|stateAgain)&stateRuns == 0 {
				l.push(p)
			}
		}
	}
	l.workers.Wait()
	return errors.Join(err, l.file.Close())
}

// watch asks which connections are to be read, until ctx ends.
func (l *poller) watch(ctx context.Context) error {
	events := make([]unix.EpollEvent, eventsAtOnce)
	n := 0
	var failed error
	look := func(fd uintptr) bool {
		for {
			n, failed = unix.EpollWait(int(fd), events, 0)
			if failed != unix.EINTR {
				return n != 0
			}
		}
	}
	for ctx.Err() == nil {
		if err := l.raw.Read(look); err != nil || failed != nil {
			if ctx.Err() != nil {
				return nil
			}
			return errkind.E(errkind.Unavailable, "epoll", errors.Join(err, failed))
		}
		l.dispatch(events[:n])
	}
	return nil
}

func (l *poller) dispatch(events []unix.EpollEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range events {
		e := &events[i]
		p := l.table.slots[e.Fd]
		if p == nil || p.turn != e.Pad {
			continue
		}
		bits := uint32(stateRuns | stateAgain)
		if e.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
			bits |= stateOver
		}
		if p.state.Or(bits)&stateRuns == 0 {
			l.ready = append(l.ready, p)
		}
	}
	l.hire()
}

// sweep ends connections whose time is over.
func (l *poller) sweep(stop <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	idle := max(1, uint32(l.cfg.Limits.Idle/time.Second))
	var taken uint64
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		now := l.seconds.Add(1)
		l.late(time.Now())
		l.mu.Lock()
		if l.head < len(l.ready) && taken == l.crew.taken { // all workers are held up by something that does not ask for Done
			l.crew.extra++
			l.hire()
		} else {
			l.crew.extra = 0
		}
		taken = l.crew.taken
		var silent []*peer
		if now%max(1, idle/8) == 0 {
			for _, p := range l.table.slots {
				if p != nil && now-p.heard.Load() > idle {
					silent = append(silent, p)
				}
			}
		}
		l.mu.Unlock()
		for _, p := range silent {
			p.cut(os.ErrDeadlineExceeded)
		}
	}
}

// late cuts those who took too long over a message.
func (l *poller) late(now time.Time) {
	l.blockedMu.Lock()
	all := make([]*peer, 0, len(l.blocked))
	for p := range l.blocked {
		all = append(all, p)
	}
	l.blockedMu.Unlock()
	for _, p := range all {
		p.late(now)
	}
}
