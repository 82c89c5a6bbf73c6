package wire

import (
	"net"
	"net/netip"
	"sync"
)

// listener is the virtual net.Listener of one (protocol, group).
type listener struct {
	w     *Wire
	proto Protocol
	group uint8
	roles Roles
	// queue is bounded by Config.Backlog; offer never waits on it. It is never
	// closed, done is, so that offer and shut cannot meet on a closed channel.
	queue chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// Listen returns the listener of one protocol and group, which gets connections of
// peers of these roles alone. Asking twice, or for nobody, is a programming error and
// panics. Closing it frees the route.
func (w *Wire) Listen(proto Protocol, group uint8, roles Roles) net.Listener {
	if roles == 0 {
		panic("wire: a listener says whom it is for")
	}
	l := &listener{w: w, proto: proto, group: group, roles: roles, queue: make(chan net.Conn, w.cfg.Backlog),
		done: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		close(l.done)
		l.once.Do(func() {})
		return l
	}
	r := route{proto, group}
	if w.routes[r] != nil {
		panic("wire: protocol and group listened for twice")
	}
	w.routes[r] = l
	return l
}

// Route is a protocol and group that is listened for, and for whom.
type Route struct {
	Proto Protocol
	Group uint8
	Roles Roles
}

// Routes lists what is listened for at the moment, in no order.
func (w *Wire) Routes() (list []Route) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for r, l := range w.routes {
		list = append(list, Route{r.proto, r.group, l.roles})
	}
	return list
}

// offer hands a connection over; false when the queue is full or closed.
func (l *listener) offer(conn net.Conn) bool {
	select {
	case <-l.done:
		return false
	default:
	}
	select {
	case l.queue <- conn:
	default:
		return false
	}
	select {
	case <-l.done: // shut may have drained before this one came
		l.drain()
	default:
	}
	return true
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.done:
		return nil, net.ErrClosed
	default:
	}
	select {
	case conn := <-l.queue:
		return conn, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener: it frees the route and closes what nobody accepted.
func (l *listener) Close() error {
	l.w.mu.Lock()
	if r := (route{l.proto, l.group}); l.w.routes[r] == l {
		delete(l.w.routes, r)
	}
	l.w.mu.Unlock()
	l.shut()
	return nil
}

func (l *listener) shut() {
	l.once.Do(func() { close(l.done) })
	l.drain()
}

func (l *listener) drain() {
	for {
		select {
		case conn := <-l.queue:
			conn.Close()
		default:
			return
		}
	}
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.w.Addr() }

// pending holds the connections that wait for their header, so that they are
// bounded, per source too, and can be closed on shutdown.
type pending struct {
	mu               sync.Mutex
	limit, perSource int
	conns            map[net.Conn]string
	sources          map[string]int
	closed           bool
}

func sourceOf(conn net.Conn) string {
	text := conn.RemoteAddr().String()
	if ap, err := netip.ParseAddrPort(text); err == nil {
		return ap.Addr().String()
	}
	return text
}

// add takes conn in; false when a bound is reached or after closeAll.
func (p *pending) add(conn net.Conn) bool {
	source := sourceOf(conn)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.conns) >= p.limit || p.sources[source] >= p.perSource {
		return false
	}
	p.conns[conn] = source
	p.sources[source]++
	return true
}

func (p *pending) remove(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	source, ok := p.conns[conn]
	if !ok {
		return
	}
	delete(p.conns, conn)
	if p.sources[source]--; p.sources[source] == 0 {
		delete(p.sources, source)
	}
}

func (p *pending) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

func (p *pending) closeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for conn := range p.conns {
		conn.Close()
	}
}
