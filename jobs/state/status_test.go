package state

import (
	"testing"

	"corbel.dev/corbel/jobs"
)

// TestJobStatus: what a job's state is, by its kind, its evaluations and its allocations (NO-1).
func TestJobStatus(t *testing.T) {
	stopped := jobs.Revision{Stop: true}
	schedule := &jobs.Periodic{Enabled: true, Specs: []string{"* * * * *"}}
	for _, c := range []struct {
		name  string
		job   jobs.Job
		evals []string // their states
		alloc string   // the state of its allocation, "" for none
		want  string
	}{
		{"just registered", jobs.Job{Type: jobs.Service}, []string{jobs.EvalPending}, "", JobPending},
		{"without room", jobs.Job{Type: jobs.Service}, []string{jobs.EvalComplete, jobs.EvalBlocked}, "", JobPending},
		{"placed", jobs.Job{Type: jobs.Service}, []string{jobs.EvalComplete}, jobs.ClientPending, JobRunning},
		{"running, and wants room for more", jobs.Job{Type: jobs.Batch}, []string{jobs.EvalBlocked}, jobs.ClientRunning,
			JobRunning},
		{"over", jobs.Job{Type: jobs.Batch}, []string{jobs.EvalComplete}, jobs.ClientComplete, JobDead},
		{"over, evaluations swept", jobs.Job{Type: jobs.Batch}, nil, jobs.ClientComplete, JobDead},
		{"no counts", jobs.Job{Type: jobs.Service}, []string{jobs.EvalComplete}, "", JobDead},
		{"no counts, evaluations swept", jobs.Job{Type: jobs.Service}, nil, "", JobDead},
		{"retried later", jobs.Job{Type: jobs.Batch}, []string{jobs.EvalFailed, jobs.EvalPending}, jobs.ClientFailed,
			JobPending},
		{"stopped", jobs.Job{Type: jobs.Service, Revision: stopped}, []string{jobs.EvalPending}, "", JobDead},
		{"stopped, and not over", jobs.Job{Type: jobs.System, Revision: stopped}, nil, jobs.ClientRunning, JobRunning},
		{"on each node, before it is evaluated", jobs.Job{Type: jobs.System}, []string{jobs.EvalPending}, "", JobRunning},
		{"on each node, without a node", jobs.Job{Type: jobs.System}, []string{jobs.EvalComplete}, "", JobRunning},
		{"on each node, stopped", jobs.Job{Type: jobs.System, Revision: stopped}, nil, jobs.ClientComplete, JobDead},
		{"once on each node", jobs.Job{Type: jobs.SysBatch}, []string{jobs.EvalComplete}, jobs.ClientComplete, JobDead},
		{"a schedule", jobs.Job{Type: jobs.Batch, Periodic: schedule}, nil, "", JobRunning},
		{"a schedule that is off", jobs.Job{Type: jobs.Batch, Periodic: &jobs.Periodic{}}, nil, "", JobRunning},
		{"a schedule, stopped", jobs.Job{Type: jobs.Batch, Periodic: schedule, Revision: stopped}, nil, "", JobDead},
		{"to be dispatched", jobs.Job{Type: jobs.Batch, Dispatch: &jobs.DispatchRules{}}, nil, "", JobRunning},
		{"dispatched", jobs.Job{Type: jobs.Batch, Dispatch: &jobs.DispatchRules{},
			Origin: jobs.Origin{Dispatched: true}}, []string{jobs.EvalPending}, "", JobPending},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := Empty().Edit(1)
			j := c.job
			j.JobKey = jobs.JobKey{Namespace: "n", ID: "a"}
			e.PutJob(&j)
			for i, status := range c.evals {
				e.PutEvaluation(&jobs.Evaluation{ID: jobs.ID{byte(i + 1)}, JobKey: j.JobKey, Status: status})
			}
			if c.alloc != "" {
				e.PutAllocation(&jobs.Allocation{ID: jobs.ID{9}, Job: &j, Desired: jobs.Desired{Status: jobs.Run},
					Client: jobs.Client{Status: c.alloc}})
			}
			if got, _ := e.Done().JobStatus(&j); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// TestQueued: what waits is what the newest evaluation could not place, not an older one that was canceled for it.
func TestQueued(t *testing.T) {
	key := jobs.JobKey{Namespace: "n", ID: "a"}
	e := Empty().Edit(1)
	put := func(id byte, status string, queued int) {
		e.PutEvaluation(&jobs.Evaluation{ID: jobs.ID{id}, JobKey: key, Status: status,
			Outcome: jobs.Outcome{Queued: map[string]int{"g": queued}}})
		e.Advance()
	}
	put(1, jobs.EvalBlocked, 1)
	put(2, jobs.EvalBlocked, 2)
	put(1, jobs.EvalCanceled, 1)
	if got := e.Done().Queued(key)["g"]; got != 2 {
		t.Errorf("%d are queued, want 2", got)
	}
}
