package jobstore

import (
	"slices"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/apply"
)

// report stores what nodes say, and has jobs evaluated whose allocations ended.
func (b *builder) report(w *AllocWrites) {
	if len(w.Reports) == 0 {
		return
	}
	reports := make([]apply.Report, 0, len(w.Reports))
	for i := range w.Reports {
		r := &w.Reports[i]
		a := b.Allocation(r.Alloc)
		if a == nil || w.Ordered && b.late(a, r) {
			continue
		}
		if !w.Ordered {
			r.Order = jobs.Order{} // a server of an older release would not keep it either
		}
		b.keepDetail(r)
		reports = append(reports, apply.Report{Alloc: r.Alloc, Client: r.Client, Health: r.Health})
	}
	effects := apply.Reports(b.Edit, b.now, reports)
	b.out.Freed = effects.Freed
	for _, key := range effects.Jobs {
		if j := b.Job(key); j != nil {
			b.evaluate(j, jobs.Evaluation{Trigger: jobs.TriggerAllocFailure})
		}
	}
}

// late reports whether a newer report of the allocation was stored before r: the same batch, or one whose sender gave
// it up, may be held by a server that looks for a leader. An agent of an older release does not say which of two is
// newer, and a server of one does not pass it on: then nothing that ran has not begun.
func (b *builder) late(a *jobs.Allocation, r *Report) bool {
	if r.Order.IsZero() {
		return r.Client.Status == jobs.ClientPending && a.Client.Status == jobs.ClientRunning
	}
	kept, ok := b.allocs.Get(&AllocDetail{ID: r.Alloc})
	return ok && r.Order.Before(kept.Order)
}

// keepDetail keeps what those who ask are to see of an allocation. The core's allocation changes only with its state.
func (b *builder) keepDetail(r *Report) {
	next := &AllocDetail{ID: r.Alloc, Tasks: r.Tasks, Net: r.Net, Order: r.Order}
	old, ok := b.allocs.Get(next)
	if !ok {
		old = &AllocDetail{ID: r.Alloc}
	}
	if next.Tasks == "" {
		next.Tasks = old.Tasks
	}
	if next.Net == "" {
		next.Net = old.Net
	}
	if next.Order.IsZero() {
		next.Order = old.Order
	}
	if *next == *old {
		return
	}
	b.allocs.Set(next)
	if next.Tasks == old.Tasks && next.Net == old.Net {
		return
	}
	b.did.Allocs = append(b.did.Allocs, r.Alloc)
	if a := b.Allocation(r.Alloc); a.Client == r.Client && (r.Health == jobs.Undecided || r.Health == a.Rollout.Health) {
		again := *a // who follows the allocation sees what its tasks do
		again.ModifyTime = b.now
		b.PutAllocation(&again)
	}
}

// transition asks an allocation to move or to be replaced.
func (b *builder) transition(w *Transition) {
	old := b.Allocation(w.Alloc)
	if old == nil {
		return
	}
	if !old.ServerTerminal() && (w.Migrate && !old.Desired.Migrate || w.Reschedule && !old.Desired.Reschedule) {
		next := *old
		next.Desired.Migrate = next.Desired.Migrate || w.Migrate
		next.Desired.Reschedule = next.Desired.Reschedule || w.Reschedule
		next.ModifyTime = b.now
		b.PutAllocation(&next)
	}
	if w.Stop && !old.ServerTerminal() {
		next := *b.Allocation(w.Alloc)
		next.Desired.Status, next.Desired.Description, next.ModifyTime = jobs.Stop, "alloc is being migrated", b.now
		b.PutAllocation(&next)
	}
	if j := b.Job(old.Job.JobKey); j != nil {
		b.evaluate(j, jobs.Evaluation{ID: w.EvalID, Trigger: or(w.Trigger, jobs.TriggerAllocStop)})
	}
}

// sweep forgets what is over.
func (b *builder) sweep(s *Sweep) {
	for _, id := range s.Evals {
		b.DeleteEvaluation(id)
	}
	for _, id := range s.Allocs {
		b.dropAlloc(id)
	}
	for _, id := range s.Deployments {
		b.DeleteDeployment(id)
	}
	for _, swept := range s.Jobs {
		if j := b.Job(swept.JobKey); j != nil && j.ModifyIndex == swept.ModifyIndex {
			b.forget(j)
		}
	}
	for _, id := range s.Nodes {
		use := b.Node(id)
		if use == nil || use.Node.Duty.Status != jobs.NodeDown {
			continue
		}
		if !slices.ContainsFunc(slices.Collect(b.OnNode(id)), func(a *jobs.Allocation) bool { return !a.Terminal() }) {
			b.DeleteNode(id)
			b.nodes.Delete(&NodeDetail{ID: id})
		}
	}
}

func (b *builder) dropAlloc(id jobs.ID) {
	if a := b.Allocation(id); a != nil && a.Terminal() {
		b.DeleteAllocation(id)
		b.allocs.Delete(&AllocDetail{ID: id})
	}
}
