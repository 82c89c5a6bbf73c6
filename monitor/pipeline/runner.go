package pipeline

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/monitor/fates"
)

// runner is one handler's share of the process: its queues and the workers that they may use. It outlives changes of
// its handler's definition, so that order holds over them. Workers exist while there is something to do.
type runner struct {
	name    runnerName
	owner   *Pipelines
	scripts stage // evaluates filters that need JavaScript
	sends   stage // mutates and hands over

	queued, done, failed, filtered, merged, shed atomic.Uint64
}

type runnerName struct{ namespace, handler string }

// stage is a queue and those who work on it.
type stage struct {
	q       *queue
	most    int
	do      func(context.Context, *task)
	mu      sync.Mutex
	workers int
	began   map[*task]time.Time // what is being done
	busy    atomic.Int64
}

func (p *Pipelines) newRunner(name runnerName) *runner {
	r := &runner{name: name, owner: p}
	r.scripts = stage{q: newQueue(p.cfg.Queue), most: 1, do: r.filter}
	r.sends = stage{q: newQueue(p.cfg.Queue), most: p.cfg.Workers, do: r.send}
	return r
}

// put gives a task to a stage and sees to it that somebody works.
func (r *runner) put(s *stage, t *task) {
	l := s.q.put(t)
	r.merged.Add(uint64(l.merged))
	r.shed.Add(uint64(l.shed))
	r.wake(s)
}

// wake starts a worker when one may start and there is something to be done.
func (r *runner) wake(s *stage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.workers >= s.most {
		return
	}
	if _, ready := s.q.waiting(); !ready {
		return
	}
	if r.owner.start(func(ctx context.Context) { r.work(ctx, s) }) {
		s.workers++
	}
}

// work does what there is to be done, and ends.
func (r *runner) work(ctx context.Context, s *stage) {
	for ctx.Err() == nil {
		t := s.q.take()
		if t == nil {
			// Whoever puts something now sees one worker too many: so look again when none is counted any more.
			s.mu.Lock()
			s.workers--
			s.mu.Unlock()
			r.wake(s)
			return
		}
		s.busy.Add(1)
		s.note(t, time.Now())
		s.do(ctx, t)
		s.note(t, time.Time{})
		s.busy.Add(-1)
		s.q.done(t)
	}
	s.mu.Lock()
	s.workers--
	s.mu.Unlock()
}

// note keeps when a task was begun; the zero time is its end.
func (s *stage) note(t *task, began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if began.IsZero() {
		delete(s.began, t)
		return
	}
	if s.began == nil {
		s.began = map[*task]time.Time{}
	}
	s.began[t] = began
}

// oldest is for how long the task that was begun first is being done; 0 without one.
func (s *stage) oldest(now time.Time) (d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, began := range s.began {
		d = max(d, now.Sub(began))
	}
	return d
}

// filter lets a task on to the handler when its filters let it pass.
func (r *runner) filter(ctx context.Context, t *task) {
	if by := t.w.slow(ctx, r.owner, t.item); by != nil {
		t.w.filtered(t.item, by)
		return
	}
	r.put(&r.sends, t.again())
}

// again is the task for another queue.
func (t *task) again() *task { return &task{item: t.item, w: t.w} }

// send mutates an event and hands it to its handler.
func (r *runner) send(ctx context.Context, t *task) {
	began := time.Now()
	err := t.w.handle(ctx, r.owner, t.item)
	r.owner.took(time.Since(began))
	switch {
	case err == nil:
		r.done.Add(1)
		t.w.note(t.item, fates.Fate{Outcome: fates.Handed})
	case ctx.Err() != nil: // the process ends
		r.shed.Add(1)
	default:
		r.failed.Add(1)
		t.w.note(t.item, fates.Fate{Outcome: fates.Failed, Error: err.Error()})
		r.owner.say(r.name, "a handler did not take an event", "namespace", r.name.namespace, "handler", r.name.handler,
			"workflow", t.w.id,
			"entity", t.p.Entity, "check", t.p.Check, "error", err)
	}
}

// filtered counts and remembers that a filter kept an event away.
func (w *workflow) filtered(i *item, by *filter) {
	w.to.filtered.Add(1)
	w.note(i, fates.Fate{Outcome: fates.Filtered, Filter: by.name})
}

// note remembers what became of an event. Checks that pass and did so before are no incident, and not looked for.
func (w *workflow) note(i *item, f fates.Fate) {
	book := w.to.owner.cfg.Fates
	if book == nil || i.p.Check == "" || !i.p.Outcome.Incident && !i.p.Outcome.Resolution {
		return
	}
	f.Workflow, f.Handler, f.At = w.id, w.to.name.handler, w.to.owner.cfg.Now().UnixMilli()
	book.Note(fates.Key{Namespace: i.p.Namespace, Entity: i.p.Entity, Check: i.p.Check}, f)
}

// idle reports whether nothing waits and nobody works.
func (r *runner) idle() bool {
	for _, s := range []*stage{&r.scripts, &r.sends} {
		s.mu.Lock()
		n, _ := s.q.waiting()
		working := s.workers
		s.mu.Unlock()
		if n+working > 0 {
			return false
		}
	}
	return true
}
