package place

import (
	"encoding/binary"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/feasible"
	"corbel.dev/corbel/jobs/score"
	"corbel.dev/corbel/jobs/state"
)

// Group places the allocations of one group in one evaluation. Make it with Placer.Begin.
type Group struct {
	*Placer
	view    *View
	job     *jobs.Job
	group   *jobs.TaskGroup
	program *feasible.Program
	spread  bool // the algorithm of the fit score, see NS-18
	dice    *jobs.Dice

	held     map[uint32]held // by slot: nodes with allocations of the job
	spreads  []spreading
	props    []property
	partOf   map[string]int32
	partKeys []byte
	metric   metrics
	seen     uint64 // View.changes, as far as they are the Group's own
}

// metrics is what allocations of the Group share.
type metrics struct {
	own    *jobs.Metric // made once, with the first that is placed
	former *jobs.Metric // of the Group that this one goes on from
	at     int          // Placer.parkings when the newer of them was made
}

// held is how many allocations a node has.
type held struct{ group, job int }

type spreading struct {
	feasible.Target
	*score.Spreading
}

type property struct {
	feasible.Property
	values map[string]int
	counts []int
}

func (p *property) value(n *jobs.Node) int {
	text, ok := p.Value(n)
	if !ok {
		return score.Missing
	}
	at, known := p.values[text]
	if !known {
		at = len(p.counts)
		p.values[text] = at
		p.counts = append(p.counts, 0)
	}
	return at
}

// Begin prepares for the allocations of a group: live are the job's allocations that stay. The
// Placer serves one Group at a time.
func (p *Placer) Begin(v *View, job *jobs.Job, group *jobs.TaskGroup, program *feasible.Program,
	live []*jobs.Allocation, dice *jobs.Dice) *Group {
	if g := p.again(v, job, group, program, live, dice); g != nil {
		return g
	}
	p.reset(v.State.Slots())
	g := &Group{Placer: p, view: v, job: job, group: group, program: program, dice: dice,
		held: map[uint32]held{}, partOf: map[string]int32{}, seen: v.changes}
	g.spread = v.State.Config().AlgorithmOf(poolOf(job)) == jobs.SpreadFit
	total := 0.0
	rules := append(append([]jobs.Spread{}, group.Spreads...), job.Spreads...)
	for _, s := range rules {
		total += float64(s.Weight)
	}
	for _, s := range rules {
		g.spreads = append(g.spreads,
			spreading{feasible.ParseTarget(s.Attribute), score.NewSpreading(s, group.Count, total)})
	}
	for _, d := range program.Properties {
		g.props = append(g.props, property{Property: d, values: map[string]int{}})
	}
	for _, a := range live {
		if u := v.Node(a.NodeID); u != nil {
			g.count(u, a.Group, 1)
		}
	}
	g.collect()
	if p.last = nil; len(live) == 0 && len(g.spreads) == 0 && len(g.props) == 0 {
		p.last = g
	}
	return g
}

func poolOf(job *jobs.Job) string {
	if job.NodePool == "" {
		return "default"
	}
	return job.NodePool
}

// count adds an allocation of the job to a node and to the values that it has.
func (g *Group) count(u *state.Use, group string, by int) {
	h, same := g.held[u.Slot], group == g.group.Name
	h.job += by
	if same {
		h.group += by
	}
	g.held[u.Slot] = h
	for i := range g.props {
		p := &g.props[i]
		if !p.OfJob && !same {
			continue
		}
		if at := p.value(u.Node); at != score.Missing {
			p.counts[at] += by
		}
	}
	if !same {
		return
	}
	for i := range g.spreads {
		s := &g.spreads[i]
		if text, ok := s.Target.Value(u.Node); ok {
			s.Add(s.Spreading.Value(text), by)
		}
	}
}

// class is what is known of a computed class in this evaluation.
type class struct {
	node     *jobs.Node // one of it
	hash     uint64
	pool     int // nodes in the pool
	ready    int
	filtered string // why none serves; "" when they may
	liking   float64
	part     int32 // of nodes whose values are the class's
	reach    bool
}

