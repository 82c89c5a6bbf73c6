package group

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/core/group/raftdisk"
	"corbel.dev/corbel/kit/polltest"
)

// TestFresh: a message counts from the arrival of the one whose answer its sender had, and once the machine has what
// it tells of.
func TestFresh(t *testing.T) {
	applied, term := uint64(0), uint64(3)
	f := &fresh{reached: func(index uint64) bool { return applied >= index }, term: func() uint64 { return term }}
	at := func(second int) time.Time { return time.Unix(int64(1000+second), 0) }
	hear := func(second int, term uint64, m mark) {
		//lint:ignore SA1019 the field carries the mark
		f.heard(&raft.AppendEntriesRequest{Term: term, Leader: m.encode()}, at(second))
	}
	expect := func(what string, want time.Time) {
		t.Helper()
		if got := f.at(); !got.Equal(want) {
			t.Errorf("%s: fresh as of %s, want %s", what, got, want)
		}
	}
	//lint:ignore SA1019 as a member of an older version sends it
	f.heard(&raft.AppendEntriesRequest{Term: 3, Leader: []byte("10.0.0.1:8300")}, at(0))
	expect("after a message without a mark", time.Time{})
	hear(1, 3, mark{number: 1, commit: 10})
	expect("after the first message: nobody knows how long it was under way", time.Time{})
	hear(2, 3, mark{number: 2, echo: 1, commit: 10})
	expect("while the machine is behind", time.Time{})
	hear(3, 3, mark{number: 3, echo: 2, commit: 12})
	applied = 10
	expect("when the machine has what the second told", at(1))
	hear(4, 3, mark{number: 4, echo: 3, commit: 12})
	applied = 12
	expect("when it has the later one", at(3))
	hear(9, 3, mark{number: 5, echo: 3, commit: 12})
	expect("after a message that was held back", at(3))
	hear(10, 3, mark{number: 6, echo: 5, commit: 12, age: 2 * time.Second})
	expect("when the leader had not been confirmed for 2 s", at(7))
	hear(11, 2, mark{number: 7, echo: 6, commit: 12})
	expect("after a former leader's message", at(7))
	hear(12, 3, mark{number: 200, echo: 6, commit: 12})
	hear(12, 3, mark{number: 201, echo: 300, commit: 12})
	expect("after echoes of what it does not remember", at(10))
	hear(13, 4, mark{number: 1, echo: 201, commit: 12})
	expect("after a new leader's first message", at(10))
	hear(14, 4, mark{number: 2, echo: 1})
	expect("while the new leader is not ready", at(10))
	hear(15, 4, mark{number: 3, echo: 2, commit: 13})
	applied = 13
	expect("after it is", at(14))
	f.note(at(12))
	expect("after an older note", at(14))
}

func TestMarkDecodes(t *testing.T) {
	want := mark{number: 1 << 40, echo: 1<<40 - 1, commit: 7, age: time.Hour}
	if got, ok := decodeMark(want.encode()); !ok || got != want {
		t.Fatalf("decoded %+v, %t", got, ok)
	}
	whole := want.encode()
	for n := range whole {
		if _, ok := decodeMark(whole[:n]); ok {
			t.Errorf("%d of %d bytes were taken for a mark", n, len(whole))
		}
	}
}

func TestCommitIsBoundedByWhatAMessageProves(t *testing.T) {
	for _, c := range []struct {
		m    raft.AppendEntriesRequest
		want uint64
	}{
		{raft.AppendEntriesRequest{PrevLogEntry: 10, LeaderCommitIndex: 12}, 10},
		{raft.AppendEntriesRequest{PrevLogEntry: 10, LeaderCommitIndex: 9}, 9},
		{raft.AppendEntriesRequest{PrevLogEntry: 10, Entries: []*raft.Log{{Index: 11}, {Index: 12}}, LeaderCommitIndex: 12},
			12},
		{raft.AppendEntriesRequest{LeaderCommitIndex: 5}, 0},
	} {
		if raftdisk.BoundCommit(&c.m); c.m.LeaderCommitIndex != c.want {
			t.Errorf("previous %d, %d entries: commits up to %d, want %d", c.m.PrevLogEntry, len(c.m.Entries),
				c.m.LeaderCommitIndex, c.want)
		}
	}
}

// TestReplayIsNotFresh: a restarted follower whose log is whole but whose machine still replays it has no last contact.
func TestReplayIsNotFresh(t *testing.T) {
	nodes := cluster(t, 3, nil)
	lead := leader(t, nodes)
	for i := range 50 {
		propose(t, lead, fmt.Sprint(i))
	}
	follower := others(nodes, lead)[0]
	polltest.Until(t, func() bool { return follower.machine.has("49") }, "the follower to follow")
	follower.kill()
	follower.stop()
	gate := make(chan struct{})
	follower.adjust = func(c *Config) { c.Machine = &gatedMachine{Machine: c.Machine, gate: gate} }
	follower.start()
	stored := func() uint64 {
		if in := follower.current.Load(); in != nil {
			return in.raft.CommitIndex()
		}
		return 0
	}
	polltest.Until(t, func() bool { return stored() >= lead.current.Load().guard.NewestCommand.Load() },
		"the follower to know what is committed")
	heard := func() bool {
		in := follower.current.Load()
		in.fresh.mu.Lock()
		defer in.fresh.mu.Unlock()
		return in.fresh.pendingIndex != 0
	}
	polltest.Until(t, heard, "the follower to hear the leader")
	if got := follower.LastContact(); got < time.Hour {
		t.Errorf("in the middle of its replay it states a last contact of %s", got)
	}
	close(gate)
	polltest.Until(t, func() bool { return follower.LastContact() < time.Minute }, "a last contact after the replay")
	if !follower.machine.has("49") {
		t.Error("it states a last contact without the state")
	}
}

// gatedMachine applies nothing before its gate opens.
type gatedMachine struct {
	Machine
	gate chan struct{}
}

func (m *gatedMachine) ApplyBatch(cmds [][]byte) []any {
	<-m.gate
	return m.Machine.ApplyBatch(cmds)
}

// TestLeaderWithoutLeaseIsNotFresh: a leader that nobody confirms states the time since a quorum did, and once it has
// stepped down without a leader to hear, that it knows nothing.
func TestLeaderWithoutLeaseIsNotFresh(t *testing.T) {
	nodes := cluster(t, 3, nil)
	lead := leader(t, nodes)
	propose(t, lead, "a")
	if got := lead.LastContact(); got != 0 && lead.LeaseHeld() {
		t.Errorf("a leader with its lease states %s", got)
	}
	for _, n := range others(nodes, lead) {
		n.kill()
	}
	began := time.Now()
	polltest.Until(t, func() bool { return !lead.LeaseHeld() && lead.LastContact() >= time.Second },
		"the leader's last contact to grow")
	if got, most := lead.LastContact(), time.Since(began)+time.Minute; got > most && got != math.MaxInt64 {
		t.Errorf("after it lost its followers it states %s, at most %s are true", got, most)
	}
}
