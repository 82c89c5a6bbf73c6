package node

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// simNet is where the connections of simulated hosts come from: each host dials
// from an address of its own, as hosts do, and its connections can be cut.
type simNet struct {
	mu    sync.Mutex // guards open
	open  map[int]map[*simConn]struct{}
	timed sync.WaitGroup // faults that wait for their time
}

// simConn is one connection, remembered while it is open.
type simConn struct {
	*net.TCPConn
	net  *simNet
	host int
	once sync.Once
}

// Close implements net.Conn.
func (c *simConn) Close() error {
	c.once.Do(func() {
		c.net.mu.Lock()
		defer c.net.mu.Unlock()
		delete(c.net.open[c.host], c)
	})
	return c.TCPConn.Close()
}

// simHostKey is the context key under which a dial finds its host.
type simHostKey struct{}

// simFrom is which host dials, and from where. Only its feed's connections are cut: the
// others carry nothing while nothing is asked for.
type simFrom struct {
	host int
	ip   net.IP
	feed bool
}

// DialContext implements wire.Dialer.
func (n *simNet) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	from, known := ctx.Value(simHostKey{}).(simFrom)
	d := net.Dialer{}
	if known {
		d.LocalAddr = &net.TCPAddr{IP: from.ip}
	}
	nc, err := d.DialContext(ctx, network, addr)
	if err != nil || !from.feed {
		return nc, err
	}
	c := &simConn{TCPConn: nc.(*net.TCPConn), net: n, host: from.host}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.open[from.host] == nil {
		n.open[from.host] = map[*simConn]struct{}{}
	}
	n.open[from.host][c] = struct{}{}
	return c, nil
}

// simFault is the faults of one call: places of hosts of which one connection (a
// hedged host has two) is stalled without a word or reset, each at some moment within a time from now.
type simFault struct {
	Stall  []int         `json:"stall"`
	Reset  []int         `json:"reset"`
	Within time.Duration `json:"within"`
}

// cut returns at once; the faults come within their time.
func (n *simNet) cut(f simFault) {
	later := func(hosts []int, do func(*net.TCPConn)) {
		for _, h := range hosts {
			n.timed.Add(1)
			time.AfterFunc(rand.N(max(f.Within, 1)), func() {
				defer n.timed.Done()
				n.mu.Lock()
				defer n.mu.Unlock()
				for c := range n.open[h] { // any one of them
					do(c.TCPConn)
					return
				}
			})
		}
	}
	later(f.Stall, stallConn)
	later(f.Reset, resetConn)
}
