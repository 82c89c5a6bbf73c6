package sidecars

import (
	"fmt"
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
	retry   []*conn // lost ones, to be opened again at retryAt
	retryAt time.Time

	warm, connected, messages, bytes, acks, reads, writes, lost atomic.Int64
}

const readBytes = 256 << 10

func newLoop(f *Fleet) *loop {
	return &loop{fleet: f, headers: hpack.NewDecoder(0, nil), buf: make([]byte, readBytes)}
}

func (l *loop) add(h Host, first int) error {
	ap, err := netip.ParseAddrPort(h.Addr)
	if err != nil || !ap.Addr().Is4() {
		return fmt.Errorf("must be an IPv4 address and a port, not %q", h.Addr)
	}
	l.conns = append(l.conns, &conn{l: l, host: &h, addr: ap.Addr().As4(), port: int(ap.Port()), first: first, place: len(l.conns), fd: -1})
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
