// Package jobrows answers the rows of jobs: lists, versions, summaries, and the writes that change them. It decides
// nothing: jobs are made canonical and judged by the pure packages of the plane, and stored by the plane.
package jobrows

import (
	"iter"
	"net/http"
	"strings"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobtally"
	"corbel.dev/corbel/jobs/jobwire"
)

type request = nomadrows.Request

// Rows are the rows of jobs.
func Rows() []nomadrows.Row {
	const read, submit = nomadrows.ReadJob, nomadrows.SubmitJob
	return []nomadrows.Row{
		{Methods: "GET", Path: "/v1/jobs", Right: nomadrows.ListJobs, Handle: list},
		{Methods: "PUT POST", Path: "/v1/jobs", Handle: register},
		{Methods: "POST PUT", Path: "/v1/jobs/parse", Right: nomadrows.Anyone, Own: true, Handle: parse},
		{Methods: "PUT POST", Path: "/v1/validate/job", Right: nomadrows.Anyone, Handle: validateJob},
		{Methods: "GET", Path: "/v1/job/*job/allocations", Right: read, Handle: allocations},
		{Methods: "GET", Path: "/v1/job/*job/evaluations", Right: read, Handle: evaluations},
		{Methods: "GET", Path: "/v1/job/*job/deployments", Right: read, Handle: deployments},
		{Methods: "GET", Path: "/v1/job/*job/deployment", Right: read, Handle: deployment},
		{Methods: "GET", Path: "/v1/job/*job/summary", Right: read, Handle: summary},
		{Methods: "GET", Path: "/v1/job/*job/versions", Right: read, Handle: versions},
		{Methods: "GET", Path: "/v1/job/*job/services", Right: read, Handle: services},
		{Methods: "GET", Path: "/v1/job/*job/submission", Right: read, Handle: submission},
		{Methods: "GET", Path: "/v1/job/*job/scale", Right: nomadrows.ReadScaling, Handle: scaleStatus},
		{Methods: "GET", Path: "/v1/job/*job/why", Right: read, Handle: why},
		{Methods: "PUT POST", Path: "/v1/job/*job/scale", Right: nomadrows.ScaleJob, Handle: scale},
		{Methods: "PUT POST", Path: "/v1/job/*job/plan", Right: submit, Handle: plan},
		{Methods: "PUT POST", Path: "/v1/job/*job/evaluate", Right: read, Handle: evaluate},
		{Methods: "PUT POST", Path: "/v1/job/*job/revert", Right: submit, Handle: revert},
		{Methods: "PUT POST", Path: "/v1/job/*job/stable", Right: submit, Handle: stable},
		{Methods: "PUT POST", Path: "/v1/job/*job/dispatch", Right: nomadrows.DispatchJob, Handle: dispatchJob},
		{Methods: "PUT POST", Path: "/v1/job/*job/periodic/force", Right: submit, Handle: force},
		{Methods: "GET", Path: "/v1/job/*job", Right: read, Handle: get},
		{Methods: "PUT POST", Path: "/v1/job/*job", Handle: register},
		{Methods: "DELETE", Path: "/v1/job/*job", Right: submit, Handle: deregister},
		{Methods: "GET", Path: "/v1/scaling/policies", Right: nomadrows.ReadScaling, Handle: policies},
		{Methods: "GET", Path: "/v1/scaling/policy/:policy", Right: nomadrows.ReadScaling, Handle: onePolicy},
	}
}

// notFound is what reads of a job that is not there get.
var notFound = &nomadrows.Refusal{Status: http.StatusNotFound, Text: "job not found"}

// listed yields the jobs that a list shows.
func listed(q *request, v nomadrows.View) iter.Seq[*jobs.Job] {
	from, prefix := jobs.JobKey{}, q.Query.Value("prefix")
	if q.Namespace != nomadrows.AllNamespaces {
		from = jobs.JobKey{Namespace: q.Namespace, ID: prefix}
	}
	return func(yield func(*jobs.Job) bool) {
		for j := range v.State().JobsFrom(from) {
			if q.Namespace != nomadrows.AllNamespaces && (j.Namespace != q.Namespace || !strings.HasPrefix(j.ID, prefix)) {
				return
			}
			if strings.HasPrefix(j.ID, prefix) && q.Sees(j.Namespace, nomadrows.ListJobs) && !yield(j) {
				return
			}
		}
	}
}

