package jobstore

import (
	"reflect"
	"strconv"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/kit/errkind"
)

// adopt has a dispatched job share all that it did not bring with itself with its parent, as it did where it was made:
// it came whole. That one version of the groups stands for all its children is what keeps thousands of them small, and
// lets nodes be told of differences (jobtell).
func (b *builder) adopt(child *jobs.Job) *jobs.Job {
	if !child.Origin.Dispatched {
		return child
	}
	return adopt(child, b.Job(jobs.JobKey{Namespace: child.Namespace, ID: child.Origin.ParentID}))
}

// adopt is child with the parts of from where both have the same, and child itself where they differ.
func adopt(child, from *jobs.Job) *jobs.Job {
	if from == nil {
		return child
	}
	c := *from
	c.ID, c.Name, c.Priority, c.Origin, c.Meta, c.Revision = child.ID, child.Name, child.Priority, child.Origin,
		child.Meta, child.Revision
	if !reflect.DeepEqual(&c, child) {
		return child
	}
	return &c
}

// checkJob judges whether a job may be stored.
func (b *builder) checkJob(w *JobWrite) error {
	if w.Job == nil {
		return errkind.New(errkind.Invalid, "job is missing")
	}
	now := b.Job(w.Job.JobKey)
	if w.Index != nil {
		switch {
		case now == nil && *w.Index != 0:
			return errkind.New(errkind.Conflict, "Enforcing job modify index "+strconv.FormatUint(*w.Index,
				10)+": job does not exist")
		case now != nil && *w.Index == 0:
			return errkind.New(errkind.Conflict, "Enforcing job modify index 0: job already exists")
		case now != nil && now.JobModifyIndex != *w.Index:
			return errkind.Errorf(errkind.Conflict,
				"Enforcing job modify index %d: job exists with conflicting job modify index: %d",
				*w.Index, now.JobModifyIndex)
		}
	}
	if w.Version != nil {
		if now == nil {
			return errkind.New(errkind.NotFound, "job not found")
		}
		if now.Version != *w.Version {
			return errkind.Errorf(errkind.Conflict, "current job has version %d; enforcing version %d", now.Version, *w.Version)
		}
	}
	if o := w.Job.Origin; o.Dispatched && o.Token != "" { // two dispatches with one token are one
		parent := jobs.JobKey{Namespace: w.Job.Namespace, ID: o.ParentID}
		if child := b.Dispatched(parent, o.Token); child != nil && child.ID != w.Job.ID {
			return errkind.Errorf(errkind.Conflict, "the token has dispatched %q", child.ID)
		}
	}
	if !b.knows(Namespaces, w.Job.Namespace) {
		return errkind.Errorf(errkind.Invalid, "job %q is in nonexistent namespace %q", w.Job.ID, w.Job.Namespace)
	}
	if !b.knows(Pools, w.Job.NodePool) {
		return errkind.Errorf(errkind.Invalid, "job %q is in nonexistent node pool %q", w.Job.ID, w.Job.NodePool)
	}
	return nil
}

// knows reports whether a namespace or a node pool is there.
func (b *builder) knows(t Table, name string) bool {
	if name == "" || name == "default" || t == Pools && name == "all" {
		return true
	}
	_, ok := b.docs.Get(&Document{Table: t, Name: name})
	return ok
}

// same reports whether two versions of a job ask for the same.
func same(a, b *jobs.Job) bool {
	x, y := *a, *b
	x.Revision, y.Revision = jobs.Revision{Stop: a.Stop}, jobs.Revision{Stop: b.Stop}
	return reflect.DeepEqual(&x, &y)
}

