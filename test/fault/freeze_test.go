package faultrun

import (
	"testing"
	"time"
)

// TestFreezes: whoever asks a process that runs is answered within seconds, whichever other one is stopped: the leader, a
// follower, a client agent, and one right after the other. The aim is 3 s on a quiet machine; this one may be busy. It was 17 to 28 s.
func TestFreezes(t *testing.T) {
	r, err := lab.RunFreezes(t.Context(), Freezes{Rounds: 6, Least: 4 * time.Second, Most: 8 * time.Second, Limit: 8 * time.Second}, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d reads, %d writes, %d of them of unknown outcome; the slowest took %s: %s", r.Reads, r.Writes, r.Unknown, r.Slowest, r.Slow)
}
