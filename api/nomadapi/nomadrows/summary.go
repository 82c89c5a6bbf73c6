package nomadrows

import (
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/jobs/state"
)

// Summarize is what a job's allocations come to, as it is kept: nothing is counted.
func Summarize(s *state.State, j *jobs.Job) *jobwire.JobSummary {
	tally := s.Tally(j.JobKey)
	index := uint64(0)
	if tally != nil {
		index = tally.Modified
	}
	return jobwire.Summarize(j, tally.Groups(), index, s.Queued(j.JobKey))
}
