package sidecars

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2/hpack"
)

// loop serves some of the connections with one thread. Its fields but the counters are its own.
type loop struct {
	fleet   *Fleet
	conns   []*conn
	headers *hpack.Decoder
	scratch []byte
	buf     []byte
	spare   []byte  // what the connection at work writes into
	retry   []*conn // lost ones, and those with streams that ended, to be opened again at retryAt
	retryAt time.Time
	counters
}

// counters are written by a loop and read by Fleet.Counts.
type counters struct {
	warm, connected, messages, bytes, acks, reads, writes, lost, streams atomic.Int64
}

const (
	readBytes = 256 << 10
	// retryAfter is how long a lost connection or an ended stream waits at least.
	retryAfter = 500 * time.Millisecond
)

func newLoop(f *Fleet) *loop {
	return &loop{fleet: f, headers: hpack.NewDecoder(0, nil), buf: make([]byte, readBytes)}
}

func (l *loop) add(h Host, first int) error {
	ap, err := netip.ParseAddrPort(h.Addr)
	if err != nil || !ap.Addr().Is4() {
		return fmt.Errorf("must be an IPv4 address and a port, not %q", h.Addr)
	}
	l.conns = append(l.conns, &conn{l: l, host: &h, addr: ap.Addr().As4(), port: int(ap.Port()), first: first,
		place: len(l.conns), fd: -1})
	return nil
}

// note counts a response and its acknowledgement, and whether its sidecar became warm.
func (l *loop) note(s *stream) {
	l.messages.Add(1)
	l.acks.Add(1)
	if need := l.fleet.need; !s.warm && s.have&need == need {
		s.warm = true
		l.warm.Add(1)
	}
}

// ended has a stream that the agent ended opened again after a while.
func (l *loop) ended(c *conn, why error) {
	l.fleet.because(fmt.Errorf("%s: %w", c.host.Addr, why))
	l.streams.Add(1)
	if c.down == 0 {
		l.later(c)
	}
}

func (l *loop) later(c *conn) {
	if len(l.retry) == 0 {
		l.retryAt = time.Now().Add(retryAfter + rand.N(retryAfter))
	}
	l.retry = append(l.retry, c)
}
