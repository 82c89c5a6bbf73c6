package raftdisk

import (
	"sync/atomic"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/kit/errkind"
)

// ErrMuted is what a muted member answers to who would have it lead.
var ErrMuted = errkind.New(errkind.Unavailable,
	"this server lost part of its log and takes no part in elections until it has it back")

// Mute keeps a member whose log was damaged out of elections. It may store and
// acknowledge what a leader sends (an acknowledged entry is on its disk, with
// all before it), but its vote could elect a leader that lacks what this member
// once acknowledged. It is lifted when the member's log reaches everything it
// ever held and everything its leader had committed when they met again.
type Mute struct {
	Active atomic.Bool
	// Need is the index to reach; leader's commit index raises it once.
	Need   atomic.Uint64
	met    atomic.Bool
	header func() raft.RPCHeader
}

// NewMute is one that is active until the member has the index newest; header is what its answers begin with.
func NewMute(newest uint64, header func() raft.RPCHeader) *Mute {
	m := &Mute{header: header}
	m.Active.Store(true)
	m.Need.Store(newest)
	return m
}

// Refuse answers requests for votes, and learns the leader's commit index.
func (m *Mute) Refuse(rpc raft.RPC) bool {
	switch cmd := rpc.Command.(type) {
	case *raft.RequestVoteRequest:
		rpc.Respond(&raft.RequestVoteResponse{RPCHeader: m.header(), Term: cmd.Term}, nil)
		return true
	case *raft.RequestPreVoteRequest:
		rpc.Respond(&raft.RequestPreVoteResponse{RPCHeader: m.header(), Term: cmd.Term}, nil)
		return true
	case *raft.TimeoutNowRequest:
		rpc.Respond(nil, ErrMuted)
		return true
	case *raft.AppendEntriesRequest:
		if cmd.LeaderCommitIndex > 0 && !m.met.Swap(true) {
			m.raise(cmd.LeaderCommitIndex)
		}
	case *raft.InstallSnapshotRequest:
		m.raise(cmd.LastLogIndex)
	}
	return false
}

func (m *Mute) raise(index uint64) {
	for old := m.Need.Load(); index > old; old = m.Need.Load() {
		if m.Need.CompareAndSwap(old, index) {
			return
		}
	}
}

// CaughtUp reports whether the member may vote again.
func (m *Mute) CaughtUp(applied uint64) bool { return m.met.Load() && applied >= m.Need.Load() }
