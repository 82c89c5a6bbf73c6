// Package simnodes plays many nodes of the jobs plane in one process, each with the product's own node client and a
// connection of its own to a server, or to the next one when that does not answer. Their tasks are the mock driver's,
// and nothing of them is kept: what the benchmarks measure, and the fault tests judge, is the servers.
package simnodes

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/client/driver"
	"corbel.dev/corbel/jobs/client/driver/mockdriver"
	"corbel.dev/corbel/jobs/client/fingerprint"
	"corbel.dev/corbel/jobs/client/nodeclient"
	"corbel.dev/corbel/kit/childcall"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/spawn"
)

// config is a part of a simulated fleet. It is the first call of whoever started the process.
type config struct {
	Servers    []string `json:"servers"` // their RPC addresses
	Datacenter string   `json:"datacenter"`
	First      int      `json:"first"` // number of the first node: names, ids and addresses follow from it
	Count      int      `json:"count"`
	// Join is how long the nodes take to come, one after the other.
	Join     time.Duration `json:"join"`
	CPU      int64         `json:"cpu"` // MHz of each
	MemoryMB int64         `json:"memory_mb"`
	DiskMB   int64         `json:"disk_mb"`
}

// MaxNodes bounds the number of a node: loopback has an address for each.
const MaxNodes = 1 << 20

// comingMost is how many nodes of a process come at once. They share few processors: more of them would wait for each
// other's handshakes until these time out, which hosts do not.
const comingMost = 64

// figures is what the nodes did so far.
type figures struct {
	Registered int64 `json:"registered"` // nodes that a server took
	Beats      int64 `json:"beats"`
	Batches    int64 `json:"batches"` // of updates that a server took
	Failed     int64 `json:"failed"`  // calls that no server answered, or that one refused
	// Error is one of their errors.
	Error string `json:"error,omitempty"`
}

// Serve plays the nodes for the process on the other side of in and out, until in ends. The calls: "start" with the
// nodes, then "figures" as often as wanted, and those that break nodes (faults.go).
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	f := &fleet{coming: make(chan struct{}, comingMost), nodes: map[int]*node{}}
	defer f.running.Wait()
	defer cancel()
	return childcall.Serve(ctx, in, out, func(_ context.Context, method string, body json.RawMessage) (any, error) {
		return f.handle(ctx, method, body)
	})
}

// fleet is the nodes of this process.
type fleet struct {
	cfg     config
	started bool
	running sync.WaitGroup
	coming  chan struct{} // a place for each node that began and that no server took yet
	nodes   map[int]*node // that run, or ran, by number; calls come one at a time
	counts
}

// node is one of them.
type node struct {
	*nodeclient.Client
	line  *line
	kill  context.CancelFunc
	ended chan struct{}
}

// counts are what all nodes count together.
type counts struct {
	registered, beats, batches, failed atomic.Int64

	mu     sync.Mutex // guards what follows
	lost   error      // of calls, the first
	broken error      // of nodes that ended
}

func (f *fleet) handle(ctx context.Context, method string, body json.RawMessage) (any, error) {
	if f.started == (method == "start") {
		return nil, fmt.Errorf("call %q: the first call, and no other, must be \"start\"", method)
	}
	switch method {
	case "start":
		if err := json.Unmarshal(body, &f.cfg); err != nil {
			return nil, err
		}
		return nil, f.start(ctx)
	case "figures":
		return f.figures()
	case "kill", "cut", "mend", "more":
		return nil, f.change(ctx, method, body)
	case "running":
		return f.allocations(), nil
	}
	return nil, fmt.Errorf("unknown call %q", method)
}

func (f *fleet) figures() (figures, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := figures{Registered: f.registered.Load(), Beats: f.beats.Load(), Batches: f.batches.Load(),
		Failed: f.failed.Load()}
	if f.lost != nil {
		out.Error = f.lost.Error()
	}
	return out, f.broken
}

// start builds and runs the nodes.
func (f *fleet) start(ctx context.Context) error {
	c := &f.cfg
	if len(c.Servers) == 0 || c.First < 0 || c.Count < 1 || c.First+c.Count > MaxNodes {
		return fmt.Errorf("nodes %d to %d on %d servers: there are %d numbers, and a server is needed", c.First,
			c.First+c.Count, len(c.Servers), MaxNodes)
	}
	f.started = true
	return f.begin(ctx, c.First, c.Count)
}

// begin has nodes come.
func (f *fleet) begin(ctx context.Context, first, count int) error {
	for i := range count {
		n, calls, err := f.build(first + i)
		if err != nil {
			return err
		}
		alive, kill := context.WithCancel(ctx)
		n.kill, f.nodes[first+i] = kill, n
		after := f.cfg.Join * time.Duration(i) / time.Duration(count)
		f.running.Go(func() {
			defer close(n.ended)
			err := spawn.Sleep(alive, after)
			select {
			case f.coming <- struct{}{}:
				err = n.Run(alive)
				n.line.came() // one that is killed before a server took it frees its place too
			case <-alive.Done():
			}
			err = errors.Join(err, calls.Close())
			f.mu.Lock()
			defer f.mu.Unlock()
			if alive.Err() == nil {
				f.broken = errors.Join(f.broken, err)
			}
		})
	}
	return nil
}

// build makes a node, which dials from an address of its own as hosts do.
func (f *fleet) build(number int) (*node, *rpc.Client, error) {
	ip := net.IPv4(127, byte(64+number>>16), byte(number>>8), byte(number))
	w, err := wire.New(wire.Config{Listener: nobody{}, Dialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: ip}}})
	if err != nil {
		return nil, nil, err
	}
	calls := rpc.NewClient(rpc.ClientConfig{Dial: func(ctx context.Context, addr string) (net.Conn, error) {
		return w.Dial(ctx, addr, wire.ProtoRPC, 0)
	}})
	id := jobs.ID{0: 0x51, 6: 0x40, 8: 0x80} // a version 4 UUID by its looks
	binary.BigEndian.PutUint32(id[12:], uint32(number)+1)
	none := func() string { return "" }
	l := &line{counts: &f.counts, rpc: calls, coming: f.coming, servers: f.cfg.Servers}
	l.at.Store(uint32(number))
	c, err := nodeclient.New(nodeclient.Config{
		Node: nodeclient.Identity{ID: id, Name: fmt.Sprintf("node-%05d", number), Datacenter: f.cfg.Datacenter,
			Pool: "default"},
		Drivers: map[string]driver.Driver{mockdriver.Name: &mockdriver.Driver{Clock: clock.Real{}}},
		Servers: l, RPCAddr: none, HTTPAddr: none,
		Host: fingerprint.Options{Address: ip.String(), TotalCPU: f.cfg.CPU, MemoryMB: f.cfg.MemoryMB,
			DiskMB: f.cfg.DiskMB, MinPort: 20000, MaxPort: 32000}})
	return &node{Client: c, line: l, ended: make(chan struct{})}, calls, err
}

// nobody is a listener to which nobody comes: the wire is for dialling alone.
type nobody struct{ net.Listener }
