package wire

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// judgeEvery is how often connections are looked at whose peers showed a certificate. What is promised is 5 s.
const judgeEvery = time.Second

// held are the accepted connections whose peers showed a certificate, which may be taken away while they last: it
// ends, the authority is replaced, or the roots of guests go. Then the connection is cut, whatever is going on over it.
type held struct {
	mu  sync.Mutex // guards all
	all map[*grant]struct{}
}

// grant is why a connection was let in. What does not change needs no lock; by is of judge alone.
type grant struct {
	held  *held
	conn  *tls.Conn
	peer  *Peer
	until time.Time // the end of the peer's certificate
	by    basis
}

// basis is what a judgement rests on.
type basis struct {
	now    *identityNow
	guests uint64
}

func (now *identityNow) basis() basis {
	b := basis{now: now}
	if now.guests != nil && now.guests.Epoch != nil {
		b.guests = now.guests.Epoch()
	}
	return b
}

// add takes in a connection as its owner gets it, over under, and returns what the owner gets now. A peer that showed
// no certificate has none to lose.
func (h *held) add(conn net.Conn, under *tls.Conn, peer *Peer, by basis) net.Conn {
	shown := under.ConnectionState().PeerCertificates
	if len(shown) == 0 {
		return conn
	}
	g := &grant{held: h, conn: under, peer: peer, until: shown[0].NotAfter, by: by}
	h.mu.Lock()
	if h.all == nil {
		h.all = map[*grant]struct{}{}
	}
	h.all[g] = struct{}{}
	h.mu.Unlock()
	if c, ok := conn.(*admitted); ok {
		c.grant = g
		return c
	}
	return &secured{under, g}
}

// end forgets a connection that its owner closes; nil is one that was not held.
func (g *grant) end() {
	if g != nil {
		g.held.mu.Lock()
		defer g.held.mu.Unlock()
		delete(g.held.all, g)
	}
}

func (h *held) list() []*grant {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]*grant, 0, len(h.all))
	for g := range h.all {
		list = append(list, g)
	}
	return list
}

// judge cuts the connections that would not be let in any more, until ctx ends. A certificate is verified again when it
// has ended, or when something changed of what it was verified by.
func (w *Wire) judge(ctx context.Context) {
	t := time.NewTicker(judgeEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		by, at := w.tls.now.Load().basis(), time.Now()
		for _, g := range w.held.list() {
			if g.by == by && at.Before(g.until) {
				continue
			}
			state := g.conn.ConnectionState()
			state.VerifiedChains = nil // they are of the handshake
			if role, why := by.now.roleOf(&state); role != g.peer.role {
				w.stats.cut.Add(1)
				w.notes.warn("cut", "cut a connection whose certificate is not what it was", "remote", g.peer.Addr,
					"name", g.peer.Name, "was", g.peer.role, "is", role, "reason", why)
				g.end()
				_ = g.conn.NetConn().Close() // not the connection itself: that would wait to say goodbye
			}
			g.by = by
		}
	}
}

// secured is an accepted connection whose owner does not ask who is at its other end.
type secured struct {
	*tls.Conn
	grant *grant
}

// Close implements net.Conn.
func (c *secured) Close() error {
	c.grant.end()
	return c.Conn.Close()
}
