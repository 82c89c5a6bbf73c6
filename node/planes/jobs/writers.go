package jobsplane

import (
	"context"
	"encoding/json"
	"time"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/dispatch"
	"corbel.dev/corbel/jobs/jobsched"
	"corbel.dev/corbel/jobs/jobstore"
	"corbel.dev/corbel/jobs/periodic"
	"corbel.dev/corbel/kit/errkind"
)

// writers implements what the API changes: nomadrows.JobWriter, JobStarter, NodeWriter, DeploymentWriter and Settings.
type writers struct{ p *Plane }

// do commits a command and says what the API wants to know of it.
func (w writers) do(ctx context.Context, kind string, c *jobstore.Command) (out nomadrows.Written, err error) {
	c.Head = w.p.head(kind)
	r, err := w.p.group.propose(ctx, c)
	if err != nil {
		return out, err
	}
	out = nomadrows.Written{Index: r.Index, JobModifyIndex: r.JobModifyIndex, Evals: r.Evals, Updated: true}
	if len(r.Evals) > 0 {
		out.Eval, out.EvalIndex = r.Evals[0], r.Index
	}
	return out, nil
}

func newID() jobs.ID { return jobs.NewDice(jobsched.Seed(), jobsched.Seed()).ID() }

// Register implements nomadrows.JobWriter.
func (w writers) Register(ctx context.Context, r *nomadrows.Registration) (nomadrows.Written, error) {
	if w.p.store.View().Setting().RejectJobRegistration {
		return nomadrows.Written{}, errkind.New(errkind.Denied,
			"job registration is rejected by the operator's configuration")
	}
	one := jobstore.JobWrite{Job: r.Job, Index: r.Index, Version: r.Version, KeepCounts: r.PreserveCounts,
		Trigger:  r.Trigger,
		Priority: r.Priority, EvalID: newID(), Stopped: r.Stopped}
	if r.Submission != nil {
		text, err := json.Marshal(r.Submission)
		if err != nil {
			return nomadrows.Written{}, errkind.E(errkind.Invalid, "submission", err)
		}
		one.Submission = string(text)
	}
	c := &jobstore.Command{Jobs: jobstore.JobWrites{Put: []jobstore.JobWrite{one}}}
	if r.Scaling != nil {
		event := scalingWrite(r.Job.JobKey, r.Scaling)
		event.Event.EvalID = one.EvalID
		c.Scalings = []jobstore.ScalingWrite{event}
	}
	return w.do(ctx, jobstore.JobRegistered, c)
}

// Deregister implements nomadrows.JobWriter.
func (w writers) Deregister(ctx context.Context, key jobs.JobKey, purge bool, priority int) (nomadrows.Written, error) {
	return w.do(ctx, jobstore.JobDeregistered, &jobstore.Command{Jobs: jobstore.JobWrites{
		Stop: []jobstore.JobStop{{JobKey: key, Purge: purge, Priority: priority, EvalID: newID()}}}})
}

// Evaluate implements nomadrows.JobWriter.
func (w writers) Evaluate(ctx context.Context, key jobs.JobKey, reschedule bool) (nomadrows.Written, error) {
	j := w.p.store.View().State.Job(key)
	if j != nil && (j.Periodic != nil || j.Dispatch != nil && !j.Origin.Dispatched) {
		what := "periodic"
		if j.Periodic == nil {
			what = "parameterized"
		}
		return nomadrows.Written{}, errkind.New(errkind.Invalid, "can't evaluate "+what+" job")
	}
	return w.do(ctx, jobstore.EvaluationUpdated, &jobstore.Command{Jobs: jobstore.JobWrites{
		Eval: []jobstore.EvalOrder{{JobKey: key, Reschedule: reschedule, EvalID: newID()}}}})
}

// Stable implements nomadrows.JobWriter.
func (w writers) Stable(ctx context.Context, key jobs.JobKey, version uint64, stable bool) (nomadrows.Written, error) {
	found := false
	for j := range w.p.store.View().State.Versions(key) {
		found = found || j.Version == version
	}
	if !found {
		return nomadrows.Written{}, errkind.Errorf(errkind.NotFound, "job %q at version %d not found", key.ID, version)
	}
	return w.do(ctx, jobstore.JobRegistered, &jobstore.Command{Jobs: jobstore.JobWrites{
		Stable: []jobstore.StableMark{{JobKey: key, Version: version, Stable: stable}}}})
}

