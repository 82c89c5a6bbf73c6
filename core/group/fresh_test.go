package group

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// TestFresh: heartbeats say nothing, and a message counts from the moment it came once the machine has what it tells of.
func TestFresh(t *testing.T) {
	applied, term := uint64(0), uint64(3)
	f := &fresh{reached: func(index uint64) bool { return applied >= index }, term: func() uint64 { return term }}
	at := func(second int) time.Time { return time.Unix(int64(1000+second), 0) }
	hear := func(second int, term, commit uint64) {
		f.heard(&raft.AppendEntriesRequest{Term: term, LeaderCommitIndex: commit, PrevLogEntry: 10, PrevLogTerm: 3}, at(second))
	}
	expect := func(what string, want time.Time) {
		t.Helper()
		if got := f.at(); !got.Equal(want) {
			t.Errorf("%s: fresh as of %s, want %s", what, got, want)
		}
	}
	hear(1, 3, 0)
	expect("after a heartbeat", time.Time{})
	hear(2, 3, 10)
	hear(3, 3, 12)
	expect("while the machine is behind", time.Time{})
	applied = 10
	expect("when the machine has the first", at(2))
	hear(4, 3, 12)
	applied = 12
	expect("when it has the later one", at(4))
	hear(5, 2, 12)
	expect("after a former leader's message", at(4))
	hear(6, 3, 12)
	expect("when nothing is missing", at(6))
	hear(7, 4, 12)
	expect("after a new leader told what its predecessor committed", at(6))
	f.heard(&raft.AppendEntriesRequest{Term: 4, LeaderCommitIndex: 12, Entries: []*raft.Log{{Index: 13, Term: 4}}}, at(8))
	expect("before an entry of its own is committed", at(6))
	applied = 13
	hear(9, 4, 13)
	expect("after it", at(9))
}
