package state

import (
	"iter"

	"corbel.dev/corbel/core/table"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/feasible"
)

// VersionsKept is how many versions of a job stay (NK-2). The newest stable one stays beside them.
const VersionsKept = 6

// Edit makes the next State.
type Edit struct {
	index    uint64
	config   jobs.Config
	nodes    table.Edit[*Use]
	uses     table.Edit[*Use]
	slots    uint32
	free     table.Edit[uint32]
	jobs     table.Edit[*jobs.Job]
	versions table.Edit[*jobs.Job]
	tokens   table.Edit[*jobs.Job]
	allocs   [3]table.Edit[*jobs.Allocation] // by ID, node, job
	evals    [2]table.Edit[*jobs.Evaluation]
	deploys  [2]table.Edit[*jobs.Deployment]
	changes  []Change
	tallied
}

// Change is an object before and after: a *Use, *jobs.Job, *jobs.Allocation, *jobs.Evaluation or *jobs.Deployment.
// Before is nil when there was none, After when it is gone.
type Change struct{ Before, After any }

func note[T any](e *Edit, before *T, after *T) {
	c := Change{}
	if before != nil {
		c.Before = before
	}
	if after != nil {
		c.After = after
	}
	e.changes = append(e.changes, c)
}

// Changes are what was changed since it was asked last, in order.
func (e *Edit) Changes() []Change {
	list := e.changes
	e.changes = nil
	return list
}

// Advance begins the change with the next index: several changes make one State.
func (e *Edit) Advance() { e.index++ }

// Edit begins the change with the given index.
func (s *State) Edit(index uint64) *Edit {
	return &Edit{
		index: index, config: s.config, nodes: s.nodes.Edit(), uses: s.uses.Edit(),
		slots: s.slots, free: s.free.Edit(), jobs: s.jobs.Edit(), versions: s.versions.Edit(), tokens: s.tokens.Edit(),
		allocs:  [3]table.Edit[*jobs.Allocation]{s.allocs.Edit(), s.byNode.Edit(), s.byJob.Edit()},
		evals:   [2]table.Edit[*jobs.Evaluation]{s.evals.Edit(), s.jobEvals.Edit()},
		deploys: [2]table.Edit[*jobs.Deployment]{s.deploys.Edit(), s.byDeploy.Edit()},
		tallied: tallied{table: s.tallies.Edit()},
	}
}

// Done is the State with the changes so far. The Edit may go on.
func (e *Edit) Done() *State {
	e.tallied.settle()
	return &State{index: e.index, config: e.config, tables: tables{
		nodes: e.nodes.Done(), uses: e.uses.Done(), slots: e.slots, free: e.free.Done(), jobs: e.jobs.Done(),
		versions: e.versions.Done(), tokens: e.tokens.Done(),
		allocs: e.allocs[0].Done(), byNode: e.allocs[1].Done(), byJob: e.allocs[2].Done(),
		evals: e.evals[0].Done(), jobEvals: e.evals[1].Done(), deploys: e.deploys[0].Done(), byDeploy: e.deploys[1].Done(),
		tallies: e.tallied.table.Done(),
	}}
}

// Index is the index of the change.
func (e *Edit) Index() uint64 { return e.index }

// SetConfig replaces what operators set.
func (e *Edit) SetConfig(c jobs.Config) { e.config = c }

// Node returns a node with its room as it is now, or nil.
func (e *Edit) Node(id jobs.ID) *Use {
	ref, ok := e.nodes.Find(func(u *Use) int { return compareIDs(id, u.Node.ID) })
	if !ok {
		return nil
	}
	use, _ := e.uses.Get(ref)
	return use
}

// Allocation returns an allocation as it is now, or nil.
func (e *Edit) Allocation(id jobs.ID) *jobs.Allocation {
	a, _ := e.allocs[0].Find(func(a *jobs.Allocation) int { return compareIDs(id, a.ID) })
	return a
}

// Deployment returns a deployment as it is now, or nil.
func (e *Edit) Deployment(id jobs.ID) *jobs.Deployment {
	d, _ := e.deploys[0].Find(func(d *jobs.Deployment) int { return compareIDs(id, d.ID) })
	return d
}

