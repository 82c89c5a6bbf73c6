package cluster

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/testport"
	"corbel.dev/corbel/secrets/storage/raftstore"
)

// TestLeadershipEndsWithItsTerm: a server that lost the lead and has it again leads no more by what it began with:
// another one may have written in between.
func TestLeadershipEndsWithItsTerm(t *testing.T) {
	ports, err := testport.Free(2)
	if err != nil {
		t.Fatal(err)
	}
	var boot []group.Server
	for i, port := range ports {
		boot = append(boot, group.Server{ID: fmt.Sprint("s", i), Address: fmt.Sprint("127.0.0.1:", port), Voter: true})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var nodes []*Node
	for _, s := range boot {
		l, err := net.Listen("tcp", s.Address)
		if err != nil {
			t.Fatal(err)
		}
		n := &Node{store: raftstore.New(nil), ended: make(chan struct{})}
		g, err := group.Open(group.Config{Name: "secrets", Dir: t.TempDir(), LocalID: s.ID, LocalAddr: s.Address, Listener: l,
			Machine:   n.store,
			Bootstrap: boot, SegmentBytes: 1 << 20, Dial: func(ctx context.Context, addr string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
			}})
		if err != nil {
			t.Fatal(err)
		}
		n.store.Serve(g)
		n.group.Store(g)
		running.Go(func() { _ = g.Run(ctx) })
		nodes = append(nodes, n)
	}
	first := 0
	polltest.Until(t, func() bool {
		for i, n := range nodes {
			if n.group.Load().LeaseHeld() {
				first = i
				return true
			}
		}
		return false
	}, "a leader")
	lead := func(i int) {
		t.Helper()
		polltest.Until(t, func() bool {
			if nodes[i].group.Load().LeaseHeld() {
				return true
			}
			_ = nodes[1-i].group.Load().TransferLeadership(ctx, boot[i].ID) // it is asked again
			return false
		}, "%s to lead", boot[i].ID)
	}
	leadership := &raftLeadership{n: nodes[first], term: nodes[first].group.Load().Term(), done: make(chan struct{})}
	if err := leadership.Held(ctx); err != nil {
		t.Fatalf("a term that has begun: %v", err)
	}
	lead(1 - first)
	if err := leadership.Held(ctx); !errkind.Is(err, errkind.NotLeader) {
		t.Fatalf("while another one leads: %v", err)
	}
	lead(first)
	if err := leadership.Held(ctx); !errkind.Is(err, errkind.NotLeader) {
		t.Fatalf("in a later term: %v", err)
	}
	leadership.watch() // returns at once
}
