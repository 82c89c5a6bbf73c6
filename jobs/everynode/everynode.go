// Package everynode decides for jobs that run once on each feasible node (NS-19): system jobs as long as
// the node is there, sysbatch jobs once for a version.
//
// A node that takes no new work keeps what it has (trap 7). A drained node stops its allocation when the
// drain asks for it (Desired.Migrate); there is nowhere to move it to. Distinct properties do not apply.
//
// Cost: O(nodes + allocations of the job). The package is pure; the View is the pass's.
package everynode

import (
	"slices"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/feasible"
	"corbel.dev/corbel/jobs/place"
	"corbel.dev/corbel/jobs/preempt"
	"corbel.dev/corbel/jobs/reconcile"
	"corbel.dev/corbel/jobs/state"
)

// Input is what a decision is made from.
type Input struct {
	Job      *jobs.Job
	Allocs   []*jobs.Allocation // of the job
	View     *place.View
	Programs map[string]*feasible.Program // by group
	Eval     *jobs.Evaluation
	Now      jobs.Time
	Dice     *jobs.Dice
	Preempt  bool
}

// Result is what is to happen.
type Result struct {
	Place         []*jobs.Allocation
	Stop, Preempt []jobs.Stopping
	Failed        map[string]*jobs.Metric // groups that found no room on some node
	Classes       map[uint64]bool
	Escaped       bool
	Rolling       jobs.Time // when to go on with an update; 0: it is done
}

// work is one decision.
type work struct {
	Input
	Result
	gone map[jobs.ID]bool
}

// Do decides.
func Do(in Input) Result {
	w := &work{Input: in, gone: map[jobs.ID]bool{}, Result: Result{Classes: map[uint64]bool{}}}
	slices.SortFunc(w.Allocs, func(a, b *jobs.Allocation) int { return slices.Compare(a.ID[:], b.ID[:]) })
	for _, g := range in.Job.Groups {
		w.group(g)
	}
	for _, a := range in.Allocs {
		if in.Job.Group(a.Group) == nil && !a.Terminal() {
			w.stop(a, "alloc not needed as its group is gone")
		}
	}
	return w.Result
}

func (w *work) stop(a *jobs.Allocation, why string) {
	s := jobs.Stopping{Alloc: a.ID, Node: a.NodeID, Desired: jobs.Stop, Description: why}
	if u := w.View.State.Node(a.NodeID); u == nil || u.Node.Duty.Status == jobs.NodeDown {
		s.Client = jobs.ClientLost
	}
	w.Stop = append(w.Stop, s)
	w.gone[a.ID] = true
	w.View.Stop(a)
}

// group goes over what runs and then over the nodes that lack it.
func (w *work) group(g *jobs.TaskGroup) {
	p := w.Programs[g.Name]
	w.Escaped = w.Escaped || p.Escaped()
	have := map[jobs.ID]*jobs.Allocation{} // by node: what is there to stay, or done
	var old []*jobs.Allocation
	for _, a := range w.Allocs {
		if a.Group != g.Name || a.ServerTerminal() {
			continue
		}
		if a.ClientTerminal() {
			if w.Job.Type == jobs.SysBatch && w.current(a) {
				have[a.NodeID] = a
			}
			continue
		}
		why := w.why(a, g, p, have[a.NodeID])
		switch {
		case why == disconnected:
			have[a.NodeID] = a
			if a.Client.Status != jobs.ClientUnknown {
				w.Stop = append(w.Stop, jobs.Stopping{Alloc: a.ID, Node: a.NodeID, Client: jobs.ClientUnknown,
					Description: why})
			}
		case why != "":
			w.stop(a, why)
		default:
			have[a.NodeID] = a
			if !w.current(a) {
				old = append(old, a)
			}
		}
	}
	w.update(g, p, old)
	if g.Count > 0 {
		w.fill(g, p, have)
	}
}

const disconnected = "alloc is unknown since its node is disconnected"

// why says why an allocation may not go on, or "".
func (w *work) why(a *jobs.Allocation, g *jobs.TaskGroup, p *feasible.Program, other *jobs.Allocation) string {
	u := w.View.State.Node(a.NodeID)
	switch {
	case u == nil, u.Node.Duty.Status == jobs.NodeDown:
		return "alloc is lost since its node is down"
	case u.Node.Duty.Status == jobs.NodeDisconnected:
		if g.Disconnect != nil && g.Disconnect.LostAfter > 0 && u.Node.Duty.Since.Add(g.Disconnect.LostAfter) > w.Now {
			return disconnected
		}
		return "alloc is lost since its node is down"
	case g.Count == 0:
		return "alloc not needed due to job update"
	case a.Desired.Migrate:
		return "alloc is stopped as its node is drained"
	case !p.Reach(u.Node), p.Class(u.Node) != "", p.Node(u.Node) != "":
		return "alloc not needed: its node is not feasible any more"
	case other != nil && !other.ClientTerminal():
		return "alloc not needed: another one runs on its node"
	}
	return ""
}

