package jobsched

import (
	"context"
	"maps"
	"slices"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobstore"
	"corbel.dev/corbel/jobs/reconcile"
)

// maxMigrations bounds what one command asks to move.
const maxMigrations = 10_000

// drainLoop empties nodes step by step (NS-31).
func (t *term) drainLoop(ctx context.Context) error {
	due := map[jobs.ID]jobs.Time{}
	return t.loop(ctx, t.drains.some, func(now jobs.Time) jobs.Time {
		dirty := t.drains.take()
		for id, at := range due {
			if at <= now {
				dirty[id] = true
			}
		}
		v := t.s.cfg.Store()
		c := &jobstore.Command{Head: t.s.head(jobstore.NodeDrain)}
		asked := map[jobs.ID]bool{}
		for _, id := range slices.SortedFunc(maps.Keys(dirty), compareIDs) {
			delete(due, id)
			u := v.State.Node(id)
			if u == nil || u.Node.Duty.Drain == nil {
				continue
			}
			if len(c.Allocs.Transitions) >= maxMigrations {
				due[id] = now.Add(gather)
				continue
			}
			r := reconcile.Drain(reconcile.DrainInput{Node: u.Node, OnNode: v.State.OnNode(id), OfJob: v.State.OfJob, Now: now})
			for _, a := range r.Migrate {
				if !asked[a] {
					asked[a] = true
					c.Allocs.Transitions = append(c.Allocs.Transitions,
						jobstore.Transition{Alloc: a, Migrate: true, Trigger: jobs.TriggerNodeDrain})
				}
			}
			if d := u.Node.Duty.Drain; !r.Done && d.Deadline > 0 && d.Deadline <= now {
				c.Allocs.Transitions = append(c.Allocs.Transitions, overdue(v, id, now)...)
				due[id] = now.Add(lastCall)
			}
			if r.Done {
				c.Nodes.Duty = append(c.Nodes.Duty, drained(v, u.Node, now))
			} else if r.Again > 0 && due[id] == 0 {
				due[id] = r.Again
			}
		}
		if len(c.Allocs.Transitions)+len(c.Nodes.Duty) > 0 {
			if _, err := t.s.cfg.Propose(ctx, c); err != nil && ctx.Err() == nil {
				t.s.cfg.Log.Warn("cannot go on emptying nodes; trying again", "error", err)
				for id := range dirty {
					due[id] = now.Add(time.Second)
				}
			}
		}
		return earliest(due)
	})
}

// lastCall is how long allocations of a node whose deadline has passed may wait for what replaces them.
const lastCall = 2 * time.Second

// overdue stops what was asked to move and found no other place: the deadline counts.
func overdue(v *jobstore.View, node jobs.ID, now jobs.Time) (list []jobstore.Transition) {
	for a := range v.State.OnNode(node) {
		if !a.Terminal() && a.Desired.Migrate && now.Sub(a.ModifyTime) >= lastCall {
			list = append(list, jobstore.Transition{Alloc: a.ID, Stop: true, Trigger: jobs.TriggerNodeDrain})
		}
	}
	return list
}

// drained takes the drain off a node that is empty; it stays ineligible.
func drained(v *jobstore.View, n *jobs.Node, now jobs.Time) jobstore.DutyWrite {
	w := jobstore.DutyWrite{ID: n.ID, EndDrain: true, Message: "Node drain complete", Subsystem: "Drain"}
	record := jobstore.DrainRecord{StartedAt: now}
	if d := v.NodeDetail(n.ID); d != nil && d.Drain != nil {
		record = *d.Drain
	}
	record.Status, record.UpdatedAt = "complete", now
	w.Record = &record
	return w
}
