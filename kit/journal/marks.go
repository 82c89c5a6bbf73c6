package journal

import "sort"

// mark is a place in a segment: the sequence of the frame before it.
type mark struct {
	last uint64
	at   int64
}

// marks are places in segments, so that a Cursor that begins in the middle of one passes over little before its first
// frame. A segment that was skimmed has none.
type marks struct {
	every int64             // about how many bytes are between two
	of    map[uint64][]mark // by the segment's Before, in order
}

const markEvery = 256 << 10

func newMarks(segmentBytes int64) marks {
	return marks{every: min(markEvery, segmentBytes/16), of: map[uint64][]mark{}}
}

// add notes a place, where the one before is far enough away.
func (m marks) add(segment uint64, next mark) {
	list := m.of[segment]
	former := int64(0)
	if len(list) > 0 {
		former = list[len(list)-1].at
	}
	if next.at-former >= m.every {
		m.of[segment] = append(list, next)
	}
}

// before is the last place of a segment with no frame after sequence before it.
func (m marks) before(segment, sequence uint64) mark {
	list := m.of[segment]
	if n := sort.Search(len(list), func(i int) bool { return list[i].last > sequence }); n > 0 {
		return list[n-1]
	}
	return mark{last: segment}
}
