package node

import (
	"context"
	"fmt"
	"testing"
	"time"

	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/kit/polltest"
)

// TestKeysReachAgentsAndServers: a rotation of the gossip key that one server is asked for reaches every member by
// calls, in both pools.
func TestKeysReachAgentsAndServers(t *testing.T) {
	t.Parallel()
	encrypt := fmt.Sprintf("encrypt = %q\nports { serf_wan = 0 }\n", gossipKey(1))
	first := startServer(t, "keys1", aclOff+encrypt+"bootstrap = true")
	second := startServer(t, "keys2", aclOff+encrypt+fmt.Sprintf("retry_join = [%q]", first.gossip))
	join := fmt.Sprintf("encrypt = %q\nretry_join = [%q]", gossipKey(1), first.gossip)
	agent := startMember(t, false, "keysagent", aclOff+join)
	all := []*testMember{first, second, agent}
	for _, m := range all {
		polltest.Until(t, func() bool { return len(m.Pool.Members(member.ActCarryKeys)) == 3 }, "three members")
	}
	polltest.Until(t, func() bool { return len(second.members()) == 2 }, "the second server to know who is one")
	keys := keyrings{lan: second.Pool, wan: second.wan.Pool}
	for _, step := range []struct {
		what string
		do   func(context.Context, string) error
		key  string
	}{{"install", keys.InstallKey, gossipKey(2)}, {"use", keys.UseKey, gossipKey(2)},
		{"remove", keys.RemoveKey, gossipKey(1)}} {
		polltest.NoError(t, time.Minute, func() error { return step.do(t.Context(), step.key) }, "to %s a key", step.what)
	}
	for _, m := range all {
		a, err := m.Pool.LocalKeys()
		if err != nil || len(a.Keys) != 1 || a.PrimaryKeys[gossipKey(2)] != 1 {
			t.Errorf("%s has %d keys, %v", m.Cfg.Node.Name, len(a.Keys), err)
		}
	}
}
