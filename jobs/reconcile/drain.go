package reconcile

import (
	"iter"
	"time"

	"corbel.dev/corbel/jobs"
)

// DrainInput is a node that is being drained.
type DrainInput struct {
	Node   *jobs.Node
	OnNode iter.Seq[*jobs.Allocation]
	OfJob  func(jobs.JobKey) iter.Seq[*jobs.Allocation]
	Now    jobs.Time
}

// DrainResult is the next step of a drain.
type DrainResult struct {
	Migrate []jobs.ID // to be marked (Desired.Migrate); their jobs are to be evaluated
	Done    bool      // nothing is left: the drain is taken off, the node stays ineligible
	Again   jobs.Time // when to look again without a change; 0: not
}

// The migrate policy of groups that state none (NO-11).
const (
	defaultMigrate        = 1
	defaultMinHealthyTime = 10 * time.Second
)

// Drain says which allocations leave a draining node now (NS-31): of each group as many as its migrate policy
// lets be missing, batch ones when the deadline has come, and those of system jobs when the others have gone.
func Drain(in DrainInput) DrainResult {
	d := in.Node.Duty.Drain
	if d == nil {
		return DrainResult{}
	}
	force := d.Deadline > 0 && d.Deadline <= in.Now
	var out DrainResult
	var system []*jobs.Allocation
	left := 0
	room := map[[3]string]int{} // by namespace, job, group: how many may go
	for a := range in.OnNode {
		if a.Terminal() {
			continue
		}
		if a.Job.PerNode() {
			system = append(system, a)
			continue
		}
		left++
		switch {
		case a.Desired.Migrate:
		case force:
			out.Migrate = append(out.Migrate, a.ID)
		case a.Job.RunsOnce(): // may finish
		default:
			key := [3]string{a.Job.Namespace, a.Job.ID, a.Group}
			n, known := room[key]
			if !known {
				n = in.mayGo(a)
			}
			if n > 0 {
				out.Migrate = append(out.Migrate, a.ID)
				n--
			}
			room[key] = n
		}
	}
	if !d.IgnoreSystemJobs {
		for _, a := range system {
			if (left == 0 || force) && !a.Desired.Migrate {
				out.Migrate = append(out.Migrate, a.ID)
			}
		}
		left += len(system)
	}
	out.Done = left == 0
	waits := false // for a replacement that becomes healthy without a change that wakes us
	for _, n := range room {
		waits = waits || n <= 0
	}
	if !force && d.Deadline > 0 && !out.Done {
		out.Again = d.Deadline
	}
	if soon := in.Now.Add(defaultMinHealthyTime); waits && (out.Again == 0 || soon < out.Again) {
		out.Again = soon
	}
	return out
}

// mayGo is how many allocations of a's group may leave: so many that MaxParallel are missing at most.
func (in *DrainInput) mayGo(a *jobs.Allocation) int {
	most, settle := defaultMigrate, defaultMinHealthyTime
	tg := a.Job.Group(a.Group)
	if tg != nil && tg.Migrate != nil {
		most, settle = tg.Migrate.MaxParallel, tg.Migrate.MinHealthyTime
	}
	healthy, count := 0, 0
	if tg != nil {
		count = tg.Count
	}
	for b := range in.OfJob(a.Job.JobKey) {
		if b.Group != a.Group || b.Terminal() || b.Desired.Migrate || b.Client.Status != jobs.ClientRunning {
			continue
		}
		switch {
		case b.Rollout.Health == jobs.Healthy,
			b.Rollout.Health == jobs.Undecided && b.Client.StartedAt.Add(settle) <= in.Now:
			healthy++
		}
	}
	return healthy - (count - most)
}
