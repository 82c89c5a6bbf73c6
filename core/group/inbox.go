package group

import (
	"io"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"corbel.dev/corbel/core/group/raftdisk"
	"corbel.dev/corbel/kit/errkind"
)

// inbox hands the library what other members send, after fresh and mute have seen it.
type inbox struct {
	fresh *fresh
	mute  *raftdisk.Mute // nil unless this member lost part of its log
	// succession may hold a request for a pre-vote back; nil in tests.
	succession *succession
	guard      *raftdisk.Guard
	out        chan raft.RPC
	drains     sync.WaitGroup
	disown     func() // ends the instance, whose newest snapshot a leader contradicts
	over       bool   // it was called
}

// run passes on until stop.
func (b *inbox) run(stop <-chan struct{}, in <-chan raft.RPC) {
	defer b.drains.Wait() // the connections that they read from end with the instance
	for {
		var rpc raft.RPC
		select {
		case rpc = <-in:
		case <-stop:
			return
		}
		if b.contradicted(rpc) {
			continue
		}
		if b.mute != nil && b.mute.Active.Load() && b.mute.Refuse(rpc) {
			continue
		}
		switch m := rpc.Command.(type) {
		case *raft.AppendEntriesRequest:
			b.fresh.heard(m, time.Now())
			raftdisk.BoundCommit(m)
			b.guard.Spare(m)
		case *raft.InstallSnapshotRequest:
			b.install(rpc, m, stop)
			continue
		}
		if b.holds(rpc, stop) {
			continue
		}
		select {
		case b.out <- rpc:
		case <-stop:
			return
		}
	}
}

// contradicted reports whether a leader contradicts this member's newest snapshot. Nothing is taken from then on.
func (b *inbox) contradicted(rpc raft.RPC) bool {
	if !b.over {
		term := b.fresh.term()
		if term == 0 { // the library has not started yet; a former leader's messages count for nothing
			term, _ = b.guard.GetUint64([]byte(currentTermKey)) // on an error the library does not start
		}
		if !b.guard.Contradicts(rpc.Command, term) {
			return false
		}
		if b.guard.Restoring.Load() { // the machine and its files are the library's until it is through
			rpc.Respond(nil, errTakingOver)
			return true
		}
		b.over = true
		b.disown()
	}
	rpc.Respond(nil, errDisowned)
	return true
}

// install has a snapshot installed that this member needs. Messages and answers get lost, come twice or late: one
// that it has already, in its log or in a snapshot, is only acknowledged. The library would install it again, and
// drop every entry behind it from the log while it goes on as if they were there. Whether it is needed says the
// library, asked as by an append of nothing behind the snapshot; no other message comes between question and
// installation.
func (b *inbox) install(rpc raft.RPC, m *raft.InstallSnapshotRequest, stop <-chan struct{}) {
	question := &raft.AppendEntriesRequest{RPCHeader: m.RPCHeader, Term: m.Term,
		PrevLogEntry: m.LastLogIndex, PrevLogTerm: m.LastLogTerm, LeaderCommitIndex: m.LastLogIndex}
	b.guard.Spare(question)
	answer, ok := b.ask(raft.RPC{Command: question}, stop)
	if !ok {
		return
	}
	if has, ok := answer.Response.(*raft.AppendEntriesResponse); ok && answer.Error == nil && has.Success {
		b.drains.Go(func() { // the next message on the connection stands behind it
			_, err := io.Copy(io.Discard, rpc.Reader)
			rpc.Respond(&raft.InstallSnapshotResponse{RPCHeader: has.RPCHeader, Term: has.Term, Success: true}, err)
		})
		return
	}
	at := raftdisk.Position{Index: m.LastLogIndex, Term: m.LastLogTerm}
	b.guard.Installing.Store(&at)
	defer b.guard.Installing.Store(nil)
	if answer, ok = b.ask(raft.RPC{Command: m, Reader: rpc.Reader}, stop); !ok {
		return
	}
	done, ok := answer.Response.(*raft.InstallSnapshotResponse)
	if newest := b.guard.Snapshot.Load(); newest != nil && *newest == at && !(ok && done.Success) {
		b.guard.Fail(errkind.Errorf(errkind.Unavailable,
			"the leader's snapshot up to %d is on the disk and could not be loaded: this server begins anew with it", at.Index))
	}
	rpc.RespChan <- answer
}

// ask passes on and waits for the answer; false when the instance ends.
func (b *inbox) ask(rpc raft.RPC, stop <-chan struct{}) (raft.RPCResponse, bool) {
	answers := make(chan raft.RPCResponse, 1)
	rpc.RespChan = answers
	select {
	case b.out <- rpc:
	case <-stop:
		return raft.RPCResponse{}, false
	}
	select {
	case answer := <-answers:
		return answer, true
	case <-stop:
		return raft.RPCResponse{}, false
	}
}

// holds keeps a request back that is passed on by itself later.
func (b *inbox) holds(rpc raft.RPC, stop <-chan struct{}) bool {
	if b.succession == nil {
		return false
	}
	pass := func() {
		select {
		case b.out <- rpc:
		case <-stop:
		}
	}
	if b.succession.early(rpc, pass) {
		return true
	}
	req, ok := rpc.Command.(*raft.RequestPreVoteRequest)
	return ok && b.succession.asked(req, pass)
}
