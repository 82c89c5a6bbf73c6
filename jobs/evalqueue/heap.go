package evalqueue

import "corbel.dev/corbel/jobs"

// heap has the first evaluation in front.
type heap struct {
	before func(a, b *jobs.Evaluation) bool
	list   []*jobs.Evaluation
	ids    map[jobs.ID]bool
}

func (h *heap) has(id jobs.ID) bool { return h != nil && h.ids[id] }

func (h *heap) push(e *jobs.Evaluation) {
	if h.ids == nil {
		h.ids = map[jobs.ID]bool{}
	}
	h.ids[e.ID] = true
	h.list = append(h.list, e)
	for i := len(h.list) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h.before(h.list[i], h.list[parent]) {
			return
		}
		h.list[i], h.list[parent] = h.list[parent], h.list[i]
		i = parent
	}
}

func (h *heap) pop() *jobs.Evaluation {
	e, last := h.list[0], len(h.list)-1
	h.list[0], h.list[last] = h.list[last], nil
	h.list = h.list[:last]
	delete(h.ids, e.ID)
	for i := 0; ; {
		kid := 2*i + 1
		if kid >= last {
			return e
		}
		if kid+1 < last && h.before(h.list[kid+1], h.list[kid]) {
			kid++
		}
		if !h.before(h.list[kid], h.list[i]) {
			return e
		}
		h.list[i], h.list[kid] = h.list[kid], h.list[i]
		i = kid
	}
}
