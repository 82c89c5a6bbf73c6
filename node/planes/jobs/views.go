package jobsplane

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"slices"
	"time"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobstore"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/jobs/state"
	"corbel.dev/corbel/node/raftgroup"
)

// views implements nomadrows.Views.
type views struct{ p *Plane }

// tables are jobstore's by nomadrows'.
var tables = map[nomadrows.Table]jobstore.Table{nomadrows.Jobs: jobstore.Jobs, nomadrows.Nodes: jobstore.Nodes,
	nomadrows.Allocations: jobstore.Allocations, nomadrows.Evaluations: jobstore.Evaluations,
	nomadrows.Deployments: jobstore.Deployments, nomadrows.Services: jobstore.Services,
	nomadrows.Variables:  jobstore.Variables,
	nomadrows.Namespaces: jobstore.Namespaces, nomadrows.Pools: jobstore.Pools, nomadrows.Scheduler: jobstore.Scheduler}

// View implements nomadrows.Views.
func (w views) View(ctx context.Context, stale bool) (nomadrows.View, error) {
	if !stale {
		if err := raftgroup.Leads(ctx, w.p.group.raft); err != nil {
			return nil, err
		}
	}
	return view{w.p.store.View()}, nil
}

// Wait implements nomadrows.Views.
func (w views) Wait(ctx context.Context, s nomadrows.Watch, index uint64) {
	w.p.store.Wait(ctx, jobstore.Subject{Table: tables[s.Table], Job: s.Job, ID: s.ID}, index)
}

// LastContact implements nomadrows.Views.
func (w views) LastContact() (time.Duration, bool) {
	raft := w.p.group.raft
	if raft.IsLeader() {
		return 0, true
	}
	return raft.LastContact(), raft.LeaderAddr() != ""
}

// Oldest implements nomadrows.Views.
func (w views) Oldest() uint64 { return w.p.store.Ring().Oldest() }

// Events implements nomadrows.Views.
func (w views) Events(ctx context.Context, index uint64) ([]*nomadrows.Events, error) {
	changes, err := w.p.store.Ring().After(ctx, index)
	if err != nil {
		return nil, err
	}
	v := w.p.store.View()
	out := make([]*nomadrows.Events, len(changes))
	for i := range changes {
		out[i] = eventsOf(v, &changes[i])
	}
	return out, nil
}

// view implements nomadrows.View.
type view struct{ v *jobstore.View }

func (v view) State() *state.State            { return v.v.State }
func (v view) Generation() uint64             { return v.v.Generation() }
func (v view) Index(t nomadrows.Table) uint64 { return v.v.Index(tables[t]) }
func (v view) Tasks(id jobs.ID) (tasks map[string]*jobwire.TaskState) {
	if d := v.v.AllocDetail(id); d != nil && d.Tasks != "" {
		decode(d.Tasks, &tasks)
	}
	return tasks
}

// decode reads what a node or an older release wrote: what cannot be read is left out.
func decode(text string, to any) { _ = json.Unmarshal([]byte(text), to) }

func (v view) Network(id jobs.ID) json.RawMessage {
	if d := v.v.AllocDetail(id); d != nil && json.Valid([]byte(d.Net)) {
		return json.RawMessage(d.Net)
	}
	return nil
}

func moment(t jobs.Time) time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(t)).UTC()
}

func (v view) Node(id jobs.ID) (out nomadrows.NodeDetail) {
	d, u := v.v.NodeDetail(id), v.v.State.Node(id)
	if d == nil || u == nil {
		return out
	}
	var body nodeBody
	decode(d.Body, &body)
	out.Address, out.TLS = body.HTTPAddr, body.TLS
	out.Version = u.Node.Attributes["nomad.version"]
	for _, e := range d.Events {
		out.Events = append(out.Events, &jobwire.NodeEvent{Message: e.Message, Subsystem: e.Subsystem, Details: e.Details,
			Timestamp: moment(e.At), CreateIndex: e.Index})
	}
	if r := d.Drain; r != nil {
		out.LastDrain = &jobwire.DrainMetadata{StartedAt: moment(r.StartedAt), UpdatedAt: moment(r.UpdatedAt),
			Status:     r.Status,
			AccessorID: r.Accessor, Meta: r.Meta}
	}
	if len(body.DriverTexts) > 0 {
		out.Drivers = map[string]*jobwire.DriverInfo{}
		for name, driver := range u.Node.Drivers {
			out.Drivers[name] = &jobwire.DriverInfo{Detected: driver.Detected, Healthy: driver.Healthy,
				HealthDescription: body.DriverTexts[name]}
		}
	}
	return out
}

func (v view) Submission(key jobs.JobKey, version uint64) *nomadrows.Submission {
	d := v.v.Submission(key, version)
	if d == nil {
		return nil
	}
	out := &nomadrows.Submission{}
	decode(d.Body, out)
	return out
}

func (v view) Namespaces() []*nomadrows.Namespace {
	list := []*nomadrows.Namespace{{Name: "default", Description: "Default shared namespace", CreateIndex: 1,
		ModifyIndex: 1}}
	for d := range v.v.Documents(jobstore.Namespaces, "") {
		n := &nomadrows.Namespace{}
		decode(d.Body, n)
		n.Name, n.CreateIndex, n.ModifyIndex = d.Name, d.CreateIndex, d.ModifyIndex
		if d.Name == "default" {
			list[0] = n
		} else {
			list = append(list, n)
		}
	}
	slices.SortFunc(list, func(a, b *nomadrows.Namespace) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func (v view) Pools() []*nomadrows.NodePool {
	list := []*nomadrows.NodePool{{Name: "all", Description: "Node pool with all nodes in the cluster.", CreateIndex: 1,
		ModifyIndex: 1}, {Name: "default", Description: "Default node pool.", CreateIndex: 1, ModifyIndex: 1}}
	for d := range v.v.Documents(jobstore.Pools, "") {
		n := poolOf(d)
		list = slices.DeleteFunc(list, func(o *nomadrows.NodePool) bool { return o.Name == d.Name })
		list = append(list, n)
	}
	slices.SortFunc(list, func(a, b *nomadrows.NodePool) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func poolOf(d *jobstore.Document) *nomadrows.NodePool {
	n := &nomadrows.NodePool{}
	decode(d.Body, n)
	n.Name, n.CreateIndex, n.ModifyIndex = d.Name, d.CreateIndex, d.ModifyIndex
	return n
}

func (v view) Services(namespace string) iter.Seq[*nomadrows.Service] {
	return func(yield func(*nomadrows.Service) bool) {
		for d := range v.v.Documents(jobstore.Services, namespace) {
			if !yield(serviceOf(d)) {
				return
			}
		}
	}
}

func serviceOf(d *jobstore.Document) *nomadrows.Service {
	s := &nomadrows.Service{}
	decode(d.Body, s)
	s.CreateIndex, s.ModifyIndex = d.CreateIndex, d.ModifyIndex
	return s
}

func (v view) Scheduler() nomadrows.SchedulerSetting {
	s := v.v.Setting()
	return nomadrows.SchedulerSetting{SchedulerAlgorithm: s.SchedulerAlgorithm,
		PreemptionConfig:              nomadrows.Preemption(s.PreemptionConfig),
		MemoryOversubscriptionEnabled: s.MemoryOversubscriptionEnabled, RejectJobRegistration: s.RejectJobRegistration,
		PauseEvalBroker: s.PauseEvalBroker, NodeLimitForFeasibilityChecks: s.NodeLimitForFeasibilityChecks,
		CreateIndex: s.CreateIndex, ModifyIndex: s.ModifyIndex}
}
