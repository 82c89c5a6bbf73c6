package jobstore

import (
	"slices"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/apply"
)

// PlanWrite is an apply.Item as commands carry it: allocations refer to versions of jobs, and to what they share, by
// number.
type PlanWrite struct {
	EvalID        jobs.ID
	Job           *JobRef // nil when the job is gone
	Priority      int
	SnapshotIndex uint64
	Versions      []JobRef
	Grants        []*jobs.Grant
	Metrics       []*jobs.Metric
	Place         []Placing
	Stop, Preempt []jobs.Stopping
	Deployment    *jobs.Deployment
	Statuses      []jobs.DeploymentStatus
	Eval          *jobs.Evaluation
	New           []*jobs.Evaluation
}

// JobRef names a version of a job.
type JobRef struct {
	jobs.JobKey
	Version uint64
}

// Placing is an allocation of a plan. Numbers count from 1; no Grant is that which the allocation has.
type Placing struct {
	ID, Node               jobs.ID
	Version, Grant, Metric uint32
	Index                  int
	Group                  string
	Rollout                jobs.Rollout
	Lineage                jobs.Lineage
	Eval                   jobs.ID // zero: the plan's
	Create                 jobs.Stamp
}

// grantKey is a grant without what only one allocation can have.
type grantKey struct {
	jobs.Vector
	max int64
}

// packer numbers what allocations share.
type packer struct {
	to      *PlanWrite
	jobs    map[*jobs.Job]uint32
	metrics map[*jobs.Metric]uint32
	grants  map[*jobs.Grant]uint32
	plain   map[grantKey]uint32
}

// WritePlan makes a PlanWrite of item, which was decided on view.
func WritePlan(view *View, item *apply.Item) PlanWrite {
	p := item.Plan
	w := PlanWrite{EvalID: p.EvalID, Priority: p.Priority, SnapshotIndex: p.SnapshotIndex, Stop: p.Stop,
		Preempt:    p.Preempt,
		Deployment: p.Deployment, Statuses: p.Statuses, Eval: item.Eval, New: item.New}
	if p.Job != nil {
		w.Job = &JobRef{p.Job.JobKey, p.Job.Version}
	}
	pk := packer{&w, map[*jobs.Job]uint32{}, map[*jobs.Metric]uint32{}, map[*jobs.Grant]uint32{}, map[grantKey]uint32{}}
	w.Place = make([]Placing, len(p.Place))
	for i, a := range p.Place {
		one := Placing{ID: a.ID, Node: a.NodeID, Version: pk.version(a.Job), Index: a.Index, Group: a.Group,
			Rollout: a.Rollout, Lineage: a.Lineage, Metric: pk.metric(a.Metric)}
		if a.EvalID != p.EvalID {
			one.Eval = a.EvalID
		}
		if old := view.State.Allocation(a.ID); old == nil || old.Grant != a.Grant {
			one.Grant = pk.grant(a.Grant)
		}
		if a.CreateTime != a.ModifyTime {
			one.Create = a.Stamp
		}
		w.Place[i] = one
	}
	return w
}

func (p *packer) version(j *jobs.Job) uint32 {
	n, ok := p.jobs[j]
	if !ok {
		p.to.Versions = append(p.to.Versions, JobRef{j.JobKey, j.Version})
		n = uint32(len(p.to.Versions))
		p.jobs[j] = n
	}
	return n
}

func (p *packer) metric(m *jobs.Metric) uint32 {
	if m == nil {
		return 0
	}
	n, ok := p.metrics[m]
	if !ok {
		p.to.Metrics = append(p.to.Metrics, m)
		n = uint32(len(p.to.Metrics))
		p.metrics[m] = n
	}
	return n
}

