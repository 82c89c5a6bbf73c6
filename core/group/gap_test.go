package group

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/core/group/raftdisk"
	"corbel.dev/corbel/core/logstore"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/vfs"
)

// TestEntriesThatNobodyElseHasGiveWay: a former leader's log ends behind the snapshot that it is sent, with entries
// of its own. The installation drops them, and the library would go on as if they were there.
func TestEntriesThatNobodyElseHasGiveWay(t *testing.T) {
	installation{trailing: 1, from: ahead, look: func(t *testing.T, victim *simNode) {
		if !strings.Contains(victim.log.String(), "begins anew with that") {
			t.Error("it did not begin anew")
		}
	}}.run(t)
}

// damagedDisk runs a group whose last member finds the disk that damage leaves.
func damagedDisk(t *testing.T, from start, damage func(t *testing.T, disks []*vfs.Mem),
	look func(t *testing.T, victim *simNode)) {
	base := behindOf(t, 1, from)
	synctest.Test(t, func(t *testing.T) {
		s := simulate(t, 1, base.disks)
		s.acked = base.acked
		victim := s.nodes[2]
		damage(t, []*vfs.Mem{s.nodes[0].disk, s.nodes[1].disk, victim.disk})
		defer func() {
			s.stop()
			if t.Failed() {
				t.Logf("log of %s:\n%s", victim.id, victim.log)
			}
		}()
		s.start(s.nodes...)
		s.until(20*time.Second, func() bool { return s.complete(victim) }, "the member to have all")
		look(t, victim)
	})
}

// TestInstallationThatWasCutOff: the process died when the snapshot was on the disk and the log not yet gone.
func TestInstallationThatWasCutOff(t *testing.T) {
	for _, from := range []start{old, ahead} {
		t.Run(from.String(), func(t *testing.T) {
			damagedDisk(t, from, func(t *testing.T, disks []*vfs.Mem) {
				copyFolder(t, disks[0], disks[2], "/data/snapshots")
			}, func(t *testing.T, victim *simNode) {
				if !strings.Contains(victim.log.String(), "whose installation was interrupted") {
					t.Error("the installation was not completed by the start")
				}
			})
		})
	}
}

// TestGapBehindTheSnapshot: a disk as earlier versions left it, whose log begins two entries behind the newest
// snapshot. No start succeeded.
func TestGapBehindTheSnapshot(t *testing.T) {
	makeGap := func(t *testing.T, disks []*vfs.Mem) {
		copyFolder(t, disks[0], disks[2], "/data/snapshots")
		from, err := logstore.Open(logstore.Config{Group: "test", Dir: "/data/log", FS: disks[0]})
		if err != nil {
			t.Fatal(err)
		}
		defer from.Close()
		to, err := logstore.Open(logstore.Config{Group: "test", Dir: "/data/log", FS: disks[2]})
		if err != nil {
			t.Fatal(err)
		}
		defer to.Close()
		first, _ := to.FirstIndex()
		last, _ := to.LastIndex()
		newest, _ := from.LastIndex()
		var entry raft.Log
		if err := errors.Join(to.DeleteRange(first, last), from.GetLog(newest, &entry), to.StoreLog(&entry)); err != nil {
			t.Fatal(err)
		}
	}
	damagedDisk(t, old, makeGap, func(t *testing.T, victim *simNode) {
		if out := victim.log.String(); !strings.Contains(out, "moved aside") ||
			!strings.Contains(out, "what lies between is missing") {
			t.Error("the log was not rebuilt")
		}
		victim.s.until(20*time.Second, func() bool {
			_, err := victim.disk.Stat("/data/" + raftdisk.RebuildName)
			return err != nil
		}, "the member to vote again")
	})
	t.Run("alone", func(t *testing.T) { // nobody else has what is missing: it says so, and guesses nothing
		disks := []*vfs.Mem{behindOf(t, 1, old).disks[0].Crash(rand.New(rand.NewPCG(0, 0))), nil,
			behindOf(t, 1, old).disks[2].Crash(rand.New(rand.NewPCG(0, 0)))}
		makeGap(t, disks)
		synctest.Test(t, func(t *testing.T) {
			s := simulate(t, 1, nil)
			n := s.nodes[2]
			n.disk, n.boot = disks[2], n.boot[2:]
			if err := n.disk.Remove("/data/" + raftdisk.MembersName); err != nil {
				t.Fatal(err)
			}
			if err := n.start(); !errkind.Is(err, errkind.Corrupt) || !strings.Contains(err.Error(), "restore a backup") {
				t.Errorf("it started: %v", err)
			}
		})
	})
}

func copyFolder(t *testing.T, from, to *vfs.Mem, dir string) {
	t.Helper()
	if err := to.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	entries, err := from.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := vfs.ReadFile(from, filepath.Join(dir, e.Name()))
		if err == nil {
			err = vfs.WriteFileAtomic(to, filepath.Join(dir, e.Name()), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// refusedOnce lets one opening of a finished snapshot fail: the disk refuses.
var refusedOnce = []vfs.Rule{{Ops: vfs.OpOpen, Glob: "/data/snapshots/*.meta", Count: 1, Err: syscall.EIO}}

// TestInstalledSnapshotIsRefusedByTheDisk: a leader's snapshot was stored and could not be read again at once. It
// counts as there from then on, and the machine does not have it.
func TestInstalledSnapshotIsRefusedByTheDisk(t *testing.T) {
	installation{trailing: 1, rules: refusedOnce, look: func(t *testing.T, victim *simNode) {
		if !strings.Contains(victim.log.String(), "could not be loaded: this server begins anew with it") {
			t.Error("it did not begin anew")
		}
	}}.run(t)
}

// TestRestoredSnapshotIsRefusedByTheDisk: the same with what an operator restores, of which the library panics.
func TestRestoredSnapshotIsRefusedByTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := simulate(t, 1, nil)
		n := s.nodes[0]
		n.boot, n.rules = n.boot[:1], refusedOnce
		s.start(n)
		defer s.stop()
		s.until(time.Minute, n.LeaseHeld, "a leader")
		s.writes("before", 3)
		var saved bytes.Buffer
		if err := n.Save(t.Context(), &saved); err != nil {
			t.Fatal(err)
		}
		s.writes("after", 3)
		if err := n.Restore(t.Context(), &saved); !errkind.Is(err, errkind.Unknown) {
			t.Errorf("restored: %v", err)
		}
		s.until(time.Minute, func() bool { return n.LeaseHeld() && len(n.machine.list()) == 3 },
			"the state that was restored")
	})
}
