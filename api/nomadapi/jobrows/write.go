package jobrows

import (
	"cmp"
	"net/http"
	"slices"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/dispatch"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/jobs/meshtask"
	"corbel.dev/corbel/jobs/spec"
	"corbel.dev/corbel/jobs/validate"
	"corbel.dev/corbel/kit/errkind"
)

// registration is the body of a register or plan.
type registration struct {
	Job            *jobwire.Job
	EnforceIndex   bool
	JobModifyIndex *uint64
	PreserveCounts bool
	EvalPriority   int
	Submission     *nomadrows.Submission
	Diff           bool // of a plan
}

// registered is the answer to it.
type registered struct {
	EvalID                                 string
	EvalCreateIndex, JobModifyIndex, Index uint64
	Warnings                               string
	LastContact                            int64
	KnownLeader                            bool
	NextToken                              string
}

func answered(q *request, w nomadrows.Written) error {
	return q.Wrote(w.Index, &registered{EvalID: w.Eval.String(), EvalCreateIndex: w.EvalIndex,
		JobModifyIndex: w.JobModifyIndex, Index: w.Index, Warnings: w.Warnings})
}

// readJob reads a body with a job in it, and asks for the right in the job's namespace.
func readJob(q *request, what nomadrows.Capability) (*registration, error) {
	raw, err := q.Body()
	if err != nil {
		return nil, err
	}
	body, err := jobwire.Decode[registration](raw)
	if err != nil {
		return nil, nomadrows.BadRequest("%s", errkind.Text(err))
	}
	j := body.Job
	switch id := q.Args["job"]; {
	case j == nil:
		return nil, nomadrows.BadRequest("Job must be specified")
	case jobwire.Get(j.ID) == "":
		return nil, nomadrows.BadRequest("Job ID hasn't been provided")
	case id != "" && id != *j.ID:
		return nil, nomadrows.BadRequest("Job ID does not match name")
	}
	if jobwire.Get(j.Namespace) == "" {
		name := q.Namespace
		j.Namespace = &name
	}
	own := q.Cluster.Self().Region
	if region := jobwire.Get(j.Region); j.Multiregion == nil && isElsewhere(q, region) {
		return nil, &nomadrows.Elsewhere{Region: region, Body: raw}
	}
	if err := q.May(*j.Namespace, what); err != nil {
		return nil, err
	}
	j.Region = &own
	return body, nil
}

// standardRegion is what clients say for a job that names no region.
const standardRegion = "global"

// isElsewhere reports whether the region that a job names is another one. That of the query counts before it, and has
// been obeyed. Clients say "global" for a job that names none: it is another region where there is one of that name.
func isElsewhere(q *request, region string) bool {
	if region == "" || region == q.Cluster.Self().Region || q.Query.Value("region") != "" {
		return false
	}
	others := q.Cluster.Regions()
	return region != standardRegion || others != nil && slices.Contains(others.Names(), region)
}

// admitted makes a job canonical and judges it: the core's job and the warnings.
func admitted(j *jobwire.Job) (*jobs.Job, string, error) {
	complete(j)
	found := validate.Job(j)
	if len(found.Problems) > 0 {
		return nil, "", nomadrows.Failed("%s", validate.Text(found.Problems))
	}
	return jobwire.ToJob(j), validate.Text(found.Warnings), nil
}

// complete makes a job what the server works with: canonical, with the proxies of its services.
func complete(j *jobwire.Job) {
	j.Canonicalize()
	meshtask.Inject(j)
	j.Canonicalize()
	j.Admit()
}

func register(q *request) error {
	body, err := readJob(q, nomadrows.SubmitJob)
	if err != nil {
		return err
	}
	if err := rejecting(q); err != nil {
		return err
	}
	job, warnings, err := admitted(body.Job)
	if err != nil {
		return err
	}
	r := &nomadrows.Registration{Job: job, Submission: body.Submission, PreserveCounts: body.PreserveCounts,
		Priority: body.EvalPriority, Stopped: job.Stop}
	if body.EnforceIndex {
		r.Index = new(jobwire.Get(body.JobModifyIndex))
	}
	w, err := q.Jobs.Register(q.Ctx(), r)
	if err != nil {
		return err
	}
	w.Warnings = cmp.Or(w.Warnings, warnings)
	return answered(q, w)
}

// rejecting refuses new work while operators want none.
func rejecting(q *request) error {
	v, err := q.Views.View(q.Ctx(), true)
	if err != nil {
		return err
	}
	if v.Scheduler().RejectJobRegistration && q.May("", nomadrows.Management) != nil {
		return &nomadrows.Refusal{Status: http.StatusForbidden, Text: "job registration is rejected: the operators " +
			"switched it off (operator scheduler set-config -reject-job-registration=false switches it on)"}
	}
	return nil
}

func validateJob(q *request) error {
	body, err := readJob(q, nomadrows.ReadJob)
	if err != nil {
		return err
	}
	complete(body.Job)
	found := validate.Job(body.Job)
	return q.JSON(struct {
		DriverConfigValidated bool
		ValidationErrors      []string
		Error, Warnings       string
	}{true, found.Problems, validate.Text(found.Problems), validate.Text(found.Warnings)})
}

