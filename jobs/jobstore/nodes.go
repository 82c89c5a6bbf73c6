package jobstore

import (
	"slices"

	"corbel.dev/corbel/jobs"
)

// nodeEvents is how many events of a node are kept (NK-3).
const nodeEvents = 10

func (b *builder) writeNodes(w *NodeWrites) {
	touched := map[jobs.ID]string{} // nodes whose jobs are to be evaluated, with the trigger
	var order []jobs.ID
	add := func(id jobs.ID, trigger string) {
		if _, ok := touched[id]; !ok {
			order = append(order, id)
		}
		touched[id] = trigger
	}
	for i := range w.Put {
		if b.putNode(&w.Put[i]) {
			add(w.Put[i].Node.ID, jobs.TriggerNodeUpdate)
		}
	}
	for i := range w.Duty {
		if trigger := b.duty(&w.Duty[i]); trigger != "" {
			add(w.Duty[i].ID, trigger)
		}
	}
	for _, id := range w.Eval {
		if b.Node(id) != nil {
			add(id, jobs.TriggerNodeUpdate)
		}
	}
	for _, id := range w.Purge {
		if b.Node(id) != nil {
			b.evaluateNodes([]jobs.ID{id}, func(jobs.ID) string { return jobs.TriggerNodeUpdate })
			b.DeleteNode(id)
			b.nodes.Delete(&NodeDetail{ID: id})
		}
	}
	b.evaluateNodes(order, func(id jobs.ID) string { return touched[id] })
}

// putNode stores a registration and reports whether jobs may be placed otherwise now.
func (b *builder) putNode(w *NodeWrite) bool {
	if d, ok := b.nodes.Get(&NodeDetail{ID: w.Node.ID}); ok && d.Secret != "" && d.Secret != w.Secret {
		return false // it has another's id; who registers it looks whose secret is kept
	}
	next := *w.Node
	old := b.Node(w.Node.ID)
	next.Duty = jobs.Duty{Status: jobs.NodeReady, Since: b.now, MaxAllocs: w.Node.Duty.MaxAllocs}
	text := "Node registered"
	if old != nil {
		was := old.Node.Duty
		next.Duty.Ineligible, next.Duty.Drain = was.Ineligible, was.Drain
		text = "Node re-registered"
		if was.Status == jobs.NodeReady {
			next.Duty.Since, text = was.Since, ""
		}
	}
	if w.Silent {
		next.Duty.Status = jobs.NodeInitializing
	}
	if pool := next.InPool(); !b.knows(Pools, pool) {
		b.putDoc(Document{Table: Pools, Name: pool, Body: `{"Name":` + quote(pool) + `}`})
	}
	b.PutNode(&next)
	b.detail(next.ID, func(d *NodeDetail) {
		d.Secret, d.Body = w.Secret, w.Detail
	})
	if text != "" {
		b.happened(next.ID, text, "Cluster", nil)
	}
	now := b.Node(next.ID)
	return old == nil || old.Ready != now.Ready || old.Class != now.Class || old.Node.Duty.Status != next.Duty.Status
}

// detail changes what is kept of a node.
func (b *builder) detail(id jobs.ID, change func(*NodeDetail)) {
	next := NodeDetail{ID: id}
	if old, ok := b.nodes.Get(&next); ok {
		next = *old
	}
	change(&next)
	b.nodes.Set(&next)
}

func (b *builder) happened(id jobs.ID, message, subsystem string, details map[string]string) {
	b.detail(id, func(d *NodeDetail) {
		list := append(slices.Clone(d.Events), NodeHappening{message, subsystem, details, b.now, b.Index()})
		d.Events = list[max(0, len(list)-nodeEvents):]
	})
}

// duty changes what a node is to do and returns the trigger of the evaluations that this calls for.
func (b *builder) duty(w *DutyWrite) string {
	use := b.Node(w.ID)
	if use == nil || w.Unless > 0 && use.Node.ModifyIndex > w.Unless {
		return ""
	}
	next, old := *use.Node, use.Node.Duty
	d := &next.Duty
	if w.Status != "" && w.Status != d.Status {
		d.Status, d.Since = w.Status, b.now
	}
	if w.Ineligible != nil {
		d.Ineligible = *w.Ineligible
	}
	if w.Drain != nil {
		d.Drain, d.Ineligible = w.Drain, true
	}
	if w.EndDrain {
		d.Drain = nil
	}
	if w.Record != nil {
		b.detail(w.ID, func(n *NodeDetail) { n.Drain = w.Record })
	}
	if w.Message != "" {
		b.happened(w.ID, w.Message, or(w.Subsystem, "Cluster"), nil)
	}
	if old.Status == d.Status && old.Ineligible == d.Ineligible && old.Drain == d.Drain {
		return ""
	}
	b.PutNode(&next)
	switch {
	case w.Drain != nil:
		return jobs.TriggerNodeDrain
	case old.Status != d.Status, b.Node(w.ID).Ready && !use.Ready:
		return jobs.TriggerNodeUpdate
	}
	return ""
}

// evaluateNodes has the jobs evaluated that nodes concern: those with allocations there, and those that run on each
// node, once each (NK-15).
func (b *builder) evaluateNodes(nodes []jobs.ID, trigger func(jobs.ID) string) {
	if len(nodes) == 0 {
		return
	}
	type order struct {
		job *jobs.Job
		by  jobs.ID
	}
	var list []order
	seen := map[jobs.JobKey]bool{}
	for _, id := range nodes {
		for a := range b.OnNode(id) {
			if !a.Terminal() && !seen[a.Job.JobKey] {
				seen[a.Job.JobKey] = true
				list = append(list, order{a.Job, id})
			}
		}
	}
	for j := range b.Jobs() {
		if j.PerNode() && !j.Stop && !seen[j.JobKey] && j.Periodic == nil && (j.Dispatch == nil || j.Origin.Dispatched) {
			list = append(list, order{j, nodes[0]})
		}
	}
	for _, o := range list {
		job := o.job
		if now := b.Job(job.JobKey); now != nil {
			job = now
		}
		b.evaluate(job, jobs.Evaluation{Trigger: trigger(o.by), NodeID: o.by})
	}
}
