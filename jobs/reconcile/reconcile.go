package reconcile

import (
	"slices"
	"strings"

	"corbel.dev/corbel/jobs"
)

// Input is what a decision is made from.
type Input struct {
	Key        jobs.JobKey
	Job        *jobs.Job // nil when it was purged
	Allocs     []*jobs.Allocation
	Node       func(jobs.ID) *jobs.Node // nil for a node that is gone
	Deployment *jobs.Deployment         // the job's latest, or nil
	EvalID     jobs.ID
	Now        jobs.Time
	Dice       *jobs.Dice
	// Serves reports whether the node of a running allocation is of the kind that the group now asks for.
	Serves func(a *jobs.Allocation, g *jobs.TaskGroup) bool
	// Better reports whether the original is better placed than its replacement; nil: it is.
	Better func(original, replacement *jobs.Allocation) bool
}

// Result is what is to happen.
type Result struct {
	Groups     []Group
	Stop       []jobs.Stopping
	Update     []*jobs.Allocation // running ones, changed: in the new version, or waiting for a follow-up
	Followups  []Followup
	Deployment *jobs.Deployment // new or changed
	Statuses   []jobs.DeploymentStatus
	active     *jobs.Deployment // to which placements belong
}

// Group is what is to be placed of a group.
type Group struct {
	*jobs.TaskGroup
	Place   []Placement
	Replace []Placement // Previous stops when it is placed, and goes on otherwise
	Counts  Counts
}

// Counts is for those who ask for a plan without carrying it out.
type Counts struct{ Ignore, Place, Migrate, Stop, InPlace, Destructive, Canary int }

// Placement is an allocation to be placed.
type Placement struct {
	Index       int
	Previous    *jobs.Allocation // nil for a first one
	Job         *jobs.Job        // the version to run
	Canary      bool
	Rescheduled bool
}

// Followup is an evaluation at a later time.
type Followup struct {
	ID      jobs.ID
	At      jobs.Time
	Trigger string
}

// Do decides.
func Do(in Input) *Result {
	r := &Result{}
	deployment, failed := r.deployment(&in)
	byGroup := map[string][]*jobs.Allocation{}
	var names []string
	for _, a := range in.Allocs {
		if byGroup[a.Group] == nil {
			names = append(names, a.Group)
		}
		byGroup[a.Group] = append(byGroup[a.Group], a)
	}
	slices.Sort(names)
	for _, name := range names {
		if in.Job.Stopped() || in.Job.Group(name) == nil {
			r.stopAll(&in, byGroup[name])
		}
	}
	if in.Job.Stopped() {
		return r
	}
	done := true
	for _, tg := range in.Job.Groups {
		g := &work{in: &in, result: r, tg: tg, d: deployment, failed: failed, updated: map[*jobs.Job]bool{}}
		g.do(byGroup[tg.Name])
		done = done && g.complete
		r.Groups = append(r.Groups, g.out)
	}
	r.finish(&in, deployment, done)
	return r
}

// deployment returns the one that goes on, and whether the job's version has failed.
func (r *Result) deployment(in *Input) (active *jobs.Deployment, failed bool) {
	d := in.Deployment
	if d == nil {
		return nil, false
	}
	same := in.Job != nil && d.JobVersion == in.Job.Version && d.JobCreateIndex == in.Job.CreateIndex
	if d.Active() && (in.Job.Stopped() || !same) {
		text := "Cancelled due to newer version of job"
		if in.Job.Stopped() {
			text = "Cancelled because job is stopped"
		}
		r.Statuses = append(r.Statuses, jobs.DeploymentStatus{ID: d.ID, Status: jobs.DeployCancelled, Description: text})
		return nil, false
	}
	if !same {
		return nil, false
	}
	if d.Active() {
		r.active = d
		return d, false
	}
	return nil, d.Status == jobs.DeployFailed
}

