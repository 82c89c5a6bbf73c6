package roundrobin

import (
	"cmp"
	"strings"
	"time"
)

// ballot is a leader's right to have ticks noted; of two the greater one counts.
type ballot struct {
	n      uint64
	server string
}

func (b ballot) less(c ballot) bool {
	return cmp.Or(cmp.Compare(b.n, c.n), strings.Compare(b.server, c.server)) < 0
}

// note is that a tick of a check is dealt, and by whom.
type note struct {
	name
	due int64
	by  string
}

// book is what a server noted, and for whom it notes. It is pure.
//
// Two majorities have a server in common. So once a majority began with a ballot, no tick that is noted by a majority
// for a lesser one is unknown to who has the ballot: either it was noted before, and was told, or it is refused.
type book struct {
	promised ballot
	noted    map[name]note // the newest tick of each check
}

// begin promises to note nothing for lesser ballots any more, and returns what was noted; false is that a greater one
// was promised.
func (b *book) begin(with ballot) ([]note, bool) {
	if with.less(b.promised) {
		return nil, false
	}
	b.promised = with
	out := make([]note, 0, len(b.noted))
	for _, n := range b.noted {
		out = append(out, n)
	}
	return out, true
}

// note notes ticks; false is that a greater ballot was promised, and nothing was noted.
func (b *book) note(with ballot, list []note, now time.Time) bool {
	if with.less(b.promised) {
		return false
	}
	b.promised = with
	for _, n := range list {
		b.noted[n.name] = note{n.name, n.due, with.server}
	}
	// What is older than any tick that may still wait is of no use; a clock that was set back says so of nothing.
	if old := now.Add(-4 * keep).UnixNano(); len(b.noted) > 2*len(list) {
		for key, n := range b.noted {
			if n.due < old {
				delete(b.noted, key)
			}
		}
	}
	return true
}

// leadership is what a leader knows since it began.
type leadership struct {
	ballot ballot
	began  time.Duration
	floor  map[name]int64 // what former leaders dealt
	young  int64          // servers that were asked may have noted ticks up to here and forgotten them
	last   map[name]int64 // what was dealt since
}

// ahead is how far in the future a note may lie that counts: one beyond is of a clock that was wrong.
const ahead = time.Minute

// newLeadership is one that begins at a time with what a majority noted, the youngest server of which runs for so
// long. kept are ticks that this server had noted and then did not deal.
func newLeadership(b ballot, noted [][]note, kept map[name]int64, youngest time.Duration, wall time.Time,
	now time.Duration) *leadership {
	r := &leadership{ballot: b, began: now, floor: map[name]int64{}, last: map[name]int64{},
		young: wall.Add(-youngest).UnixNano()}
	for _, list := range noted {
		for _, n := range list {
			// A note of this server's own is newer than any of another one for that tick: nobody else dealt it either.
			mine := n.by == b.server && kept[n.name] == n.due
			if !mine && n.due <= wall.Add(ahead).UnixNano() {
				r.floor[n.name] = max(r.floor[n.name], n.due)
			}
		}
	}
	return r
}

// may says whether a tick may be dealt: that nobody dealt it.
func (r *leadership) may(key name, due int64) bool {
	last, dealt := r.last[key]
	if dealt && last == due {
		return false
	}
	// Only ticks that came due before can have been dealt by another one.
	floor, known := r.floor[key]
	return dealt || due > r.young && (!known || due > floor)
}
