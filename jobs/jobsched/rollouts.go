package jobsched

import (
	"context"
	"maps"
	"slices"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobstore"
	"corbel.dev/corbel/jobs/reconcile"
	"corbel.dev/corbel/jobs/state"
)

// gather is how long changes of deployments and drains are collected before they are judged.
const gather = 50 * time.Millisecond

// rolloutLoop judges deployments whose allocations changed, and those whose time has come.
func (t *term) rolloutLoop(ctx context.Context) error {
	due := map[jobs.ID]jobs.Time{}  // when to judge again
	healthy := map[jobs.ID][2]int{} // as it was judged last: healthy, unhealthy
	return t.loop(ctx, t.rollouts.some, func(now jobs.Time) (next jobs.Time) {
		dirty := t.rollouts.take()
		for id, at := range due {
			if at <= now {
				dirty[id] = true
			}
		}
		c := &jobstore.Command{Head: t.s.head(jobstore.DeploymentStatus)}
		v := t.s.cfg.Store()
		for _, id := range slices.SortedFunc(maps.Keys(dirty), compareIDs) {
			delete(due, id)
			d := v.State.Deployment(id)
			if !d.Active() {
				delete(healthy, id)
				continue
			}
			if again := judge(v, d, now, healthy, c); again > 0 {
				due[id] = again
			}
		}
		if len(c.Rollouts)+len(c.Jobs.Eval)+len(c.Allocs.Transitions) > 0 {
			if _, err := t.s.cfg.Propose(ctx, c); err != nil && ctx.Err() == nil {
				t.s.cfg.Log.Warn("cannot steer deployments; trying again", "error", err)
				for id := range dirty {
					delete(healthy, id)
					due[id] = now.Add(time.Second)
				}
			}
		}
		return earliest(due)
	})
}

// judge appends to c what becomes of a deployment, and returns when to judge it again.
func judge(v *jobstore.View, d *jobs.Deployment, now jobs.Time, healthy map[jobs.ID][2]int,
	c *jobstore.Command) jobs.Time {
	if v.State.Job(d.JobKey) == nil {
		c.Rollouts = append(c.Rollouts, jobstore.RolloutWrite{ID: d.ID, Status: jobs.DeployCancelled,
			Description: "Cancelled because job is stopped", Quiet: true})
		return 0
	}
	var allocs []*jobs.Allocation
	for a := range v.State.OfJob(d.JobKey) {
		if a.Rollout.Deployment == d.ID {
			allocs = append(allocs, a)
		}
	}
	verdict := reconcile.Rollout(d, allocs, stableBefore(v.State, d), now)
	// as their policy says: else a version that cannot start is started all the time
	for _, id := range verdict.Reschedule {
		at, ok := replaceAt(v.State.Allocation(id))
		switch {
		case ok && at <= now:
			c.Allocs.Transitions = append(c.Allocs.Transitions,
				jobstore.Transition{Alloc: id, Reschedule: true, Trigger: jobs.TriggerDeployment})
		case ok && (verdict.Again == 0 || at < verdict.Again):
			verdict.Again = at
		}
	}
	w := jobstore.RolloutWrite{ID: d.ID, Promote: verdict.Promote, Status: verdict.Status,
		Description: verdict.Description}
	if verdict.Revert != nil {
		w.Revert = &verdict.Revert.Version
	}
	count := [2]int{}
	for _, g := range d.Groups {
		count[0] += g.Healthy
		count[1] += g.Unhealthy
	}
	was, judged := healthy[d.ID]
	healthy[d.ID] = count
	switch {
	case w.Promote || w.Status != "":
		c.Rollouts = append(c.Rollouts, w)
	case judged && was != count && d.Status == jobs.DeployRunning: // the next wave
		c.Jobs.Eval = append(c.Jobs.Eval, jobstore.EvalOrder{JobKey: d.JobKey, Trigger: jobs.TriggerDeployment})
	// a new leader does not know whether there was one
	case !judged && count != [2]int{} && d.Status == jobs.DeployRunning:
		c.Jobs.Eval = append(c.Jobs.Eval, jobstore.EvalOrder{JobKey: d.JobKey, Trigger: jobs.TriggerDeployment})
	}
	return verdict.Again
}

// RevertsTo is the version that a deployment goes back to when it fails, nil when it does not.
func RevertsTo(s *state.State, d *jobs.Deployment) *jobs.Job {
	for _, g := range d.Groups {
		if g.AutoRevert {
			return stableBefore(s, d)
		}
	}
	return nil
}

// replaceAt is when an unhealthy allocation may be replaced, and whether it may be.
func replaceAt(a *jobs.Allocation) (jobs.Time, bool) {
	g := a.Job.Group(a.Group)
	if g == nil {
		return 0, false
	}
	if a.Client.FinishedAt == 0 { // it runs: since when it is unhealthy counts
		next := *a
		next.Client.FinishedAt = a.Rollout.At
		a = &next
	}
	at, _, ok := reconcile.RescheduleAt(a, g.Reschedule)
	return at, ok
}

// stableBefore is the newest stable version of a job before that of a deployment, or nil.
func stableBefore(s *state.State, d *jobs.Deployment) (stable *jobs.Job) {
	for j := range s.Versions(d.JobKey) {
		if j.Stable && j.Version < d.JobVersion {
			stable = j
		}
	}
	return stable
}

func compareIDs(a, b jobs.ID) int { return slices.Compare(a[:], b[:]) }

func earliest[K comparable](due map[K]jobs.Time) (first jobs.Time) {
	for _, at := range due {
		if first == 0 || at < first {
			first = at
		}
	}
	return first
}

// loop calls step when there is some, and at the time that it returned last.
func (t *term) loop(ctx context.Context, some <-chan struct{}, step func(now jobs.Time) (next jobs.Time)) error {
	next := jobs.Time(0)
	for ctx.Err() == nil {
		wait := time.Hour
		if next > 0 {
			wait = max(next.Sub(t.s.now()), time.Millisecond)
		}
		timer := t.s.cfg.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-some:
			timer.Stop()
			if !t.pause(ctx, gather) {
				return nil
			}
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() == nil {
			next = step(t.s.now())
		}
	}
	return nil
}
