package jobstore

import (
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/state"
)

// Subject is what somebody waits for: a table, or the objects of it that belong to one job, node or deployment, or
// that have the ID.
type Subject struct {
	Table Table
	Job   jobs.JobKey
	ID    jobs.ID
}

// wake wakes who waits for what changed. A subject is woken once in a batch.
func (s *Store) wake(changes []Changed) {
	if s.waiters.Len() == 0 {
		return
	}
	woken := map[Subject]bool{}
	wake := func(t Table, key jobs.JobKey, id jobs.ID) {
		subject := Subject{t, key, id}
		if !woken[subject] {
			woken[subject] = true
			s.waiters.Wake(subject)
		}
	}
	none := jobs.JobKey{}
	for i := range changes {
		for _, c := range changes[i].Core {
			for _, object := range []any{c.Before, c.After} {
				subjects(object, func(t Table, key jobs.JobKey, ids ...jobs.ID) {
					wake(t, none, jobs.ID{})
					if key != none {
						wake(t, key, jobs.ID{})
					}
					for _, id := range ids {
						if !id.IsZero() {
							wake(t, none, id)
						}
					}
				})
			}
		}
		for _, d := range changes[i].Docs {
			doc := d.After
			if doc == nil {
				doc = d.Before
			}
			wake(doc.Table, none, jobs.ID{})
			wake(doc.Table, jobs.JobKey{Namespace: doc.Namespace, ID: doc.Name}, jobs.ID{})
		}
	}
}

// subjects names what an object belongs to.
func subjects(object any, name func(t Table, key jobs.JobKey, ids ...jobs.ID)) {
	switch o := object.(type) {
	case *state.Use:
		name(Nodes, jobs.JobKey{}, o.Node.ID)
	case *jobs.Job:
		name(Jobs, o.JobKey)
	case *jobs.Allocation:
		name(Allocations, o.Job.JobKey, o.ID, o.NodeID, o.Rollout.Deployment)
		name(Jobs, o.Job.JobKey)
	case *jobs.Evaluation:
		name(Evaluations, o.JobKey, o.ID)
		name(Jobs, o.JobKey)
		name(Allocations, jobs.JobKey{}, o.ID)
	case *jobs.Deployment:
		name(Deployments, o.JobKey, o.ID)
	}
}
