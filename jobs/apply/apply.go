// Package apply checks plans against the newest State and carries out what still fits (NS-22, NS-23, NS-25).
//
// Each touched node is checked by itself, with the function that the scheduler placed by: stops always
// pass, new allocations need a node that is ready and has room after the plan's own stops. What does not
// fit is left out together with the stop of what it was to replace; the rest is committed, and the
// scheduler tries again from the index that Outcome names. Many plans are one change: they are checked one after the
// other on the same Edit.
//
// Invariants:
//   - After Commit no node has more than before that it did not have room for.
//   - An index of a job's group is not given twice, whatever was decided twice.
//   - A plan applied a second time changes nothing more.
//
// Cost: O(log) for each stop and placement, and the allocations of each plan's job once. The package is pure.
package apply

import (
	"bytes"
	"maps"
	"slices"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/feasible"
	"corbel.dev/corbel/jobs/state"
)

// Item is a plan with what becomes of its evaluation.
type Item struct {
	Plan *jobs.Plan
	Eval *jobs.Evaluation   // stored when all of the plan was committed
	New  []*jobs.Evaluation // as Eval; delayed ones in any case
}

// Outcome is what happened of a plan.
type Outcome struct {
	Placed, Rejected int
	Nodes            []jobs.ID // on which something was rejected
	Refresh          uint64    // 0 when all of it happened; else the index to decide from again
}

// Plans applies items in order to s, as the change with the given index.
func Plans(s *state.State, index uint64, now jobs.Time, items []Item) (*state.State, []Outcome) {
	e := s.Edit(index)
	outcomes := make([]Outcome, len(items))
	for i := range items {
		outcomes[i] = Commit(e, now, &items[i])
	}
	return e.Done(), outcomes
}

// check is one plan while it is checked.
type check struct {
	edit    *state.Edit
	plan    *jobs.Plan
	place   map[jobs.ID][]*jobs.Allocation // by node
	stop    map[jobs.ID][]jobs.Stopping    // by node
	dropped map[jobs.ID]bool               // placements and stops that do not happen
	nodes   []jobs.ID
	bad     []jobs.ID
}

// Commit applies one item.
func Commit(e *state.Edit, now jobs.Time, item *Item) Outcome {
	p := item.Plan
	c := &check{edit: e, plan: p, place: map[jobs.ID][]*jobs.Allocation{}, stop: map[jobs.ID][]jobs.Stopping{},
		dropped: map[jobs.ID]bool{}}
	for _, a := range p.Place {
		c.place[a.NodeID] = append(c.place[a.NodeID], a)
	}
	for _, list := range [][]jobs.Stopping{p.Stop, p.Preempt} {
		for _, s := range list {
			c.stop[s.Node] = append(c.stop[s.Node], s)
		}
	}
	c.doubles()
	c.nodes = slices.SortedFunc(maps.Keys(c.place), func(a, b jobs.ID) int { return bytes.Compare(a[:], b[:]) })
	for again := true; again; { // a stop that is left out takes room from its node
		again = false
		for _, n := range c.nodes {
			again = c.node(n) || again
		}
	}
	out := Outcome{Nodes: c.bad}
	for _, a := range p.Place {
		if c.dropped[a.ID] {
			out.Rejected++
		} else {
			out.Placed++
		}
	}
	if out.Rejected > 0 && p.Job != nil && p.Job.AllAtOnce {
		return Outcome{Rejected: len(p.Place), Nodes: c.bad, Refresh: e.Index()}
	}
	c.write(now)
	for _, v := range item.New {
		if out.Rejected == 0 || v.WaitUntil > 0 {
			next := *v
			e.PutEvaluation(&next)
		}
	}
	if out.Rejected > 0 {
		out.Refresh = e.Index()
	} else if item.Eval != nil {
		next := *item.Eval
		e.PutEvaluation(&next)
	}
	return out
}

// slot is one place of a group.
type slot struct {
	group  string
	index  int
	node   jobs.ID // of jobs that run on each node
	canary bool
}

func slotOf(a *jobs.Allocation) slot {
	s := slot{a.Group, a.Index, jobs.ID{}, a.Rollout.Canary}
	if a.Job.PerNode() {
		s.node = a.NodeID
	}
	return s
}

// doubles leaves out what has been placed already, by the same evaluation delivered twice or by another one, and what
// is of a job that has been stopped or purged.
func (c *check) doubles() {
	if c.plan.Job == nil || len(c.plan.Place) == 0 {
		return
	}
	job := c.edit.Job(c.plan.Job.JobKey)
	stopping := map[jobs.ID]bool{}
	for _, s := range c.plan.Stop {
		if s.Desired != "" {
			stopping[s.Alloc] = true
		}
	}
	taken := map[slot]jobs.ID{}
	for a := range c.edit.OfJob(c.plan.Job.JobKey) {
		if !a.Terminal() && !stopping[a.ID] && a.Client.Status != jobs.ClientUnknown {
			taken[slotOf(a)] = a.ID
		}
	}
	for _, a := range c.plan.Place {
		if c.edit.Allocation(a.ID) != nil {
			continue
		}
		by, used := taken[slotOf(a)]
		away := used && by == a.Lineage.Previous && c.unknown(by)
		if job.Stopped() || used && !away {
			c.drop(a)
		} else {
			taken[slotOf(a)] = a.ID
		}
	}
}

