package jobwire

import (
	"reflect"
	"time"

	"corbel.dev/corbel/jobs"
)

// FromJob is a job as the API shows it. Status and StatusDescription stay empty: they are not the job's but
// what became of it. Nothing of the result is shared with j but for its maps and lists of text.
func FromJob(j *jobs.Job) *Job {
	w := &Job{JobIdentity: JobIdentity{Namespace: &j.Namespace, ID: &j.ID, Name: &j.Name, Type: &j.Type,
		Priority: &j.Priority},
		JobTarget: JobTarget{AllAtOnce: &j.AllAtOnce, Datacenters: j.Datacenters, NodePool: &j.NodePool},
		Meta:      j.Meta,
		JobChild:  JobChild{ParentID: &j.Origin.ParentID, Dispatched: j.Origin.Dispatched, Payload: j.Origin.Payload},
		JobState: JobState{Stop: &j.Stop, Stable: &j.Stable, Version: &j.Version, SubmitTime: to(int64(j.SubmitTime)),
			CreateIndex: &j.CreateIndex, ModifyIndex: &j.ModifyIndex, JobModifyIndex: &j.JobModifyIndex}}
	if j.Origin.Token != "" {
		w.DispatchIdempotencyToken = &j.Origin.Token
	}
	restore(w, j.Parts)
	w.Rules, w.Spreads = fromRules(j.Rules)
	if d := j.Dispatch; d != nil {
		w.ParameterizedJob = &ParameterizedJobConfig{Payload: d.Payload, MetaRequired: d.MetaRequired,
			MetaOptional: d.MetaOptional}
	}
	if u := w.Update; u != nil { // only these two are the job's own
		zeros(reflect.ValueOf(u).Elem())
	}
	for _, g := range j.Groups {
		w.TaskGroups = append(w.TaskGroups, fromGroup(g))
	}
	fill(reflect.ValueOf(w))
	return unshared(w)
}

// Variant is base, canonical, with what j has of its own: what jobs differ in that share a body (jobs.Job.SharesBody).
// It shares the rest with base.
func Variant(base *Job, j *jobs.Job) *Job {
	w := *base
	w.ID, w.Name, w.Priority = to(j.ID), to(j.Name), to(j.Priority)
	w.JobChild = JobChild{ParentID: to(j.Origin.ParentID), Dispatched: j.Origin.Dispatched, Payload: j.Origin.Payload}
	if j.Origin.Token != "" {
		w.DispatchIdempotencyToken = to(j.Origin.Token)
	}
	w.Meta = j.Meta
	w.Stop, w.Stable, w.Version, w.SubmitTime = to(j.Stop), to(j.Stable), to(j.Version), to(int64(j.SubmitTime))
	w.CreateIndex, w.ModifyIndex, w.JobModifyIndex = to(j.CreateIndex), to(j.ModifyIndex), to(j.JobModifyIndex)
	return &w
}

// unshared makes the pointers to scalars of w lead to copies, so that nobody changes a job through them.
func unshared(w *Job) *Job {
	each(reflect.ValueOf(w), func(s reflect.Value) {
		for i := range s.NumField() {
			if f := s.Field(i); f.Kind() == reflect.Pointer && !f.IsNil() && f.Type().Elem().Kind() != reflect.Struct {
				c := reflect.New(f.Type().Elem())
				c.Elem().Set(f.Elem())
				f.Set(c)
			}
		}
	})
	return w
}

// zeros gives nil pointers of a struct zeros.
func zeros(s reflect.Value) {
	for i := range s.NumField() {
		if f := s.Field(i); f.Kind() == reflect.Pointer && f.IsNil() {
			f.Set(reflect.New(f.Type().Elem()))
		}
	}
}

func fromRules(r jobs.Rules) (w Rules, spreads []*Spread) {
	for _, c := range r.Constraints {
		w.Constraints = append(w.Constraints, &Constraint{LTarget: c.Left, Operand: c.Operand, RTarget: c.Right})
	}
	for _, a := range r.Affinities {
		w.Affinities = append(w.Affinities, &Affinity{LTarget: a.Left, Operand: a.Operand, RTarget: a.Right,
			Weight: to(int8(a.Weight))})
	}
	for _, s := range r.Spreads {
		spread := &Spread{Attribute: s.Attribute, Weight: to(int8(s.Weight))}
		for _, t := range s.Targets {
			spread.SpreadTarget = append(spread.SpreadTarget, &SpreadTarget{Value: t.Value, Percent: uint8(t.Percent)})
		}
		spreads = append(spreads, spread)
	}
	return w, spreads
}

