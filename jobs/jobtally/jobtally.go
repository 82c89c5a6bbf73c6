// Package jobtally counts a State for dashboards: what became of the groups of each job, and when deployments began and
// ended. It is pure. What it returns is bounded by its caller; what does not fit is counted.
package jobtally

import (
	"cmp"
	"slices"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/jobs/state"
)

// Group is what became of the allocations of one group.
type Group struct {
	Namespace, Job, Name string
	jobwire.GroupSummary
}

// Jobs are all jobs by their state, and the groups of those that no other job started. Untold are the groups beyond
// the bound.
type Jobs struct {
	Pending, Running, Dead int
	Groups                 []Group
	Untold                 int
}

// Count counts all jobs; of groups it names most, those of the first jobs in the order of names.
func Count(s *state.State, most int) (out Jobs) {
	for j := range s.Jobs() {
		switch status, _ := s.JobStatus(j); status {
		case state.JobPending:
			out.Pending++
		case state.JobRunning:
			out.Running++
		default:
			out.Dead++
		}
		if j.Origin.ParentID != "" { // one of maybe thousands that a dispatch or a schedule started
			continue
		}
		if len(out.Groups)+len(j.Groups) > most {
			out.Untold += len(j.Groups)
			continue
		}
		sum := Summary(s, j)
		for _, g := range j.Groups {
			out.Groups = append(out.Groups, Group{j.Namespace, j.ID, g.Name, *sum.Summary[g.Name]})
		}
	}
	return out
}

// Summary is what a job's allocations come to, as it is kept: nothing is counted.
func Summary(s *state.State, j *jobs.Job) *jobwire.JobSummary {
	tally := s.Tally(j.JobKey)
	index := uint64(0)
	if tally != nil {
		index = tally.Modified
	}
	return jobwire.Summarize(j, tally.Groups(), index, s.Queued(j.JobKey))
}

// Deployment is one with its times; Ended is 0 while it goes on.
type Deployment struct {
	jobs.JobKey
	Version      uint64
	Status       string
	Began, Ended jobs.Time
}

// Deployments are the newest, at most so many, the newest first.
func Deployments(s *state.State, most int) []Deployment {
	var list []Deployment
	for d := range s.Deployments() {
		one := Deployment{JobKey: d.JobKey, Version: d.JobVersion, Status: d.Status, Began: d.CreateTime}
		if !d.Active() {
			one.Ended = d.ModifyTime
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b Deployment) int {
		return cmp.Or(cmp.Compare(b.Began, a.Began), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.ID, b.ID),
			cmp.Compare(b.Version, a.Version))
	})
	// Two of one version in one state are one mark: the newer counts.
	seen := map[Deployment]bool{}
	list = slices.DeleteFunc(list, func(d Deployment) bool {
		key := Deployment{JobKey: d.JobKey, Version: d.Version, Status: d.Status}
		was := seen[key]
		seen[key] = true
		return was
	})
	return list[:min(most, len(list))]
}
