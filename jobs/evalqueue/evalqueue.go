// Package evalqueue has the evaluations that wait for a scheduler, in the order in which they are served
// (NS-1 to NS-11): by priority, then by age, one at a time for each job.
//
// Invariants:
//   - Each job has at most one evaluation that is served, one that waits behind it (the newest; older ones
//     come back as canceled), and one that is blocked. So memory is O(1) for each job, however often it changes.
//   - An evaluation is handed out with a token and comes back by Ack or Nack with it; after Silence it is handed
//     out again. Whoever has an old token changes nothing.
//   - A blocked evaluation is not lost between a State and the change that would have woken it: Block compares the
//     index that was looked at with the index of each class's last change.
//   - Wake takes many changes at once, and wakes no more than could be placed by them.
//
// Cost: O(log n) for each call; Wake looks at each blocked evaluation once, whatever the number of changes, so call
// it once for a short window. Time comes in as an argument. A Queue belongs to one goroutine (its owner's lock), and
// is built anew from the State by a new leader.
package evalqueue

import (
	"cmp"
	"slices"
	"time"

	"corbel.dev/corbel/jobs"
)

// The waits of NS-2.
const (
	Silence       = 60 * time.Second // after which an evaluation that was handed out is taken back
	firstDelay    = time.Second      // after the first Nack
	laterDelay    = 20 * time.Second // after each further one, growing
	maxDeliveries = 3                // then it has failed
	// A failed one is followed by another after a minute and up to five more.
	followUpDelay  = time.Minute
	followUpJitter = 5 * time.Minute
)

// Queue is all of it. Make it with New.
type Queue struct {
	ready   map[string]*heap // by type of job
	byJob   map[jobs.JobKey]*entry
	out     map[jobs.ID]*delivery
	delayed heap
	blocked map[jobs.JobKey]*Blocked
	since   map[jobs.JobKey]jobs.Time // since when jobs wait for room, also those that are being tried
	look    jobs.Time                 // when to look for stale work; 0 when there is none
	classes map[uint64]uint64         // index of a class's last gain
	quotas  map[string]uint64
	any     uint64 // index of the last gain of any class
	paused  bool
	dice    *jobs.Dice
}

// entry is a job's evaluation that is ready or handed out, and the newest one behind it.
type entry struct {
	now  *jobs.Evaluation
	next *jobs.Evaluation
}

type delivery struct {
	eval    *jobs.Evaluation
	token   jobs.ID
	until   jobs.Time
	count   int
	outside bool // at a scheduler; else it waits to be handed out again
}

// New is an empty queue; the seed is for tokens and jitter.
func New(seed uint64) *Queue {
	q := &Queue{ready: map[string]*heap{}, byJob: map[jobs.JobKey]*entry{}, out: map[jobs.ID]*delivery{},
		blocked: map[jobs.JobKey]*Blocked{}, since: map[jobs.JobKey]jobs.Time{}, classes: map[uint64]uint64{},
		quotas: map[string]uint64{}, dice: jobs.NewDice(seed, 1)}
	q.delayed.before = func(a, b *jobs.Evaluation) bool {
		if a.WaitUntil != b.WaitUntil {
			return a.WaitUntil < b.WaitUntil
		}
		return slices.Compare(a.ID[:], b.ID[:]) < 0
	}
	return q
}

// first is the order of what is ready.
func first(a, b *jobs.Evaluation) bool {
	if a.Priority != b.Priority {
		return a.Priority > b.Priority
	}
	if a.CreateIndex != b.CreateIndex {
		return a.CreateIndex < b.CreateIndex
	}
	return slices.Compare(a.ID[:], b.ID[:]) < 0
}

// Add takes an evaluation that is pending. It returns those that it makes needless: to be stored as canceled.
func (q *Queue) Add(e *jobs.Evaluation, now jobs.Time) (canceled []*jobs.Evaluation) {
	if e.WaitUntil > now {
		if !q.delayed.has(e.ID) {
			q.delayed.push(e)
		}
		return nil
	}
	j := q.byJob[e.JobKey]
	switch {
	case j == nil:
		q.byJob[e.JobKey] = &entry{now: e}
		q.push(e)
	case j.now.ID == e.ID, j.next != nil && j.next.ID == e.ID:
	case j.next == nil:
		j.next = e
	case older(j.next, e):
		canceled = append(canceled, j.next)
		j.next = e
	default:
		canceled = append(canceled, e)
	}
	return canceled
}

func older(a, b *jobs.Evaluation) bool {
	return cmp.Or(cmp.Compare(a.CreateIndex, b.CreateIndex), -1) < 0
}

func (q *Queue) push(e *jobs.Evaluation) {
	h := q.ready[e.Type]
	if h == nil {
		h = &heap{before: first}
		q.ready[e.Type] = h
	}
	h.push(e)
}

// Next hands out the most important evaluation for schedulers of the given types, or nil. Handing
// out several in a row serves many in one pass.
func (q *Queue) Next(types []string, now jobs.Time) (e *jobs.Evaluation, token jobs.ID) {
	if q.paused {
		return nil, token
	}
	var best *heap
	for _, t := range types {
		if h := q.ready[t]; h != nil && len(h.list) > 0 && (best == nil || first(h.list[0], best.list[0])) {
			best = h
		}
	}
	if best == nil {
		return nil, token
	}
	e = best.pop()
	d := q.out[e.ID]
	if d == nil {
		d = &delivery{eval: e}
		q.out[e.ID] = d
	}
	d.count++
	d.token, d.until, d.outside = q.dice.ID(), now.Add(Silence), true
	return e, d.token
}

