package group

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
)

// gossip drives the Membership of whoever leads with what a test says.
type gossip struct {
	t     testing.TB
	nodes []*node
	of    map[*Group]*Membership
}

func newGossip(t testing.TB, nodes []*node) *gossip {
	return &gossip{t, nodes, map[*Group]*Membership{}}
}

// say lets the leader look n times at what gossip says.
func (g *gossip) say(n int, list ...Suggestion) {
	g.t.Helper()
	l := leader(g.t, g.nodes)
	m := g.of[l.Group]
	if m == nil {
		m = NewMembership(l.Group, func() time.Duration { return 50 * time.Millisecond })
		g.of[l.Group] = m
	}
	for range n {
		wait := m.Reconcile(g.t.Context(), list)
		select {
		case <-time.After(min(max(wait, time.Millisecond), 100*time.Millisecond)):
		case <-g.t.Context().Done():
		}
	}
}

// members returns who is in the group, and the index of the last change of that.
func (g *gossip) members() (list []Server, last uint64) {
	g.t.Helper()
	polltest.NoError(g.t, polltest.Deadline, func() (err error) {
		l := leader(g.t, g.nodes)
		list, last, err = l.Configuration()
		return err
	}, "the configuration")
	return list, last
}

func alive(nodes ...*node) (list []Suggestion) {
	for _, n := range nodes {
		list = append(list, Suggestion{ID: n.id, Address: n.addr})
	}
	return list
}

// impostor is a listener that states any id, as a process without a certificate may on a cluster without TLS.
func impostor(t testing.TB, id string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); Answer(l, func() Statement { return Statement{ID: id} }) }()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

