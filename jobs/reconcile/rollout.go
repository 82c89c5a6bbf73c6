package reconcile

import (
	"fmt"
	"maps"
	"slices"

	"corbel.dev/corbel/jobs"
)

// Verdict is what becomes of a deployment.
type Verdict struct {
	Promote     bool   // groups with canaries
	Status      string // "" leaves it
	Description string
	Revert      *jobs.Job // the version to submit again, or nil
	// Reschedule are unhealthy allocations to replace while the deployment has time.
	Reschedule []jobs.ID
	Again      jobs.Time // when to judge next without a change; 0: not
}

// Rollout judges a running deployment by the health of its allocations (NS-28). stable is the newest
// stable version before the deployment's, or nil.
func Rollout(d *jobs.Deployment, allocs []*jobs.Allocation, stable *jobs.Job, now jobs.Time) Verdict {
	v := Verdict{}
	if d == nil || d.Status != jobs.DeployRunning {
		return v
	}
	promote, canaries := true, false
	for _, name := range slices.Sorted(maps.Keys(d.Groups)) {
		s := d.Groups[name]
		t := tallyOf(d, name, allocs)
		waits := s.DesiredCanaries > 0 && !s.Promoted
		if waits {
			canaries = true
			promote = promote && s.AutoPromote && t.healthyCanaries >= s.DesiredCanaries
		}
		if len(t.unhealthy) > 0 && s.ProgressDeadline == 0 {
			return failed(d, stable, "Failed due to unhealthy allocations")
		}
		v.Reschedule = append(v.Reschedule, t.unhealthy...)
		done := t.healthy >= s.DesiredTotal || waits && t.healthyCanaries >= s.DesiredCanaries
		if done || s.ProgressDeadline == 0 {
			continue
		}
		by := s.RequireProgressBy
		if t.last > 0 {
			by = max(by, t.last+jobs.Time(s.ProgressDeadline))
		}
		if by <= now {
			return failed(d, stable, "Failed due to progress deadline")
		}
		if v.Again == 0 || by < v.Again {
			v.Again = by
		}
	}
	v.Promote = canaries && promote
	return v
}

// tally is the health of a group.
type tally struct {
	healthy, healthyCanaries int
	last                     jobs.Time // when one became healthy
	unhealthy                []jobs.ID // that are not being replaced yet
}

func tallyOf(d *jobs.Deployment, group string, allocs []*jobs.Allocation) (t tally) {
	for _, a := range allocs {
		if a.Group != group || a.Rollout.Deployment != d.ID || a.ServerTerminal() {
			continue
		}
		switch {
		case a.Rollout.Health == jobs.Healthy && !a.ClientTerminal():
			t.healthy++
			if a.Rollout.Canary {
				t.healthyCanaries++
			}
			t.last = max(t.last, a.Rollout.At)
		case (a.Rollout.Health == jobs.Unhealthy || a.Client.Status == jobs.ClientFailed) && !a.Desired.Reschedule:
			t.unhealthy = append(t.unhealthy, a.ID)
		}
	}
	return t
}

// failed is the end of a deployment, with the way back if there is one.
func failed(d *jobs.Deployment, stable *jobs.Job, why string) Verdict {
	v := Verdict{Status: jobs.DeployFailed, Description: why}
	revert := false
	for _, s := range d.Groups {
		revert = revert || s.AutoRevert
	}
	if !revert {
		return v
	}
	if stable == nil || stable.Version == d.JobVersion {
		v.Description += " - no stable job version to auto revert to"
		return v
	}
	v.Revert = stable
	v.Description += fmt.Sprintf(" - rolling back to job version %d", stable.Version)
	return v
}