// Holds reports whether the evaluation is still at the scheduler with this token: a plan of another is refused.
func (q *Queue) Holds(id, token jobs.ID) bool {
	d := q.out[id]
	return d != nil && d.outside && d.token == token
}

// Ack ends an evaluation; the one behind it is ready.
func (q *Queue) Ack(id, token jobs.ID) bool {
	if !q.Holds(id, token) {
		return false
	}
	q.finish(q.out[id].eval)
	return true
}

func (q *Queue) finish(e *jobs.Evaluation) {
	delete(q.out, e.ID)
	j := q.byJob[e.JobKey]
	if j == nil || j.now.ID != e.ID {
		return
	}
	if j.next == nil {
		delete(q.byJob, e.JobKey)
		return
	}
	j.now, j.next = j.next, nil
	q.push(j.now)
}

// Return gives an evaluation back at once, as if it had not been handed out: the scheduler's State is older than it.
func (q *Queue) Return(id, token jobs.ID, now jobs.Time) {
	if !q.Holds(id, token) {
		return
	}
	d := q.out[id]
	d.count--
	d.outside, d.until = false, now.Add(Silence)
	q.push(d.eval)
}

// Nack gives an evaluation back. It is ready again after a while; after too many deliveries it has failed: then
// Nack returns it as it is to be stored, and its follow-up.
func (q *Queue) Nack(id, token jobs.ID, now jobs.Time) (failed, followUp *jobs.Evaluation) {
	if !q.Holds(id, token) {
		return nil, nil
	}
	return q.back(q.out[id], now)
}

func (q *Queue) back(d *delivery, now jobs.Time) (failed, followUp *jobs.Evaluation) {
	d.outside = false
	if d.count >= maxDeliveries {
		next, done := *d.eval, *d.eval
		done.Status, done.Description, done.ModifyTime = jobs.EvalFailed, "evaluation reached delivery limit", now
		next.ID, next.Trigger, next.Chain = q.dice.ID(), jobs.TriggerFailedFollowUp, jobs.Chain{Previous: d.eval.ID}
		next.WaitUntil = now.Add(followUpDelay + time.Duration(q.dice.Next()%uint64(followUpJitter)))
		next.Stamp = jobs.Stamp{CreateTime: now, ModifyTime: now}
		done.Chain.Next = next.ID
		q.finish(d.eval)
		return &done, &next
	}
	delay := firstDelay
	if d.count > 1 {
		delay = laterDelay * time.Duration(d.count-1)
	}
	d.until = now.Add(delay)
	return nil, nil
}

// Tick does what time does: delayed evaluations become ready, silent schedulers lose theirs, and blocked work whose
// reasons are old is looked at again, one a call. It returns what is to be stored. Call it about once a second, and
// when Due has come.
func (q *Queue) Tick(now jobs.Time) (store []*jobs.Evaluation) {
	for len(q.delayed.list) > 0 && q.delayed.list[0].WaitUntil <= now {
		for _, c := range q.Add(q.delayed.pop(), now) {
			store = append(store, Canceled(c, now))
		}
	}
	var due []*delivery
	for _, d := range q.out {
		if d.until <= now {
			due = append(due, d)
		}
	}
	slices.SortFunc(due, func(a, b *delivery) int { return slices.Compare(a.eval.ID[:], b.eval.ID[:]) })
	for _, d := range due {
		if !d.outside {
			d.until = now.Add(Silence) // until it is handed out it cannot be silent
			if !q.ready[d.eval.Type].has(d.eval.ID) {
				q.push(d.eval)
			}
			continue
		}
		if failed, next := q.back(d, now); failed != nil {
			store = append(store, failed, next)
		}
	}
	if e := q.refresh(now); e != nil {
		store = append(store, e)
	}
	return store
}

// Due is when the next delayed evaluation becomes ready; 0 when none waits.
func (q *Queue) Due() jobs.Time {
	if len(q.delayed.list) == 0 {
		return 0
	}
	return q.delayed.list[0].WaitUntil
}

// Canceled is an evaluation as it is stored when a newer one makes it needless.
func Canceled(e *jobs.Evaluation, now jobs.Time) *jobs.Evaluation {
	next := *e
	next.Status, next.ModifyTime = jobs.EvalCanceled, now
	next.Description = "canceled after more recent eval was processed"
	return &next
}

// Pause stops handing out (NS-4). What is out may come back.
func (q *Queue) Pause(on bool) { q.paused = on }

// Stats are the broker's numbers as operators know them.
type Stats struct{ Ready, Unacked, Pending, Waiting, Blocked, Escaped int }

// Stats counts.
func (q *Queue) Stats() (s Stats) {
	for _, h := range q.ready {
		s.Ready += len(h.list)
	}
	for _, j := range q.byJob {
		if j.next != nil {
			s.Pending++
		}
	}
	for _, d := range q.out {
		if d.outside {
			s.Unacked++
		}
	}
	s.Waiting, s.Blocked = len(q.delayed.list), len(q.blocked)
	for _, b := range q.blocked {
		if b.Eval.Outcome.Escaped {
			s.Escaped++
		}
	}
	return s
}