func votersOf(list []Server) (ids []string) {
	for _, s := range list {
		if s.Voter {
			ids = append(ids, s.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// TestGossipMovesNoMember: whatever gossip claims about members that answer where they are, the group and its log stay
// as they are.
func TestGossipMovesNoMember(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 3, nil)
	l := leader(t, nodes)
	victim := others(nodes, l)[0]
	_, before := newGossip(t, nodes).members()
	nowhere := "127.0.0.1:1"
	for name, claims := range map[string][]Suggestion{
		"a stranger at a member's address":          {{ID: "stranger", Address: victim.addr}},
		"a stranger at the leader's address":        {{ID: "stranger", Address: l.addr}},
		"a member somewhere else":                   {{ID: victim.id, Address: impostor(t, victim.id)}},
		"a member where nobody is":                  {{ID: victim.id, Address: nowhere}},
		"a member left":                             {{ID: victim.id, Address: victim.addr, Gone: true}},
		"a member left from somewhere else":         {{ID: victim.id, Address: nowhere, Gone: true}},
		"a stranger that does not answer":           {{ID: "stranger", Address: nowhere}},
		"somebody else answers for a stranger":      {{ID: "stranger", Address: impostor(t, "another")}},
		"a member at another member's address":      {{ID: victim.id, Address: l.addr}},
		"no id":                                     {{ID: "", Address: impostor(t, "")}},
		"the leader, gone":                          {{ID: l.id, Address: l.addr, Gone: true}},
		"a server of another datacenter that joins": {{ID: "stranger", Address: impostorOf(t, "stranger", "dc2")}},
	} {
		g := newGossip(t, nodes)
		g.say(4, append(alive(nodes...), claims...)...)
		if list, last := g.members(); last != before || len(list) != 3 || len(votersOf(list)) != 3 {
			t.Errorf("%s: the members are %v, as of %d, want three, as of %d", name, list, last, before)
		}
	}
	insist(t, nodes, "still writes")
}

func impostorOf(t testing.TB, id, dc string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); Answer(l, func() Statement { return Statement{ID: id, Datacenter: dc} }) }()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

// TestRebuiltHostSettles: a server came back with nothing, so as somebody new, at the address that it had. Gossip
// calls both alive for as long as it likes; the one that answers is the member, after two changes and, when it has a
// vote, a third, and no more.
func TestRebuiltHostSettles(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 3, nil)
	l := leader(t, nodes)
	old := others(nodes, l)[0]
	old.stop()
	rebuilt := &node{t: t, id: "rebuilt", addr: old.addr, dir: t.TempDir(), fs: old.fs, log: &syncBuffer{}}
	rebuilt.start()
	t.Cleanup(rebuilt.stop)
	now := append(others(nodes, old), rebuilt)
	g := newGossip(t, now)
	claims := append(alive(nodes...), alive(rebuilt)...)
	polltest.Until(t, func() bool {
		g.say(1, claims...)
		list, _ := g.members()
		return slices.Contains(list, Server{ID: rebuilt.id, Address: rebuilt.addr})
	}, "the rebuilt server to join")
	_, settled := g.members()
	g.say(30, claims...)
	list, last := g.members()
	if slices.Contains(list, Server{ID: rebuilt.id, Address: rebuilt.addr, Voter: true}) { // one more change, its last
		settled = last
		g.say(30, claims...)
		list, last = g.members()
	}
	if last != settled || len(list) != 3 ||
		slices.ContainsFunc(list, func(s Server) bool { return s.ID == old.id }) {
		t.Fatalf("the members are %v, as of %d; they had settled at %d", list, last, settled)
	}
	insist(t, now, "written")
	polltest.Until(t, func() bool { return rebuilt.machine.has("written") }, "the rebuilt server to have the log")
}

// TestLeavingServerSaysSo: the leader removes a voter that states that it leaves, and keeps one that gossip calls
// gone and that does not answer: autopilot removes it when there is a replacement.
func TestLeavingServerSaysSo(t *testing.T) {
	t.Parallel()
	leaving := make(chan struct{})
	nodes := cluster(t, 4, func(_ int, n *node) {
		n.adjust = func(c *Config) {
			c.Statement = func() (s Statement) {
				select {
				case <-leaving:
					s.Leaving = n.id == "n3"
				default:
				}
				return s
			}
		}
	})
	g := newGossip(t, nodes)
	l := leader(t, nodes)
	if l.id == "n3" {
		if err := l.TransferLeadership(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
	}
	polltest.Until(t, func() bool { l = leader(t, nodes); return l.id != "n3" }, "another leader")
	gone := func(n *node) Suggestion { return Suggestion{ID: n.id, Address: n.addr, Gone: true} }
	g.say(4, gone(nodes[3]))
	if list, _ := g.members(); len(votersOf(list)) != 4 {
		t.Fatalf("a server that does not say that it leaves was removed: %v", list)
	}
	close(leaving)
	polltest.Until(t, func() bool {
		g.say(1, gone(nodes[3]))
		list, _ := g.members()
		return len(list) == 3
	}, "the leaving server to be removed")
	l = leader(t, nodes[:3])
	dead := others(nodes[:3], l)[0]
	dead.stop()
	g.say(6, gone(dead))
	if list, _ := g.members(); len(votersOf(list)) != 3 {
		t.Fatalf("a voter that does not answer was removed on gossip's word: %v", list)
	}
	g.nodes = others(nodes[:3], dead)
	insist(t, g.nodes, "two of three write")
}

// TestMovedServer: a member that answers at its new address, and at its old one no more, keeps its vote.
func TestMovedServer(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 3, nil)
	l := leader(t, nodes)
	moved := others(nodes, l)[0]
	moved.stop()
	moved.addr = "127.0.0.1:0"
	moved.start()
	g := newGossip(t, nodes)
	want := Server{ID: moved.id, Address: moved.addr, Voter: true}
	polltest.Until(t, func() bool {
		g.say(1, alive(nodes...)...)
		list, _ := g.members()
		return slices.Contains(list, want)
	}, "the member to have its new address")
	insist(t, nodes, "written")
	polltest.Until(t, func() bool { return moved.machine.has("written") }, "the moved member to follow")
}

// TestAskIsNoLostLeader: who is asked does not take the end of the question for the end of its leader.
func TestAskIsNoLostLeader(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 3, nil)
	l := leader(t, nodes)
	term := l.Term()
	for range 50 {
		for _, n := range nodes {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if s, err := l.Ask(ctx, n.addr); err != nil || s.ID != n.id {
				t.Fatalf("%s states %+v, %v", n.id, s, err)
			}
			cancel()
		}
	}
	if l.Term() != term || !l.LeaseHeld() {
		t.Fatal("the questions moved the leadership")
	}
}

// TestSpared: three voters stay three when one is frozen, until a replacement votes.
func TestSpared(t *testing.T) {
	for _, c := range []struct {
		voters, healthy, min int
		want                 bool
	}{
		{3, 3, 0, false}, {3, 2, 0, false}, {4, 3, 0, true}, {4, 2, 0, false}, {4, 4, 0, false}, {4, 3, 4, false},
		{4, 3, 3, true},
		{5, 4, 0, false}, {5, 3, 0, false}, {6, 5, 0, true}, {6, 4, 0, true}, {6, 3, 0, false}, {2, 1, 0, false},
		{1, 0, 0, false}, {7, 6, 0, false},
	} {
		if got := spared(c.voters, c.healthy, c.min); got != c.want {
			t.Errorf("%d voters, %d healthy, at least %d: %v, want %v", c.voters, c.healthy, c.min, got, c.want)
		}
	}
}
