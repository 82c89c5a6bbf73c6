// Package explain answers "why is it pending?": how many nodes failed which demand, which of them lacked
// room in which dimension, and the smallest changes that would let an allocation be placed. It also gives
// the scores of the best nodes for those who ask why it was placed there.
//
// It asks the functions that the scheduler places by. Everything is computed for the one who asks and
// nothing is stored: O(nodes · demands), and with distinct properties O(nodes · allocations of the job).
// The package is pure.
package explain

import (
	"cmp"
	"slices"
	"strconv"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/feasible"
	"corbel.dev/corbel/jobs/place"
	"corbel.dev/corbel/jobs/score"
	"corbel.dev/corbel/jobs/state"
)

// Answer is why a group is pending, or that it is not.
type Answer struct {
	Fits    int // nodes that would take an allocation now
	Metric  *jobs.Metric
	Changes []Change // the fewest first; each alone lets an allocation be placed
}

// Change is what would help.
type Change struct {
	Demands []string // constraints, drivers and the like that would have to go
	Lacking jobs.Vector
	Named   string  // a port, core or device that is taken; ""
	Node    jobs.ID // where it would fit then
	Nodes   int     // how many nodes the same demands keep away
}

// String says it to a person.
func (c Change) String() string {
	text := ""
	for _, d := range c.Demands {
		text += "without " + strconv.Quote(d) + ", "
	}
	for _, part := range []struct {
		n    int64
		unit string
	}{{c.Lacking.CPU, " MHz of CPU"}, {c.Lacking.MemoryMB, " MB of memory"}, {c.Lacking.DiskMB, " MB of disk"}} {
		if part.n > 0 {
			text += "with " + strconv.FormatInt(part.n, 10) + part.unit + " less, "
		}
	}
	if c.Named != "" {
		text += "without its " + c.Named + ", "
	}
	return text + "one would fit on node " + c.Node.String() + " (" + strconv.Itoa(c.Nodes) + " like it)"
}

// maxChanges is how many different changes are told.
const maxChanges = 5

// Why answers for a group of a job as it is in s.
func Why(s *state.State, job *jobs.Job, group *jobs.TaskGroup) (Answer, error) {
	p, err := feasible.New(job, group, s.Config())
	if err != nil {
		return Answer{}, err
	}
	var live []*jobs.Allocation
	held, heldGroup := map[jobs.ID]bool{}, map[jobs.ID]bool{}
	for a := range s.OfJob(job.JobKey) {
		if !a.Terminal() {
			live = append(live, a)
			held[a.NodeID] = true
			heldGroup[a.NodeID] = heldGroup[a.NodeID] || a.Group == group.Name
		}
	}
	g := (&place.Placer{}).Begin(place.NewView(s), job, group, p, live, jobs.NewDice(0, 0))
	out := Answer{Metric: g.Metric()}
	out.Fits = out.Metric.Evaluated - out.Metric.Filtered - out.Metric.Exhausted
	if out.Fits > 0 {
		return out, nil
	}
	kinds := map[string]*Change{}
	for u := range s.Uses() {
		c, key := change(p, u)
		if p.HostsOfJob && held[u.Node.ID] || p.HostsOfGroup && heldGroup[u.Node.ID] {
			c.Demands, key = append(c.Demands, feasible.DistinctHosts), key+feasible.DistinctHosts
		}
		if text := full(p, u, live, s); text != "" {
			c.Demands, key = append(c.Demands, text), key+text
		}
		old := kinds[key]
		if old == nil {
			kinds[key] = &c
			continue
		}
		c.Nodes += old.Nodes
		if less(&c, old) >= 0 {
			nodes := c.Nodes
			c = *old
			c.Nodes = nodes
		}
		kinds[key] = &c
	}
	for _, c := range kinds {
		out.Changes = append(out.Changes, *c)
	}
	slices.SortFunc(out.Changes, func(a, b Change) int { return less(&a, &b) })
	out.Changes = out.Changes[:min(len(out.Changes), maxChanges)]
	return out, nil
}

