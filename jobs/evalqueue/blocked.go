package evalqueue

import (
	"cmp"
	"slices"
	"time"

	"corbel.dev/corbel/jobs"
)

// Blocked is work that waits for room.
type Blocked struct {
	Eval *jobs.Evaluation
	// Least is what the smallest of its queued allocations asks for, All what all of them do together (planner.Result).
	Least, All jobs.Vector

	since jobs.Time // since when its job waits, however often it was tried
	stale bool      // nodes came that are too small for it: what it says of them is old
}

// Block takes work that could not be placed. It returns what is to be stored instead of it: older blocked
// work of the same job as canceled. woken is not nil when room came free since the State that the
// evaluation looked at: it is to be stored as pending and added.
func (q *Queue) Block(b Blocked, now jobs.Time) (canceled, woken *jobs.Evaluation) {
	e := b.Eval
	if old := q.blocked[e.JobKey]; old != nil && old.Eval.ID != e.ID {
		if !older(old.Eval, e) {
			return Canceled(e, now), nil
		}
		canceled = Canceled(old.Eval, now)
		delete(q.blocked, e.JobKey)
	}
	if b.since = q.since[e.JobKey]; b.since == 0 {
		b.since = e.CreateTime
		q.since[e.JobKey] = b.since
	}
	if q.missed(e) {
		return canceled, ready(e, now)
	}
	q.blocked[e.JobKey] = &b
	return canceled, nil
}

// missed reports whether a class that may serve e gained room after the State that e looked at.
func (q *Queue) missed(e *jobs.Evaluation) bool {
	if e.Quota != "" && q.quotas[e.Quota] > e.SnapshotIndex {
		return true
	}
	if q.any <= e.SnapshotIndex {
		return false
	}
	for class, index := range q.classes {
		if index > e.SnapshotIndex && serves(e, class) {
			return true
		}
	}
	return false
}

// serves reports whether a class may serve e: it did, it was not there to be looked at, or classes do not
// tell (NS-7).
func serves(e *jobs.Evaluation, class uint64) bool {
	ok, seen := e.Outcome.Classes[class]
	return ok || !seen || e.Outcome.Escaped || e.Trigger == jobs.TriggerMaxPlans
}

func ready(e *jobs.Evaluation, now jobs.Time) *jobs.Evaluation {
	next := *e
	next.Status, next.ModifyTime, next.Description = jobs.EvalPending, now, ""
	next.Outcome = jobs.Outcome{Queued: e.Outcome.Queued}
	return &next
}

// Forget drops the blocked work of a job that has been evaluated anew, and returns it as canceled, or nil.
func (q *Queue) Forget(key jobs.JobKey, now jobs.Time) *jobs.Evaluation {
	delete(q.since, key)
	b := q.blocked[key]
	if b == nil {
		return nil
	}
	delete(q.blocked, key)
	return Canceled(b.Eval, now)
}

// Drop forgets blocked work that somebody deleted.
func (q *Queue) Drop(e *jobs.Evaluation) {
	if b := q.blocked[e.JobKey]; b != nil && b.Eval.ID == e.ID {
		delete(q.blocked, e.JobKey)
		delete(q.since, e.JobKey)
	}
}

// Wake takes the gains of a short window and returns the work to be stored as pending and added: the most
// important first, and no more than fits into what came free (NS-10). The rest stays blocked and is
// woken by the next gain. A gain of unknown size wakes everything that its class can serve.
func (q *Queue) Wake(gains []jobs.Gain, now jobs.Time) (woken []*jobs.Evaluation) {
	free := map[uint64]*jobs.Vector{} // nil: unknown
	came := map[uint64]bool{}         // with nodes
	var order []uint64
	for _, g := range gains {
		came[g.Class] = came[g.Class] || g.Node
		q.classes[g.Class] = max(q.classes[g.Class], g.Index)
		q.any = max(q.any, g.Index)
		old, seen := free[g.Class]
		if !seen {
			order = append(order, g.Class)
		}
		switch {
		case g.Free == jobs.Vector{} || seen && old == nil:
			free[g.Class] = nil
		case !seen:
			free[g.Class] = &jobs.Vector{CPU: g.Free.CPU, MemoryMB: g.Free.MemoryMB, DiskMB: g.Free.DiskMB}
		default:
			*old = old.Plus(g.Free)
		}
	}
	whole := map[uint64]jobs.Vector{}
	for class, have := range free {
		if have != nil {
			whole[class] = *have
		}
	}
	slices.Sort(order)
	list := make([]*Blocked, 0, len(q.blocked))
	for _, b := range q.blocked {
		list = append(list, b)
	}
	slices.SortFunc(list, func(a, b *Blocked) int {
		if first(a.Eval, b.Eval) {
			return -1
		}
		return 1
	})
	for _, b := range list {
		if take(b, order, free, whole, came) {
			delete(q.blocked, b.Eval.JobKey)
			woken = append(woken, ready(b.Eval, now))
		} else if b.stale && q.look == 0 {
			q.look = now
		}
	}
	return woken
}

