package h2

import "time"

// Message is one outgoing message in pieces: private bytes, which are copied
// here, and shared ones, which are only referred to and must never change.
type Message struct {
	private []byte
	pieces  []piece
	size    int
	changed int64
}

type piece struct {
	shared   []byte
	from, to int // of private, if shared is nil
}

func (m *Message) reset() {
	clear(m.pieces) // let go of what they share
	m.private, m.pieces, m.size = m.private[:0], m.pieces[:0], 0
	m.changed = 0
	if cap(m.private) > maxScratch {
		m.private = nil
	}
}

// maxScratch is how much of a large message's buffers a connection keeps.
const maxScratch = 4 << 10

// Private returns the bytes to append to; Commit must follow before the next call.
func (m *Message) Private() []byte { return m.private }

// Commit takes b, which Private returned and the caller appended to, as the next piece.
func (m *Message) Commit(b []byte) {
	if n := len(m.private); len(b) > n {
		m.pieces = append(m.pieces, piece{from: n, to: len(b)})
		m.size += len(b) - n
	}
	m.private = b
}

// Shared adds bytes that many messages share.
func (m *Message) Shared(b []byte) {
	if len(b) > 0 {
		m.pieces = append(m.pieces, piece{shared: b})
		m.size += len(b)
	}
}

// Append adds a copy of b.
func (m *Message) Append(b []byte) { m.Commit(append(m.Private(), b...)) }

// Changed says when the message's content was changed, for Config.Written.
func (m *Message) Changed(at time.Time) {
	if !at.IsZero() {
		m.changed = at.UnixNano()
	}
}

// flatten appends the whole message with its gRPC prefix.
func (m *Message) flatten(b []byte) []byte {
	b = append(b, 0, byte(m.size>>24), byte(m.size>>16), byte(m.size>>8), byte(m.size))
	for i := range m.pieces {
		p := &m.pieces[i]
		if p.shared != nil {
			b = append(b, p.shared...)
		} else {
			b = append(b, m.private[p.from:p.to]...)
		}
	}
	return b
}

// pending is a message that did not fit into the peer's windows: what is left of it, in order.
type pending struct {
	rest [][]byte
	left int
	// since is when it last moved.
	since   int64
	changed int64
}

// keep makes a pending of m: private bytes are copied, shared ones stay shared.
func (m *Message) keep(now int64) *pending {
	private := append([]byte{0, byte(m.size >> 24), byte(m.size >> 16), byte(m.size >> 8), byte(m.size)}, m.private...)
	p := &pending{rest: make([][]byte, 1, 1+len(m.pieces)), left: grpcPrefix + m.size, since: now, changed: m.changed}
	p.rest[0] = private[:grpcPrefix]
	for _, one := range m.pieces {
		if one.shared != nil {
			p.rest = append(p.rest, one.shared)
		} else {
			p.rest = append(p.rest, private[grpcPrefix+one.from:grpcPrefix+one.to])
		}
	}
	return p
}

// take appends the next n bytes to b.
func (p *pending) take(b []byte, n int) []byte {
	p.left -= n
	for n > 0 {
		part := p.rest[0]
		if len(part) > n {
			p.rest[0] = part[n:]
			return append(b, part[:n]...)
		}
		b = append(b, part...)
		n -= len(part)
		p.rest[0] = nil
		p.rest = p.rest[1:]
	}
	return b
}

const grpcPrefix = 5
