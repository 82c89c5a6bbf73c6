package place

import (
	"math"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/score"
	"corbel.dev/corbel/jobs/state"
)

// Request is one allocation to be placed.
type Request struct {
	Prefer  jobs.ID   // the node to keep when it serves (sticky disks); zero is none
	Penalty []jobs.ID // nodes where former attempts failed
}

// Next places one allocation: the node and what it is granted there. Without a place it returns nil.
func (g *Group) Next(r Request) (*state.Use, *jobs.Grant) {
	if !r.Prefer.IsZero() {
		if at := g.find(g.view, r.Prefer); at != parked && g.cands[at].pos != parked {
			if u, grant := g.try(at); u != nil {
				return u, grant
			}
		}
	}
	for {
		at := g.best(r.Penalty)
		if at == parked {
			return nil, nil
		}
		if u, grant := g.try(at); u != nil {
			return u, grant
		}
	}
}

// try assigns on a candidate; one whose named things do not suffice is parked.
func (g *Group) try(at int32) (*state.Use, *jobs.Grant) {
	c := &g.cands[at]
	grant, lacks := g.program.Ask.Assign(c.use.Node, &c.use.Room, g.dice)
	if lacks != "" {
		g.out(at)
		c.lacks = lacks
		g.parkings++
		return nil, nil
	}
	c.use = g.view.Take(c.use, grant)
	g.seen++
	g.count(c.use, g.group.Name, 1)
	g.refresh(at)
	return c.use, grant
}

// choice is the best candidate so far.
type choice struct {
	at    int32
	need  float64
	final float64
}

func (g *Group) offer(best *choice, at int32, need, final float64) {
	if best.at != parked && (need < best.need || need == best.need && (final < best.final ||
		final == best.final && g.cands[at].tie >= g.cands[best.at].tie)) {
		return
	}
	*best = choice{at, need, final}
}

// best is the candidate for the next allocation.
func (g *Group) best(penalty []jobs.ID) int32 {
	best := choice{at: parked, need: math.Inf(-1)}
	var aside []int32
	for _, node := range penalty {
		if at := g.find(g.view, node); at != parked && g.cands[at].pos != parked {
			g.out(at)
			aside = append(aside, at)
		}
	}
	for i := range g.parts {
		p := &g.parts[i]
		if g.closed(p) {
			continue
		}
		need := g.need(p)
		if need < best.need {
			continue
		}
		boost, known := 0.0, false
		for n := 1; n <= maxScores; n++ {
			if len(p.heaps[n]) == 0 {
				continue
			}
			if !known {
				boost, known = g.boost(p), true
			}
			at := p.heaps[n][0]
			g.offer(&best, at, need, mean(g.cands[at].sum, n, boost))
		}
	}
	for _, at := range aside {
		c := &g.cands[at]
		if p := &g.parts[c.part]; !g.closed(p) {
			g.offer(&best, at, g.need(p), mean(c.sum+score.Penalty, int(c.n)+1, g.boost(p)))
		}
		g.in(at)
	}
	return best.at
}

// mean is NS-17: the mean of the scores that applied.
func mean(sum float64, n int, boost float64) float64 {
	if boost != 0 {
		sum += boost
		n++
	}
	return sum / float64(n)
}

// closed reports whether a distinct property of the part is used up, or missing.
func (g *Group) closed(p *part) bool {
	for i := range g.props {
		at := p.values[len(g.spreads)+i]
		if at == score.Missing || g.props[i].counts[at] >= g.props[i].Limit {
			return true
		}
	}
	return false
}

func (g *Group) need(p *part) (sum float64) {
	for i := range g.spreads {
		sum += g.spreads[i].Need(p.values[i], g.group.Count)
	}
	return sum
}

func (g *Group) boost(p *part) (sum float64) {
	for i := range g.spreads {
		sum += g.spreads[i].Boost(p.values[i])
	}
	return sum
}

