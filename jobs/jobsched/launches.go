package jobsched

import (
	"context"
	"strings"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobstore"
	"corbel.dev/corbel/jobs/periodic"
	"corbel.dev/corbel/jobs/state"
)

// launchLoop starts periodic jobs. A start that a leader missed happens once, when the next one looks.
func (t *term) launchLoop(ctx context.Context) error {
	type plan struct {
		schedule *periodic.Schedule
		job      *jobs.Job
	}
	plans := map[jobs.JobKey]plan{}
	due := map[jobs.JobKey]jobs.Time{}
	return t.loop(ctx, t.launches.some, func(now jobs.Time) jobs.Time {
		v := t.s.cfg.Store()
		for key := range t.launches.take() {
			j := v.State.Job(key)
			delete(plans, key)
			delete(due, key)
			if !periodic.Active(j) {
				continue
			}
			schedule, err := periodic.Parse(j.Periodic)
			if err != nil {
				t.s.cfg.Log.Warn("cannot read the schedule of a periodic job", "job", key.ID, "error", err)
				continue
			}
			plans[key] = plan{schedule, j}
			due[key] = schedule.Next(max(v.Launched(key), j.SubmitTime))
			if due[key] == 0 {
				delete(due, key)
			}
		}
		c := &jobstore.Command{Head: t.s.head(jobstore.JobRegistered)}
		for key, at := range due {
			if at > now {
				continue
			}
			p := plans[key]
			start := p.schedule.Due(max(v.Launched(key), p.job.SubmitTime), now)
			if start == 0 {
				start = at
			}
			if due[key] = p.schedule.Next(now); due[key] == 0 {
				delete(due, key)
			}
			if p.job.Periodic.ProhibitOverlap && Overlaps(v, p.job) {
				t.s.cfg.Log.Info("a periodic job still runs: this start is left out", "job", key.ID)
				continue
			}
			c.Jobs.Put = append(c.Jobs.Put, Launch(p.job, start, now))
		}
		if len(c.Jobs.Put) > 0 {
			if _, err := t.s.cfg.Propose(ctx, c); err != nil && ctx.Err() == nil {
				t.s.cfg.Log.Warn("cannot start periodic jobs; trying again", "error", err)
				for i := range c.Jobs.Put {
					child := c.Jobs.Put[i].Job
					t.launches.add(jobs.JobKey{Namespace: child.Namespace, ID: child.Origin.ParentID})
				}
			}
		}
		return earliest(due)
	})
}

// Launch registers the child of a periodic job for a start. Two leaders that launch the same start make the same
// child.
func Launch(parent *jobs.Job, start, now jobs.Time) jobstore.JobWrite {
	return jobstore.JobWrite{Job: periodic.Child(parent, start, now), Once: true, Trigger: jobs.TriggerPeriodic,
		Launch: start}
}

// Overlaps reports whether a child of a periodic job is not over.
func Overlaps(v *jobstore.View, parent *jobs.Job) bool {
	prefix := parent.ID + "/periodic-"
	for j := range v.State.JobsFrom(jobs.JobKey{Namespace: parent.Namespace, ID: prefix}) {
		if j.Namespace != parent.Namespace || !strings.HasPrefix(j.ID, prefix) {
			break
		}
		if status, _ := v.State.JobStatus(j); status != state.JobDead {
			return true
		}
	}
	return false
}