func list(q *request) error {
	meta, err := q.Flag("meta")
	if err != nil {
		return err
	}
	return q.Read(nomadrows.Whole(nomadrows.Jobs, func(v nomadrows.View) (any, error) {
		return nomadrows.List(q, nomadrows.Listing[*jobs.Job]{
			Items: listed(q, v),
			Name: func(j *jobs.Job) string {
				if q.Namespace == nomadrows.AllNamespaces {
					return j.Namespace + "." + j.ID
				}
				return j.ID
			},
			Show: func(j *jobs.Job) any {
				stub := jobwire.JobListed(j, Summary(v, j), meta)
				stub.Status, _ = v.State().JobStatus(j)
				return stub
			},
		})
	}))
}

// Summary counts a job's allocations and children.
func Summary(v nomadrows.View, j *jobs.Job) *jobwire.JobSummary {
	s := v.State()
	sum := jobtally.Summary(s, j)
	if sum.Children != nil {
		for _, c := range s.Children(j.JobKey) {
			switch status, _ := s.JobStatus(c); status {
			case "pending":
				sum.Children.Pending++
			case "running":
				sum.Children.Running++
			default:
				sum.Children.Dead++
			}
		}
	}
	return sum
}

// Shown is a job as the API shows it, with its status.
func Shown(v nomadrows.View, j *jobs.Job) *jobwire.Job {
	w := jobwire.FromJob(j)
	status, _ := v.State().JobStatus(j)
	if newest := v.State().Job(j.JobKey); newest != nil && newest.Version != j.Version {
		status = "dead"
	}
	w.Status = &status
	return w
}

// one is a Reading of a job that must be there. The index counts what became of the job too.
func one(q *request, answer func(v nomadrows.View, j *jobs.Job) (any, error)) error {
	return oneOf(q, func(v nomadrows.View, j *jobs.Job) uint64 {
		_, index := v.State().JobStatus(j)
		return index
	}, answer)
}

// oneOf is one with how the index is found.
func oneOf(q *request, index func(nomadrows.View, *jobs.Job) uint64,
	answer func(v nomadrows.View, j *jobs.Job) (any, error)) error {
	key := q.Job()
	return q.Read(nomadrows.Reading{
		Watch: nomadrows.Watch{Table: nomadrows.Jobs, Job: key},
		Index: func(v nomadrows.View) uint64 {
			if j := v.State().Job(key); j != nil {
				return index(v, j)
			}
			return v.Index(nomadrows.Jobs)
		},
		Answer: func(v nomadrows.View) (any, error) {
			j := v.State().Job(key)
			if j == nil {
				return nil, notFound
			}
			return answer(v, j)
		},
	})
}

func get(q *request) error {
	return one(q, func(v nomadrows.View, j *jobs.Job) (any, error) { return Shown(v, j), nil })
}

// summary counts the children of a job too: it is as new as the newest of them.
func summary(q *request) error {
	return oneOf(q, func(v nomadrows.View, j *jobs.Job) uint64 {
		_, index := v.State().JobStatus(j)
		if j.Periodic == nil && j.Dispatch == nil {
			return index
		}
		for _, c := range v.State().Children(j.JobKey) {
			_, child := v.State().JobStatus(c)
			index = max(index, child)
		}
		return index
	}, func(v nomadrows.View, j *jobs.Job) (any, error) { return Summary(v, j), nil })
}

// versionsAnswer is the history of a job, the newest version first.
type versionsAnswer struct {
	Versions []*jobwire.Job
	Diffs    []any
	Meta
}

// Meta is what answers of stock repeat of the headers.
type Meta struct {
	Index       uint64
	LastContact int64
	KnownLeader bool
	NextToken   string
}

func services(q *request) error {
	key := q.Job()
	return q.Read(nomadrows.Reading{
		Watch: nomadrows.Watch{Table: nomadrows.Services},
		Index: func(v nomadrows.View) uint64 { return v.Index(nomadrows.Services) },
		Answer: func(v nomadrows.View) (any, error) {
			if v.State().Job(key) == nil {
				return nil, notFound
			}
			list := []*nomadrows.Service{}
			for s := range v.Services(key.Namespace) {
				if s.JobID == key.ID {
					list = append(list, s)
				}
			}
			return list, nil
		},
	})
}

func submission(q *request) error {
	version, err := q.Int("version", -1)
	if err != nil {
		return err
	}
	return one(q, func(v nomadrows.View, j *jobs.Job) (any, error) {
		wanted := j.Version
		if version >= 0 {
			wanted = uint64(version)
		}
		s := v.Submission(j.JobKey, wanted)
		if s == nil {
			return nil, nomadrows.NotFound("job source not found")
		}
		return s, nil
	})
}
