// Package jobtell says what a node is told of its allocations: frames of noderpc.Allocs, each with what changed since
// the one before. Jobs are encoded once for all nodes, and dispatched jobs go as differences from one of them. It does
// no I/O; Texts are for any goroutine.
package jobtell

import (
	"bytes"
	"slices"

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
	looks int // at allocations, for tests
}

// Listen begins the stream that a node asked for.
func Listen(texts *Texts, m *noderpc.Watch) *Listener {
	return &Listener{watch: m, texts: texts, sent: map[jobs.ID]told{}, bases: bases{most: min(m.Bases, noderpc.MaxBases)}}
}

// Next is what the node is to be told when none but the changed allocations of it changed since the last frame, nil for
// nothing. It tells what Frame does, and looks at no others unless some were swept. v may have later changes than those
// up to the index upto, from which the node goes on when the stream breaks: they are told by the next call.
func (to *Listener) Next(v *jobstore.View, changed []jobs.ID, upto uint64) *noderpc.Allocs {
	slices.SortFunc(changed, func(a, b jobs.ID) int { return bytes.Compare(a[:], b[:]) }) // as Frame comes upon them
	changed = slices.Compact(changed)
	list := make([]*jobs.Allocation, len(changed))
	for i, id := range changed {
		if list[i] = v.State.Allocation(id); list[i] == nil {
			return to.Frame(v, false)
		}
	}
	f := &noderpc.Allocs{Index: min(upto, v.State.Index()), Restored: v.Restored()}
	frame := &telling{to.texts, &to.bases, f, nil, nil}
	for _, a := range list {
		if to.news(a) {
			frame.add(a)
		}
	}
	frame.end()
	if len(f.Allocs) == 0 {
		return nil
	}
	return f
}

// news notes that the node is told of an allocation, and reports whether it was not told the same before.
func (to *Listener) news(a *jobs.Allocation) bool {
	to.looks++
	now := toldOf(a)
	was, ok := to.sent[a.ID]
	to.sent[a.ID] = now
	return !ok || was != now
}

// Frame is what the node is to be told now, nil for nothing: it looks at all allocations of the node. The first one of
// a stream is full.
func (to *Listener) Frame(v *jobstore.View, full bool) *noderpc.Allocs {
	f := &noderpc.Allocs{Index: v.State.Index(), Full: full, Restored: v.Restored()}
	frame := &telling{to.texts, &to.bases, f, nil, nil}
	sent, kept := to.sent, 0
	for a := range v.State.OnNode(to.watch.Node) {
		kept++
		if full {
			f.Present = append(f.Present, a.ID)
		}
		if to.news(a) && !(full && seen(a, to.watch.Since)) {
			frame.add(a)
		}
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