// Release gives back what a running allocation of the group has, so that its replacement may have it.
func (g *Group) Release(a *jobs.Allocation) { g.move(a, -1) }

// Retake takes a Release back.
func (g *Group) Retake(a *jobs.Allocation) { g.move(a, 1) }

func (g *Group) move(a *jobs.Allocation, by int) {
	u := g.view.Node(a.NodeID)
	if u == nil {
		return
	}
	if a.Counts() {
		if by < 0 {
			u = g.view.Give(u, a.Grant)
		} else {
			u = g.view.Take(u, a.Grant)
		}
		g.seen++
	}
	g.count(u, a.Group, by)
	if at := g.bySlot[u.Slot] - 1; at != parked {
		g.cands[at].use = u
		g.refresh(at)
	}
}

// Parked yields the nodes that serve but have no room, with what they lack.
func (g *Group) Parked(yield func(u *state.Use, lacks string) bool) {
	for i := range g.cands {
		c := &g.cands[i]
		if c.pos == parked && !c.filtered && !g.closed(&g.parts[c.part]) && !yield(c.use, c.lacks) {
			return
		}
	}
}

// Metric says what became of all nodes, as it is now (NO-22).
func (g *Group) Metric() *jobs.Metric {
	m := &jobs.Metric{}
	add := func(to *map[string]int, key string, n int) {
		if *to == nil {
			*to = map[string]int{}
		}
		(*to)[key] += n
	}
	for i := range g.classes {
		c := &g.classes[i]
		if !c.reach {
			continue
		}
		m.InPool += c.pool
		if c.ready == 0 {
			continue
		}
		add(&m.Available, c.node.Datacenter, c.ready)
		m.Evaluated += c.ready
		if c.filtered != "" {
			m.Filtered += c.ready
			add(&m.ConstraintFiltered, c.filtered, c.ready)
			if c.node.Class != "" {
				add(&m.ClassFiltered, c.node.Class, c.ready)
			}
		}
	}
	for i := range g.cands {
		c := &g.cands[i]
		if c.pos != parked && len(g.props) == 0 {
			continue // most are like this: nothing of their nodes is read
		}
		name, why := c.use.Node.Class, c.lacks
		filtered := c.filtered
		if text := g.closedText(&g.parts[c.part]); text != "" && !filtered {
			filtered, why = true, text
		}
		switch {
		case filtered:
			m.Filtered++
			add(&m.ConstraintFiltered, why, 1)
			if name != "" {
				add(&m.ClassFiltered, name, 1)
			}
		case c.pos == parked:
			m.Exhausted++
			add(&m.DimensionExhausted, why, 1)
			if name != "" {
				add(&m.ClassExhausted, name, 1)
			}
		}
	}
	return m
}

// Placed is the Metric that allocations of the group share: made with the first one. Scores of
// single nodes are computed for those who ask (package explain).
func (g *Group) Placed() *jobs.Metric {
	switch m := &g.metric; {
	case m.own != nil:
	case m.former != nil && m.at == g.parkings: // nothing that it counts has changed
		m.own = m.former
	default:
		m.own, m.at = g.Metric(), g.parkings
	}
	return g.metric.own
}

func (g *Group) closedText(p *part) string {
	for i := range g.props {
		at := p.values[len(g.spreads)+i]
		if at == score.Missing || g.props[i].counts[at] >= g.props[i].Limit {
			return g.props[i].Text
		}
	}
	return ""
}

// Classes reports for each computed class in reach whether its kind serves (NS-7).
func (g *Group) Classes(yield func(class uint64, feasible bool) bool) {
	for i := range g.classes {
		if c := &g.classes[i]; c.reach && !yield(c.hash, c.filtered == "") {
			return
		}
	}
}

// Freed says that room of a node came free, which the View knows already.
func (g *Group) Freed(u *state.Use) {
	if at := g.bySlot[u.Slot] - 1; at != parked {
		g.cands[at].use = g.view.Use(u)
		g.refresh(at)
	}
}
