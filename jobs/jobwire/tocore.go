package jobwire

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"corbel.dev/corbel/jobs"
)

// Fields that the core has, by the struct that they are in.
var (
	typedJob = []string{"Namespace", "ID", "Name", "Type", "Priority", "AllAtOnce", "Datacenters", "NodePool",
		"Constraints", "Affinities", "Spreads", "TaskGroups", "ParameterizedJob", "ParentID", "Dispatched", "Payload",
		"DispatchIdempotencyToken", "Meta", "Stop", "Stable", "Version", "SubmitTime", "CreateIndex",
		"ModifyIndex", "JobModifyIndex",
		// The groups have what these say, and a job's status is told by its allocations.
		"Update", "Reschedule", "Migrate", "Status", "StatusDescription"}
	typedGroup = []string{"Name", "Count", "Constraints", "Affinities", "Spreads", "Tasks", "RestartPolicy",
		"ReschedulePolicy", "Update", "Migrate", "EphemeralDisk", "Networks", "Volumes", "Meta"}
	typedTask = []string{"Name", "Driver", "User", "Config", "Env", "Resources", "Constraints", "Affinities", "Meta"}
	// settings reach a running task in place.
	settings = []string{"Services", "KillTimeout", "KillSignal", "ShutdownDelay", "RestartPolicy", "ScalingPolicies",
		"Actions", "Leader"}
	typedResources = []string{"CPU", "Cores", "MemoryMB", "MemoryMaxMB", "Devices"}
	typedNetwork   = []string{"Mode", "ReservedPorts", "DynamicPorts"}
	typedVolume    = []string{"Name", "Type", "Source", "ReadOnly"}
	typedRestart   = []string{"Interval", "Attempts", "Delay", "Mode"}
	typedUpdate    = []string{"MaxParallel", "HealthCheck", "MinHealthyTime", "HealthyDeadline", "ProgressDeadline",
		"Canary", "AutoRevert", "AutoPromote"}
)

// ToJob is a canonical job as the core knows it.
func ToJob(j *Job) *jobs.Job {
	to := &jobs.Job{JobKey: jobs.JobKey{Namespace: Get(j.Namespace), ID: Get(j.ID)}, Name: Get(j.Name), Type: Get(j.Type),
		Priority: Get(j.Priority), AllAtOnce: Get(j.AllAtOnce), Datacenters: j.Datacenters, NodePool: Get(j.NodePool),
		Rules: toRules(j.Rules, j.Spreads), Meta: j.Meta, Parts: rest(j, typedJob...),
		Origin: jobs.Origin{ParentID: Get(j.ParentID), Dispatched: j.Dispatched, Payload: j.Payload,
			Token: Get(j.DispatchIdempotencyToken)},
		Revision: jobs.Revision{Version: Get(j.Version), Stop: Get(j.Stop), Stable: Get(j.Stable),
			SubmitTime: jobs.Time(Get(j.SubmitTime)), CreateIndex: Get(j.CreateIndex), ModifyIndex: Get(j.ModifyIndex),
			JobModifyIndex: Get(j.JobModifyIndex)}}
	if u := j.Update; u != nil {
		if to.Parts == nil {
			to.Parts = map[string]string{}
		}
		to.Parts["Update"] = encode(&UpdateStrategy{Stagger: u.Stagger, MaxParallel: u.MaxParallel})
	}
	if p := j.Periodic; p != nil {
		to.Periodic = &jobs.Periodic{Enabled: Get(p.Enabled), Specs: p.Specs, ProhibitOverlap: Get(p.ProhibitOverlap),
			TimeZone: Get(p.TimeZone)}
		if len(p.Specs) == 0 {
			to.Periodic.Specs = []string{Get(p.Spec)}
		}
	}
	if p := j.ParameterizedJob; p != nil {
		to.Dispatch = &jobs.DispatchRules{Payload: p.Payload, MetaRequired: p.MetaRequired, MetaOptional: p.MetaOptional}
	}
	for _, g := range j.TaskGroups {
		to.Groups = append(to.Groups, toGroup(g))
	}
	return to
}

func toRules(r Rules, spreads []*Spread) (to jobs.Rules) {
	for _, c := range r.Constraints {
		to.Constraints = append(to.Constraints, jobs.Constraint{Left: c.LTarget, Operand: c.Operand, Right: c.RTarget})
	}
	for _, a := range r.Affinities {
		to.Affinities = append(to.Affinities, jobs.Affinity{Weight: int(Get(a.Weight)),
			Constraint: jobs.Constraint{Left: a.LTarget, Operand: a.Operand, Right: a.RTarget}})
	}
	for _, s := range spreads {
		spread := jobs.Spread{Attribute: s.Attribute, Weight: int(Get(s.Weight))}
		for _, t := range s.SpreadTarget {
			spread.Targets = append(spread.Targets, jobs.SpreadTarget{Value: t.Value, Percent: int(t.Percent)})
		}
		to.Spreads = append(to.Spreads, spread)
	}
	return to
}