func (w *work) current(a *jobs.Allocation) bool {
	return a.Job.Version == w.Job.Version && a.Job.CreateIndex == w.Job.CreateIndex
}

// update brings what runs an old version to the new one, on its node.
func (w *work) update(g *jobs.TaskGroup, p *feasible.Program, old []*jobs.Allocation) {
	limit := len(old)
	if g.Update != nil && g.Update.MaxParallel > 0 {
		limit = g.Update.MaxParallel
	}
	for _, a := range old {
		u := w.View.Node(a.NodeID)
		switch {
		case !reconcile.Destructive(a.Job, w.Job, g.Name):
			next := *a
			next.Job, next.EvalID = w.Job, w.Eval.ID
			w.Place = append(w.Place, &next)
		case !u.Node.Ready(): // no new work: the old goes on
		case limit == 0:
			w.Rolling = w.Now.Add(g.Update.MinHealthyTime)
		default:
			limit--
			w.View.Stop(a)
			grant, lacks := p.Ask.Assign(u.Node, &w.View.Node(a.NodeID).Room, w.Dice)
			w.View.Restore(a)
			if lacks != "" {
				w.fail(g, lacks)
				continue
			}
			w.stop(a, "alloc is being updated due to job update")
			w.put(g, u, grant, w.Dice.ID(), a.ID)
		}
	}
}

// fill places on the nodes that have nothing.
func (w *work) fill(g *jobs.TaskGroup, p *feasible.Program, have map[jobs.ID]*jobs.Allocation) {
	var class uint64
	reach, why, first := false, "", true
	for u := range w.View.State.Uses() {
		if first || u.Class != class {
			class, first = u.Class, false
			if reach = p.Reach(u.Node); reach {
				why = p.Class(u.Node)
				w.Classes[class] = w.Classes[class] || why == ""
			}
		}
		if !reach || why != "" || !u.Ready || have[u.Node.ID] != nil || p.Node(u.Node) != "" {
			continue
		}
		u = w.View.Use(u)
		id := w.Dice.ID()
		grant, lacks := p.Ask.Assign(u.Node, &u.Room, w.Dice)
		if lacks != "" && w.Input.Preempt {
			grant, lacks = w.clear(p, u, id, lacks)
		}
		if lacks != "" {
			w.fail(g, lacks)
			continue
		}
		w.put(g, u, grant, id, jobs.ID{})
	}
}

// clear preempts on a node.
func (w *work) clear(p *feasible.Program, u *state.Use, by jobs.ID, lacks string) (*jobs.Grant, string) {
	victims := preempt.Find(preempt.Input{Use: u, Ask: p.Ask, Priority: w.Job.Priority, Job: w.Job.JobKey,
		Allocs: w.View.State.OnNode(u.Node.ID), Gone: w.gone, Dice: w.Dice})
	if victims == nil {
		return nil, lacks
	}
	for _, a := range victims {
		w.Result.Preempt = append(w.Result.Preempt, jobs.Stopping{Alloc: a.ID, Node: a.NodeID, Desired: jobs.Evict, By: by,
			Description: "preempted by alloc " + by.String()})
		w.gone[a.ID] = true
		w.View.Stop(a)
	}
	return p.Ask.Assign(u.Node, &w.View.Use(u).Room, w.Dice)
}

func (w *work) put(g *jobs.TaskGroup, u *state.Use, grant *jobs.Grant, id, previous jobs.ID) {
	w.View.Take(u, grant)
	w.Place = append(w.Place, &jobs.Allocation{ID: id, NodeID: u.Node.ID, EvalID: w.Eval.ID, Job: w.Job, Group: g.Name,
		Grant: grant, Desired: jobs.Desired{Status: jobs.Run}, Client: jobs.Client{Status: jobs.ClientPending},
		Lineage: jobs.Lineage{Previous: previous}, Stamp: jobs.Stamp{CreateTime: w.Now, ModifyTime: w.Now}})
}

// fail counts a node without room.
func (w *work) fail(g *jobs.TaskGroup, lacks string) {
	if w.Failed == nil {
		w.Failed = map[string]*jobs.Metric{}
	}
	m := w.Failed[g.Name]
	if m == nil {
		m = &jobs.Metric{DimensionExhausted: map[string]int{}}
		w.Failed[g.Name] = m
	}
	m.Evaluated++
	m.Exhausted++
	m.DimensionExhausted[lacks]++
}
