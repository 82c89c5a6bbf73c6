package oidc

import (
	"net/netip"
	"testing"
	"time"
)

// TestPendingLoginsShareTheirRoom: whoever begins logins without end pushes out their own, not those of others.
func TestPendingLoginsShareTheirRoom(t *testing.T) {
	var b Pendings
	now := time.Unix(1000, 0)
	begin := func(from string) string {
		return b.Add(&Pending{From: netip.MustParseAddr(from), At: now})
	}
	honest := []string{begin("10.0.0.1"), begin("10.0.0.2"), begin("2001:db8::1")}
	var flood string
	for i := range 2 * pendingMost {
		flood = begin([]string{"192.0.2.1", "2001:db8:1::1", "2001:db8:1::2", "::ffff:192.0.2.1"}[i%4])
	}
	if b.order.Len() != pendingMost || len(b.kept) != pendingMost || len(b.counts) != 5 {
		t.Errorf("%d logins wait, %d by state, of %d", b.order.Len(), len(b.kept), len(b.counts))
	}
	for _, state := range append(honest, flood) {
		if b.Take(state, now) == nil || b.Take(state, now) != nil {
			t.Errorf("%s is taken once", state)
		}
	}
	old := begin("10.0.0.1")
	now = now.Add(pendingFor)
	if b.Take(old, now) != nil || begin("10.0.0.1") == "" || b.order.Len() != 1 {
		t.Errorf("%d wait after their time", b.order.Len())
	}
}
