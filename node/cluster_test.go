package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"corbel.dev/corbel/kit/polltest"
	catalogplane "corbel.dev/corbel/node/planes/catalog"
)

const aclOff = `acl { enabled = false }
`

type pilotJSON struct {
	CleanupDeadServers       bool
	MaxTrailingLogs          int
	CreateIndex, ModifyIndex uint64
}

func (m *testMember) pilot(query string) pilotJSON {
	m.t.Helper()
	var c pilotJSON
	m.awaitAsk("GET", "/v1/operator/autopilot/configuration"+query, "", http.StatusOK, "CleanupDeadServers")
	_, body := m.ask("GET", "/v1/operator/autopilot/configuration"+query, "")
	if err := json.Unmarshal([]byte(body), &c); err != nil {
		m.t.Fatalf("%v: %s", err, body)
	}
	return c
}

// TestClusterAutopilotConfiguration: what is set over the API at any server holds at all, has
// indexes, is compared by them, and is what the next leader goes by.
func TestClusterAutopilotConfiguration(t *testing.T) {
	servers := startCluster(t, 3, aclOff)
	leader, others := leaderOf(t, servers)
	if c := others[0].pilot(""); !c.CleanupDeadServers || c.MaxTrailingLogs != 250 || c.ModifyIndex != 0 {
		t.Errorf("before anybody set it: %+v", c)
	}
	set := func(m *testMember, cas string, trailing int) string {
		t.Helper()
		code, body := m.ask("PUT", "/v1/operator/autopilot/configuration"+cas,
			fmt.Sprintf(`{"CleanupDeadServers":false,"MaxTrailingLogs":%d,"LastContactThreshold":"5s",`+
				`"ServerStabilizationTime":"1s"}`, trailing))
		if code != http.StatusOK {
			t.Fatalf("set: %d %q", code, body)
		}
		return strings.TrimSpace(body)
	}
	set(others[0], "", 300)
	first := leader.pilot("")
	if first.MaxTrailingLogs != 300 || first.CleanupDeadServers || first.CreateIndex == 0 ||
		first.ModifyIndex != first.CreateIndex {
		t.Fatalf("after the first set: %+v", first)
	}
	if got := set(others[1], fmt.Sprintf("?cas=%d", first.ModifyIndex-1), 400); got != "false" {
		t.Errorf("a set with an old index: %q", got)
	}
	if got := set(others[1], fmt.Sprintf("?cas=%d", first.ModifyIndex), 500); got != "true" {
		t.Errorf("a set with the right index: %q", got)
	}
	if code, body := leader.ask("PUT", "/v1/operator/autopilot/configuration",
		`{"LastContactThreshold":"-1s"}`); code != http.StatusBadRequest {
		t.Errorf("a wrong configuration: %d %q", code, body)
	}
	for _, m := range servers {
		polltest.Until(t, func() bool { return m.raft.Pilot.Load().Config().MaxTrailingLogs == 500 }, "%s to go by it",
			m.Cfg.Node.Name)
	}
	if c := others[0].pilot("?stale"); c.MaxTrailingLogs != 500 || c.CreateIndex != first.CreateIndex ||
		c.ModifyIndex <= first.ModifyIndex {
		t.Errorf("a follower's own answer: %+v", c)
	}
	if err := leader.stop(); err != nil {
		t.Errorf("the leader's end: %v", err)
	}
	next, _ := leaderOf(t, others)
	if c := next.raft.Pilot.Load().Config(); c.MaxTrailingLogs != 500 || c.CleanupDeadServers {
		t.Errorf("the next leader goes by %+v", c)
	}
	next.awaitAsk("GET", "/v1/operator/autopilot/state", "", http.StatusOK, `"NodeType":"voter"`)
}