func toGroup(g *TaskGroup) *jobs.TaskGroup {
	to := &jobs.TaskGroup{Name: Get(g.Name), Count: Get(g.Count), Rules: toRules(g.Rules, g.Spreads), Meta: g.Meta,
		Parts: rest(g, typedGroup...)}
	part := func(name, text string) {
		if text != "" {
			if to.Parts == nil {
				to.Parts = map[string]string{}
			}
			to.Parts[name] = text
		}
	}
	if d := g.EphemeralDisk; d != nil {
		to.Disk = jobs.EphemeralDisk{SizeMB: int64(Get(d.SizeMB)), Sticky: Get(d.Sticky), Migrate: Get(d.Migrate)}
	}
	if r := g.RestartPolicy; r != nil {
		to.Restart = &jobs.RestartPolicy{Attempts: Get(r.Attempts), Interval: span(r.Interval), Delay: span(r.Delay),
			Mode: Get(r.Mode)}
		part("RestartPolicy", leftover(r, typedRestart...))
	}
	if r := g.ReschedulePolicy; r != nil {
		to.Reschedule = &jobs.ReschedulePolicy{Unlimited: Get(r.Unlimited), Attempts: Get(r.Attempts),
			Interval: span(r.Interval), Delay: span(r.Delay), MaxDelay: span(r.MaxDelay), Function: Get(r.DelayFunction)}
	}
	if m := g.Migrate; m != nil {
		to.Migrate = &jobs.MigratePolicy{MaxParallel: Get(m.MaxParallel), HealthCheck: Get(m.HealthCheck),
			MinHealthyTime: span(m.MinHealthyTime), HealthyDeadline: span(m.HealthyDeadline)}
	}
	switch u := g.Update; {
	case u == nil:
	case Get(u.MaxParallel) == 0: // everything at once: no deployments
		part("Update", encode(u))
	default:
		to.Update = &jobs.UpdatePolicy{MaxParallel: Get(u.MaxParallel), HealthCheck: Get(u.HealthCheck),
			MinHealthyTime: span(u.MinHealthyTime), HealthyDeadline: span(u.HealthyDeadline),
			ProgressDeadline: span(u.ProgressDeadline), Canary: Get(u.Canary), AutoRevert: Get(u.AutoRevert),
			AutoPromote: Get(u.AutoPromote)}
		part("Update", leftover(u, typedUpdate...))
	}
	to.Disconnect = g.toDisconnect()
	for _, n := range g.Networks {
		to.Networks = append(to.Networks, toNetwork(n))
	}
	for _, name := range slices.Sorted(maps.Keys(g.Volumes)) {
		v := g.Volumes[name]
		to.Volumes = append(to.Volumes, jobs.VolumeRequest{Name: cmp.Or(v.Name, name), Type: v.Type, Source: v.Source,
			ReadOnly: v.ReadOnly, Rest: leftover(v, typedVolume...)})
	}
	for _, t := range g.Tasks {
		to.Tasks = append(to.Tasks, toTask(t))
	}
	return to
}

func span(d *Duration) time.Duration { return time.Duration(Get(d)) }

// toDisconnect reads the block, or the fields that older clients have for it.
func (g *TaskGroup) toDisconnect() *jobs.Disconnect {
	if d := g.Disconnect; d != nil {
		return &jobs.Disconnect{LostAfter: span(d.LostAfter), StopAfter: span(d.StopOnClientAfter), Replace: Get(d.Replace),
			Reconcile: Get(d.Reconcile)}
	}
	if g.MaxClientDisconnect == nil && g.StopAfterClientDisconnect == nil && g.PreventRescheduleOnLost == nil {
		return nil
	}
	return &jobs.Disconnect{LostAfter: span(g.MaxClientDisconnect), StopAfter: span(g.StopAfterClientDisconnect),
		Replace: !Get(g.PreventRescheduleOnLost)}
}

func toNetwork(n *NetworkResource) jobs.Network {
	to := jobs.Network{Mode: n.Mode, Rest: leftover(n, typedNetwork...)}
	for _, p := range n.ReservedPorts {
		to.Reserved = append(to.Reserved, jobs.Port(p))
	}
	for _, p := range n.DynamicPorts {
		to.Dynamic = append(to.Dynamic, jobs.Port(p))
	}
	return to
}

func toTask(t *Task) *jobs.Task {
	to := &jobs.Task{Name: t.Name, Driver: t.Driver, User: t.User, Env: t.Env, Meta: t.Meta, Rules: toRules(t.Rules, nil),
		Parts: rest(t, append(settings, typedTask...)...)}
	for _, name := range settings {
		if text, ok := rest(t)[name]; ok {
			if to.Settings == nil {
				to.Settings = map[string]string{}
			}
			to.Settings[name] = text
		}
	}
	if len(t.Config) > 0 {
		to.Config = encode(t.Config)
	}
	if r := t.Resources; r != nil {
		to.Resources = jobs.Resources{CPU: int64(Get(r.CPU)), Cores: Get(r.Cores), MemoryMB: int64(Get(r.MemoryMB)),
			MemoryMaxMB: int64(Get(r.MemoryMaxMB))}
		for _, d := range r.Devices {
			rules := toRules(d.Rules, nil)
			to.Resources.Devices = append(to.Resources.Devices, jobs.DeviceRequest{Name: d.Name, Count: int(Get(d.Count)),
				Constraints: rules.Constraints, Affinities: rules.Affinities})
		}
		if text := leftover(r, typedResources...); text != "" {
			if to.Parts == nil {
				to.Parts = map[string]string{}
			}
			to.Parts["Resources"] = text
		}
	}
	return to
}