// PutNode adds a node or replaces it. The room is computed anew: from the old one when only the
// node's duty changed, and from its allocations when its capacity may have.
func (e *Edit) PutNode(n *jobs.Node) {
	next := *n
	next.ModifyIndex = e.index
	use := &Use{Node: &next, Class: feasible.ClassOf(n), Ready: n.Ready()}
	before := e.Node(n.ID)
	if old := before; old != nil {
		next.CreateIndex, use.Slot = old.Node.CreateIndex, old.Slot
		e.uses.Delete(old)
	} else {
		next.CreateIndex = e.index
		if slot, ok := e.free.Min(); ok {
			use.Slot = slot
			e.free.Delete(slot)
		} else {
			use.Slot = e.slots
			e.slots++
		}
	}
	use.Room = feasible.NewRoom(n)
	for a := range e.onNode(n.ID) {
		if a.Counts() {
			use.Room.Take(a.Grant)
		}
	}
	e.nodes.Set(use)
	e.uses.Set(use)
	note(e, before, use)
}

func (e *Edit) onNode(id jobs.ID) iter.Seq[*jobs.Allocation] {
	s := State{tables: tables{byNode: e.allocs[1].Table}}
	return s.OnNode(id)
}

// DeleteNode forgets a node. Its allocations stay, for those who ask what became of them.
func (e *Edit) DeleteNode(id jobs.ID) {
	if old := e.Node(id); old != nil {
		e.uses.Delete(old)
		e.nodes.Delete(old)
		e.free.Set(old.Slot)
		note(e, old, nil)
	}
}

// PutJob stores j as the next version of its job, or in place of the version that it has when
// the same version is there. It returns what is stored.
func (e *Edit) PutJob(j *jobs.Job) *jobs.Job {
	next := *j
	next.ModifyIndex = e.index
	before, ok := e.jobs.Get(j)
	if ok {
		next.CreateIndex = before.CreateIndex
	} else {
		next.CreateIndex = e.index
	}
	note(e, before, &next)
	e.setJob(&next)
	e.versions.Set(&next)
	e.prune(&next)
	return &next
}

// setJob makes j the newest version of its job.
func (e *Edit) setJob(j *jobs.Job) {
	if old, ok := e.jobs.Get(j); ok {
		e.tokens.Delete(old)
	}
	e.jobs.Set(j)
	if j.Origin.Dispatched && j.Origin.Token != "" {
		e.tokens.Set(j)
	}
}

// Dispatched is State.Dispatched as it is now.
func (e *Edit) Dispatched(parent jobs.JobKey, token string) *jobs.Job {
	return dispatched(e.tokens.Table, parent, token)
}

// prune forgets the oldest versions, but for the newest stable one.
func (e *Edit) prune(newest *jobs.Job) {
	var list []*jobs.Job
	var stable *jobs.Job
	s := State{tables: tables{versions: e.versions.Table}}
	for v := range s.Versions(newest.JobKey) {
		list = append(list, v)
		if v.Stable {
			stable = v
		}
	}
	for _, v := range list[:max(0, len(list)-VersionsKept)] {
		if v != stable {
			e.versions.Delete(v)
		}
	}
}

// SetStable marks a version of a job.
func (e *Edit) SetStable(key jobs.JobKey, version uint64, stable bool) {
	old, ok := e.versions.Get(&jobs.Job{JobKey: key, Revision: jobs.Revision{Version: version}})
	if !ok || old.Stable == stable {
		return
	}
	next := *old
	next.Stable = stable
	e.versions.Set(&next)
	if newest, ok := e.jobs.Get(&next); ok && newest.Version == version {
		next.ModifyIndex = e.index
		e.setJob(&next)
	}
	note(e, old, &next)
}