// TestClusterForwards: every server answers for the whole cluster, also while the leader changes.
func TestClusterForwards(t *testing.T) {
	servers := startCluster(t, 3, aclOff)
	leader, others := leaderOf(t, servers)
	if code, body := others[0].ask("PUT", "/v1/kv/a", "one"); code != http.StatusOK || strings.TrimSpace(body) != "true" {
		t.Fatalf("a write at a follower: %d %q", code, body)
	}
	if code, body := others[1].ask("GET", "/v1/kv/a?raw&consistent", ""); code != http.StatusOK || body != "one" {
		t.Fatalf("a consistent read at the other one: %d %q", code, body)
	}
	// Writes at all three while leadership is handed over: none is refused, though no client tries again.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failures := make(chan string, 100)
	counts := make(chan int, len(servers))
	for i, m := range servers {
		go func() {
			n := 0
			defer func() { counts <- n }()
			for ; ctx.Err() == nil; n++ {
				if code, body := m.ask("PUT", fmt.Sprintf("/v1/kv/w%d", i), fmt.Sprint(n)); code != http.StatusOK {
					select {
					case failures <- fmt.Sprintf("write %d at %s: %d %q", n, m.Cfg.Node.Name, code, body):
					default:
					}
				}
			}
		}()
	}
	for range 3 {
		old := leader
		if code, body := others[0].ask("POST", "/v1/operator/raft/transfer-leader", ""); code != http.StatusOK {
			t.Errorf("transfer: %d %q", code, body)
			break
		}
		polltest.Until(t, func() bool { return !old.raft.IsLeader() }, "the leader to have handed over")
		leader, others = leaderOf(t, servers)
	}
	cancel()
	for range servers {
		if n := <-counts; n == 0 {
			t.Error("a client wrote nothing")
		}
	}
	close(failures)
	for f := range failures {
		t.Error(f)
	}
	// A server that leaves on request hands over, is taken out of the group, and ends in order.
	if code, body := leader.ask("PUT", "/v1/agent/leave", ""); code != http.StatusOK {
		t.Fatalf("leave: %d %q", code, body)
	}
	if err := <-leader.done; err != nil {
		t.Errorf("the leaving server's end: %v", err)
	}
	close(leader.done)
	next, _ := leaderOf(t, others)
	polltest.Until(t, func() bool { return len(catalogplane.Operator{Raft: next.raft}.Peers()) == 2 },
		"the group to have two members")
	next.awaitAsk("PUT", "/v1/kv/after", "x", http.StatusOK, "true") // on a host that is busy the two may elect once more
}

// TestNoQuorumRefusesAtOnce: a cluster that never had a leader, or has long lost its quorum, does not hold requests.
func TestNoQuorumRefusesAtOnce(t *testing.T) {
	alone := startServer(t, "alone", aclOff+`bootstrap_expect = 3`)
	alone.awaitAsk("PUT", "/v1/kv/a", "x", http.StatusInternalServerError, "No cluster leader")
	if code, body := alone.ask("GET", "/v1/status/leader", ""); code != http.StatusOK || body != `""` {
		t.Errorf("status without a leader: %d %q", code, body)
	}
}

// TestClusterConsistentQueryEndsWithLeadership: a consistent blocking query at the leader gets 500 when leadership
// moves, long before its wait is over.
func TestClusterConsistentQueryEndsWithLeadership(t *testing.T) {
	servers := startCluster(t, 3, aclOff)
	leader, _ := leaderOf(t, servers)
	blocked := make(chan string, 1)
	go func() {
		code, body := leader.ask("GET", "/v1/kv/ready?consistent&wait=10m&index=1000000", "")
		blocked <- fmt.Sprint(code, " ", body)
	}()
	polltest.Until(t, func() bool { return leader.api.Blocking() > 0 }, "the query to park")
	if code, body := leader.ask("POST", "/v1/operator/raft/transfer-leader", ""); code != http.StatusOK {
		t.Fatalf("transfer: %d %q", code, body)
	}
	if got := <-blocked; got != "500 No cluster leader" {
		t.Errorf("the parked query got %q", got)
	}
}
