package state

import (
	"strings"

	"corbel.dev/corbel/jobs"
)

// The states of a job (NO-1).
const (
	JobPending = "pending"
	JobRunning = "running"
	JobDead    = "dead"
)

// JobStatus is what became of a job, and the index at which that or the job changed last. A job that has an allocation
// that is not over runs. Without one, a stopped job is dead; a system, periodic or parameterized job runs until it is
// stopped; any other is pending while an evaluation of it waits, and else dead: registering a job makes an evaluation,
// so that a job without one has been evaluated, and the evaluation was swept.
//
// It looks at the job's evaluations; what its allocations come to is kept.
func (s *State) JobStatus(j *jobs.Job) (status string, index uint64) {
	index = j.ModifyIndex
	live, waits := false, false
	if t := s.Tally(j.JobKey); t != nil {
		live = t.Live > 0
		index = max(index, t.Modified)
	}
	for e := range s.EvaluationsOf(j.JobKey) {
		waits = waits || e.Status == jobs.EvalPending || e.Status == jobs.EvalBlocked
		index = max(index, e.ModifyIndex)
	}
	switch {
	case live:
		return JobRunning, index
	case j.Stop:
		return JobDead, index
	case j.Periodic != nil || j.Dispatch != nil && !j.Origin.Dispatched || j.Type == jobs.System:
		return JobRunning, index
	case waits:
		return JobPending, index
	}
	return JobDead, index
}

// Queued is how many allocations of each group the newest evaluation of a job could not place. One that was canceled
// because a newer one waits is changed after that, and says nothing.
func (s *State) Queued(key jobs.JobKey) map[string]int {
	var newest *jobs.Evaluation
	for e := range s.EvaluationsOf(key) {
		if e.Outcome.Queued != nil && e.Status != jobs.EvalCanceled && (newest == nil || e.ModifyIndex > newest.ModifyIndex) {
			newest = e
		}
	}
	if newest == nil {
		return nil
	}
	return newest.Outcome.Queued
}

// Children yields the jobs that a periodic or parameterized job started.
func (s *State) Children(key jobs.JobKey) (list []*jobs.Job) {
	prefix := key.ID + "/"
	for j := range s.JobsFrom(jobs.JobKey{Namespace: key.Namespace, ID: prefix}) {
		if j.Namespace != key.Namespace || !strings.HasPrefix(j.ID, prefix) {
			break
		}
		if j.Origin.ParentID == key.ID {
			list = append(list, j)
		}
	}
	return list
}
