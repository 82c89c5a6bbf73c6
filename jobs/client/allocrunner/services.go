package allocrunner

import (
	"context"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/client/lifecycle"
	"corbel.dev/corbel/jobs/client/services"
	"corbel.dev/corbel/jobs/client/workload"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/jobs/meshtask"
)

// Services registers what allocations offer. Its methods do not wait for others.
type Services interface {
	// Set makes these, and no others, the services of an allocation.
	Set(alloc jobs.ID, list []services.Service)
	// Healthy reports whether all checks of an allocation pass.
	Healthy(alloc jobs.ID) bool
}

// wanted are the services that are to be known now: of the group while main tasks run, of a task while it runs. What
// has a sidecar is known as soon as its proxy may start, which gets its configuration by that.
func (r *Runner) wanted(load *workload.Workload, list []lifecycle.Task) (out []services.Service) {
	state := map[string]string{}
	serves := false
	for _, t := range list {
		state[t.Name] = t.State
		if r.task(t.Name).leaves() {
			state[t.Name] = lifecycle.Dead
		}
		serves = serves || t.Hook == lifecycle.Main && state[t.Name] == lifecycle.Running
	}
	some := load.Group.Tasks[0] // a group's service has no task; what it names is the same in all
	for _, s := range load.Group.Services {
		if serves || proxied(load, s, state) {
			out = append(out, services.Make(load, nil, s, r.env(load, some, r.known(some.Name), nil), r.ports(load)))
		}
	}
	for _, t := range load.Group.Tasks {
		if state[t.Name] != lifecycle.Running {
			continue
		}
		for _, s := range t.Services {
			out = append(out, services.Make(load, t, s, r.env(load, t, r.known(t.Name), nil), r.ports(load)))
		}
	}
	return out
}

// proxied reports whether the proxy of a service runs or may, and so may a main task.
func proxied(load *workload.Workload, s *jobwire.Service, state map[string]string) bool {
	proxy, lives := false, false
	for _, t := range load.Group.Tasks {
		dead := state[t.Name] == lifecycle.Dead
		proxy = proxy || !dead && meshtask.ServiceOf(load.Group, t) == s
		lives = lives || !dead && t.Lifecycle == nil
	}
	return proxy && lives
}

// leaving takes the services of a task away before it is stopped.
func (r *Runner) leaving(_ context.Context, name string) {
	t := r.task(name)
	t.away.Store(true)
	if r.host.Services == nil {
		return
	}
	load, list := r.views()
	r.host.Services.Set(load.ID, r.wanted(load, list))
}
