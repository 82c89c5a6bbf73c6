package planner

import (
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/place"
	"corbel.dev/corbel/jobs/preempt"
	"corbel.dev/corbel/jobs/score"
	"corbel.dev/corbel/jobs/state"
)

// maxOptions is how many nodes that could be cleared are compared: clearing one is a last resort, and each costs a
// look at all of its allocations.
const maxOptions = 32

// preempt clears a node for an allocation of a group: of some, the one whose loss is the least.
func (b *batch) preempt(by jobs.ID) (*state.Use, *jobs.Grant) {
	r, g := b.run, b.group
	if !r.state.Config().Preempts(r.job.Type) {
		return nil, nil
	}
	var node *state.Use
	var victims []*jobs.Allocation
	best, options := -1.0, 0
	for u := range g.Parked {
		list := preempt.Find(preempt.Input{Use: u, Ask: b.program.Ask, Priority: r.job.Priority, Job: r.job.JobKey,
			Allocs: r.state.OnNode(u.Node.ID), Gone: r.stopped, Dice: r.dice})
		if list == nil {
			continue
		}
		if s := score.Preemption(score.NetPriority(preempt.Priorities(list))); s > best {
			best, node, victims = s, u, list
		}
		if options++; options == maxOptions {
			break
		}
	}
	if node == nil {
		return nil, nil
	}
	for _, a := range victims {
		r.plan.Preempt = append(r.plan.Preempt, jobs.Stopping{Alloc: a.ID, Node: a.NodeID, Desired: jobs.Evict, By: by,
			Description: "preempted by alloc " + by.String()})
		r.stopped[a.ID] = true
		r.view.Stop(a)
	}
	g.Freed(node)
	return g.Next(place.Request{Prefer: node.Node.ID})
}