// unknown reports whether the plan makes an allocation unknown: what replaces it has its place.
func (c *check) unknown(id jobs.ID) bool {
	return slices.ContainsFunc(c.plan.Stop, func(s jobs.Stopping) bool {
		return s.Alloc == id && s.Client == jobs.ClientUnknown
	})
}

// drop leaves a placement out, and the stop of what it was to replace: that goes on as long as it can.
func (c *check) drop(a *jobs.Allocation) {
	c.dropped[a.ID] = true
	if !slices.Contains(c.bad, a.NodeID) {
		c.bad = append(c.bad, a.NodeID)
	}
	for _, s := range c.plan.Stop {
		if s.Alloc == a.Lineage.Previous && s.Client == "" && !s.Alloc.IsZero() {
			c.dropped[s.Alloc] = true
		}
	}
	for _, s := range c.plan.Preempt {
		if s.By == a.ID {
			c.dropped[s.Alloc] = true
		}
	}
}

// node checks what is to be on a node, and reports whether it left something out.
func (c *check) node(id jobs.ID) (again bool) {
	use := c.edit.Node(id)
	var room feasible.Room
	if use != nil {
		room = use.Room
		for _, s := range c.stop[id] {
			if a := c.edit.Allocation(s.Alloc); a != nil && a.Counts() && s.Desired != "" && !c.dropped[s.Alloc] {
				room.Give(a.Grant)
			}
		}
	}
	for _, a := range c.place[id] {
		if c.dropped[a.ID] {
			continue
		}
		old := c.edit.Allocation(a.ID)
		if old != nil && old.NodeID == a.NodeID && old.Grant == a.Grant {
			continue // runs there and has its room
		}
		if use == nil || !use.Ready || room.Lacks(use.Node, a.Grant) != "" {
			c.drop(a)
			again = true
			continue
		}
		room.Take(a.Grant)
	}
	return again
}

// write carries out what is left.
func (c *check) write(now jobs.Time) {
	e := c.edit
	for _, list := range [][]jobs.Stopping{c.plan.Stop, c.plan.Preempt} {
		for _, s := range list {
			if old := e.Allocation(s.Alloc); old != nil && !c.dropped[s.Alloc] {
				e.PutAllocation(stopped(old, s, now))
			}
		}
	}
	if d := c.plan.Deployment; d != nil {
		next := *d
		next.ModifyTime = now
		e.PutDeployment(&next)
	}
	placed := map[jobs.ID][]*jobs.Allocation{}
	for _, a := range c.plan.Place {
		if c.dropped[a.ID] {
			continue
		}
		next := *a
		next.ModifyTime = now
		old := e.Allocation(a.ID)
		if old != nil { // what the node said meanwhile stays said
			next.Client, next.Desired = old.Client, old.Desired
		}
		e.PutAllocation(&next)
		if prev := e.Allocation(a.Lineage.Previous); prev != nil && prev.Lineage.Next != a.ID {
			before := *prev
			before.Lineage.Next = a.ID
			e.PutAllocation(&before)
		}
		if id := a.Rollout.Deployment; !id.IsZero() && (old == nil || old.Rollout.Deployment != id) {
			placed[id] = append(placed[id], a)
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(placed), func(a, b jobs.ID) int { return bytes.Compare(a[:], b[:]) }) {
		join(e, id, placed[id])
	}
	for _, s := range c.plan.Statuses {
		Status(e, s, now)
	}
}

// stopped is an allocation as a plan's stop leaves it.
func stopped(old *jobs.Allocation, s jobs.Stopping, now jobs.Time) *jobs.Allocation {
	next := *old
	next.ModifyTime = now
	if s.Desired != "" {
		next.Desired = jobs.Desired{Status: s.Desired, Description: s.Description}
	}
	if s.Client != "" && !old.ClientTerminal() {
		next.Client.Status, next.Client.Description = s.Client, s.Description
		if s.Client == jobs.ClientUnknown {
			next.Client.UnknownSince = now
		}
	}
	if !s.Followup.IsZero() {
		next.Lineage.Followup = s.Followup
	}
	if !s.By.IsZero() {
		next.Lineage.PreemptedBy = s.By
	}
	return &next
}

// join counts allocations into their deployment: new ones, and those that it updates in place.
func join(e *state.Edit, id jobs.ID, list []*jobs.Allocation) {
	d := e.Deployment(id)
	if d == nil {
		return
	}
	next := *d
	next.Groups = maps.Clone(d.Groups)
	for _, a := range list {
		old := next.Groups[a.Group]
		if old == nil {
			continue
		}
		g := *old
		g.Placed++
		if a.Rollout.Canary && !slices.Contains(g.Canaries, a.ID) {
			g.Canaries = append(slices.Clone(g.Canaries), a.ID)
		}
		next.Groups[a.Group] = &g
	}
	e.PutDeployment(&next)
}

// Status changes a deployment's status; a successful one makes its version of the job stable.
func Status(e *state.Edit, s jobs.DeploymentStatus, now jobs.Time) {
	d := e.Deployment(s.ID)
	if d == nil || !d.Active() {
		return
	}
	next := *d
	next.Status, next.Description, next.ModifyTime = s.Status, s.Description, now
	e.PutDeployment(&next)
	if s.Status == jobs.DeploySuccessful {
		e.SetStable(d.JobKey, d.JobVersion, true)
	}
}