// collect walks over all nodes once: the candidates, scored, in the heaps of their parts.
func (g *Group) collect() {
	perNode := g.program.LikesUnique()
	partByNode := false
	for i := range g.spreads {
		partByNode = partByNode || g.spreads[i].Unique()
	}
	for i := range g.props {
		partByNode = partByNode || g.props[i].Unique()
	}
	tie := g.chance()
	var c *class
	for u := range g.view.State.Uses() {
		if c == nil || c.hash != u.Class {
			c = g.class(u)
		}
		if !c.reach {
			continue
		}
		c.pool++
		if !u.Ready {
			continue
		}
		c.ready++
		if c.filtered != "" {
			continue
		}
		cand := candidate{use: g.view.Use(u), pos: parked, part: c.part, liking: c.liking,
			tie: uint32(jobs.Mix(tie + uint64(u.Slot)))}
		if perNode {
			cand.liking, _ = g.program.Likes(u.Node)
		}
		if partByNode {
			cand.part = g.part(u.Node)
		}
		at := int32(len(g.cands))
		g.cands = append(g.cands, cand)
		g.bySlot[u.Slot] = at + 1
		if why := g.program.Node(u.Node); why != "" {
			g.cands[at].filtered, g.cands[at].lacks, g.cands[at].never = true, why, true
			continue
		}
		if g.rate(at) {
			h := &g.parts[g.cands[at].part].heaps[g.cands[at].n]
			g.cands[at].pos = int32(len(*h))
			*h = append(*h, at)
		}
	}
	for i := range g.parts {
		for n := range g.parts[i].heaps {
			g.heapify(g.parts[i].heaps[n])
		}
	}
}

// class begins the class of u.
func (g *Group) class(u *state.Use) *class {
	g.classes = append(g.classes, class{node: u.Node, hash: u.Class, reach: g.program.Reach(u.Node)})
	c := &g.classes[len(g.classes)-1]
	if !c.reach {
		return c
	}
	if c.filtered = g.program.Class(u.Node); c.filtered != "" {
		return c
	}
	c.liking, _ = g.program.Likes(u.Node)
	c.part = g.part(u.Node)
	return c
}

// part is the part of a node by its values of all spreads and distinct properties.
func (g *Group) part(n *jobs.Node) int32 {
	g.partKeys = g.partKeys[:0]
	values := make([]int, 0, 8)
	for i := range g.spreads {
		at := score.Missing
		if text, ok := g.spreads[i].Target.Value(n); ok {
			at = g.spreads[i].Spreading.Value(text)
		}
		values = append(values, at)
	}
	for i := range g.props {
		values = append(values, g.props[i].value(n))
	}
	for _, at := range values {
		g.partKeys = binary.AppendVarint(g.partKeys, int64(at))
	}
	if at, ok := g.partOf[string(g.partKeys)]; ok {
		return at
	}
	at := int32(len(g.parts))
	g.partOf[string(g.partKeys)] = at
	g.parts = append(g.parts, part{values: values})
	return at
}

// rate computes the node's own score, and reports whether it may take an allocation now.
func (g *Group) rate(at int32) bool {
	c := &g.cands[at]
	if c.never {
		return false
	}
	u := c.use
	base := g.program.Ask.Base(u.Node)
	c.filtered = false
	var h held
	if len(g.held) > 0 {
		h = g.held[u.Slot]
	}
	if g.program.HostsOfJob && h.job > 0 || g.program.HostsOfGroup && h.group > 0 {
		c.filtered, c.lacks = true, feasible.DistinctHosts
		return false
	}
	if c.lacks = u.Room.Lacks(u.Node, base); c.lacks != "" {
		return false
	}
	c.sum = score.Fit(g.spread, u.Room.Usable, u.Room.Free.Minus(base.Vector))
	c.n = 1
	if h.group > 0 {
		c.sum += score.AntiAffinity(h.group, g.group.Count)
		c.n++
	}
	if c.liking != 0 {
		c.sum += c.liking
		c.n++
	}
	return true
}

// refresh rates a candidate anew and moves it to where it belongs.
func (g *Group) refresh(at int32) {
	before := g.cands[at].pos == parked
	g.out(at)
	if g.rate(at) {
		g.in(at)
	}
	if before != (g.cands[at].pos == parked) {
		g.parkings++
	}
}
