package jobsplane

import (
	"context"
	"encoding/json"
	"sync"

	"corbel.dev/corbel/core/rpc"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobstore"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/jobs/noderpc"
)

// told is what a node was told of an allocation: what it reports itself is not sent back.
type told struct {
	job     *jobs.Job
	desired jobs.Desired
	rollout jobs.Rollout
}

func toldOf(a *jobs.Allocation) told { return told{a.Job, a.Desired, a.Rollout} }

// allocs sends a node its allocations as they change.
func (n *nodes) allocs(ctx context.Context, req []byte, send func([]byte) error) error {
	m, err := noderpc.Read[noderpc.Watch](req)
	if err != nil {
		return err
	}
	if _, err := n.known(m.Key); err != nil {
		return err
	}
	sent := map[jobs.ID]told{}
	subject := jobstore.Subject{Table: jobstore.Allocations, ID: m.Node}
	for full := true; ; full = false {
		watch := n.group.store.Watch(subject)
		v, err := n.known(m.Key)
		if err != nil {
			watch.Stop()
			return err
		}
		if f := n.frame(v, m, sent, full); f != nil {
			if err := send(noderpc.Bytes(f)); err != nil {
				watch.Stop()
				return err
			}
		}
		select {
		case <-ctx.Done():
			watch.Stop()
			return ctx.Err()
		case <-watch.Woken():
		}
		watch.Stop()
		timer := n.clock.NewTimer(settle)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// frame is what a node is to be told now, nil for nothing.
func (n *nodes) frame(v *jobstore.View, m *noderpc.Watch, sent map[jobs.ID]told, full bool) *noderpc.Allocs {
	f := &noderpc.Allocs{Index: v.State.Index(), Full: full}
	places := map[*jobs.Job]int{}
	kept := 0
	for a := range v.State.OnNode(m.Node) {
		kept++
		if full {
			f.Present = append(f.Present, a.ID)
		}
		now := toldOf(a)
		was, ok := sent[a.ID]
		sent[a.ID] = now
		if ok && was == now || full && seen(a, m.Since) {
			continue
		}
		at, ok := places[a.Job]
		if !ok {
			at = len(f.Jobs)
			places[a.Job] = at
			f.Jobs = append(f.Jobs, n.texts.of(a.Job))
		}
		f.Allocs = append(f.Allocs, noderpc.Alloc{ID: a.ID, ModifyIndex: a.ModifyIndex, Job: at, Group: a.Group,
			Index:   a.Index,
			Desired: a.Desired, Client: a.Client.Status, Rollout: a.Rollout, Previous: a.Lineage.Previous, EvalID: a.EvalID,
			CreateTime: a.CreateTime, Grant: *a.Grant})
	}
	if len(sent) > kept { // some were swept: the node is told what there is
		for id := range sent {
			if v.State.Allocation(id) == nil {
				delete(sent, id)
			}
		}
		if !full {
			f.Full, f.Present = true, nil
			for a := range v.State.OnNode(m.Node) {
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

// jobTexts has versions of jobs as JSON, each encoded once, by the first node that asks and beside the others: nothing
// is encoded under the lock. It is bounded: past maxTexts it begins anew.
type jobTexts struct {
	mu  sync.Mutex // guards all
	all map[*jobs.Job]*jobText
}

type jobText struct {
	once sync.Once
	text []byte
}

const maxTexts = 4096

func newJobTexts() *jobTexts { return &jobTexts{all: map[*jobs.Job]*jobText{}} }

func (t *jobTexts) of(j *jobs.Job) []byte {
	t.mu.Lock()
	one := t.all[j]
	if one == nil {
		if len(t.all) >= maxTexts {
			clear(t.all)
		}
		one = &jobText{}
		t.all[j] = one
	}
	t.mu.Unlock()
	one.once.Do(func() {
		text, err := json.Marshal(jobwire.FromJob(j))
		if err != nil {
			panic("jobsplane: " + err.Error()) // jobwire's types have nothing that JSON cannot say
		}
		one.text = text
	})
	return one.text
}

var _ rpc.StreamHandler = (*nodes)(nil).allocs
