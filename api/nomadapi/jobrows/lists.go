package jobrows

import (
	"iter"
	"slices"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/diff"
	"corbel.dev/corbel/jobs/jobwire"
)

// belonging is a Reading of what belongs to a job: its index is that of the newest of them. A job that is not there has
// none of it.
func belonging[T any](q *request, t nomadrows.Table, of func(v nomadrows.View) iter.Seq[T],
	modified func(T) uint64, answer func(v nomadrows.View) (any, error)) error {
	return q.Read(nomadrows.Reading{
		Watch: nomadrows.Watch{Table: t, Job: q.Job()},
		Index: func(v nomadrows.View) (index uint64) {
			for item := range of(v) {
				index = max(index, modified(item))
			}
			if index == 0 {
				return v.Index(t)
			}
			return index
		},
		Of:     []nomadrows.Table{t, nomadrows.Jobs},
		Answer: answer,
	})
}

// ofThis leaves out what belonged to an earlier job of the same name, unless all is asked for.
func ofThis(v nomadrows.View, key jobs.JobKey, all bool) iter.Seq[*jobs.Allocation] {
	j := v.State().Job(key)
	return func(yield func(*jobs.Allocation) bool) {
		for a := range v.State().OfJob(key) {
			if (all || j == nil || a.Job.CreateIndex == j.CreateIndex) && !yield(a) {
				return
			}
		}
	}
}

func allocations(q *request) error {
	all, err := q.Flag("all")
	if err != nil {
		return err
	}
	key := q.Job()
	of := func(v nomadrows.View) iter.Seq[*jobs.Allocation] { return ofThis(v, key, all) }
	return belonging(q, nomadrows.Allocations, of, func(a *jobs.Allocation) uint64 { return a.ModifyIndex },
		func(v nomadrows.View) (any, error) { return q.AllocationList(v, of(v)) })
}

func evaluations(q *request) error {
	key := q.Job()
	of := func(v nomadrows.View) iter.Seq[*jobs.Evaluation] { return v.State().EvaluationsOf(key) }
	return belonging(q, nomadrows.Evaluations, of, func(e *jobs.Evaluation) uint64 { return e.ModifyIndex },
		func(v nomadrows.View) (any, error) { return q.EvaluationList(of(v)) })
}

func deployments(q *request) error {
	key := q.Job()
	all, err := q.Flag("all")
	if err != nil {
		return err
	}
	of := func(v nomadrows.View) iter.Seq[*jobs.Deployment] {
		return func(yield func(*jobs.Deployment) bool) {
			j := v.State().Job(key)
			for d := range v.State().DeploymentsOf(key) {
				if (all || j == nil || d.JobCreateIndex == 0 || d.JobCreateIndex == j.CreateIndex) && !yield(d) {
					return
				}
			}
		}
	}
	return belonging(q, nomadrows.Deployments, of, func(d *jobs.Deployment) uint64 { return d.ModifyIndex },
		func(v nomadrows.View) (any, error) { return q.DeploymentList(v, of(v)) })
}

func deployment(q *request) error {
	key := q.Job()
	return belonging(q, nomadrows.Deployments,
		func(v nomadrows.View) iter.Seq[*jobs.Deployment] { return v.State().DeploymentsOf(key) },
		func(d *jobs.Deployment) uint64 { return d.ModifyIndex },
		func(v nomadrows.View) (any, error) {
			d := v.State().LatestDeployment(key)
			if d == nil {
				return nil, nil
			}
			return nomadrows.ShownDeployment(v, d), nil
		})
}

func versions(q *request) error {
	diffs, err := q.Flag("diffs")
	if err != nil {
		return err
	}
	return one(q, func(v nomadrows.View, j *jobs.Job) (any, error) {
		answer := &versionsAnswer{Versions: []*jobwire.Job{}}
		answer.Index = j.ModifyIndex
		answer.KnownLeader = true
		for version := range v.State().Versions(j.JobKey) {
			answer.Versions = append(answer.Versions, Shown(v, version))
		}
		slices.Reverse(answer.Versions)
		for i := 0; diffs && i+1 < len(answer.Versions); i++ {
			d, err := diff.Jobs(answer.Versions[i+1], answer.Versions[i], true)
			if err != nil {
				return nil, err
			}
			answer.Diffs = append(answer.Diffs, d)
		}
		return answer, nil
	})
}
