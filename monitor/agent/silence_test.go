package agent

import (
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
)

// door passes connections on to a backend, until it is frozen: then they stay open, new ones too, and nothing goes
// through.
type door struct {
	l      net.Listener
	frozen atomic.Bool
	passed atomic.Int64 // connections that got through

	mu    sync.Mutex
	conns []net.Conn
	all   sync.WaitGroup
}

func newDoor(t *testing.T, to string) *door {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &door{l: l}
	d.all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			d.keep(in)
			if d.frozen.Load() {
				continue
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			d.keep(out)
			d.passed.Add(1)
			d.all.Go(func() { d.copy(in, out) })
			d.all.Go(func() { d.copy(out, in) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		d.mu.Lock()
		for _, c := range d.conns {
			_ = c.Close()
		}
		d.mu.Unlock()
		d.all.Wait()
	})
	return d
}

func (d *door) keep(c net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns = append(d.conns, c)
}

func (d *door) copy(to, from net.Conn) {
	defer to.Close()
	buf := make([]byte, 4<<10)
	for {
		n, err := from.Read(buf)
		if d.frozen.Load() {
			_, _ = io.Copy(io.Discard, from) // it is taken in, and goes nowhere
			return
		}
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// TestFrozenBackendIsLeft: an agent leaves a backend that stands still within 2 s of the next that it sends, not after
// the 45 s of its heartbeats, and passes it by while it looks for another. The bound here is for a busy machine.
func TestFrozenBackendIsLeft(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	doors := []*door{newDoor(t, strings.TrimPrefix(b.url, "ws://")), newDoor(t, strings.TrimPrefix(b.url, "ws://"))}
	a, _ := start(t, b, func(c *Config) {
		c.Backends = func() []string {
			return []string{"ws://" + doors[0].l.Addr().String(), "ws://" + doors[1].l.Addr().String()}
		}
		c.Keepalive = Keepalive{Interval: 1, Warning: 30, Critical: 60}
	})
	connected(t, a)
	used, other := doors[0], doors[1]
	if used.passed.Load() == 0 {
		used, other = other, used
	}
	if other.passed.Load() != 0 {
		t.Fatal("both were used")
	}
	used.frozen.Store(true)
	begin := time.Now()
	polltest.Within(t, 8*time.Second, func() bool { return other.passed.Load() > 0 && a.Connected() },
		"a session elsewhere")
	t.Logf("a session elsewhere after %s", time.Since(begin))
}

// TestSlowBackendIsKept: what is not read for long is no reason to leave a backend that answers when it is asked for
// its health.
func TestSlowBackendIsKept(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	a, _ := start(t, b, func(c *Config) { c.Keepalive = Keepalive{Interval: 1, Warning: 30, Critical: 60} })
	connected(t, a)
	l, _ := a.current()
	if !l.healthy(polltest.Deadline) {
		t.Error("a backend that lives is called silent")
	}
}
