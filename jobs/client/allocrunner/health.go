package allocrunner

import (
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/client/lifecycle"
	"corbel.dev/corbel/jobs/client/workload"
	"corbel.dev/corbel/jobs/jobwire"
)

// rules are when an allocation is healthy.
type rules struct {
	by             string // checks, task_states, manual
	least, atMost  time.Duration
	reportsFailure bool
}

// rulesOf are those of the deployment, or of draining nodes where there is none; nil when nobody asks.
func rulesOf(load *workload.Workload) *rules {
	if jobwire.Get(load.Job.Type) != jobs.Service {
		return nil
	}
	if u := load.Group.Update; u != nil && !load.Rollout.Deployment.IsZero() {
		return &rules{by: jobwire.Get(u.HealthCheck), least: time.Duration(jobwire.Get(u.MinHealthyTime)),
			atMost: time.Duration(jobwire.Get(u.HealthyDeadline)), reportsFailure: true}
	}
	if m := load.Group.Migrate; m != nil {
		return &rules{by: jobwire.Get(m.HealthCheck), least: time.Duration(jobwire.Get(m.MinHealthyTime)),
			atMost: time.Duration(jobwire.Get(m.HealthyDeadline))}
	}
	return nil
}

// judge decides the health, and says when to look again (0: on the next change).
func (r *Runner) judge(load *workload.Workload, list []lifecycle.Task) time.Duration {
	rule := rulesOf(load)
	r.mu.Lock()
	decided := r.record.Health != jobs.Undecided || load.Rollout.Health != jobs.Undecided
	since, lives := r.since, r.lives
	r.mu.Unlock()
	if rule == nil || decided || rule.by == "manual" || !load.Wanted() {
		return 0
	}
	now := r.host.Clock.Now()
	well := up(list) && (rule.by == "task_states" || r.host.Services == nil || r.host.Services.Healthy(load.ID))
	health, since, wait := weigh(rule, well, broken(list), since, lives, now)
	r.mu.Lock()
	r.since = since
	if health != jobs.Undecided {
		r.record.Health, r.record.HealthAt = health, jobs.Time(now.UnixNano())
	}
	r.mu.Unlock()
	if health != jobs.Undecided {
		r.save()
	}
	return wait
}

// weigh is the pure part of judge: well since when, and what follows.
func weigh(rule *rules, well, broken bool, since, lives, now time.Time) (jobs.Health, time.Time, time.Duration) {
	if broken && rule.reportsFailure {
		return jobs.Unhealthy, time.Time{}, 0
	}
	if !well {
		since = time.Time{}
	} else if since.IsZero() {
		since = now
	}
	if well && now.Sub(since) >= rule.least {
		return jobs.Healthy, since, 0
	}
	left := lives.Add(rule.atMost).Sub(now)
	if rule.atMost > 0 && left <= 0 && rule.reportsFailure {
		return jobs.Unhealthy, since, 0
	}
	wait := left
	if well {
		if until := since.Add(rule.least).Sub(now); wait <= 0 || until < wait {
			wait = until
		}
	}
	return jobs.Undecided, since, max(wait, time.Millisecond)
}

// up reports whether everything runs that is to.
func up(list []lifecycle.Task) bool {
	for i := range list {
		t := &list[i]
		switch {
		case t.Failed:
			return false
		case t.Hook == lifecycle.Poststop:
		case t.Hook != lifecycle.Main && !t.Sidecar:
			if t.State != lifecycle.Dead {
				return false
			}
		case t.State != lifecycle.Running:
			return false
		}
	}
	return true
}

func broken(list []lifecycle.Task) bool {
	for i := range list {
		if t := &list[i]; t.Failed || t.Hook == lifecycle.Main && t.State == lifecycle.Dead {
			return true
		}
	}
	return false
}
