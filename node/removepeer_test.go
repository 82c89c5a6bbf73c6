package node

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/node/raftgroup"
)

// in reports whether a server is a member of a group, as a member of it sees it.
func in(p *raftgroup.Group, id string) bool {
	g := p.Raft.Load()
	if g == nil {
		return false
	}
	list, _, err := g.Configuration()
	return err == nil && slices.ContainsFunc(list, func(s group.Server) bool { return s.ID == id })
}

// apart waits until both groups have three voters, and puts their leaders on different servers.
func apart(t *testing.T, servers []*testMember) (catalog, monitor *testMember) {
	t.Helper()
	leads := func(plane func(*testMember) *raftgroup.Group) (leader *testMember) {
		polltest.Until(t, func() bool {
			leader = nil
			for _, m := range servers {
				if p := plane(m); p.LeaseHeld() {
					leader = m
					list, _, err := p.Raft.Load().Configuration()
					return err == nil && len(list) == len(servers) &&
						!slices.ContainsFunc(list, func(s group.Server) bool { return !s.Voter })
				}
			}
			return false
		}, "a leader of all")
		return leader
	}
	ofMonitor := func(m *testMember) *raftgroup.Group { return m.monitor().Group.Raft }
	catalog = leads(func(m *testMember) *raftgroup.Group { return m.raft })
	if monitor = leads(ofMonitor); monitor == catalog {
		if err := monitor.monitor().Group.Raft.Raft.Load().TransferLeadership(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		polltest.Until(t, func() bool { monitor = leads(ofMonitor); return monitor != catalog },
			"another leader of the monitor's group")
	}
	return catalog, monitor
}

// TestRemovePeerOfAllGroups: one command takes a server out of the groups of all planes, whoever leads them; so does
// force-leave of one that is gone. Repeated, it says that nobody has the server any more.
func TestRemovePeerOfAllGroups(t *testing.T) {
	t.Parallel()
	servers := startCluster(t, 3, monitorOn+aclOff)
	catalog, monitor := apart(t, servers)
	gone := servers[slices.IndexFunc(servers, func(m *testMember) bool { return m != catalog && m != monitor })]
	id, rpc := gone.ID, gone.RPCAddr()
	if err := gone.stop(); err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, func() bool {
		m, _ := catalog.sees(gone.Cfg.Node.Name)
		return m.Status == member.Failed
	}, "the server to be missed")
	if !in(catalog.raft, id) || !in(monitor.monitor().Group.Raft, id) {
		t.Fatal("it was taken out before anybody asked for it")
	}
	monitor.awaitAsk("DELETE", "/v1/operator/raft/peer?address="+rpc, "", http.StatusOK, "")
	for _, m := range []*testMember{catalog, monitor} {
		polltest.Until(t, func() bool { return !in(m.raft, id) && !in(m.monitor().Group.Raft, id) },
			"%s to see it out of both groups", m.Cfg.Node.Name)
	}
	for _, m := range []*testMember{catalog, monitor} {
		if code, text := m.ask("DELETE", "/v1/operator/raft/peer?id="+id, ""); code != http.StatusInternalServerError ||
			!strings.Contains(text, "not found in the Raft configuration") {
			t.Errorf("again: %d %q", code, text)
		}
	}
}

func TestForceLeaveRemovesThePeer(t *testing.T) {
	t.Parallel()
	servers := startCluster(t, 3, monitorOn+aclOff)
	catalog, monitor := apart(t, servers)
	gone := servers[slices.IndexFunc(servers, func(m *testMember) bool { return m != catalog && m != monitor })]
	if err := gone.stop(); err != nil {
		t.Fatal(err)
	}
	name := gone.Cfg.Node.Name
	for _, m := range []*testMember{catalog, monitor} {
		polltest.Until(t, func() bool { m, _ := m.sees(name); return m.Status == member.Failed }, "the server to be missed")
	}
	for range 2 { // repeated, it is as well
		if code, text := monitor.ask("PUT", fmt.Sprintf("/v1/agent/force-leave/%s", name), ""); code != http.StatusOK {
			t.Fatalf("force-leave: %d %q", code, text)
		}
	}
	if in(catalog.raft, gone.ID) || in(monitor.monitor().Group.Raft, gone.ID) {
		t.Fatal("the server is still in a group")
	}
	// One that is there stays, whatever an operator types.
	if code, text := monitor.ask("PUT", "/v1/agent/force-leave/"+catalog.Cfg.Node.Name, ""); code != http.StatusOK {
		t.Fatalf("force-leave of a living server: %d %q", code, text)
	}
	if !in(catalog.raft, catalog.ID) {
		t.Fatal("a living server was taken out")
	}
}
