package jobstore

import (
	"slices"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/apply"
)

// report stores what nodes say, and has jobs evaluated whose allocations ended.
func (b *builder) report(list []Report) {
	if len(list) == 0 {
		return
	}
	reports := make([]apply.Report, 0, len(list))
	for i := range list {
		r := &list[i]
		if b.Allocation(r.Alloc) == nil {
			continue
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

// keepDetail keeps what those who ask are to see of an allocation. The core's allocation changes only with its state.
func (b *builder) keepDetail(r *Report) {
	next := &AllocDetail{ID: r.Alloc, Tasks: r.Tasks, Net: r.Net}
	old, ok := b.allocs.Get(next)
	if ok {
		if next.Tasks == "" {
			next.Tasks = old.Tasks
		}
		if next.Net == "" {
			next.Net = old.Net
		}
		if *next == *old {
			return
		}
	} else if next.Tasks == "" && next.Net == "" {
		return
	}
	b.allocs.Set(next)
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
