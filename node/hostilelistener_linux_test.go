package node

import (
	"net"
	"os"
	"testing"

	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/loud"
)

// TestAnotherUserIsNoMember: on a plain loopback cluster a process of another user that listens and states an id
// becomes no member: the leader sees whose listener it is, and does not take its word.
func TestAnotherUserIsNoMember(t *testing.T) {
	if os.Geteuid() != 0 {
		loud.Skip(t, "only root can be another user")
	}
	servers := startCluster(t, 1, quickPilot)
	keepMembers(t, servers)
	l := listenAs(t, nobodyUID)
	const id = "00000000-0000-4000-8000-000000000001"
	done := make(chan struct{})
	go func() {
		defer close(done)
		group.Answer(l, func() group.Statement { return group.Statement{ID: id, Datacenter: "dc1"} })
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	gossips(t, "another", servers[0], map[string]string{"id": id, "port": port})
	for range 3 {
		if s, err := servers[0].raft.Raft.Load().Ask(t.Context(), l.Addr().String()); !errkind.Is(err, errkind.Denied) {
			t.Fatalf("a process of another user was asked and believed: %+v, %v", s, err)
		}
	}
}
