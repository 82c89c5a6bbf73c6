package nomadrows

import (
	"iter"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/kit/errkind"
)

// AllocationList shows allocations as lists have them.
func (q *Request) AllocationList(v View, items iter.Seq[*jobs.Allocation]) (any, error) {
	resources, err := q.Flag("resources")
	if err != nil {
		return nil, err
	}
	states := q.Query.Value("task_states") != "false"
	return List(q, Listing[*jobs.Allocation]{
		Items:   items,
		Created: func(a *jobs.Allocation) uint64 { return a.CreateIndex },
		Name:    func(a *jobs.Allocation) string { return a.ID.String() },
		Show: func(a *jobs.Allocation) any {
			stub := jobwire.AllocListed(a, NodeOf(v, a.NodeID), resources)
			if states {
				stub.TaskStates = v.Tasks(a.ID)
			}
			return stub
		},
	})
}

// NodeOf is a node, nil when it is gone.
func NodeOf(v View, id jobs.ID) *jobs.Node {
	if u := v.State().Node(id); u != nil {
		return u.Node
	}
	return nil
}

// EvaluationList shows evaluations.
func (q *Request) EvaluationList(items iter.Seq[*jobs.Evaluation]) (any, error) {
	return List(q, Listing[*jobs.Evaluation]{
		Items:   items,
		Created: func(e *jobs.Evaluation) uint64 { return e.CreateIndex },
		Name:    func(e *jobs.Evaluation) string { return e.ID.String() },
		Show:    func(e *jobs.Evaluation) any { return jobwire.FromEvaluation(e) },
	})
}

// EvaluationFilter is a filter of evaluations as they are shown.
func EvaluationFilter(text string) (func(*jobs.Evaluation) bool, error) {
	f, err := CompileFilter(text)
	if err != nil {
		return nil, BadRequest("failed to read filter expression: %s", errkind.Text(err))
	}
	return func(e *jobs.Evaluation) bool { return f.keeps(jobwire.FromEvaluation(e)) }, nil
}

// DeploymentList shows deployments.
func (q *Request) DeploymentList(v View, items iter.Seq[*jobs.Deployment]) (any, error) {
	return List(q, Listing[*jobs.Deployment]{
		Items:   items,
		Created: func(d *jobs.Deployment) uint64 { return d.CreateIndex },
		Name:    func(d *jobs.Deployment) string { return d.ID.String() },
		Show:    func(d *jobs.Deployment) any { return ShownDeployment(v, d) },
	})
}

// ShownDeployment is a deployment as the API shows it, with the indexes of its job.
func ShownDeployment(v View, d *jobs.Deployment) *jobwire.Deployment {
	w := jobwire.FromDeployment(d)
	for j := range v.State().Versions(d.JobKey) {
		if j.Version == d.JobVersion {
			w.JobModifyIndex, w.JobSpecModifyIndex = j.ModifyIndex, j.JobModifyIndex
		}
	}
	return w
}
