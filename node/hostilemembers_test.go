package node

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/kit/polltest"
)

// gossiper is a process that has no certificate, key or token and says in the gossip pool what it likes.
type gossiper struct {
	*member.Pool
	tags map[string]string
}

// gossips joins the pool of the servers under a name, with the tags of one of them and others over them.
func gossips(t testing.TB, name string, of *testMember, over map[string]string) *gossiper {
	t.Helper()
	m, ok := of.sees(of.Cfg.Node.Name)
	if !ok {
		t.Fatal("a server does not know itself")
	}
	g := &gossiper{tags: maps.Clone(m.Tags)}
	maps.Copy(g.tags, over)
	var err error
	if g.Pool, err = member.New(member.Config{Name: name, Bind: "127.0.0.1:0", Tags: g.tags,
		Profile: member.Local}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	if _, err := g.Join(t.Context(), []string{of.gossip}); err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, func() bool { _, ok := of.sees(name); return ok }, "%s to be in the pool", name)
	return g
}

// members returns the members of the catalog's group as a server sees them: none before it has opened the group.
func (m *testMember) members() []group.Server {
	g := m.raft.Raft.Load()
	if g == nil {
		return nil
	}
	list, _, err := g.Configuration()
	if err != nil {
		return nil
	}
	slices.SortFunc(list, func(a, b group.Server) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// keepMembers fails the test when the members of the group are, at any moment until it ends, others than now.
func keepMembers(t *testing.T, servers []*testMember) {
	var want []group.Server
	polltest.Within(t, time.Minute, func() bool {
		l, _ := leaderOf(t, servers)
		want = l.members()
		return len(want) == len(servers) && !slices.ContainsFunc(want, func(s group.Server) bool { return !s.Voter })
	}, "%d voters", len(servers))
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			for _, m := range servers {
				if got := m.members(); got != nil && !slices.Equal(got, want) {
					t.Errorf("for %s the members are %v; they were %v", m.Cfg.Node.Name, got, want)
					return
				}
			}
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	}()
	t.Cleanup(func() { close(done); <-stopped })
}

const quickPilot = aclOff + `autopilot { server_stabilization_time = "500ms" }
`

// TestHostileGossip: two processes without certificate, key or token claim the followers' addresses and ids by
// gossip, and come and go. Nobody loses a vote, the members stay who they are, and the log does not grow.
func TestHostileGossip(t *testing.T) {
	servers := startCluster(t, 3, quickPilot)
	keepMembers(t, servers)
	_, followers := leaderOf(t, servers)
	port := func(m *testMember) string { return strconv.Itoa(m.RPCPort()) }
	id := func(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", i) }
	// A listener that answers nothing, for claims of a member's id somewhere else.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	_, mute, _ := net.SplitHostPort(silent.Addr().String())
	var liars []*gossiper
	for i, f := range followers {
		liars = append(liars,
			gossips(t, fmt.Sprintf("address%d", i), f, map[string]string{"id": id(i), "port": port(f)}),
			gossips(t, fmt.Sprintf("id%d", i), f, map[string]string{"id": f.ID, "port": mute}),
			gossips(t, fmt.Sprintf("replica%d", i), f, map[string]string{"id": f.ID, "port": port(f), "read_replica": "1"}))
	}
	// They say it again and again, as a new process each time, and some of them leave in the names of others.
	for round := range 4 {
		for i, l := range liars {
			l.tags["round"] = fmt.Sprint(round)
			if err := l.SetTags(t.Context(), l.tags); err != nil {
				t.Fatal(err)
			}
			if round == 2 && i%3 == 1 {
				if err := l.Leave(t.Context()); err != nil {
					t.Fatal(err)
				}
				liars[i] = gossips(t, fmt.Sprintf("again%d", i), followers[i/3], l.tags)
			}
		}
		for _, m := range servers {
			m.awaitAsk("PUT", fmt.Sprintf("/v1/kv/round%d", round), "x", http.StatusOK, "true")
		}
		<-time.After(700 * time.Millisecond) // longer than the stabilisation time
	}
}

// TestStaleGossipAfterAnElection: a new leader whose pool still says that a member left asks the member, and keeps it.
func TestStaleGossipAfterAnElection(t *testing.T) {
	servers := startCluster(t, 3, quickPilot)
	keepMembers(t, servers)
	_, followers := leaderOf(t, servers)
	victim := followers[0]
	// What a pool says of a former process: its id, at its address, gone.
	liar := gossips(t, "former", victim, nil)
	if err := liar.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, m := range servers {
		polltest.Until(t, func() bool { f, ok := m.sees("former"); return ok && f.Status == member.Left },
			"%s to see it left", m.Cfg.Node.Name)
	}
	for range 3 {
		var leader *testMember
		polltest.NoError(t, polltest.Deadline, func() error {
			leader, _ = leaderOf(t, servers) // which may have changed by itself before it is asked
			return leader.raft.Raft.Load().TransferLeadership(t.Context(), "")
		}, "leadership to be handed over")
		polltest.Until(t, func() bool { return !leader.raft.LeaseHeld() }, "the leader to have handed over")
		leaderOf(t, servers)
		<-time.After(time.Second) // the new leader looks at what its pool says
	}
}

// TestStatement: a server that is asked says who it is.
func TestStatement(t *testing.T) {
	servers := startCluster(t, 1, quickPilot)
	s, err := servers[0].raft.Raft.Load().Ask(t.Context(), servers[0].RPCAddr())
	if want := (group.Statement{ID: servers[0].ID, Datacenter: "dc1"}); err != nil || s != want {
		t.Fatalf("it states %+v, %v; want %+v", s, err, want)
	}
}
