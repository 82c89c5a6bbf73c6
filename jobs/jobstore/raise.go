package jobstore

import (
	"io"

	"corbel.dev/corbel/kit/errkind"
)

// margin is how far above the present an operator's snapshot begins: commands that are committed between the look at
// the present and the moment in which the snapshot replaces it stay below. They are fewer by a factor of a thousand.
const margin = 1 << 24

// maxIndex bounds the index of a snapshot that is raised: what is above it was not counted up to.
const maxIndex = 1 << 62

// raise lifts the indexes of a snapshot above everything that this cluster has said, so that blocking queries, nodes
// and the followers of events, which all take a higher index for news, see the past as what came last. All indexes of
// changes rise by the same, so that they compare with each other as before. Indexes of creation stay: they tell jobs of
// one name apart, and link deployments and allocations to them.
type raise struct {
	present uint64
	by, top uint64 // top is the snapshot's index as it was written
	wrong   bool   // something was changed after the snapshot's index
}

// ReadRaised reads what WriteTo wrote, with all indexes of changes above present by a wide margin: for an operator's
// snapshot, which replaces the present. Every table counts as changed. Two snapshots may be raised above the same
// present, but only one of them may then become it.
func ReadRaised(from io.Reader, present uint64) (*View, error) {
	return read(from, &raise{present: present})
}

// head raises the head; the indexes of tables all become the highest.
func (r *raise) head(h *headFrame) error {
	if r == nil {
		return nil
	}
	if h.Index > maxIndex || r.present > maxIndex {
		return errkind.Errorf(errkind.Invalid, "the snapshot of the jobs plane has the index %d, and the servers are at %d: "+
			"at most %d can be restored", h.Index, r.present, uint64(maxIndex))
	}
	r.by, r.top = r.present+margin, h.Index
	h.Index += r.by
	h.Restored = h.Index
	h.Indexes = make([]uint64, tableCount)
	for t := range h.Indexes {
		h.Indexes[t] = h.Index
	}
	return nil
}

// up raises indexes of changes. A nil raise leaves them.
func (r *raise) up(indexes ...*uint64) {
	if r == nil {
		return
	}
	for _, index := range indexes {
		if *index > r.top {
			r.wrong = true
			return
		}
		*index += r.by
	}
}
