package jobstore

import (
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/apply"
)

// rollout changes a deployment and has its job evaluated.
func (b *builder) rollout(w *RolloutWrite) {
	d := b.Deployment(w.ID)
	if len(w.Healthy)+len(w.Unhealthy) > 0 {
		b.health(w)
	}
	if w.Promote {
		apply.Promote(b.Edit, w.ID, w.Groups, b.now)
	}
	if w.Status != "" {
		apply.Status(b.Edit, jobs.DeploymentStatus{ID: w.ID, Status: w.Status, Description: w.Description}, b.now)
	}
	trigger := jobs.TriggerDeployment
	j := b.Job(d.JobKey)
	if w.Revert != nil && j != nil {
		if old := b.Version(d.JobKey, *w.Revert); old != nil && !same(old, j) {
			next := *old
			next.Revision = jobs.Revision{Version: j.Version + 1, SubmitTime: b.now, JobModifyIndex: b.Index()}
			j = b.PutJob(&next)
			b.out.Version = j.Version
		}
	}
	if j != nil && !w.Quiet {
		b.out.JobModifyIndex = j.JobModifyIndex
		b.evaluate(j, jobs.Evaluation{ID: w.EvalID, Trigger: trigger, DeploymentID: w.ID})
	}
}

// health is what an operator says of allocations.
func (b *builder) health(w *RolloutWrite) {
	var reports []apply.Report
	say := func(list []jobs.ID, h jobs.Health) {
		for _, id := range list {
			if a := b.Allocation(id); a != nil && a.Rollout.Deployment == w.ID {
				reports = append(reports, apply.Report{Alloc: id, Client: a.Client, Health: h})
			}
		}
	}
	say(w.Healthy, jobs.Healthy)
	say(w.Unhealthy, jobs.Unhealthy)
	apply.Reports(b.Edit, b.now, reports)
}
