package evalrows

import (
	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/jobs"
)

// steered is the answer of writes to deployments.
type steered struct {
	EvalID                                        string
	EvalCreateIndex, DeploymentModifyIndex, Index uint64
	RevertedJobVersion                            *uint64
	LastContact                                   int64
	KnownLeader                                   bool
	NextToken                                     string
}

func answered(q *request, w nomadrows.Written) error {
	a := &steered{EvalID: w.Eval.String(), EvalCreateIndex: w.EvalIndex, DeploymentModifyIndex: w.Index, Index: w.Index}
	if w.Reverted {
		a.RevertedJobVersion = &w.Version
	}
	return q.Wrote(w.Index, a)
}

// target finds the deployment of a write. One that is not there is 500 here.
func target(q *request, what nomadrows.Capability) (*jobs.Deployment, error) {
	id, err := q.ID("deployment")
	if err != nil {
		return nil, err
	}
	v, err := q.Views.View(q.Ctx(), false)
	if err != nil {
		return nil, err
	}
	d := v.State().Deployment(id)
	if d == nil {
		return nil, nomadrows.Failed("deployment not found")
	}
	return d, q.May(d.Namespace, what)
}

// body reads a body that repeats the id of the path.
func body[T any](q *request) (*T, *jobs.Deployment, error) {
	b, err := nomadrows.DecodeOr[T](q)
	if err != nil {
		return nil, nil, err
	}
	d, err := target(q, nomadrows.SubmitJob)
	return b, d, err
}

func promote(q *request) error {
	b, d, err := body[struct {
		All    bool
		Groups []string
	}](q)
	if err != nil {
		return err
	}
	switch {
	case b.All && len(b.Groups) > 0:
		return nomadrows.BadRequest("promote all groups or a list of groups, not both")
	case !b.All && len(b.Groups) == 0:
		return nomadrows.BadRequest("groups must be specified, or all of them")
	case !d.Active():
		return nomadrows.Failed("can't promote terminal deployment")
	}
	groups := b.Groups
	if b.All {
		groups = nil
	} else if groups = known(d, groups); len(groups) == 0 { // stock says 200 to a group that nobody has
		return answered(q, nomadrows.Written{Index: d.ModifyIndex})
	}
	w, err := q.Deployments.Promote(q.Ctx(), d.ID, groups)
	if err != nil {
		return err
	}
	return answered(q, w)
}

// known are those of names that are groups of d.
func known(d *jobs.Deployment, names []string) (list []string) {
	for _, name := range names {
		if d.Groups[name] != nil {
			list = append(list, name)
		}
	}
	return list
}

func fail(q *request) error {
	d, err := target(q, nomadrows.SubmitJob)
	if err != nil {
		return err
	}
	if !d.Active() {
		return nomadrows.Failed("can't fail terminal deployment")
	}
	w, err := q.Deployments.Fail(q.Ctx(), d.ID)
	if err != nil {
		return err
	}
	return answered(q, w)
}

func pause(q *request) error {
	b, d, err := body[struct{ Pause bool }](q)
	if err != nil {
		return err
	}
	if !d.Active() {
		if b.Pause {
			return nomadrows.Failed("can't pause terminal deployment")
		}
		return nomadrows.Failed("can't resume terminal deployment")
	}
	w, err := q.Deployments.Pause(q.Ctx(), d.ID, b.Pause)
	if err != nil {
		return err
	}
	return answered(q, w)
}

// unblock is for deployments over several regions; to others nothing happens.
func unblock(q *request) error {
	if _, err := target(q, nomadrows.SubmitJob); err != nil {
		return err
	}
	return answered(q, nomadrows.Written{})
}

func health(q *request) error {
	b, d, err := body[struct{ HealthyAllocationIDs, UnhealthyAllocationIDs []string }](q)
	if err != nil {
		return err
	}
	if !d.Active() {
		return nomadrows.Failed("can't set health of allocations for a terminal deployment")
	}
	healthy, err := ids(b.HealthyAllocationIDs)
	if err != nil {
		return err
	}
	unhealthy, err := ids(b.UnhealthyAllocationIDs)
	if err != nil {
		return err
	}
	if len(healthy)+len(unhealthy) == 0 {
		return nomadrows.Failed("must specify at least one healthy/unhealthy allocation ID")
	}
	w, err := q.Deployments.Health(q.Ctx(), d.ID, healthy, unhealthy)
	if err != nil {
		return err
	}
	return answered(q, w)
}

func ids(texts []string) (list []jobs.ID, err error) {
	for _, text := range texts {
		id, ok := nomadrows.ParseID(text)
		if !ok {
			return nil, nomadrows.BadRequest("%q is not the ID of an allocation", text)
		}
		list = append(list, id)
	}
	return list, nil
}