// Dispatch implements nomadrows.JobStarter.
func (w writers) Dispatch(ctx context.Context, key jobs.JobKey, r dispatch.Request) (nomadrows.Written, error) {
	v := w.p.store.View()
	parent := v.State.Job(key)
	if err := dispatch.Check(parent, r); err != nil {
		return nomadrows.Written{}, err
	}
	if old := v.State.Dispatched(key, r.Token); old != nil {
		return nomadrows.Written{Job: old.ID, Index: v.State.Index()}, nil
	}
	child := dispatch.Child(parent, r, w.p.now(), jobs.NewDice(jobsched.Seed(), 1))
	none := uint64(0)
	out, err := w.do(ctx, jobstore.JobRegistered, &jobstore.Command{Jobs: jobstore.JobWrites{
		Put: []jobstore.JobWrite{{Job: child, Index: &none, EvalID: newID()}}}})
	if errkind.Is(err, errkind.Conflict) { // another one with the token was faster
		v = w.p.store.View()
		if old := v.State.Dispatched(key, r.Token); old != nil {
			return nomadrows.Written{Job: old.ID, Index: v.State.Index()}, nil
		}
	}
	out.Job = child.ID
	return out, err
}

// Force implements nomadrows.JobStarter.
func (w writers) Force(ctx context.Context, key jobs.JobKey) (nomadrows.Written, error) {
	v := w.p.store.View()
	parent := v.State.Job(key)
	switch {
	case parent == nil:
		return nomadrows.Written{}, errkind.New(errkind.NotFound, "job not found")
	case !periodic.Active(parent):
		return nomadrows.Written{}, errkind.New(errkind.Invalid, "can't force launch non-periodic job")
	case parent.Periodic.ProhibitOverlap && jobsched.Overlaps(v, parent):
		return nomadrows.Written{}, errkind.New(errkind.Conflict, "a child of the job still runs, and it prohibits overlap")
	}
	one := jobsched.Launch(parent, w.p.now(), w.p.now())
	one.EvalID = newID()
	out, err := w.do(ctx, jobstore.JobRegistered,
		&jobstore.Command{Jobs: jobstore.JobWrites{Put: []jobstore.JobWrite{one}}})
	out.Job = one.Job.ID
	return out, err
}

// StopAllocation implements nomadrows.JobStarter.
func (w writers) StopAllocation(ctx context.Context, id jobs.ID, _ bool) (nomadrows.Written, error) {
	if w.p.store.View().State.Allocation(id) == nil {
		return nomadrows.Written{}, errkind.New(errkind.NotFound, "alloc not found")
	}
	return w.do(ctx, jobstore.AllocationDesired,
		&jobstore.Command{Allocs: jobstore.AllocWrites{Transitions: []jobstore.Transition{
			{Alloc: id, Migrate: true, Reschedule: true, Trigger: jobs.TriggerAllocStop, EvalID: newID()}}}})
}

// node refuses what is asked of a node that is not there.
func (w writers) node(id jobs.ID) error {
	if w.p.store.View().State.Node(id) == nil {
		return errkind.New(errkind.NotFound, "node not found")
	}
	return nil
}

// Drain implements nomadrows.NodeWriter.
func (w writers) Drain(ctx context.Context, id jobs.ID, d nomadrows.Draining) (nomadrows.Written, error) {
	if err := w.node(id); err != nil {
		return nomadrows.Written{}, err
	}
	now := w.p.now()
	one := jobstore.DutyWrite{ID: id, Subsystem: "Drain"}
	record := jobstore.DrainRecord{StartedAt: now, UpdatedAt: now, Accessor: d.Accessor, Meta: d.Meta}
	if d.Drain {
		drain := jobs.Drain{IgnoreSystemJobs: d.IgnoreSystemJobs}
		switch {
		case d.Deadline < 0:
			drain.Deadline = now - 1
		case d.Deadline > 0:
			drain.Deadline = now.Add(d.Deadline)
		}
		record.Status = "draining"
		one.Drain, one.Message = &drain, "Node drain strategy set"
	} else {
		record.Status = "canceled"
		if old := w.p.store.View().NodeDetail(id); old != nil && old.Drain != nil {
			record.StartedAt = old.Drain.StartedAt
		}
		ineligible := !d.MarkEligible
		one.EndDrain, one.Ineligible, one.Message = true, &ineligible, "Node drain strategy unset"
	}
	one.Record = &record
	return w.do(ctx, jobstore.NodeDrain, &jobstore.Command{Nodes: jobstore.NodeWrites{Duty: []jobstore.DutyWrite{one}}})
}