// change is what one node would need.
func change(p *feasible.Program, u *state.Use) (c Change, key string) {
	c = Change{Node: u.Node.ID, Nodes: 1, Demands: p.Objections(u.Node)}
	if !u.Ready {
		c.Demands = append([]string{"node is " + duty(u.Node)}, c.Demands...)
	}
	base := p.Ask.Base(u.Node)
	room := u.Room
	lack := func(need, free int64) int64 { return max(0, need-free) }
	c.Lacking = jobs.Vector{CPU: lack(base.CPU, room.Free.CPU), MemoryMB: lack(base.MemoryMB, room.Free.MemoryMB),
		DiskMB: lack(base.DiskMB, room.Free.DiskMB)}
	room.Free = room.Free.Plus(c.Lacking)
	if _, lacks := p.Ask.Assign(u.Node, &room, jobs.NewDice(0, 0)); lacks != "" && len(c.Demands) == 0 {
		c.Named = lacks
	}
	for _, d := range c.Demands {
		key += d + "\x00"
	}
	for _, n := range []int64{c.Lacking.CPU, c.Lacking.MemoryMB, c.Lacking.DiskMB} {
		key += strconv.FormatBool(n > 0)
	}
	return c, key + c.Named
}

func duty(n *jobs.Node) string {
	switch {
	case n.Duty.Status != jobs.NodeReady:
		return n.Duty.Status
	case n.Duty.Drain != nil:
		return "draining"
	}
	return "ineligible"
}

// full is the distinct property whose value u has is used up.
func full(p *feasible.Program, u *state.Use, live []*jobs.Allocation, s *state.State) string {
	for _, d := range p.Properties {
		value, ok := d.Value(u.Node)
		n := 0
		for _, a := range live {
			if on := s.Node(a.NodeID); on != nil && (d.OfJob || a.Group == p.Group()) {
				if v, _ := d.Value(on.Node); v == value {
					n++
				}
			}
		}
		if !ok || n >= d.Limit {
			return d.Text
		}
	}
	return ""
}

// less orders changes: fewer demands, then fewer dimensions, then less of them.
func less(a, b *Change) int {
	dimensions := func(c *Change) (n int) {
		for _, x := range []int64{c.Lacking.CPU, c.Lacking.MemoryMB, c.Lacking.DiskMB} {
			if x > 0 {
				n++
			}
		}
		if c.Named != "" {
			n++
		}
		return n
	}
	sum := func(c *Change) int64 { return c.Lacking.CPU + c.Lacking.MemoryMB + c.Lacking.DiskMB }
	return cmp.Or(cmp.Compare(len(a.Demands)+dimensions(a), len(b.Demands)+dimensions(b)),
		cmp.Compare(len(a.Demands), len(b.Demands)), cmp.Compare(sum(a), sum(b)),
		slices.Compare(a.Node[:], b.Node[:]))
}

// Scores are the best nodes for one more allocation of a group, best first, with the parts of their scores.
func Scores(s *state.State, job *jobs.Job, group *jobs.TaskGroup, most int) ([]jobs.NodeScore, error) {
	p, err := feasible.New(job, group, s.Config())
	if err != nil {
		return nil, err
	}
	collisions := map[jobs.ID]int{}
	for a := range s.OfJob(job.JobKey) {
		if !a.Terminal() && a.Group == group.Name {
			collisions[a.NodeID]++
		}
	}
	algorithm := s.Config().AlgorithmOf(job.NodePool)
	var list []jobs.NodeScore
	for u := range s.Uses() {
		if !u.Ready || len(p.Objections(u.Node)) > 0 || u.Room.Lacks(u.Node, p.Ask.Base(u.Node)) != "" {
			continue
		}
		free := u.Room.Free.Minus(p.Ask.Base(u.Node).Vector)
		parts := map[string]float64{"binpack": score.Fit(algorithm == jobs.SpreadFit, u.Room.Usable, free)}
		if x := score.AntiAffinity(collisions[u.Node.ID], group.Count); x != 0 {
			parts["job-anti-affinity"] = x
		}
		if x, ok := p.Likes(u.Node); ok && x != 0 {
			parts["node-affinity"] = x
		}
		norm := (parts["binpack"] + parts["job-anti-affinity"] + parts["node-affinity"]) / float64(len(parts))
		list = append(list, jobs.NodeScore{Node: u.Node.ID, Parts: parts, Norm: norm})
	}
	slices.SortFunc(list, func(a, b jobs.NodeScore) int {
		return cmp.Or(cmp.Compare(b.Norm, a.Norm), slices.Compare(a.Node[:], b.Node[:]))
	})
	return list[:min(len(list), most)], nil
}
