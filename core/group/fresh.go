package group

import (
	"math"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// fresh knows as of when a follower's machine is complete: the newest instant at
// which a leader told its commit index and the machine has by now everything up to
// that. The library's own last contact counts heartbeats, which a member answers
// while its log or its machine is far behind: after a restart, or with a slow disk.
// A commit index counts only once it lies in the leader's own term: a leader that was
// just elected, or restarted, knows less than its predecessor told clients.
// One pending index is enough: while it is not reached nothing newer is.
type fresh struct {
	// reached reports whether the machine has everything up to index.
	reached func(index uint64) bool
	term    func() uint64

	mu           sync.Mutex // guards what follows
	leaderTerm   uint64     // of the newest message
	firstOfTerm  uint64     // the lowest index known to be an entry of that term
	asOf         time.Time
	pendingIndex uint64 // 0 when none is pending
	pendingAt    time.Time
}

// heard notes a message of a leader; heartbeats carry no commit index and say nothing.
func (f *fresh) heard(m *raft.AppendEntriesRequest, now time.Time) {
	if m.LeaderCommitIndex == 0 || m.Term < f.term() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settleLocked()
	f.learnTermLocked(m)
	switch {
	case m.LeaderCommitIndex < f.firstOfTerm:
	case f.pendingIndex != 0:
	case f.reached(m.LeaderCommitIndex):
		f.asOf = now
	default:
		f.pendingIndex, f.pendingAt = m.LeaderCommitIndex, now
	}
}

func (f *fresh) learnTermLocked(m *raft.AppendEntriesRequest) {
	if m.Term != f.leaderTerm {
		f.leaderTerm, f.firstOfTerm = m.Term, math.MaxUint64
	}
	if m.PrevLogTerm == m.Term {
		f.firstOfTerm = min(f.firstOfTerm, m.PrevLogEntry)
	}
	for _, entry := range m.Entries { // in order: the first one of the term is the lowest
		if entry.Term == m.Term {
			f.firstOfTerm = min(f.firstOfTerm, entry.Index)
			break
		}
	}
}

func (f *fresh) settleLocked() {
	if f.pendingIndex != 0 && f.reached(f.pendingIndex) {
		f.asOf, f.pendingIndex = f.pendingAt, 0
	}
}

// at returns the instant, zero when there is none yet.
func (f *fresh) at() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settleLocked()
	return f.asOf
}

// inbox hands the library what other members send, after fresh and mute have seen it.
type inbox struct {
	fresh *fresh
	mute  *mute // nil unless this member lost part of its log
	out   chan raft.RPC
}

// run passes on until stop.
func (b *inbox) run(stop <-chan struct{}, in <-chan raft.RPC) {
	for {
		var rpc raft.RPC
		select {
		case rpc = <-in:
		case <-stop:
			return
		}
		if b.mute != nil && b.mute.active.Load() && b.mute.refuse(rpc) {
			continue
		}
		if m, ok := rpc.Command.(*raft.AppendEntriesRequest); ok {
			b.fresh.heard(m, time.Now())
		}
		select {
		case b.out <- rpc:
		case <-stop:
			return
		}
	}
}
