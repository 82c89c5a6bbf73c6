package group

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/core/logstore"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/vfs"
)

// quorumDisk is a member's disk that can be asked what a power loss at this moment would leave of it.
type quorumDisk struct {
	mem    *vfs.Mem
	faulty *vfs.Faulty
	// armed makes the next fsync of the log one that never happens: the process is killed before it, and left holds
	// what its successor finds.
	armed atomic.Bool
	left  chan *vfs.Mem
}

func newQuorumDisk(mem *vfs.Mem) *quorumDisk {
	d := &quorumDisk{mem: mem, faulty: vfs.NewFaulty(mem), left: make(chan *vfs.Mem, 1)}
	d.faulty.Observe = func(op vfs.Op, path string) {
		if op == vfs.OpSync && filepath.Ext(path) == ".seg" && d.armed.CompareAndSwap(true, false) {
			d.left <- mem.Killed()
		}
	}
	return d
}

// has tells whether the log has a command after a power loss now, in which all is lost that was not fsynced.
func (d *quorumDisk) has(t *testing.T, dir, cmd string) bool {
	t.Helper()
	for seed := uint64(0); ; seed++ { // the least that a power loss may leave
		if rand.New(rand.NewPCG(seed, 0)).IntN(3) == 0 {
			return logHas(t, d.mem.Crash(rand.New(rand.NewPCG(seed, 0))), dir, cmd)
		}
	}
}

func logHas(t *testing.T, disk *vfs.Mem, dir, cmd string) bool {
	t.Helper()
	log, err := logstore.Open(logstore.Config{
		Group: "test", Dir: filepath.Join(dir, "log"), FS: disk, SegmentBytes: 1 << 20, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatalf("the log after a power loss: %v", err)
	}
	defer func() { _ = log.Close() }()
	first, _ := log.FirstIndex()
	last, _ := log.LastIndex()
	for i := last; i >= first && i > 0; i-- {
		var entry raft.Log
		if err := log.GetLog(i, &entry); err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(entry.Data, []byte(cmd)) {
			return true
		}
	}
	return false
}

// TestUnsyncedNeverCarriesAQuorum: of three members one is stopped, so that each write needs the other two. The
// follower's fsync fails and drops the pages, or it is killed between write and fsync and starts again on what the
// machine's memory has. Whatever is acknowledged is on both disks at that moment, also if both lose power then.
func TestUnsyncedNeverCarriesAQuorum(t *testing.T) {
	t.Parallel()
	disks := map[*node]*quorumDisk{}
	nodes := cluster(t, 3, func(_ int, n *node) {
		disks[n] = newQuorumDisk(vfs.NewMem())
		n.fs, n.dir = disks[n].faulty, "/data"
	})
	for round := range 9 {
		l := leader(t, nodes)
		rest := others(nodes, l)
		absent, needed := rest[round%2], rest[1-round%2]
		before := fmt.Sprintf("before %d.", round)
		insist(t, nodes, before)
		polltest.Until(t, func() bool { return needed.machine.has(before) }, "the follower to have all")
		absent.stop()
		cmd := fmt.Sprintf("command %d.", round)
		if round%3 == 0 {
			disks[needed].faulty.Inject(vfs.Rule{Name: "once", Ops: vfs.OpSync, Glob: "*.seg", Count: 1, Err: syscall.EIO})
			insist(t, []*node{l, needed}, cmd)
			if disks[needed].faulty.Status()[0].Hits == 0 {
				t.Fatal("no fsync failed")
			}
			disks[needed].faulty.LiftAll()
		} else {
			disks[needed].armed.Store(true)
			acked := make(chan error, 1)
			go func() { _, err := l.Propose(t.Context(), []byte(cmd)); acked <- err }()
			left := polltest.Get(t, disks[needed].left, "a write of the follower")
			needed.kill()
			needed.stop()
			disks[needed] = newQuorumDisk(left)
			needed.fs = disks[needed].faulty
			needed.start()
			if polltest.Get(t, acked, "an answer to the write") != nil {
				insist(t, []*node{l, needed}, cmd) // its leader had gone meanwhile
			}
		}
		for _, n := range []*node{l, needed} {
			if !disks[n].has(t, n.dir, cmd) {
				t.Errorf("round %d: %s was acknowledged, and a power loss takes it from the disk of %s", round, cmd, n.id)
			}
		}
		absent.start()
	}
}