// take reports whether a blocked evaluation is worth trying, and takes what it would use out of what is free. whole is
// what came free before others took of it: work that is larger than all that a class brought is tried once all the
// same, when the class is new to it. It stays blocked, but says what it lacks instead of that there is no node. When
// more nodes of the class have come, it is stale: see refresh.
func take(b *Blocked, order []uint64, free map[uint64]*jobs.Vector, whole map[uint64]jobs.Vector,
	came map[uint64]bool) bool {
	rest, found := b.All, false
	for _, class := range order {
		if !serves(b.Eval, class) {
			continue
		}
		have := free[class]
		if have == nil {
			return true
		}
		if !within(b.Least, *have) {
			large := !within(b.Least, whole[class])
			if _, seen := b.Eval.Outcome.Classes[class]; large && !seen {
				return true
			}
			b.stale = b.stale || large && came[class]
			continue
		}
		found = true
		used := jobs.Vector{CPU: min(rest.CPU, have.CPU), MemoryMB: min(rest.MemoryMB, have.MemoryMB),
			DiskMB: min(rest.DiskMB, have.DiskMB)}
		*have, rest = have.Minus(used), rest.Minus(used)
		if rest == (jobs.Vector{}) {
			break
		}
	}
	return found
}

// refreshAfter is how long work says the same of the nodes while more of them come that are too small for it.
const refreshAfter = 30 * time.Second

// refresh takes one blocked evaluation off that is stale and has said the same for long, the one that has done so
// longest: to be stored as pending, so that it says what it lacks on the nodes of now. Where a fleet joins, a job is so
// looked at twice a minute, and all jobs together once a call, instead of each of them for each node.
func (q *Queue) refresh(now jobs.Time) *jobs.Evaluation {
	if q.paused || q.look == 0 || now < q.look {
		return nil
	}
	var oldest *Blocked
	for _, b := range q.blocked {
		if b.stale && (oldest == nil || cmp.Or(cmp.Compare(b.Eval.ModifyTime, oldest.Eval.ModifyTime),
			slices.Compare(b.Eval.ID[:], oldest.Eval.ID[:])) < 0) {
			oldest = b
		}
	}
	if oldest == nil {
		q.look = 0
		return nil
	}
	if q.look = oldest.Eval.ModifyTime.Add(refreshAfter); now < q.look {
		return nil
	}
	delete(q.blocked, oldest.Eval.JobKey)
	return ready(oldest.Eval, now)
}

func within(a, b jobs.Vector) bool {
	return a.CPU <= b.CPU && a.MemoryMB <= b.MemoryMB && a.DiskMB <= b.DiskMB
}

// Needs is what all blocked work asks for together.
func (q *Queue) Needs() (all jobs.Vector) {
	for _, b := range q.blocked {
		all = all.Plus(b.All)
	}
	return all
}

// EachBlocked calls f with all blocked evaluations, in no order, and since when each one's job waits.
func (q *Queue) EachBlocked(f func(e *jobs.Evaluation, since jobs.Time)) {
	for _, b := range q.blocked {
		f(b.Eval, b.since)
	}
}

// WakeQuota is Wake for a quota that rose.
func (q *Queue) WakeQuota(quota string, index uint64, now jobs.Time) (woken []*jobs.Evaluation) {
	q.quotas[quota] = max(q.quotas[quota], index)
	for key, b := range q.blocked {
		if b.Eval.Quota == quota {
			delete(q.blocked, key)
			woken = append(woken, ready(b.Eval, now))
		}
	}
	slices.SortFunc(woken, func(a, b *jobs.Evaluation) int { return slices.Compare(a.ID[:], b.ID[:]) })
	return woken
}

// Prune forgets gains of States that no running evaluation has looked at: those up to index. Call it every few minutes
// (NK-9), so that classes that are gone take no memory.
func (q *Queue) Prune(index uint64) {
	for class, at := range q.classes {
		if at <= index {
			delete(q.classes, class)
		}
	}
	for quota, at := range q.quotas {
		if at <= index {
			delete(q.quotas, quota)
		}
	}
}
