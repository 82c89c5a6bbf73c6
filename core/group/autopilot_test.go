package group

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
)

// memberList is a MemberSource that a test edits.
type memberList struct {
	mu   sync.Mutex
	list map[string]ServerInfo
}

func (r *memberList) Servers() []ServerInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []ServerInfo
	for _, s := range r.list {
		out = append(out, s)
	}
	return out
}

func (r *memberList) set(n *node, status MemberStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list[n.id] = ServerInfo{ID: n.id, Name: n.id, Address: n.addr, Status: status}
}

// TestAutopilotPromotesAndCleansUp: a failed voter goes when a replacement has its vote, and not before.
func TestAutopilotPromotesAndCleansUp(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 4, func(i int, n *node) {
		n.boot = n.boot[:3] // the fourth joins later
		if i == 3 {
			n.boot = nil
		}
	})
	first, late := nodes[:3], nodes[3]
	l := leader(t, first)
	known := &memberList{list: map[string]ServerInfo{}}
	for _, n := range nodes {
		known.set(n, MemberAlive)
	}
	cfg := DefaultAutopilotConfig()
	cfg.ServerStabilizationTime = 100 * time.Millisecond
	cfg.LastContactThreshold = 2 * time.Second // a loaded test machine
	a := NewAutopilot(l.Group, known, cfg, nil)
	a.update, a.reconcile = 50*time.Millisecond, 200*time.Millisecond
	if err := a.SetConfig(AutopilotConfig{LastContactThreshold: -1}); !errkind.Is(err, errkind.Invalid) {
		t.Fatalf("a wrong configuration: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = a.Run(ctx) })
	defer func() { cancel(); wg.Wait() }()
	if err := l.AddNonvoter(t.Context(), late.id, late.addr); err != nil {
		t.Fatal(err)
	}
	voters := func() int {
		list, _, err := l.Configuration()
		if err != nil {
			return -1
		}
		n := 0
		for _, s := range list {
			if s.Voter {
				n++
			}
		}
		return n
	}
	polltest.Within(t, 30*time.Second, func() bool { return voters() == 4 }, "the late member to be given its vote")
	polltest.Until(t, func() bool {
		s, ok := a.State()
		return ok && s.Healthy && s.FailureTolerance == 1 && len(s.Servers) == 4
	}, "a healthy state")
	late.stop()
	known.set(late, MemberFailed)
	a.RemoveDeadServers()
	polltest.Within(t, 30*time.Second, func() bool { return voters() == 3 }, "the failed member to be removed")
	// Nobody replaces the next one that fails: it keeps its vote, so that two of three go on and commit as before.
	next := others(first, l)[0]
	next.stop()
	known.set(next, MemberFailed)
	polltest.Until(t, func() bool { s, ok := a.State(); return ok && !s.Healthy && s.FailureTolerance == 0 },
		"the failure to be seen")
	for range 8 {
		a.RemoveDeadServers()
		seen := a.state.Load()
		polltest.Until(t, func() bool { return a.state.Load() != seen }, "another look")
	}
	if voters() != 3 {
		t.Fatalf("%d voters are left, though nobody replaced the failed one", voters())
	}
	propose(t, l, "two of three write")
}

// A replica serves reads: it never gets a vote, and loses one that it was given.
func TestAutopilotReplicas(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 4, nil)
	l := leader(t, nodes)
	known := &memberList{list: map[string]ServerInfo{}}
	for _, n := range nodes {
		known.set(n, MemberAlive)
	}
	replica := others(nodes, l)[0]
	known.list[replica.id] = ServerInfo{ID: replica.id, Name: replica.id, Address: replica.addr, Status: MemberAlive,
		Replica: true}
	cfg := DefaultAutopilotConfig()
	cfg.ServerStabilizationTime = 100 * time.Millisecond
	cfg.LastContactThreshold = 5 * time.Second // a loaded test machine
	a := NewAutopilot(l.Group, known, cfg, nil)
	a.update, a.reconcile = 50*time.Millisecond, 200*time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = a.Run(ctx) })
	defer func() { cancel(); wg.Wait() }()
	votes := func() bool {
		list, _, err := l.Configuration()
		return err == nil && slices.ContainsFunc(list, func(s Server) bool { return s.ID == replica.id && s.Voter })
	}
	polltest.Until(t, func() bool { return !votes() }, "the replica to lose its vote")
	polltest.Until(t, func() bool {
		s, ok := a.State()
		return ok && s.Healthy && s.FailureTolerance == 1 && s.Servers[replica.id].Replica && !s.Servers[replica.id].Voter
	}, "a healthy state of three voters and a replica")
	// Two more rounds of health and reconciliation, and it still has none.
	for range 2 {
		seen := a.state.Load()
		polltest.Until(t, func() bool { return a.state.Load() != seen }, "another look")
	}
	if votes() {
		t.Fatal("the replica got a vote")
	}
}
