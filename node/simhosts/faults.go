package simhosts

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// network is where the connections of simulated hosts come from: each host dials
// from an address of its own, as hosts do, and its connections can be cut.
type network struct {
	mu    sync.Mutex // guards open
	open  map[int]map[*conn]struct{}
	timed sync.WaitGroup // faults that wait for their time
}

// conn is one connection, remembered while it is open.
type conn struct {
	*net.TCPConn
	net  *network
	host int
	once sync.Once
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.net.mu.Lock()
		defer c.net.mu.Unlock()
		delete(c.net.open[c.host], c)
	})
	return c.TCPConn.Close()
}

func newNetwork() *network { return &network{open: map[int]map[*conn]struct{}{}} }

// origin is which host dials, and from where. Only its feed's connections are cut: the
// others carry nothing while nothing is asked for.
type origin struct {
	net  *network
	host int
	ip   net.IP
	feed bool
}

// DialContext implements wire.Dialer.
func (o *origin) DialContext(ctx context.Context, family, addr string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: o.ip}}
	nc, err := d.DialContext(ctx, family, addr)
	if err != nil || !o.feed {
		return nc, err
	}
	n := o.net
	c := &conn{TCPConn: nc.(*net.TCPConn), net: n, host: o.host}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.open[o.host] == nil {
		n.open[o.host] = map[*conn]struct{}{}
	}
	n.open[o.host][c] = struct{}{}
	return c, nil
}

// fault is the faults of one call: places of hosts of which one connection (a
// hedged host has two) is stalled without a word or reset, each at some moment within a time from now.
type fault struct {
	Stall  []int         `json:"stall"`
	Reset  []int         `json:"reset"`
	Within time.Duration `json:"within"`
}

// cut returns at once; the faults come within their time.
func (n *network) cut(f fault) {
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