// stopAll ends everything of a group that is wanted no more.
func (r *Result) stopAll(in *Input, list []*jobs.Allocation) {
	for _, a := range list {
		if !a.ServerTerminal() && !(a.ClientTerminal() && a.Job.RunsOnce()) {
			r.stop(in, a, "alloc not needed as job is stopped or its group is gone")
		}
	}
}

// stop ends an allocation; one whose node is lost is lost with it.
func (r *Result) stop(in *Input, a *jobs.Allocation, why string) {
	s := jobs.Stopping{Alloc: a.ID, Node: a.NodeID, Desired: jobs.Stop, Description: why}
	if n := in.Node(a.NodeID); (n == nil || n.Duty.Status == jobs.NodeDown) && !a.ClientTerminal() {
		s.Client = jobs.ClientLost
	}
	r.Stop = append(r.Stop, s)
}

// followup returns the evaluation at a time; one serves all that fall into five seconds.
func (r *Result) followup(in *Input, at jobs.Time, trigger string) jobs.ID {
	const together = jobs.Time(5e9)
	for _, f := range r.Followups {
		if f.Trigger == trigger && f.At >= at && f.At < at+together {
			return f.ID
		}
	}
	f := Followup{ID: in.Dice.ID(), At: at, Trigger: trigger}
	r.Followups = append(r.Followups, f)
	return f.ID
}

// finish completes the deployment of a version whose allocations are all there and healthy.
func (r *Result) finish(in *Input, d *jobs.Deployment, done bool) {
	if d == nil || r.Deployment != nil || !done || d.Status == jobs.DeployPaused || d.NeedsPromotion() {
		return
	}
	r.Statuses = append(r.Statuses, jobs.DeploymentStatus{ID: d.ID, Status: jobs.DeploySuccessful,
		Description: "Deployment completed successfully"})
}

// begin makes the deployment of the job's version, and adds the group to it.
func (g *work) begin(canaries int) {
	r, in := g.result, g.in
	if r.Deployment == nil {
		r.Deployment = &jobs.Deployment{ID: in.Dice.ID(), JobKey: in.Key, JobVersion: in.Job.Version,
			JobCreateIndex: in.Job.CreateIndex, Status: jobs.DeployRunning, Description: "Deployment is running",
			Groups: map[string]*jobs.DeploymentGroup{}, Stamp: jobs.Stamp{CreateTime: in.Now}}
		if r.active != nil { // groups that come late join the one that runs
			next := *r.active
			next.Groups = map[string]*jobs.DeploymentGroup{}
			for name, old := range r.active.Groups {
				next.Groups[name] = old
			}
			r.Deployment = &next
		}
		r.active = r.Deployment
	}
	u := g.tg.Update
	r.Deployment.Groups[g.tg.Name] = &jobs.DeploymentGroup{AutoRevert: u.AutoRevert, AutoPromote: u.AutoPromote,
		DesiredCanaries: canaries, DesiredTotal: g.tg.Count, ProgressDeadline: int64(u.ProgressDeadline),
		RequireProgressBy: in.Now.Add(u.ProgressDeadline)}
	if canaries > 0 {
		r.Deployment.Description = "Deployment is running but requires manual promotion"
		if u.AutoPromote {
			r.Deployment.Description = "Deployment is running pending automatic promotion"
		}
	}
	g.d = r.Deployment
}

// DeploymentID is the deployment to which placements of a group belong, or zero.
func (r *Result) DeploymentID(group string) (id jobs.ID) {
	d := r.active
	if r.Deployment != nil {
		d = r.Deployment
	}
	if d != nil && d.Groups[group] != nil {
		return d.ID
	}
	return id
}

// byIndex orders allocations by index, then by id.
func byIndex(a, b *jobs.Allocation) int {
	if a.Index != b.Index {
		return a.Index - b.Index
	}
	return strings.Compare(string(a.ID[:]), string(b.ID[:]))
}
