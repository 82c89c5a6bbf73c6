// Package evalrows answers the rows of evaluations and deployments.
package evalrows

import (
	"iter"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobwire"
)

type request = nomadrows.Request

// Rows are the rows of evaluations and deployments.
func Rows() []nomadrows.Row {
	const read, any = nomadrows.ReadJob, nomadrows.Anyone
	return []nomadrows.Row{
		{Methods: "GET", Path: "/v1/evaluations", Right: read, Handle: evaluations},
		{Methods: "DELETE", Path: "/v1/evaluations", Right: nomadrows.Management, Handle: drop},
		{Methods: "GET", Path: "/v1/evaluations/count", Right: read, Handle: count},
		{Methods: "GET", Path: "/v1/evaluation/:eval", Right: any, Handle: evaluation},
		{Methods: "GET", Path: "/v1/evaluation/:eval/allocations", Right: any, Handle: allocations},
		{Methods: "GET", Path: "/v1/deployments", Right: read, Handle: deployments},
		{Methods: "GET", Path: "/v1/deployment/allocations/:deployment", Right: any, Handle: deploymentAllocations},
		{Methods: "PUT POST", Path: "/v1/deployment/promote/:deployment", Right: any, Handle: promote},
		{Methods: "PUT POST", Path: "/v1/deployment/fail/:deployment", Right: any, Handle: fail},
		{Methods: "PUT POST", Path: "/v1/deployment/pause/:deployment", Right: any, Handle: pause},
		{Methods: "PUT POST", Path: "/v1/deployment/unblock/:deployment", Right: any, Handle: unblock},
		{Methods: "PUT POST", Path: "/v1/deployment/allocation-health/:deployment", Right: any, Handle: health},
		{Methods: "GET", Path: "/v1/deployment/:deployment", Right: any, Handle: deployment},
	}
}

// matching yields the evaluations that a list is to show.
func matching(q *request, v nomadrows.View, prefix string) iter.Seq[*jobs.Evaluation] {
	status, job := q.Query.Value("status"), q.Query.Value("job")
	return func(yield func(*jobs.Evaluation) bool) {
		for e := range v.State().Evaluations() {
			if nomadrows.HasPrefix(e.ID, prefix) && (status == "" || e.Status == status) && (job == "" || e.JobKey.ID == job) &&
				q.Sees(e.Namespace, nomadrows.ReadJob) && !yield(e) {
				return
			}
		}
	}
}

func evaluations(q *request) error {
	prefix, err := q.Prefix()
	if err != nil {
		return err
	}
	return q.Read(nomadrows.Whole(nomadrows.Evaluations, func(v nomadrows.View) (any, error) {
		return q.EvaluationList(matching(q, v, prefix))
	}))
}

func count(q *request) error {
	prefix, err := q.Prefix()
	if err != nil {
		return err
	}
	return q.Read(nomadrows.Whole(nomadrows.Evaluations, func(v nomadrows.View) (any, error) {
		shown, err := q.EvaluationList(matching(q, v, prefix))
		if err != nil {
			return nil, err
		}
		return struct{ Count int }{len(shown.([]any))}, nil
	}))
}

var anEvaluation = nomadrows.Object[*jobs.Evaluation]{
	Table: nomadrows.Evaluations, Missing: "eval not found", Right: nomadrows.ReadJob,
	Find:      func(v nomadrows.View, id jobs.ID) *jobs.Evaluation { return v.State().Evaluation(id) },
	Modified:  func(e *jobs.Evaluation) uint64 { return e.ModifyIndex },
	Namespace: func(e *jobs.Evaluation) string { return e.Namespace },
}

func evaluation(q *request) error {
	related, err := q.Flag("related")
	if err != nil {
		return err
	}
	o := anEvaluation
	o.Show = func(v nomadrows.View, e *jobs.Evaluation) (any, error) {
		w := jobwire.FromEvaluation(e)
		if !related {
			return w, nil
		}
		return struct {
			*jobwire.Evaluation
			RelatedEvals []*jobwire.Evaluation
		}{w, relatives(v, e)}, nil
	}
	return nomadrows.One(q, "eval", o)
}

