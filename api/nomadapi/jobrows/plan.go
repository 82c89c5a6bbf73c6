package jobrows

import (
	"cmp"
	"time"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/diff"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/jobs/periodic"
	"corbel.dev/corbel/jobs/planner"
	"corbel.dev/corbel/jobs/state"
)

type planned struct {
	Annotations        *annotations
	FailedTGAllocs     map[string]*jobwire.AllocationMetric
	JobModifyIndex     uint64
	CreatedEvals       []*jobwire.Evaluation
	Diff               *diff.Job
	NextPeriodicLaunch time.Time
	Warnings           string
	Index              uint64
}

type annotations struct {
	DesiredTGUpdates map[string]*diff.DesiredUpdates
	PreemptedAllocs  []any
}

// plan tells what registering a job would do: the scheduler runs on a copy of the state that nobody else sees.
func plan(q *request) error {
	body, err := readJob(q, nomadrows.SubmitJob)
	if err != nil {
		return err
	}
	job, warnings, err := admitted(body.Job)
	if err != nil {
		return err
	}
	v, err := q.Views.View(q.Ctx(), false)
	if err != nil {
		return err
	}
	s, old := v.State(), v.State().Job(job.JobKey)
	answer := &planned{Warnings: warnings, Index: s.Index(),
		Annotations: &annotations{DesiredTGUpdates: map[string]*diff.DesiredUpdates{}}}
	var before *jobwire.Job
	if old != nil {
		before, answer.JobModifyIndex = jobwire.FromJob(old), old.JobModifyIndex
	}
	d, err := diff.Jobs(before, body.Job, body.Diff)
	if err != nil {
		return err
	}
	now := jobs.Time(q.Now().UnixNano())
	if periodic.Active(job) {
		if schedule, err := periodic.Parse(job.Periodic); err == nil {
			if at := schedule.Next(now); at != 0 {
				answer.NextPeriodicLaunch = time.Unix(0, int64(at)).UTC()
			}
		}
	}
	if job.Periodic == nil && (job.Dispatch == nil || job.Origin.Dispatched) {
		result := trial(s, job, old, d.Type != diff.None, now, q.Seed())
		for name, c := range result.Counts {
			answer.Annotations.DesiredTGUpdates[name] = diff.Updates(c, 0)
		}
		for _, p := range result.Plan.Preempt {
			if a := s.Allocation(p.Alloc); a != nil {
				answer.Annotations.PreemptedAllocs = append(answer.Annotations.PreemptedAllocs,
					jobwire.AllocListed(a, nomadrows.NodeOf(v, a.NodeID), false))
			}
		}
		for name, m := range result.Eval.Outcome.Failed {
			if answer.FailedTGAllocs == nil {
				answer.FailedTGAllocs = map[string]*jobwire.AllocationMetric{}
			}
			answer.FailedTGAllocs[name] = jobwire.FromMetric(m)
		}
		for _, e := range result.New {
			answer.CreatedEvals = append(answer.CreatedEvals, jobwire.FromEvaluation(e))
		}
	}
	if body.Diff {
		diff.Annotate(d, before, body.Job, answer.Annotations.DesiredTGUpdates)
		answer.Diff = d
	}
	return q.Wrote(s.Index(), answer)
}

// trial evaluates a job as if it had been registered.
func trial(s *state.State, job, old *jobs.Job, changed bool, now jobs.Time, seed uint64) planner.Result {
	edit := s.Edit(s.Index() + 1)
	next := *job
	next.SubmitTime = now
	if old != nil {
		next.Version = old.Version
		if changed || old.Stop {
			next.Version++
		}
		next.JobModifyIndex = s.Index() + 1
		if next.Version == old.Version {
			next = *old
		}
	}
	edit.PutJob(&next)
	e := &jobs.Evaluation{ID: jobs.NewDice(seed, 1).ID(), JobKey: job.JobKey, Type: job.Type,
		Trigger: jobs.TriggerJobRegister, Priority: cmp.Or(job.Priority, jobs.DefaultPriority), Status: jobs.EvalPending}
	edit.PutEvaluation(e)
	return planner.NewPass(edit.Done(), now, seed, nil).Evaluate(e)
}
