package remote

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/usage/slots"
)

// TestGone: a host that is not in the map any more is forgotten with its connections; one that is there stays.
func TestGone(t *testing.T) {
	var nodes [2]slots.Node
	var open [2]atomic.Int64
	for i := range nodes {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		nodes[i] = slots.Node{ID: string(rune('a' + i)), Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port}
		go func() {
			for {
				nc, err := l.Accept()
				if err != nil {
					return
				}
				open[i].Add(1)
				go func() {
					_, _ = nc.Write([]byte("+OK\r\n+OK\r\n")) // to HELLO and USAGE.REPLICA; then it hangs
					_, _ = io.Copy(io.Discard, nc)
					_ = nc.Close()
					open[i].Add(-1)
				}()
			}
		}()
	}
	var now atomic.Pointer[slots.Map]
	now.Store(slots.Assign(nodes[:], 2))
	c := New(Config{Hosts: now.Load, Timeout: 200 * time.Millisecond, DrainLook: time.Hour, Conns: 1})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	defer func() { cancel(); <-done }()
	if err := c.Set(ctx, Item{Key: "k"}); err == nil { // both are to have it
		t.Error("hosts that hang have answered")
	}
	now.Store(slots.Assign(nodes[:1], 2))
	polltest.Until(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.hosts) == 1 && c.hosts[nodes[0].Addr()] != nil && open[1].Load() == 0
	}, "the host that is gone to be forgotten")
}