// relatives are the evaluations that e's chain leads to.
func relatives(v nomadrows.View, e *jobs.Evaluation) (list []*jobwire.Evaluation) {
	seen := map[jobs.ID]bool{e.ID: true}
	todo := []jobs.ID{e.Chain.Previous, e.Chain.Next, e.Chain.Blocked}
	for len(todo) > 0 {
		id := todo[0]
		todo = todo[1:]
		if id.IsZero() || seen[id] {
			continue
		}
		seen[id] = true
		if r := v.State().Evaluation(id); r != nil {
			list = append(list, jobwire.FromEvaluation(r))
			todo = append(todo, r.Chain.Previous, r.Chain.Next, r.Chain.Blocked)
		}
	}
	return list
}

func allocations(q *request) error {
	o := anEvaluation
	o.Table = nomadrows.Allocations
	of := func(v nomadrows.View, e *jobs.Evaluation) iter.Seq[*jobs.Allocation] {
		return func(yield func(*jobs.Allocation) bool) {
			for a := range v.State().OfJob(e.JobKey) {
				if a.EvalID == e.ID && !yield(a) {
					return
				}
			}
		}
	}
	id, err := q.ID("eval")
	if err != nil {
		return err
	}
	return q.Read(nomadrows.Reading{
		Watch: nomadrows.Watch{Table: nomadrows.Allocations},
		Index: func(v nomadrows.View) uint64 { return v.Index(nomadrows.Allocations) },
		Answer: func(v nomadrows.View) (any, error) {
			e := v.State().Evaluation(id)
			if e == nil {
				return []any{}, nil
			}
			if err := q.May(e.Namespace, nomadrows.ReadJob); err != nil {
				return nil, err
			}
			return q.AllocationList(v, of(v, e))
		},
	})
}

func deployments(q *request) error {
	prefix, err := q.Prefix()
	if err != nil {
		return err
	}
	return q.Read(nomadrows.Whole(nomadrows.Deployments, func(v nomadrows.View) (any, error) {
		return q.DeploymentList(v, func(yield func(*jobs.Deployment) bool) {
			for d := range v.State().Deployments() {
				if nomadrows.HasPrefix(d.ID, prefix) && q.Sees(d.Namespace, nomadrows.ReadJob) && !yield(d) {
					return
				}
			}
		})
	}))
}

var aDeployment = nomadrows.Object[*jobs.Deployment]{
	Table: nomadrows.Deployments, Missing: "deployment not found", Right: nomadrows.ReadJob,
	Find:      func(v nomadrows.View, id jobs.ID) *jobs.Deployment { return v.State().Deployment(id) },
	Modified:  func(d *jobs.Deployment) uint64 { return d.ModifyIndex },
	Namespace: func(d *jobs.Deployment) string { return d.Namespace },
}

func deployment(q *request) error {
	o := aDeployment
	o.Show = func(v nomadrows.View, d *jobs.Deployment) (any, error) { return nomadrows.ShownDeployment(v, d), nil }
	return nomadrows.One(q, "deployment", o)
}

func deploymentAllocations(q *request) error {
	id, err := q.ID("deployment")
	if err != nil {
		return err
	}
	of := func(v nomadrows.View) iter.Seq[*jobs.Allocation] {
		return func(yield func(*jobs.Allocation) bool) {
			d := v.State().Deployment(id)
			if d == nil || q.May(d.Namespace, nomadrows.ReadJob) != nil {
				return
			}
			for a := range v.State().OfJob(d.JobKey) {
				if a.Rollout.Deployment == id && !yield(a) {
					return
				}
			}
		}
	}
	return q.Read(nomadrows.Reading{
		Watch: nomadrows.Watch{Table: nomadrows.Allocations},
		Index: func(v nomadrows.View) (index uint64) {
			for a := range of(v) {
				index = max(index, a.ModifyIndex)
			}
			if index == 0 {
				return v.Index(nomadrows.Allocations)
			}
			return index
		},
		Answer: func(v nomadrows.View) (any, error) { return q.AllocationList(v, of(v)) },
	})
}