func parse(q *request) error {
	body, err := nomadrows.Decode[struct {
		JobHCL, Variables string
		HCLv1             bool
		Canonicalize      bool
	}](q)
	if err != nil {
		return err
	}
	if body.JobHCL == "" {
		return nomadrows.BadRequest("Job spec is empty")
	}
	if body.HCLv1 {
		return nomadrows.BadRequest("HCL of version 1 is not read here: convert the job file to HCL2")
	}
	o := spec.Options{Filename: "input.hcl", Now: q.Now(), Random: q.Random}
	if body.Variables != "" {
		o.VarFiles = []spec.File{{Name: "input.vars.hcl", Text: []byte(body.Variables)}}
	}
	j, err := spec.Parse([]byte(body.JobHCL), o)
	if err != nil {
		return nomadrows.BadRequest("%s", errkind.Text(err))
	}
	if body.Canonicalize {
		j.Canonicalize()
	}
	return q.JSON(j)
}

func deregister(q *request) error {
	purge, err := q.Flag("purge")
	if err != nil {
		return err
	}
	priority, err := q.Int("eval_priority", 0)
	if err != nil {
		return err
	}
	w, err := q.Jobs.Deregister(q.Ctx(), q.Job(), purge, int(priority))
	if err != nil {
		return err
	}
	return q.Wrote(w.Index, struct {
		EvalID                                 string
		EvalCreateIndex, JobModifyIndex, Index uint64
		VolumeEvalID                           string
		VolumeEvalIndex                        uint64
		LastContact                            int64
		KnownLeader                            bool
		NextToken                              string
	}{EvalID: w.Eval.String(), EvalCreateIndex: w.EvalIndex, JobModifyIndex: w.JobModifyIndex, Index: w.Index})
}

func evaluate(q *request) error {
	body, err := nomadrows.DecodeOr[struct {
		JobID       string
		EvalOptions struct{ ForceReschedule bool }
	}](q)
	if err != nil {
		return err
	}
	w, err := q.Jobs.Evaluate(q.Ctx(), q.Job(), body.EvalOptions.ForceReschedule)
	if err != nil {
		return err
	}
	return answered(q, w)
}

func stable(q *request) error {
	body, err := nomadrows.Decode[struct {
		JobID      string
		JobVersion uint64
		Stable     bool
	}](q)
	if err != nil {
		return err
	}
	w, err := q.Jobs.Stable(q.Ctx(), q.Job(), body.JobVersion, body.Stable)
	if err != nil {
		return err
	}
	return q.Wrote(w.Index, struct{ Index uint64 }{w.Index})
}

// revert registers an older version again, as long as the version that the caller saw is the newest.
func revert(q *request) error {
	body, err := nomadrows.Decode[struct {
		JobID               string
		JobVersion          uint64
		EnforcePriorVersion *uint64
	}](q)
	if err != nil {
		return err
	}
	v, err := q.Views.View(q.Ctx(), false)
	if err != nil {
		return err
	}
	now := v.State().Job(q.Job())
	switch {
	case now == nil:
		return nomadrows.Failed("job %q not found", q.Args["job"])
	case now.Version == body.JobVersion:
		return nomadrows.Failed("can't revert to current version")
	}
	for old := range v.State().Versions(q.Job()) {
		if old.Version != body.JobVersion {
			continue
		}
		next := *old
		next.Stop, next.SubmitTime = false, 0 // the plane stamps it
		enforce := body.EnforcePriorVersion
		if enforce == nil {
			enforce = &now.Version
		}
		w, err := q.Jobs.Register(q.Ctx(), &nomadrows.Registration{Job: &next, Version: enforce,
			Submission: v.Submission(q.Job(), old.Version)})
		if err != nil {
			return err
		}
		return answered(q, w)
	}
	return nomadrows.Failed("job %q in namespace %q at version %d not found", q.Args["job"], q.Namespace, body.JobVersion)
}

func dispatchJob(q *request) error {
	body, err := nomadrows.DecodeOr[struct {
		JobID            string
		Payload          []byte
		Meta             map[string]string
		IdPrefixTemplate string
		Priority         int
	}](q)
	if err != nil {
		return err
	}
	if err := rejecting(q); err != nil {
		return err
	}
	w, err := q.Starter.Dispatch(q.Ctx(), q.Job(), dispatch.Request{Payload: body.Payload, Meta: body.Meta,
		Token: q.Query.Value("idempotency_token"), Prefix: body.IdPrefixTemplate, Priority: body.Priority})
	if err != nil {
		return err
	}
	return q.Wrote(w.Index, struct {
		DispatchedJobID, EvalID                string
		EvalCreateIndex, JobCreateIndex, Index uint64
	}{w.Job, w.Eval.String(), w.EvalIndex, w.JobModifyIndex, w.Index})
}

func force(q *request) error {
	w, err := q.Starter.Force(q.Ctx(), q.Job())
	if err != nil {
		return err
	}
	return q.Wrote(w.Index, struct {
		EvalID                 string
		EvalCreateIndex, Index uint64
	}{w.Eval.String(), w.EvalIndex, w.Index})
}
