package place

import (
	"reflect"
	"slices"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/feasible"
)

// again goes on from the Group before, where walking over all nodes would find the same: in the same View, which
// nothing else changed meanwhile, for a group that asks for the same and has no allocation yet. Of hundreds of
// dispatches of one job in a pass, the first walks over the nodes; each of the others rates anew the few that the one
// before took. It returns nil where that does not hold.
func (p *Placer) again(v *View, job *jobs.Job, group *jobs.TaskGroup, program *feasible.Program,
	live []*jobs.Allocation, dice *jobs.Dice) *Group {
	l := p.last
	if l == nil || l.view != v || l.seen != v.changes || len(live) > 0 || !asksTheSame(l.job, l.group, job, group) {
		return nil
	}
	g := &Group{Placer: p, view: v, job: job, group: group, program: program, spread: l.spread, dice: dice,
		held: map[uint32]held{}, partOf: l.partOf, seen: l.seen}
	g.chance() // as who walks over the nodes does
	for slot := range l.held {
		if at := p.bySlot[slot] - 1; at != parked {
			g.refresh(at) // without the former job's allocations
		}
	}
	g.metric = metrics{former: l.metric.own, at: l.metric.at}
	if l.metric.own == nil {
		g.metric.former = l.metric.former
	}
	p.last = g
	return g
}

// Forget has the next Group walk over the nodes, and lets go of the View.
func (p *Placer) Forget() { p.last = nil }

// asksTheSame reports whether two groups ask the same of nodes. Those of dispatches of one job do.
func asksTheSame(a *jobs.Job, ag *jobs.TaskGroup, b *jobs.Job, bg *jobs.TaskGroup) bool {
	return a.NodePool == b.NodePool && a.Type == b.Type && slices.Equal(a.Datacenters, b.Datacenters) &&
		reflect.DeepEqual(a.Rules, b.Rules) && reflect.DeepEqual(ag, bg)
}

// chance draws what decides between equals. All groups of a View go by its first draw.
func (g *Group) chance() uint64 {
	if tie := g.dice.Next(); g.view.tie == 0 {
		g.view.tie = tie | 1
	}
	return g.view.tie
}
