package limit

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"corbel.dev/corbel/kit/errkind"
)

// FreeBytes is what a Hold may have without being counted: requests of this size pay nothing, and how many there
// can be is bounded by the connections.
const FreeBytes = 64 << 10

// ErrBytes refuses what does not fit into a budget of bytes now.
var ErrBytes = errkind.New(errkind.Unavailable, "this server holds as many bytes of requests and answers as it may: "+
	"try again in a second, or raise the budget (limits.request_memory)")

// Bytes is a budget of memory that all who share it may hold at a time. Nobody waits for it: what does not fit is
// refused, before it is allocated. One address gets at most half of it, so that none locks out the others. A nil
// *Bytes has no end. Safe for concurrent use.
type Bytes struct {
	most    int64
	used    atomic.Int64
	high    atomic.Int64
	refused atomic.Uint64
	told    func() // of each refusal; may be nil

	mu  sync.Mutex // guards who
	who map[netip.Addr]int64
}

// BytesStats is a reading of a budget.
type BytesStats struct {
	// Most is the budget, Used what is held, High the most that ever was.
	Most, Used, High int64
	// Refused counts what did not fit.
	Refused uint64
}

// NewBytes makes a budget. refused, where it is not nil, is called at each refusal.
func NewBytes(most int64, refused func()) *Bytes {
	return &Bytes{most: most, told: refused, who: map[netip.Addr]int64{}}
}

// Stats reads the budget; that of nil is zero.
func (b *Bytes) Stats() BytesStats {
	if b == nil {
		return BytesStats{}
	}
	return BytesStats{Most: b.most, Used: b.used.Load(), High: b.high.Load(), Refused: b.refused.Load()}
}

// take counts n more bytes of an address, or refuses them. The zero address has no limit of its own.
func (b *Bytes) take(who netip.Addr, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	used := b.used.Load() + n
	if used > b.most || who.IsValid() && b.who[who]+n > b.most/2 {
		b.refused.Add(1)
		if b.told != nil {
			b.told()
		}
		return false
	}
	b.used.Store(used)
	b.high.Store(max(b.high.Load(), used))
	if who.IsValid() {
		b.who[who] += n
	}
	return true
}

func (b *Bytes) give(who netip.Addr, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used.Add(-n)
	if !who.IsValid() {
		return
	}
	if b.who[who] -= n; b.who[who] <= 0 {
		delete(b.who, who)
	}
}

// Hold is what one request has of a budget. The zero Hold has no budget. It is for one goroutine at a time.
type Hold struct {
	bytes *Bytes
	who   netip.Addr
	n     int64
}

// Hold begins what a request of an address holds: nothing yet.
func (b *Bytes) Hold(who netip.Addr) Hold { return Hold{bytes: b, who: who.Unmap()} }

// Add holds n bytes more of the budget, or fails with ErrBytes and holds what it held.
func (h *Hold) Add(n int64) error {
	if h.bytes == nil || n <= 0 {
		return nil
	}
	if !h.bytes.take(h.who, n) {
		return ErrBytes
	}
	h.n += n
	return nil
}

// Grow has the Hold be of n bytes, if it is smaller.
func (h *Hold) Grow(n int64) error { return h.Add(n - h.n) }

// gatherTimes is how many bytes of the budget one of a message takes that grows as it comes: its buffer doubles, which
// leaves the smaller one to the collector, and what is made of it is as large again.
const gatherTimes = 3

// Gather has the Hold cover a message of which n bytes are there or are made room for. Up to FreeBytes it costs
// nothing, beyond that it takes steps of as many.
func (h *Hold) Gather(n int) error {
	if n <= FreeBytes {
		return nil
	}
	steps := (int64(n) + FreeBytes - 1) / FreeBytes
	return h.Grow(gatherTimes * FreeBytes * steps)
}

// AddrOf is where a connection comes from, for Hold; the zero address where that is no TCP.
func AddrOf(a net.Addr) netip.Addr {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// End gives all back. The Hold may be used again.
func (h *Hold) End() {
	if h.n > 0 {
		h.bytes.give(h.who, h.n)
		h.n = 0
	}
}
