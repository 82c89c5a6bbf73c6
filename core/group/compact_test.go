package group

import (
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/kit/polltest"
)

// A log that grows by bytes is compacted long before its entries are many, on a follower too, and never shorter than
// the state.
func TestCompactionByBytes(t *testing.T) {
	nodes := cluster(t, 2, func(_ int, n *node) {
		n.adjust = func(c *Config) { c.SnapshotBytes, c.SnapshotInterval = 64<<10, time.Hour }
	})
	l := leader(t, nodes)
	for range 8 {
		propose(t, l, strings.Repeat("x", 4<<10))
	}
	for _, n := range nodes {
		if got := n.Stats()["last_snapshot_index"]; got != "0" {
			t.Fatalf("%s has a snapshot of index %s after 32 KiB", n.id, got)
		}
	}
	for range 12 {
		propose(t, l, strings.Repeat("x", 4<<10))
	}
	for _, n := range nodes {
		polltest.Until(t, func() bool { return n.Stats()["last_snapshot_index"] != "0" }, "a snapshot of %s", n.id)
	}
	if most := (compactor{l.current.Load()}).most(); most < 64<<10 {
		t.Fatalf("the next snapshot comes after %d bytes", most)
	}
	l.stop()
	l.start()
	polltest.Until(t, func() bool { return len(l.machine.list()) == 20 }, "everything after a start")
}
