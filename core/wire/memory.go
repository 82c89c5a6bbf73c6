package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// Memory is the faulty twin of the network: named hosts inside one process,
// between which links can be delayed, stalled, cut one way or both, and whose
// connections can be dropped.
//
// It behaves as TCP does: bytes are never lost, torn or reordered on a living
// connection; a cut holds them (and dials across it wait for their context), a
// heal delivers them, a drop breaks the connection for both ends. Each direction
// of a connection buffers at most memoryWindowBytes, then writers wait.
//
// Everything may be called at any time from any goroutine. It uses the time
// package, so a testing/synctest bubble moves its clock.
type Memory struct {
	mu sync.Mutex // guards all below; never held while waiting
	// listeners is keyed by address, ports only by host.
	listeners map[string]*memoryListener
	links     map[link]linkState
	conns     map[*memoryConn]struct{} // the dialling ends
	changed   chan struct{}            // closed and replaced at each change of a link
	nextPort  int
}

type link struct{ from, to string }

type linkState struct {
	cut   bool          // nothing passes, dials wait
	stall bool          // bytes wait, dials pass: the peer's process is stopped
	delay time.Duration // one way
}

const memoryWindowBytes = 256 << 10

// NewMemory returns a network without faults.
func NewMemory() *Memory {
	return &Memory{
		listeners: map[string]*memoryListener{}, links: map[link]linkState{},
		conns: map[*memoryConn]struct{}{}, changed: make(chan struct{}), nextPort: 40000,
	}
}

// Host is a place in the network; links are between hosts. It is a Dialer.
type Host struct {
	m    *Memory
	name string
}

// Host returns the host of that name.
func (m *Memory) Host(name string) *Host { return &Host{m, name} }

func (m *Memory) update(from, to string, f func(*linkState)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.links[link{from, to}]
	f(&s)
	m.links[link{from, to}] = s
	close(m.changed)
	m.changed = make(chan struct{})
}

// Cut stops everything that goes from one host to another; the way back stays open.
func (m *Memory) Cut(from, to string) { m.update(from, to, func(s *linkState) { s.cut = true }) }

// Stall holds the bytes from one host to another while dials still succeed.
func (m *Memory) Stall(from, to string) { m.update(from, to, func(s *linkState) { s.stall = true }) }

// Delay makes the way from one host to another take d.
func (m *Memory) Delay(from, to string, d time.Duration) {
	m.update(from, to, func(s *linkState) { s.delay = d })
}

// Heal takes all faults off the way from one host to another.
func (m *Memory) Heal(from, to string) { m.update(from, to, func(s *linkState) { *s = linkState{} }) }

// Partition cuts, both ways, every pair of hosts that are in different groups.
func (m *Memory) Partition(groups ...[]string) {
	for i, a := range groups {
		for j, b := range groups {
			if i == j {
				continue
			}
			for _, from := range a {
				for _, to := range b {
					m.Cut(from, to)
				}
			}
		}
	}
}

// HealAll takes all faults off all links.
func (m *Memory) HealAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.links)
	close(m.changed)
	m.changed = make(chan struct{})
}

// Drop breaks every connection between two hosts, as a reset does.
func (m *Memory) Drop(a, b string) {
	m.mu.Lock()
	var hit []*memoryConn
	for c := range m.conns {
		if (c.from == a && c.to == b) || (c.from == b && c.to == a) {
			hit = append(hit, c)
		}
	}
	m.mu.Unlock()
	for _, c := range hit {
		c.breakBoth(syscall.ECONNRESET)
	}
}

func (m *Memory) state(from, to string) (linkState, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.links[link{from, to}], m.changed
}

type memoryAddr string

func (memoryAddr) Network() string  { return "memory" }
func (a memoryAddr) String() string { return string(a) }

type memoryListener struct {
	m     *Memory
	host  string
	addr  memoryAddr
	queue chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// Listen takes an address ("name:port"; any string without a listener will do).
// An empty one is made up from the host's name.
func (h *Host) Listen(addr string) (net.Listener, error) {
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	if addr == "" {
		h.m.nextPort++
		addr = fmt.Sprintf("%s:%d", h.name, h.m.nextPort)
	}
	if h.m.listeners[addr] != nil {
		return nil, fmt.Errorf("listen %s: %w", addr, syscall.EADDRINUSE)
	}
	l := &memoryListener{m: h.m, host: h.name, addr: memoryAddr(addr), queue: make(chan net.Conn, 128),
		done: make(chan struct{})}
	h.m.listeners[addr] = l
	return l, nil
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case <-l.done:
		return nil, net.ErrClosed
	default:
	}
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	l.once.Do(func() {
		l.m.mu.Lock()
		if l.m.listeners[string(l.addr)] == l {
			delete(l.m.listeners, string(l.addr))
		}
		// Under the lock, as is the sending: no connection is queued after this.
		close(l.done)
		var left []net.Conn
		for len(l.queue) > 0 {
			left = append(left, <-l.queue)
		}
		l.m.mu.Unlock()
		for _, c := range left {
			c.Close()
		}
	})
	return nil
}

func (l *memoryListener) Addr() net.Addr { return l.addr }

var errRefused = errors.New("connection refused")

// DialContext implements Dialer. Across a cut, in either direction, it waits for ctx.
func (h *Host) DialContext(ctx context.Context, _, addr string) (net.Conn, error) {
	for {
		h.m.mu.Lock()
		l := h.m.listeners[addr]
		to := addr
		if l != nil {
			to = l.host
		} else if host, _, err := net.SplitHostPort(addr); err == nil {
			to = host
		}
		there, back, changed := h.m.links[link{h.name, to}], h.m.links[link{to, h.name}], h.m.changed
		if !there.cut && !back.cut {
			conn, err := h.connectLocked(l, addr)
			h.m.mu.Unlock()
			if delay := there.delay + back.delay; delay > 0 {
				wait(ctx, delay)
			}
			if err == nil && ctx.Err() != nil {
				conn.Close()
				err = ctx.Err()
			}
			if err != nil {
				return nil, fmt.Errorf("dial %s: %w", addr, err)
			}
			return conn, nil
		}
		h.m.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("dial %s: %w", addr, ctx.Err())
		case <-changed:
		}
	}
}

func (h *Host) connectLocked(l *memoryListener, addr string) (net.Conn, error) {
	if l == nil {
		return nil, errRefused
	}
	h.m.nextPort++
	local := memoryAddr(fmt.Sprintf("%s:%d", h.name, h.m.nextPort))
	out, back := newHalf(h.m, h.name, l.host), newHalf(h.m, l.host, h.name)
	near := &memoryConn{m: h.m, from: h.name, to: l.host, local: local, remote: memoryAddr(addr), in: back, out: out,
		reading: newDeadline(), writing: newDeadline()}
	far := &memoryConn{m: h.m, from: l.host, to: h.name, local: memoryAddr(addr), remote: local, in: out, out: back,
		reading: newDeadline(), writing: newDeadline()}
	select {
	case l.queue <- far:
		h.m.conns[near] = struct{}{}
		near.near, far.near = near, near
		return near, nil
	default:
		return nil, errRefused
	}
}
