package group

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corbel.dev/corbel/core/group/raftdisk"
	"corbel.dev/corbel/core/logstore"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/polltest"
)

// rot inverts a bit of a file in place.
func rot(t *testing.T, pattern string, offset int64) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) != 1 {
		t.Fatalf("%s: %v %v", pattern, files, err)
	}
	f, err := os.OpenFile(files[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], offset); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 4
	if _, err := f.WriteAt(b[:], offset); err != nil {
		t.Fatal(err)
	}
}

func scrubOften(_ int, n *node) {
	n.adjust = func(c *Config) { c.ScrubInterval = 20 * time.Millisecond }
}

// TestScrubFindsARottenLog: nobody reads the damaged record but the scrub, and the member fetches its log anew.
func TestScrubFindsARottenLog(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 3, scrubOften)
	l := leader(t, nodes)
	f := others(nodes, l)[0]
	for i := range 20 {
		propose(t, l, fmt.Sprint("cmd-", i))
	}
	polltest.Until(t, func() bool { return f.machine.has("cmd-19") }, "the follower to have all")
	rot(t, filepath.Join(f.dir, "log", "*.seg"), 400)
	polltest.Until(t, func() bool { return strings.Contains(f.log.String(), "moved aside") }, "the damage to be found")
	insist(t, nodes, "after")
	polltest.Until(t, func() bool {
		_, err := os.Stat(filepath.Join(f.dir, raftdisk.RebuildName))
		return f.machine.has("after") && os.IsNotExist(err)
	}, "the rebuilt member to vote again")
	if got := len(f.machine.list()); got != 21 {
		t.Errorf("the rebuilt member's state has %d commands, want 21", got)
	}
}

// TestScrubReplacesARottenSnapshot: the state in memory takes the damaged one's place, and a restart finds it.
func TestScrubReplacesARottenSnapshot(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 1, func(i int, n *node) {
		n.adjust = func(c *Config) { c.ScrubInterval, c.TrailingLogs = 20*time.Millisecond, 1 }
	})
	n := leader(t, nodes)
	for i := range 20 {
		propose(t, n, fmt.Sprint("cmd-", i))
	}
	if err := n.SnapshotNow(t.Context()); err != nil {
		t.Fatal(err)
	}
	propose(t, n, "newer") // else there is nothing new to snapshot
	rot(t, filepath.Join(n.dir, "snapshots", "*.state"), 30)
	polltest.Until(t, func() bool {
		fresh, _ := filepath.Glob(filepath.Join(n.dir, "snapshots", "*.meta"))
		return strings.Contains(n.log.String(), "a snapshot is corrupt") && len(fresh) == 1
	}, "another snapshot")
	n.stop()
	n.start()
	leader(t, nodes)
	if got := len(n.machine.list()); got != 21 {
		t.Errorf("after a restart the machine has %d commands, want 21", got)
	}
}

// TestLeaderReplacesASnapshotThatItCannotSend: a member that is far behind is helped although the leader's only
// snapshot is damaged.
func TestLeaderReplacesASnapshotThatItCannotSend(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 3, func(_ int, n *node) { n.adjust = func(c *Config) { c.TrailingLogs = 1 } })
	l := leader(t, nodes)
	f := others(nodes, l)[0]
	propose(t, l, "first")
	polltest.Until(t, func() bool { return f.machine.has("first") }, "the follower to follow")
	f.stop()
	for i := range 50 {
		propose(t, l, fmt.Sprint("cmd-", i))
	}
	if err := l.SnapshotNow(t.Context()); err != nil {
		t.Fatal(err)
	}
	rot(t, filepath.Join(l.dir, "snapshots", "*.state"), 30)
	f.start()
	polltest.Until(t, func() bool { return f.machine.has("cmd-49") }, "the follower to be helped")
}

// TestDamagedSnapshotWithAnEmptyLog: what a server alone had is gone then, and it must not begin anew in silence.
func TestDamagedSnapshotWithAnEmptyLog(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 1, nil)
	n := leader(t, nodes)
	propose(t, n, "a")
	var saved bytes.Buffer
	if err := n.Save(t.Context(), &saved); err != nil {
		t.Fatal(err)
	}
	if err := n.SnapshotNow(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.stop()
	rot(t, filepath.Join(n.dir, "snapshots", "*.state"), 30)
	disk, err := logstore.Open(logstore.Config{Group: "test", Dir: filepath.Join(n.dir, "log")})
	if err != nil {
		t.Fatal(err)
	}
	first, _ := disk.FirstIndex()
	last, _ := disk.LastIndex()
	if err := errors.Join(disk.DeleteRange(first, last), disk.Close()); err != nil {
		t.Fatal(err)
	}
	if err := n.tryStart(); !errkind.Is(err, errkind.Corrupt) {
		t.Errorf("it started: %v", err)
	}
	n.Group = nil
}

// TestScrubOfAServerAlone: there is nobody to fetch from, so it says so and goes on.
func TestScrubOfAServerAlone(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 1, scrubOften)
	n := leader(t, nodes)
	for i := range 20 {
		propose(t, n, fmt.Sprint("cmd-", i))
	}
	rot(t, filepath.Join(n.dir, "log", "*.seg"), 400)
	polltest.Until(t, func() bool { return strings.Contains(n.log.String(), "save a snapshot now") },
		"the damage to be told")
	propose(t, n, "still here")
}
