package registry

import "time"

// indexHistory remembers which index was current when, in a ring of one mark
// per step over the tombstones' lifetime. It has no clock of its own.
//
// A process remembers nothing of the time before it: after a restart tombstones
// live up to one lifetime longer. That is harmless; forgetting one too early
// would let a prefix's index run backwards for those who wait on it.
type indexHistory struct {
	life  time.Duration
	marks []indexMark // ring, oldest at head
	head  int
}

type indexMark struct {
	at    time.Duration // on a monotonic clock
	index uint64
}

// newIndexHistory keeps marks of every step for life.
func newIndexHistory(life, step time.Duration) *indexHistory {
	return &indexHistory{life: life, marks: make([]indexMark, 0, int(life/step)+2)}
}

// mark notes the index of now and returns the newest index that is at least
// life old; 0 while there is none. An index below the last one means that the
// State was replaced: what was noted belongs to another history.
func (h *indexHistory) mark(now time.Duration, index uint64) (old uint64) {
	if n := len(h.marks); n > 0 && index < h.marks[(h.head+n-1)%n].index {
		h.marks, h.head = h.marks[:0], 0
	}
	if len(h.marks) < cap(h.marks) {
		h.marks = append(h.marks, indexMark{now, index})
	} else {
		h.marks[h.head] = indexMark{now, index}
		h.head = (h.head + 1) % len(h.marks)
	}
	for i := range h.marks {
		m := h.marks[(h.head+i)%len(h.marks)]
		if now-m.at < h.life {
			break
		}
		old = m.index
	}
	return old
}