// Eligible implements nomadrows.NodeWriter.
func (w writers) Eligible(ctx context.Context, id jobs.ID, eligible bool) (nomadrows.Written, error) {
	u := w.p.store.View().State.Node(id)
	switch {
	case u == nil:
		return nomadrows.Written{}, errkind.New(errkind.NotFound, "node not found")
	case u.Node.Duty.Drain != nil && eligible:
		return nomadrows.Written{}, errkind.New(errkind.Conflict,
			"can not set node's scheduling eligibility to eligible while it is draining")
	}
	ineligible, text := !eligible, "Node marked as eligible for scheduling"
	if ineligible {
		text = "Node marked as ineligible for scheduling"
	}
	return w.do(ctx, jobstore.NodeDrain, &jobstore.Command{Nodes: jobstore.NodeWrites{
		Duty: []jobstore.DutyWrite{{ID: id, Ineligible: &ineligible, Message: text}}}})
}

// EvaluateNode implements nomadrows.NodeWriter.
func (w writers) EvaluateNode(ctx context.Context, id jobs.ID) (nomadrows.Written, error) {
	if err := w.node(id); err != nil {
		return nomadrows.Written{}, err
	}
	return w.do(ctx, jobstore.EvaluationUpdated, &jobstore.Command{Nodes: jobstore.NodeWrites{Eval: []jobs.ID{id}}})
}

// Purge implements nomadrows.NodeWriter.
func (w writers) Purge(ctx context.Context, id jobs.ID) (nomadrows.Written, error) {
	if err := w.node(id); err != nil {
		return nomadrows.Written{}, err
	}
	return w.do(ctx, jobstore.NodeDeregistration, &jobstore.Command{Nodes: jobstore.NodeWrites{Purge: []jobs.ID{id}}})
}

// rollout changes a deployment.
func (w writers) rollout(ctx context.Context, kind string, r jobstore.RolloutWrite) (nomadrows.Written, error) {
	r.EvalID = newID()
	return w.do(ctx, kind, &jobstore.Command{Rollouts: []jobstore.RolloutWrite{r}})
}

// Promote implements nomadrows.DeploymentWriter.
func (w writers) Promote(ctx context.Context, id jobs.ID, groups []string) (nomadrows.Written, error) {
	v := w.p.store.View()
	if d := v.State.Deployment(id); d.Active() {
		for name, g := range d.Groups {
			healthy := 0
			for _, canary := range g.Canaries {
				if a := v.State.Allocation(canary); a != nil && a.Rollout.Health == jobs.Healthy {
					healthy++
				}
			}
			if g.DesiredCanaries > healthy && !g.Promoted {
				return nomadrows.Written{}, errkind.Errorf(errkind.Conflict, "Task group %q has %d/%d healthy allocations", name,
					healthy, g.DesiredCanaries)
			}
		}
	}
	return w.rollout(ctx, jobstore.DeploymentPromotion, jobstore.RolloutWrite{ID: id, Promote: true, Groups: groups})
}

// Fail implements nomadrows.DeploymentWriter.
func (w writers) Fail(ctx context.Context, id jobs.ID) (nomadrows.Written, error) {
	v := w.p.store.View()
	r := jobstore.RolloutWrite{ID: id, Status: jobs.DeployFailed, Description: "Deployment marked as failed"}
	reverted := uint64(0)
	if d := v.State.Deployment(id); d.Active() {
		if stable := jobsched.RevertsTo(v.State, d); stable != nil {
			r.Revert, reverted = &stable.Version, stable.Version
		}
	}
	out, err := w.rollout(ctx, jobstore.DeploymentStatus, r)
	out.Version, out.Reverted = reverted, r.Revert != nil
	return out, err
}

// Pause implements nomadrows.DeploymentWriter.
func (w writers) Pause(ctx context.Context, id jobs.ID, pause bool) (nomadrows.Written, error) {
	r := jobstore.RolloutWrite{ID: id, Status: jobs.DeployRunning, Description: "Deployment is running"}
	if pause {
		r.Status, r.Description, r.Quiet = jobs.DeployPaused, "Deployment is paused", true
	}
	return w.rollout(ctx, jobstore.DeploymentStatus, r)
}

// Health implements nomadrows.DeploymentWriter.
func (w writers) Health(ctx context.Context, id jobs.ID, healthy, unhealthy []jobs.ID) (nomadrows.Written, error) {
	return w.rollout(ctx, jobstore.DeploymentHealth, jobstore.RolloutWrite{ID: id, Healthy: healthy, Unhealthy: unhealthy})
}

