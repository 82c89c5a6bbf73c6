package scheduler

import (
	"container/heap"
	"time"

	"github.com/cespare/xxhash/v2"

	"corbel.dev/corbel/monitor"
)

// moment is a time of the wall clock, which may jump, and the time that has really passed since some start.
type moment struct {
	wall time.Time
	mono time.Duration
}

const (
	// late is how long after it was due a tick is still run as if in time: timers and pauses of a loaded process.
	late = 2 * time.Second
	// soon is how near the next tick may be for one that is late to be left out.
	soon = 30 * time.Second
	// stepBack is by how much less than real time the wall clock may have moved on before it counts as set back.
	stepBack = time.Second
	// atMost bounds how long the loop sleeps, and so how long a jump of the clock stays unseen.
	atMost = time.Second
)

// plan knows when each check is due. It is pure: all it knows of time is what it is told.
//
// A tick that could not be run in time (a pause of the process, a clock that was set forth) never comes with all others
// that were missed: it is left out when the next one of its check is due within half a minute, else it runs once,
// at a moment that its check's name picks within half of what is left, and within half a minute. A clock that was set
// back plans all anew. In no case does a check run sooner than a quarter of its period after its last run.
type plan struct {
	queue dueQueue
	byKey map[checkKey]*planned
	last  moment
}

// planned is a check's next tick.
type planned struct {
	key      checkKey
	schedule *monitor.Schedule
	due      time.Time     // what names the tick
	at       time.Time     // when it is to be run: due, or somewhat later for a late one
	ran      bool          // ran before, at
	ranAt    time.Duration // of moment.mono
	place    int           // in the queue; -1 when never due
}

func newPlan() *plan { return &plan{byKey: map[checkKey]*planned{}} }

// set plans a check, anew if its schedule changed.
func (p *plan) set(key checkKey, s *monitor.Schedule, now moment) {
	e := p.byKey[key]
	if e == nil {
		e = &planned{key: key, place: -1}
		p.byKey[key] = e
	}
	if e.schedule != nil && period(e.schedule, e.due) != period(s, s.Next(now.wall)) {
		e.ran = false // its last run says nothing of the new schedule
	}
	e.schedule = s
	p.next(e, now.wall)
}

// remove forgets a check.
func (p *plan) remove(key checkKey) {
	e := p.byKey[key]
	if e == nil {
		return
	}
	delete(p.byKey, key)
	if e.place >= 0 {
		heap.Remove(&p.queue, e.place)
	}
}

// next plans the first tick after a time.
func (p *plan) next(e *planned, after time.Time) {
	e.due = e.schedule.Next(after)
	e.at = e.due
	p.place(e)
}

func (p *plan) place(e *planned) {
	switch {
	case e.due.IsZero() && e.place >= 0:
		heap.Remove(&p.queue, e.place)
	case e.due.IsZero():
	case e.place >= 0:
		heap.Fix(&p.queue, e.place)
	default:
		heap.Push(&p.queue, e)
	}
}

// run calls f with each check that is to be run now and the time that names its tick, and plans its next one.
func (p *plan) run(now moment, f func(key checkKey, due time.Time)) {
	if !p.last.wall.IsZero() && now.wall.Sub(p.last.wall) < now.mono-p.last.mono-stepBack {
		for _, e := range p.byKey {
			p.next(e, now.wall)
		}
	}
	p.last = now
	for len(p.queue) > 0 && !p.queue[0].at.After(now.wall) {
		e := p.queue[0]
		following := e.schedule.Next(now.wall)
		if now.wall.Sub(e.at) > late {
			p.belated(e, following, now)
			continue
		}
		due := e.due
		tooSoon := e.ran && !following.IsZero() && now.mono-e.ranAt < period(e.schedule, due)/4
		p.next(e, now.wall)
		if tooSoon {
			continue
		}
		e.ran, e.ranAt = true, now.mono
		f(e.key, due)
	}
}

// belated plans a tick whose time has long passed.
func (p *plan) belated(e *planned, following time.Time, now moment) {
	room := soon
	if !following.IsZero() {
		left := following.Sub(now.wall)
		if left <= soon {
			p.next(e, now.wall)
			return
		}
		room = min(room, left/2)
	}
	e.at = now.wall.Add(time.Duration(xxhash.Sum64String(e.key.name) % uint64(room)))
	p.place(e)
}

// wait returns how long there is nothing to do.
func (p *plan) wait(now moment) time.Duration {
	if len(p.queue) == 0 {
		return atMost
	}
	return min(max(p.queue[0].at.Sub(now.wall), 0), atMost)
}

// period is the time from a tick to the next one.
func period(s *monitor.Schedule, due time.Time) time.Duration {
	next := s.Next(due)
	if next.IsZero() {
		return soon
	}
	return next.Sub(due)
}

// turn is the number of a tick, the same on every server. Ticks of an interval, and of cron lines that are as
// regular, are numbered one after the other; of others the numbers are as good as drawn.
func turn(s *monitor.Schedule, due time.Time) uint64 {
	return uint64(due.UnixNano()) / uint64(max(period(s, due), 1))
}

// dueQueue is a heap by time.
type dueQueue []*planned

func (q dueQueue) Len() int           { return len(q) }
func (q dueQueue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q dueQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}
func (q *dueQueue) Push(x any) {
	e := x.(*planned)
	e.place = len(*q)
	*q = append(*q, e)
}
func (q *dueQueue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	e.place = -1
	return e
}