// DeleteJob purges a job with its versions. Its allocations stay until they are swept.
func (e *Edit) DeleteJob(key jobs.JobKey) {
	if old, ok := e.jobs.Delete(&jobs.Job{JobKey: key}); ok {
		e.tokens.Delete(old)
		note(e, old, nil)
	}
	var gone []*jobs.Job
	s := State{tables: tables{versions: e.versions.Table}}
	for v := range s.Versions(key) {
		gone = append(gone, v)
	}
	for _, v := range gone {
		e.versions.Delete(v)
	}
}

// PutAllocation adds an allocation or replaces it, and moves its room. It keeps a, which must not change any more.
func (e *Edit) PutAllocation(a *jobs.Allocation) {
	a.ModifyIndex = e.index
	old, replaced := e.allocs[0].Set(a)
	note(e, old, a)
	if !replaced {
		a.CreateIndex = e.index
	} else {
		a.CreateIndex = old.CreateIndex
		if old.NodeID != a.NodeID {
			e.allocs[1].Delete(old)
		}
	}
	e.allocs[1].Set(a)
	e.allocs[2].Set(a)
	if replaced {
		e.tallied.move(old, a)
	} else {
		e.tallied.move(nil, a)
	}
	if replaced && old.Counts() && a.Counts() && old.NodeID == a.NodeID && old.Grant == a.Grant {
		return
	}
	if replaced && old.Counts() {
		e.room(old.NodeID, func(r *feasible.Room) { r.Give(old.Grant) })
	}
	if a.Counts() {
		e.room(a.NodeID, func(r *feasible.Room) { r.Take(a.Grant) })
	}
}

// DeleteAllocation forgets an allocation.
func (e *Edit) DeleteAllocation(id jobs.ID) {
	old := e.Allocation(id)
	if old == nil {
		return
	}
	for i := range e.allocs {
		e.allocs[i].Delete(old)
	}
	note(e, old, nil)
	e.tallied.move(old, nil)
	if old.Counts() {
		e.room(old.NodeID, func(r *feasible.Room) { r.Give(old.Grant) })
	}
}

func (e *Edit) room(node jobs.ID, change func(*feasible.Room)) {
	if old := e.Node(node); old != nil {
		next := *old
		change(&next.Room)
		e.uses.Set(&next)
	}
}

// PutEvaluation adds an evaluation or replaces it. It keeps v.
func (e *Edit) PutEvaluation(v *jobs.Evaluation) {
	v.ModifyIndex = e.index
	old, ok := e.evals[0].Set(v)
	note(e, old, v)
	if ok {
		v.CreateIndex = old.CreateIndex
	} else {
		v.CreateIndex = e.index
	}
	e.evals[1].Set(v)
}

// DeleteEvaluation forgets an evaluation.
func (e *Edit) DeleteEvaluation(id jobs.ID) {
	if old, ok := e.evals[0].Delete(&jobs.Evaluation{ID: id}); ok {
		e.evals[1].Delete(old)
		note(e, old, nil)
	}
}

// PutDeployment adds a deployment or replaces it. It keeps d.
func (e *Edit) PutDeployment(d *jobs.Deployment) {
	d.ModifyIndex = e.index
	old, ok := e.deploys[0].Get(d)
	note(e, old, d)
	if ok {
		d.CreateIndex = old.CreateIndex
	} else {
		d.CreateIndex = e.index
	}
	e.deploys[0].Set(d)
	e.deploys[1].Set(d)
}

// DeleteDeployment forgets a deployment.
func (e *Edit) DeleteDeployment(id jobs.ID) {
	if old, ok := e.deploys[0].Delete(&jobs.Deployment{ID: id}); ok {
		e.deploys[1].Delete(old)
		note(e, old, nil)
	}
}

// Job returns the newest version of a job as it is now, or nil.
func (e *Edit) Job(key jobs.JobKey) *jobs.Job {
	s := State{tables: tables{jobs: e.jobs.Table}}
	return s.Job(key)
}

// OfJob yields the allocations of a job as they are now. The Edit must not change meanwhile.
func (e *Edit) OfJob(key jobs.JobKey) iter.Seq[*jobs.Allocation] {
	s := State{tables: tables{byJob: e.allocs[2].Table}}
	return s.OfJob(key)
}
