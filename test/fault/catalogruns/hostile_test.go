package catalogruns

import (
	"testing"
	"time"
)

// TestHostileMembers is A13 in short: each kind of lie once.
func TestHostileMembers(t *testing.T) {
	t.Parallel()
	report, err := RunHostile(t.Context(), lab, Hostile{Schedules: len(hostileKinds), Each: 2 * time.Second}, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", report)
}

// TestFrozenServers is the quorum's part of A14 in short: one of three freezes for longer than autopilot and gossip
// wait, and another one while it is frozen.
func TestFrozenServers(t *testing.T) {
	t.Parallel()
	report, err := RunFrozen(t.Context(), lab, Frozen{Rounds: 2, Least: 16 * time.Second, Most: 16 * time.Second}, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", report)
}
