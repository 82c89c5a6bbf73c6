package place

import (
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/state"
)

// Placer has the memory that Groups use one after the other. It belongs to one goroutine.
type Placer struct {
	cands   []candidate
	bySlot  []int32 // candidate + 1
	classes []class
	parts   []part

	last     *Group // that the next one may go on from (again.go), nil is none
	parkings int    // how often a candidate was parked, or came back
}

// candidate is a node whose kind serves the group.
type candidate struct {
	use      *state.Use
	sum      float64 // of the node's own scores
	liking   float64
	lacks    string // why it is parked
	tie      uint32
	part     int32
	pos      int32 // in its heap, or parked
	n        uint8 // how many scores sum has
	filtered bool  // parked by a constraint, not for want of room
	never    bool  // whatever is placed or stopped
}

const parked = -1

// maxScores: fit, anti-affinity, affinity, penalty.
const maxScores = 4

// part are the candidates that have the same values in all spreads and distinct properties. What
// the spreads say is equal for all of them, so that the best of a part is the best by its own
// scores. Means of different numbers of scores do not keep that order: hence a heap for each number.
type part struct {
	values []int // places: of spreads, then of distinct properties
	heaps  [maxScores + 1][]int32
}

func (p *Placer) reset(slots int) {
	clear(p.cands)
	clear(p.classes)
	clear(p.parts) // heaps are small and of other sizes each time: not worth keeping
	p.cands, p.classes, p.parts = p.cands[:0], p.classes[:0], p.parts[:0]
	if cap(p.bySlot) < slots {
		p.bySlot = make([]int32, slots)
	}
	p.bySlot = p.bySlot[:slots]
	clear(p.bySlot)
}

// before is the order of a heap: the better first.
func (p *Placer) before(a, b int32) bool {
	x, y := &p.cands[a], &p.cands[b]
	if x.sum != y.sum {
		return x.sum > y.sum
	}
	if x.tie != y.tie {
		return x.tie < y.tie
	}
	return a < b
}

func (p *Placer) heapify(h []int32) {
	for i := len(h)/2 - 1; i >= 0; i-- {
		p.down(h, i)
	}
}

func (p *Placer) down(h []int32, i int) {
	for {
		kid := 2*i + 1
		if kid >= len(h) {
			return
		}
		if kid+1 < len(h) && p.before(h[kid+1], h[kid]) {
			kid++
		}
		if !p.before(h[kid], h[i]) {
			return
		}
		p.swap(h, i, kid)
		i = kid
	}
}

func (p *Placer) up(h []int32, i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !p.before(h[i], h[parent]) {
			return
		}
		p.swap(h, i, parent)
		i = parent
	}
}

func (p *Placer) swap(h []int32, i, j int) {
	h[i], h[j] = h[j], h[i]
	p.cands[h[i]].pos, p.cands[h[j]].pos = int32(i), int32(j)
}

// in puts a candidate into its heap.
func (p *Placer) in(at int32) {
	c := &p.cands[at]
	h := &p.parts[c.part].heaps[c.n]
	c.pos = int32(len(*h))
	*h = append(*h, at)
	p.up(*h, int(c.pos))
}

// out takes a candidate out of its heap, if it is in one.
func (p *Placer) out(at int32) {
	c := &p.cands[at]
	if c.pos == parked {
		return
	}
	h := &p.parts[c.part].heaps[c.n]
	i, last := int(c.pos), len(*h)-1
	if i != last {
		p.swap(*h, i, last)
	}
	*h = (*h)[:last]
	if i < last {
		p.down(*h, i)
		p.up(*h, i)
	}
	c.pos = parked
}

// find is the candidate of a node, or parked.
func (p *Placer) find(v *View, node jobs.ID) int32 {
	u := v.State.Node(node)
	if u == nil {
		return parked
	}
	return p.bySlot[u.Slot] - 1
}
