package group

import (
	"sync/atomic"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/kit/errkind"
)

var errMuted = errkind.New(errkind.Unavailable,
	"this server lost part of its log and takes no part in elections until it has it back")

// mute keeps a member whose log was damaged out of elections. It may store and
// acknowledge what a leader sends (an acknowledged entry is on its disk, with
// all before it), but its vote could elect a leader that lacks what this member
// once acknowledged. It is lifted when the member's log reaches everything it
// ever held and everything its leader had committed when they met again.
type mute struct {
	active atomic.Bool
	// need is the index to reach; leader's commit index raises it once.
	need   atomic.Uint64
	met    atomic.Bool
	header func() raft.RPCHeader
}

// refuse answers requests for votes, and learns the leader's commit index.
func (m *mute) refuse(rpc raft.RPC) bool {
	switch cmd := rpc.Command.(type) {
	case *raft.RequestVoteRequest:
		rpc.Respond(&raft.RequestVoteResponse{RPCHeader: m.header(), Term: cmd.Term}, nil)
		return true
	case *raft.RequestPreVoteRequest:
		rpc.Respond(&raft.RequestPreVoteResponse{RPCHeader: m.header(), Term: cmd.Term}, nil)
		return true
	case *raft.TimeoutNowRequest:
		rpc.Respond(nil, errMuted)
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

func (m *mute) raise(index uint64) {
	for old := m.need.Load(); index > old; old = m.need.Load() {
		if m.need.CompareAndSwap(old, index) {
			return
		}
	}
}

// caughtUp reports whether the member may vote again.
func (m *mute) caughtUp(applied uint64) bool { return m.met.Load() && applied >= m.need.Load() }
