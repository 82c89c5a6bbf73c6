package wire

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"corbel.dev/corbel/kit/neterr"
	"corbel.dev/corbel/telemetry"
)

// maxResetPeers bounds the peers that have counters of their own; the rest is others.
const maxResetPeers = 64

// resets counts, by the peer's address, connections that broke while they were in use: reset from outside, or nothing
// was acknowledged any more. The process at the other end did neither: it says goodbye, or its kernel closes for it.
type resets struct {
	metrics *telemetry.Registry

	mu    sync.Mutex // guards peers
	peers map[string]*telemetry.Counter
}

func (r *resets) count(conn net.Conn, err error) {
	if !neterr.Broken(err) {
		return
	}
	peer := sourceOf(conn)
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.peers[peer]
	if c == nil {
		if len(r.peers) >= maxResetPeers {
			peer = "others"
		}
		if c = r.peers[peer]; c == nil {
			c = r.metrics.Counter("host.tcp.peer_resets", "peer", peer)
			r.peers[peer] = c
		}
	}
	c.Add(1)
}

// counted tells resets how a connection ends. It is what owners of RPC and Raft connections get.
type counted struct {
	net.Conn
	resets *resets
	told   atomic.Bool
}

func (c *counted) end(err error) {
	if err != nil && !c.told.Load() && !errors.Is(err, net.ErrClosed) && c.told.CompareAndSwap(false, true) {
		c.resets.count(c.Conn, err)
	}
}

// Read implements net.Conn.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.end(err)
	}
	return n, err
}

// Write implements net.Conn.
func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		c.end(err)
	}
	return n, err
}

// admit wraps connections whose owners ask who is at the other end. Those of members live long, and are counted.
func (w *Wire) admit(conn net.Conn, proto Protocol, peer *Peer, ask func() *Peer) net.Conn {
	switch proto {
	case ProtoRPC, ProtoRaft, ProtoEnroll, ProtoPeering:
		return &admitted{counted: counted{Conn: conn, resets: &w.resets}, peer: peer, ask: ask}
	}
	return conn
}
