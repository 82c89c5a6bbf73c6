package group

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/vfs"
)

// simulated is a group of three for a synctest bubble: network, disks and time are simulated, all else is as it is
// served.
type simulated struct {
	t        *testing.T
	net      *wire.Memory
	trailing int
	nodes    []*simNode

	mu    sync.Mutex
	acked []string
}

type simNode struct {
	*Group
	s       *simulated
	id      string
	disk    *vfs.Mem
	rules   []vfs.Rule // what breaks of the disk
	machine *machine
	boot    []Server
	meddle  func(stop <-chan struct{}, in <-chan raft.RPC, out chan<- raft.RPC)
	end     func() // nil while it does not run
	log     *syncBuffer
}

func (n *simNode) addr() string { return n.id + ":1" }

// simulate makes the members on copies of disks, or on empty ones.
func simulate(t *testing.T, trailing int, disks []*vfs.Mem) *simulated {
	s := &simulated{t: t, net: wire.NewMemory(), trailing: trailing}
	var boot []Server
	for i := range 3 {
		n := &simNode{s: s, id: fmt.Sprint("n", i), disk: vfs.NewMem(), log: &syncBuffer{}}
		if disks != nil {
			n.disk = disks[i].Crash(rand.New(rand.NewPCG(0, 0))) // all is synced: a copy
		}
		boot = append(boot, Server{ID: n.id, Address: n.addr(), Voter: true})
		s.nodes = append(s.nodes, n)
	}
	for _, n := range s.nodes {
		n.boot = boot
	}
	s.heal()
	return s
}

// heal lets everything pass, within a millisecond: without a delay an endless loop would need no time.
func (s *simulated) heal() {
	s.net.HealAll()
	for _, n := range s.nodes {
		for _, m := range s.nodes {
			s.net.Delay(n.id, m.id, time.Millisecond)
		}
	}
}

func (n *simNode) start() error {
	l, err := n.s.net.Host(n.id).Listen(n.addr())
	if err != nil {
		return err
	}
	n.machine = &machine{}
	disk := vfs.NewFaulty(n.disk)
	for _, r := range n.rules {
		disk.Inject(r)
	}
	cfg := Config{Name: "test", Dir: "/data", FS: disk, LocalID: n.id, LocalAddr: n.addr(), Listener: l,
		Machine: n.machine, Bootstrap: n.boot,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return n.s.net.Host(n.id).DialContext(ctx, "", addr)
		},
		Compaction: Compaction{TrailingLogs: uint64(n.s.trailing), SnapshotInterval: time.Hour},
		noTrailing: n.s.trailing == 0, SegmentBytes: 1 << 14, ScrubInterval: -1,
		meddle: n.meddle, Log: slog.New(slog.NewTextHandler(n.log, nil))}
	n.Group, err = Open(cfg)
	if err != nil {
		_ = l.Close()
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = n.Run(ctx) }()
	n.end = func() { cancel(); <-done; n.end = nil }
	return nil
}

func (s *simulated) start(nodes ...*simNode) {
	s.t.Helper()
	for _, n := range nodes {
		if err := n.start(); err != nil {
			s.t.Fatalf("%s does not start: %v", n.id, err)
		}
	}
}

func (s *simulated) stop() {
	for _, n := range s.nodes {
		if n.end != nil {
			n.end()
		}
	}
}

// crash ends a member as a power loss does, in the middle of whatever it does.
func (n *simNode) crash(rng *rand.Rand) {
	if n.end == nil {
		return
	}
	n.s.cut(n)
	left := n.disk.Crash(rng)
	n.end()
	n.disk = left
	n.s.heal()
}

// cut lets nothing pass between a member and the others.
func (s *simulated) cut(n *simNode) {
	for _, m := range s.nodes {
		if m != n {
			s.net.Cut(n.id, m.id)
			s.net.Cut(m.id, n.id)
		}
	}
}

// pause lets simulated time pass.
func pause(d time.Duration) { <-time.After(d) }

// until waits in simulated time.
func (s *simulated) until(limit time.Duration, cond func() bool, what string) {
	s.t.Helper()
	for began := time.Now(); !cond(); pause(5 * time.Millisecond) {
		if time.Since(began) > limit {
			s.t.Fatalf("after %v: still waiting for %s", limit, what)
		}
	}
}

// leader is the one of the newest term: who tried to give its place away has no lease for the rest of its term.
func (s *simulated) leader() *simNode {
	var found *simNode
	for _, n := range s.nodes {
		if n.end != nil && n.IsLeader() && (found == nil || n.Term() > found.Term()) {
			found = n
		}
	}
	return found
}

// write proposes one command wherever the leader is; what is acknowledged must stay. It goes past the batcher,
// whose waiters are used again by tests outside of the bubble.
func (s *simulated) write(cmd string) bool {
	l := s.leader()
	if l == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	in := l.current.Load()
	if in == nil || in.await(ctx, in.raft.Apply(entryOf(cmd), 0)) != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acked = append(s.acked, cmd)
	return true
}

func entryOf(cmd string) []byte { return appendCommand(beginEntry(nil, 1), []byte(cmd)) }

// count is how many writes were acknowledged.
func (s *simulated) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.acked)
}

// complete reports whether a member has everything that was acknowledged, or the first of it.
func (s *simulated) complete(n *simNode, first ...int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.end == nil {
		return false
	}
	have := map[string]bool{}
	for _, cmd := range n.machine.list() {
		have[cmd] = true
	}
	for _, cmd := range s.acked[:append(first, len(s.acked))[0]] {
		if !have[cmd] {
			return false
		}
	}
	return true
}

// files counts a member's finished snapshots.
func (n *simNode) files() int {
	entries, _ := n.disk.ReadDir("/data/snapshots")
	count := 0
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".state") || strings.HasSuffix(e.Name(), ".state"+vfs.TempSuffix) {
			count++
		}
	}
	return count
}
