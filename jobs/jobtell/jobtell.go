// Package jobtell says what a node is told of its allocations: frames of noderpc.Allocs, each with what changed since
// the one before. Jobs are encoded once for all nodes, and dispatched jobs go as differences from one of them. It does
// no I/O; Texts are for any goroutine.
package jobtell

import (
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobstore"
	"corbel.dev/corbel/jobs/noderpc"
)

// told is what a node was told of an allocation: what it reports itself is not sent back.
type told struct {
	job     *jobs.Job
	desired jobs.Desired
	rollout jobs.Rollout
}

func toldOf(a *jobs.Allocation) told { return told{a.Job, a.Desired, a.Rollout} }

// Listener is a node's stream: what it was told so far. It belongs to one goroutine.
type Listener struct {
	watch *noderpc.Watch
	texts *Texts
	sent  map[jobs.ID]told
	bases bases
}

// Listen begins the stream that a node asked for.
func Listen(texts *Texts, m *noderpc.Watch) *Listener {
	return &Listener{watch: m, texts: texts, sent: map[jobs.ID]told{}, bases: bases{most: min(m.Bases, noderpc.MaxBases)}}
}

// Frame is what the node is to be told now, nil for nothing. The first one of a stream is full.
func (to *Listener) Frame(v *jobstore.View, full bool) *noderpc.Allocs {
	f := &noderpc.Allocs{Index: v.State.Index(), Full: full, Restored: v.Restored()}
	frame := &telling{to.texts, &to.bases, f, nil, nil}
	sent, kept := to.sent, 0
	for a := range v.State.OnNode(to.watch.Node) {
		kept++
		if full {
			f.Present = append(f.Present, a.ID)
		}
		now := toldOf(a)
		was, ok := sent[a.ID]
		sent[a.ID] = now
		if ok && was == now || full && seen(a, to.watch.Since) {
			continue
		}
		frame.add(a)
	}
	frame.end()
	if len(sent) > kept { // some were swept: the node is told what there is
		for id := range sent {
			if v.State.Allocation(id) == nil {
				delete(sent, id)
			}
		}
		if !full {
			f.Full, f.Present = true, nil
			for a := range v.State.OnNode(to.watch.Node) {
				f.Present = append(f.Present, a.ID)
			}
		}
	}
	if !f.Full && len(f.Allocs) == 0 {
		return nil
	}
	return f
}

// seen reports whether a node that has seen everything up to since need not be told of a. What is to end is told again
// whenever the node begins to listen, until it says that it has ended. An allocation that was given up as lost is news
// to an agent that begins anew (since is 0): its tasks may have outlived the agent.
func seen(a *jobs.Allocation, since uint64) bool {
	switch {
	case !a.ClientTerminal():
		return a.ModifyIndex <= since && !a.ServerTerminal()
	case since == 0:
		return a.Client.Status != jobs.ClientLost
	}
	return a.ModifyIndex <= since
}