// register stores a job as the next version, or only has it evaluated when nothing changed (trap 6).
func (b *builder) register(w *JobWrite) {
	old := b.Job(w.Job.JobKey)
	if w.Launch > 0 {
		b.putDoc(Document{Table: Launches, Namespace: w.Job.Namespace, Name: w.Job.Origin.ParentID,
			Body: strconv.FormatInt(int64(w.Launch), 10)})
	}
	if old != nil && w.Once {
		b.out.JobModifyIndex, b.out.Version = old.JobModifyIndex, old.Version
		return
	}
	next := *b.adopt(w.Job)
	if w.KeepCounts && old != nil {
		next.Groups = keepCounts(w.Job, old)
	}
	next.Revision = jobs.Revision{SubmitTime: w.Job.SubmitTime, JobModifyIndex: b.Index(), Stop: w.Stopped}
	if next.SubmitTime == 0 {
		next.SubmitTime = b.now
	}
	stored := old
	if old == nil || !same(old, &next) {
		if old != nil {
			next.Version = old.Version + 1
		}
		stored = b.PutJob(&next)
		if w.Submission != "" {
			b.putDoc(Document{Table: Submissions, Namespace: next.Namespace, Name: submissionName(next.ID, next.Version),
				Body: w.Submission})
			b.pruneSubmissions(&next)
		}
	}
	b.out.JobModifyIndex, b.out.Version = stored.JobModifyIndex, stored.Version
	if stored.Periodic != nil || stored.Dispatch != nil && !stored.Origin.Dispatched {
		return // its children run
	}
	b.evaluate(stored, jobs.Evaluation{ID: w.EvalID, Trigger: or(w.Trigger, jobs.TriggerJobRegister),
		Priority: w.Priority})
}

func or(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// keepCounts are j's groups, as many of each as old has.
func keepCounts(j, old *jobs.Job) []*jobs.TaskGroup {
	groups := make([]*jobs.TaskGroup, len(j.Groups))
	for i, g := range j.Groups {
		groups[i] = g
		if was := old.Group(g.Name); was != nil && was.Count != g.Count {
			next := *g
			next.Count = was.Count
			groups[i] = &next
		}
	}
	return groups
}

// submissionName is the name of the document with what a version of a job was written as.
func submissionName(id string, version uint64) string {
	return id + "\x00" + strconv.FormatUint(version, 10)
}

// Submission is what a version of a job was written as, nil when it is not kept.
func (v *View) Submission(key jobs.JobKey, version uint64) *Document {
	return v.Document(Submissions, key.Namespace, submissionName(key.ID, version))
}

// pruneSubmissions forgets those of versions that went.
func (b *builder) pruneSubmissions(j *jobs.Job) {
	if j.Version < versionsKept {
		return
	}
	gone := j.Version - versionsKept
	if b.Version(j.JobKey, gone) == nil {
		b.dropDoc(Submissions, j.Namespace, submissionName(j.ID, gone))
	}
}

// versionsKept is NK-2.
const versionsKept = 6

// deregister stops a job, or forgets it; its allocations end by an evaluation.
func (b *builder) deregister(w *JobStop) {
	old := b.Job(w.JobKey)
	if w.Purge {
		b.forget(old)
	} else if !old.Stop {
		next := *old
		next.Stop, next.Stable, next.Version = true, false, old.Version+1
		next.JobModifyIndex = b.Index()
		old = b.PutJob(&next)
	}
	b.out.JobModifyIndex, b.out.Version = b.Index(), old.Version
	if old.Periodic != nil || old.Dispatch != nil && !old.Origin.Dispatched {
		return
	}
	b.evaluate(old, jobs.Evaluation{ID: w.EvalID, Trigger: jobs.TriggerJobDeregister, Priority: w.Priority})
}

// order has a job evaluated as it is.
func (b *builder) order(w *EvalOrder) {
	j := b.Job(w.JobKey)
	b.out.JobModifyIndex, b.out.Version = j.JobModifyIndex, j.Version
	if w.Reschedule {
		var failed []*jobs.Allocation
		for a := range b.OfJob(w.JobKey) {
			if a.Client.Status == jobs.ClientFailed && !a.ServerTerminal() && a.Lineage.Next.IsZero() {
				failed = append(failed, a)
			}
		}
		for _, a := range failed {
			next := *a
			next.Desired.Reschedule, next.ModifyTime = true, b.now
			b.PutAllocation(&next)
		}
	}
	b.evaluate(j, jobs.Evaluation{ID: w.EvalID, Trigger: or(w.Trigger, jobs.TriggerJobRegister)})
}

// Launched is the last start of a periodic job by its schedule, 0 when there was none.
func (v *View) Launched(key jobs.JobKey) jobs.Time {
	d := v.Document(Launches, key.Namespace, key.ID)
	if d == nil {
		return 0
	}
	at, err := strconv.ParseInt(d.Body, 10, 64)
	if err != nil {
		return 0
	}
	return jobs.Time(at)
}