func fromGroup(g *jobs.TaskGroup) *TaskGroup {
	w := &TaskGroup{Name: &g.Name, Count: &g.Count, Meta: g.Meta,
		EphemeralDisk: &EphemeralDisk{SizeMB: to(int(g.Disk.SizeMB)), Sticky: &g.Disk.Sticky, Migrate: &g.Disk.Migrate}}
	restore(w, g.Parts)
	w.Rules, w.Spreads = fromRules(g.Rules)
	if r := g.Restart; r != nil {
		w.RestartPolicy = over(w.RestartPolicy, &RestartPolicy{Attempts: &r.Attempts, Interval: nanos(r.Interval),
			Delay: nanos(r.Delay), Mode: &r.Mode})
	}
	if r := g.Reschedule; r != nil {
		w.ReschedulePolicy = &ReschedulePolicy{Unlimited: &r.Unlimited, Attempts: &r.Attempts,
			Interval: nanos(r.Interval), Delay: nanos(r.Delay), MaxDelay: nanos(r.MaxDelay), DelayFunction: &r.Function}
	}
	if m := g.Migrate; m != nil {
		w.Migrate = &MigrateStrategy{MaxParallel: &m.MaxParallel, HealthCheck: &m.HealthCheck,
			MinHealthyTime: nanos(m.MinHealthyTime), HealthyDeadline: nanos(m.HealthyDeadline)}
	}
	if u := g.Update; u != nil {
		w.Update = over(w.Update, &UpdateStrategy{MaxParallel: &u.MaxParallel, HealthCheck: &u.HealthCheck,
			MinHealthyTime: nanos(u.MinHealthyTime), HealthyDeadline: nanos(u.HealthyDeadline),
			ProgressDeadline: nanos(u.ProgressDeadline), Canary: &u.Canary, AutoRevert: &u.AutoRevert,
			AutoPromote: &u.AutoPromote})
	}
	for _, n := range g.Networks {
		w.Networks = append(w.Networks, fromNetwork(n))
	}
	for _, v := range g.Volumes {
		if w.Volumes == nil {
			w.Volumes = map[string]*VolumeRequest{}
		}
		request := &VolumeRequest{}
		read(v.Rest, request)
		request.Name, request.Type, request.Source, request.ReadOnly = v.Name, v.Type, v.Source, v.ReadOnly
		w.Volumes[v.Name] = request
	}
	for _, t := range g.Tasks {
		w.Tasks = append(w.Tasks, fromTask(t))
	}
	return w
}

func nanos(d time.Duration) *Duration { return to(Duration(d)) }

// over is typed, and where that says nothing what was left over.
func over[T any](left, typed *T) *T { return under(typed, left) }

func fromNetwork(n jobs.Network) *NetworkResource {
	w := &NetworkResource{}
	read(n.Rest, w)
	w.Mode = n.Mode
	for _, p := range n.Reserved {
		w.ReservedPorts = append(w.ReservedPorts, Port(p))
	}
	for _, p := range n.Dynamic {
		w.DynamicPorts = append(w.DynamicPorts, Port(p))
	}
	return w
}

func fromTask(t *jobs.Task) *Task {
	w := &Task{}
	restore(w, t.Parts)
	restore(w, t.Settings)
	w.Name, w.Driver, w.User, w.Env, w.Meta = t.Name, t.Driver, t.User, t.Env, t.Meta
	w.Rules, _ = fromRules(t.Rules)
	if t.Config != "" {
		if config, err := Decode[map[string]any]([]byte(t.Config)); err == nil {
			w.Config = *config
		}
	}
	if w.Resources == nil {
		w.Resources = &Resources{}
	}
	r := t.Resources
	w.Resources.CPU, w.Resources.Cores, w.Resources.MemoryMB = to(int(r.CPU)), &r.Cores, to(int(r.MemoryMB))
	if r.MemoryMaxMB > 0 {
		w.Resources.MemoryMaxMB = to(int(r.MemoryMaxMB))
	}
	for _, d := range r.Devices {
		rules, _ := fromRules(jobs.Rules{Constraints: d.Constraints, Affinities: d.Affinities})
		w.Resources.Devices = append(w.Resources.Devices, &RequestedDevice{Name: d.Name, Count: to(uint64(d.Count)),
			Rules: rules})
	}
	return w
}
