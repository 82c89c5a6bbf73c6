package state

import (
	"iter"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/feasible"
)

// The Restore functions put objects back as they were, with their indexes: from a snapshot, nodes first.

// RestoreNode puts a node back.
func (e *Edit) RestoreNode(n *jobs.Node) {
	use := &Use{Node: n, Class: feasible.ClassOf(n), Ready: n.Ready(), Slot: e.slots, Room: feasible.NewRoom(n)}
	e.slots++
	e.nodes.Set(use)
	e.uses.Set(use)
}

// RestoreJob puts a version of a job back; newest says that it is the job as it is now.
func (e *Edit) RestoreJob(j *jobs.Job, newest bool) {
	e.versions.Set(j)
	if newest {
		e.setJob(j)
	}
}

// RestoreAllocation puts an allocation back, on a node that is there already.
func (e *Edit) RestoreAllocation(a *jobs.Allocation) {
	for i := range e.allocs {
		e.allocs[i].Set(a)
	}
	e.tallied.move(nil, a)
	if a.Counts() {
		e.room(a.NodeID, func(r *feasible.Room) { r.Take(a.Grant) })
	}
}

// RestoreEvaluation puts an evaluation back.
func (e *Edit) RestoreEvaluation(v *jobs.Evaluation) {
	for i := range e.evals {
		e.evals[i].Set(v)
	}
}

// RestoreDeployment puts a deployment back.
func (e *Edit) RestoreDeployment(d *jobs.Deployment) {
	for i := range e.deploys {
		e.deploys[i].Set(d)
	}
}

// VersionsAll yields the kept versions of all jobs.
func (s *State) VersionsAll() iter.Seq[*jobs.Job] { return s.versions.All() }

// OnNode yields the allocations of a node as they are now. The Edit must not change meanwhile.
func (e *Edit) OnNode(id jobs.ID) iter.Seq[*jobs.Allocation] { return e.onNode(id) }

// Version returns a version of a job as it is now, or nil.
func (e *Edit) Version(key jobs.JobKey, version uint64) *jobs.Job {
	j, _ := e.versions.Get(&jobs.Job{JobKey: key, Revision: jobs.Revision{Version: version}})
	return j
}

// Evaluation returns an evaluation as it is now, or nil.
func (e *Edit) Evaluation(id jobs.ID) *jobs.Evaluation {
	v, _ := e.evals[0].Get(&jobs.Evaluation{ID: id})
	return v
}

// LatestDeployment is the newest one of a job as it is now, or nil.
func (e *Edit) LatestDeployment(key jobs.JobKey) *jobs.Deployment {
	s := State{tables: tables{byDeploy: e.deploys[1].Table}}
	return s.LatestDeployment(key)
}

// Jobs yields all jobs as they are now. The Edit must not change meanwhile.
func (e *Edit) Jobs() iter.Seq[*jobs.Job] { return e.jobs.All() }

// Config is what operators set.
func (e *Edit) Config() jobs.Config { return e.config }

// EvaluationCount is how many evaluations are kept.
func (s *State) EvaluationCount() int { return s.evals.Len() }

// AllocationCount is how many allocations are kept.
func (s *State) AllocationCount() int { return s.allocs.Len() }
