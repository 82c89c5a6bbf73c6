package apply

import (
	"maps"
	"slices"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/state"
)

// Report is what a node says of an allocation.
type Report struct {
	Alloc  jobs.ID
	Client jobs.Client
	Health jobs.Health // Undecided: not said
}

// Effects are what reports lead to.
type Effects struct {
	Freed []jobs.Gain   // by class, ascending: for evalqueue.Wake
	Jobs  []jobs.JobKey // to be evaluated (TriggerAllocFailure), in the order of the reports
	// Deployments are to be judged again (reconcile.Rollout).
	Deployments []jobs.ID
}

// Reports stores what nodes say, in one change. What a node says again changes nothing.
func Reports(e *state.Edit, now jobs.Time, list []Report) (out Effects) {
	freed := map[uint64]jobs.Vector{}
	for _, r := range list {
		old := e.Allocation(r.Alloc)
		if old == nil || old.ClientTerminal() && !revives(old, r) {
			continue
		}
		if old.Client == r.Client && (r.Health == jobs.Undecided || r.Health == old.Rollout.Health) {
			continue
		}
		next := *old
		next.Client, next.ModifyTime = r.Client, now
		if id := old.Rollout.Deployment; !id.IsZero() {
			if r.Health != jobs.Undecided && r.Health != old.Rollout.Health {
				next.Rollout.Health, next.Rollout.At = r.Health, now
				health(e, old, r.Health, now)
			}
			if !slices.Contains(out.Deployments, id) {
				out.Deployments = append(out.Deployments, id)
			}
		}
		e.PutAllocation(&next)
		if next.ClientTerminal() && old.Counts() {
			if u := e.Node(old.NodeID); u != nil {
				freed[u.Class] = freed[u.Class].Plus(old.Grant.Vector)
			}
		}
		over := next.ClientTerminal() && !old.ServerTerminal() && r.Client.Status != jobs.ClientLost
		back := old.Client.Status == jobs.ClientUnknown && r.Client.Status == jobs.ClientRunning
		if (over && (r.Client.Status == jobs.ClientFailed || !old.Job.RunsOnce()) || back) &&
			!slices.Contains(out.Jobs, old.Job.JobKey) {
			out.Jobs = append(out.Jobs, old.Job.JobKey)
		}
	}
	for _, class := range slices.Sorted(maps.Keys(freed)) {
		out.Freed = append(out.Freed, jobs.Gain{Class: class, Free: freed[class], Index: e.Index()})
	}
	return out
}

// revives reports whether a node may contradict what the servers assumed: it runs what they gave up for lost.
func revives(old *jobs.Allocation, r Report) bool {
	return old.Client.Status == jobs.ClientLost && (r.Client.Status == jobs.ClientComplete ||
		r.Client.Status == jobs.ClientFailed)
}

// health counts an allocation's health into its deployment.
func health(e *state.Edit, a *jobs.Allocation, h jobs.Health, now jobs.Time) {
	d := e.Deployment(a.Rollout.Deployment)
	if d == nil || d.Groups[a.Group] == nil {
		return
	}
	next, g := *d, *d.Groups[a.Group]
	count := func(h jobs.Health, by int) {
		switch h {
		case jobs.Healthy:
			g.Healthy += by
		case jobs.Unhealthy:
			g.Unhealthy += by
		}
	}
	count(a.Rollout.Health, -1)
	count(h, 1)
	if h == jobs.Healthy && g.ProgressDeadline > 0 {
		g.RequireProgressBy = now + jobs.Time(g.ProgressDeadline)
	}
	next.Groups = maps.Clone(d.Groups)
	next.Groups[a.Group] = &g
	next.ModifyTime = now
	e.PutDeployment(&next)
}

// Promote lets the canaries of a deployment's groups be what they are to become; no groups means all.
func Promote(e *state.Edit, id jobs.ID, groups []string, now jobs.Time) {
	d := e.Deployment(id)
	if !d.Active() {
		return
	}
	next := *d
	next.Description, next.ModifyTime, next.Groups = "Deployment is running", now, maps.Clone(d.Groups)
	for _, name := range slices.Sorted(maps.Keys(d.Groups)) {
		if len(groups) > 0 && !slices.Contains(groups, name) {
			continue
		}
		g := *d.Groups[name]
		g.Promoted = g.DesiredCanaries > 0
		g.RequireProgressBy = now + jobs.Time(g.ProgressDeadline)
		next.Groups[name] = &g
		for _, canary := range g.Canaries {
			if old := e.Allocation(canary); old != nil {
				a := *old
				a.Rollout.Canary = false
				e.PutAllocation(&a)
			}
		}
	}
	e.PutDeployment(&next)
}