func (p *packer) grant(g *jobs.Grant) uint32 {
	if g == nil {
		return 0
	}
	n, ok := p.grants[g]
	if ok {
		return n
	}
	plain := len(g.Ports)+len(g.Cores)+len(g.Devices) == 0
	key := grantKey{g.Vector, g.MemoryMaxMB}
	if plain {
		if n, ok = p.plain[key]; ok {
			return n
		}
	}
	p.to.Grants = append(p.to.Grants, g)
	n = uint32(len(p.to.Grants))
	p.grants[g] = n
	if plain {
		p.plain[key] = n
	}
	return n
}

// at is the element with a number that counts from 1, the zero one for others.
func at[T any](list []T, number uint32) (v T) {
	if number == 0 || int(number) > len(list) {
		return v
	}
	return list[number-1]
}

// version finds a version of a job: also one that only an allocation still has.
func (b *builder) version(ref JobRef) *jobs.Job {
	if j := b.Version(ref.JobKey, ref.Version); j != nil {
		return j
	}
	for a := range b.OfJob(ref.JobKey) {
		if a.Job.Version == ref.Version {
			return a.Job
		}
	}
	return nil
}

// plan checks a plan against the newest state and carries out what fits.
func (b *builder) plan(w *PlanWrite) {
	if w.SnapshotIndex < b.base.restored { // it was made of a state that is no more
		b.out.Plans = append(b.out.Plans, apply.Outcome{Rejected: len(w.Place), Refresh: b.Index()})
		return
	}
	p := &jobs.Plan{EvalID: w.EvalID, Priority: w.Priority, SnapshotIndex: w.SnapshotIndex, Stop: w.Stop,
		Preempt:    w.Preempt,
		Deployment: w.Deployment, Statuses: w.Statuses}
	if w.Job != nil {
		p.Job = b.version(*w.Job)
	}
	versions := make([]*jobs.Job, len(w.Versions))
	for i, ref := range w.Versions {
		versions[i] = b.version(ref)
	}
	if w.Job != nil && p.Job == nil || slices.Contains(versions, nil) {
		b.out.Plans = append(b.out.Plans, apply.Outcome{Rejected: len(w.Place), Refresh: b.Index()})
		return // the job was purged meanwhile
	}
	for i := range w.Place {
		if a := b.placing(w, &w.Place[i], versions); a != nil {
			p.Place = append(p.Place, a)
		}
	}
	out := apply.Commit(b.Edit, b.now, &apply.Item{Plan: p, Eval: w.Eval, New: w.New})
	b.out.Plans = append(b.out.Plans, out)
	for _, s := range w.Preempt { // the jobs that lost something are to find another place for it
		a := b.Allocation(s.Alloc)
		if a == nil || a.Desired.Status != jobs.Evict {
			continue
		}
		if j := b.Job(a.Job.JobKey); j != nil && !j.Stop {
			b.evaluate(j, jobs.Evaluation{Trigger: jobs.TriggerPreemption})
		}
	}
}

func (b *builder) placing(w *PlanWrite, one *Placing, versions []*jobs.Job) *jobs.Allocation {
	j := at(versions, one.Version)
	g := j.Group(one.Group)
	if g == nil {
		return nil
	}
	a := &jobs.Allocation{ID: one.ID, NodeID: one.Node, EvalID: w.EvalID, Job: j, Group: g.Name, Index: one.Index,
		Grant: at(w.Grants, one.Grant), Desired: jobs.Desired{Status: jobs.Run},
		Client: jobs.Client{Status: jobs.ClientPending}, Rollout: one.Rollout, Lineage: one.Lineage,
		Metric: at(w.Metrics, one.Metric), Stamp: one.Create}
	if !one.Eval.IsZero() {
		a.EvalID = one.Eval
	}
	if a.CreateTime == 0 {
		a.CreateTime, a.ModifyTime = b.now, b.now
	}
	if one.Grant == 0 {
		old := b.Allocation(one.ID)
		if old == nil {
			return nil
		}
		a.Grant = old.Grant
	}
	if a.Grant == nil {
		return nil
	}
	return a
}