// SetScheduler implements nomadrows.Settings.
func (w writers) SetScheduler(ctx context.Context, s nomadrows.SchedulerSetting, index *uint64) (nomadrows.Written,
	error) {
	set := jobstore.Setting{SchedulerAlgorithm: s.SchedulerAlgorithm,
		PreemptionConfig:              jobstore.Preemption(s.PreemptionConfig),
		MemoryOversubscriptionEnabled: s.MemoryOversubscriptionEnabled, RejectJobRegistration: s.RejectJobRegistration,
		PauseEvalBroker: s.PauseEvalBroker, NodeLimitForFeasibilityChecks: s.NodeLimitForFeasibilityChecks}
	body, err := json.Marshal(set)
	if err != nil {
		return nomadrows.Written{}, errkind.E(errkind.Invalid, "scheduler configuration", err)
	}
	pools := map[string]string{}
	for _, p := range (view{w.p.store.View()}).Pools() {
		if p.SchedulerConfiguration != nil && p.SchedulerConfiguration.SchedulerAlgorithm != "" {
			pools[p.Name] = p.SchedulerConfiguration.SchedulerAlgorithm
		}
	}
	cfg := set.Config(pools)
	out, err := w.do(ctx, "", &jobstore.Command{Names: jobstore.NameWrites{Config: &cfg, Docs: []jobstore.DocWrite{
		{Document: jobstore.Document{Table: jobstore.Scheduler, Body: string(body)}, Check: index}}}})
	if errkind.Is(err, errkind.Conflict) {
		return nomadrows.Written{Index: w.p.store.View().State.Index()}, nil
	}
	return out, err
}

// Put implements nomadrows.Settings.
func (w writers) Put(ctx context.Context, object any) (nomadrows.Written, error) {
	d := jobstore.Document{}
	c := &jobstore.Command{}
	switch o := object.(type) {
	case *nomadrows.Namespace:
		d.Table, d.Name = jobstore.Namespaces, o.Name
	case *nomadrows.NodePool:
		if o.Name == "all" || o.Name == "default" {
			return nomadrows.Written{}, errkind.Errorf(errkind.Conflict, "modifying node pool %q is not allowed", o.Name)
		}
		d.Table, d.Name = jobstore.Pools, o.Name
		cfg := w.p.store.View().State.Config()
		pools := map[string]string{}
		for name, algorithm := range cfg.PoolAlgorithm {
			pools[name] = algorithm
		}
		delete(pools, o.Name)
		if o.SchedulerConfiguration != nil && o.SchedulerConfiguration.SchedulerAlgorithm != "" {
			pools[o.Name] = o.SchedulerConfiguration.SchedulerAlgorithm
		}
		cfg.PoolAlgorithm = pools
		c.Names.Config = &cfg
	default:
		return nomadrows.Written{}, errkind.New(errkind.Invalid, "neither a namespace nor a node pool")
	}
	body, err := json.Marshal(object)
	if err != nil {
		return nomadrows.Written{}, errkind.E(errkind.Invalid, d.Name, err)
	}
	d.Body = string(body)
	c.Names.Docs = []jobstore.DocWrite{{Document: d}}
	return w.do(ctx, "", c)
}

// Delete implements nomadrows.Settings.
func (w writers) Delete(ctx context.Context, t nomadrows.Table, namespace, name string) (nomadrows.Written, error) {
	d := jobstore.Document{Table: tables[t], Namespace: namespace, Name: name}
	if w.p.store.View().Document(d.Table, namespace, name) == nil && t != nomadrows.Namespaces {
		return nomadrows.Written{}, errkind.Errorf(errkind.NotFound, "%q not found", name)
	}
	kind := ""
	if t == nomadrows.Services {
		kind = "ServiceDeregistration"
	}
	return w.do(ctx, kind, &jobstore.Command{Names: jobstore.NameWrites{Docs: []jobstore.DocWrite{{Document: d,
		Delete: true}}}})
}

// collectWait bounds a sweep that somebody asked for.
const collectWait = time.Minute

// Collect implements nomadrows.Settings.
func (w writers) Collect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, collectWait)
	defer cancel()
	return w.p.sched.Collect(ctx)
}

// Reconcile implements nomadrows.Settings. That a summary was wrong is a fault of the program: it is told.
func (w writers) Reconcile(ctx context.Context) error {
	c := &jobstore.Command{Head: w.p.head(""), Sweep: jobstore.Sweep{Recount: true}}
	out, err := w.p.group.propose(ctx, c)
	if err == nil && len(out.Miscounted) > 0 {
		w.p.d.Log.Error("summaries of jobs were wrong, and are right now: please report this", "count", len(out.Miscounted),
			"first", out.Miscounted[0].Namespace+"/"+out.Miscounted[0].ID)
	}
	return err
}
