package jobsched

import (
	"context"
	"fmt"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/apply"
	"corbel.dev/corbel/jobs/jobstore"
	"corbel.dev/corbel/jobs/place"
	"corbel.dev/corbel/jobs/planner"
	"corbel.dev/corbel/kit/errkind"
)

// schedulers are the types that a worker serves.
var schedulers = []string{jobs.Service, jobs.Batch, jobs.System, jobs.SysBatch}

// order is an evaluation at a worker.
type order struct {
	eval     *jobs.Evaluation
	token    jobs.ID
	attempts int
}

// work serves evaluations until ctx ends.
func (t *term) work(ctx context.Context) error {
	memory := &place.Placer{}
	var again []order // whose plan was rejected in part
	for ctx.Err() == nil {
		if len(again) == 0 && !t.waits(ctx) {
			continue
		}
		again = t.pass(ctx, memory, again)
	}
	return nil
}

// waits waits until there may be something; false when there was nothing for a while.
func (t *term) waits(ctx context.Context) bool {
	select {
	case <-t.ready:
		return true
	default:
	}
	timer := t.s.cfg.Clock.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.ready:
	case <-timer.C:
	}
	return true
}

// next takes an evaluation off the queue.
func (t *term) next(now jobs.Time) (order, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, token := t.queue.Next(schedulers, now)
	return order{eval: e, token: token}, e != nil
}

// pass decides many evaluations on one View and commits them as one command. It returns those to be decided again.
func (t *term) pass(ctx context.Context, memory *place.Placer, again []order) []order {
	began := t.s.cfg.Clock.Now()
	now := t.s.now()
	orders := again
	var items []apply.Item
	// An evaluation is in the queue only once a View has it: the View is taken after the first one.
	first, ok := t.next(now)
	if !ok && len(again) == 0 {
		return nil
	}
	view := t.s.cfg.Store()
	if ok && t.deleted(view, first) {
		first, ok = t.nextIn(view, now)
	}
	p := planner.NewPass(view.State, now, Seed(), memory)
	placed := 0
	for _, o := range again {
		placed += t.decide(p, o, &items)
	}
	for ok {
		orders = append(orders, first)
		placed += t.decide(p, first, &items)
		if len(orders) >= MaxEvals || placed >= MaxPlacements {
			wake(t.ready)
			break
		}
		first, ok = t.nextIn(view, now)
	}
	t.s.cfg.Meters.Evaluate.Observe(t.s.cfg.Clock.Since(began))
	return t.commit(ctx, view, orders, items)
}

// nextIn takes an evaluation off the queue if the view has it.
func (t *term) nextIn(view *jobstore.View, now jobs.Time) (order, bool) {
	o, ok := t.next(now)
	for ok && t.deleted(view, o) {
		o, ok = t.next(now)
	}
	if ok && o.eval.ModifyIndex > view.State.Index() {
		// It is newer than the View of this pass: the next pass has it.
		t.mu.Lock()
		t.queue.Return(o.eval.ID, o.token, now)
		t.mu.Unlock()
		wake(t.ready)
		return order{}, false
	}
	return o, ok
}

// deleted reports whether somebody deleted an evaluation while it waited, and then ends it.
func (t *term) deleted(view *jobstore.View, o order) bool {
	if o.eval.ModifyIndex > view.State.Index() || view.State.Evaluation(o.eval.ID) != nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue.Ack(o.eval.ID, o.token)
	return true
}

// decide appends what becomes of an evaluation, and returns how many allocations it places. What cannot be decided has
// failed.
func (t *term) decide(p *planner.Pass, o order, items *[]apply.Item) (placed int) {
	began := t.s.cfg.Clock.Now()
	defer func() {
		if trouble := recover(); trouble != nil {
			t.s.cfg.Meters.Failed.Add(1)
			t.s.cfg.Log.Error("cannot decide an evaluation", "eval", o.eval.ID, "job", o.eval.JobKey.ID, "trouble", trouble)
			failed := *o.eval
			failed.Status, failed.Description = jobs.EvalFailed, fmt.Sprintf("the scheduler failed: %v", trouble)
			failed.ModifyTime = t.s.now()
			*items = append(*items, apply.Item{Plan: &jobs.Plan{EvalID: o.eval.ID}, Eval: &failed})
		}
	}()
	r := p.Evaluate(o.eval)
	*items = append(*items, apply.Item{Plan: r.Plan, Eval: r.Eval, New: r.New})
	if timing := t.s.cfg.Meters.Invoke[o.eval.Type]; timing != nil {
		timing.Observe(t.s.cfg.Clock.Since(began))
	}
	return len(r.Plan.Place)
}

// commit proposes the plans of a pass and gives the queue what became of each.
func (t *term) commit(ctx context.Context, view *jobstore.View, orders []order, items []apply.Item) (again []order) {
	c := &jobstore.Command{Head: t.s.head(jobstore.PlanResult), Plans: make([]jobstore.PlanWrite, len(items))}
	for i := range items {
		c.Plans[i] = jobstore.WritePlan(view, &items[i])
	}
	began := t.s.cfg.Clock.Now()
	t.s.cfg.Meters.Plans.Add(float64(len(items)))
	out, err := t.s.cfg.Propose(ctx, c)
	t.s.cfg.Meters.Plans.Add(-float64(len(items)))
	t.s.cfg.Meters.Submit.Observe(t.s.cfg.Clock.Since(began))
	if err == nil && len(out.Plans) != len(orders) {
		err = errkind.New(errkind.Internal, "a command of plans has other outcomes than plans")
	}
	if err != nil {
		if ctx.Err() == nil {
			t.s.cfg.Log.Warn("plans could not be committed; their evaluations are tried again", "plans", len(items), "error",
				err)
		}
		t.nack(orders)
		return nil
	}
	now := t.s.now()
	for i, o := range orders {
		done := &out.Plans[i]
		t.s.cfg.Meters.Placed.Add(uint64(done.Placed))
		t.s.cfg.Meters.Rejected.Add(uint64(done.Rejected))
		o.attempts++
		switch {
		case done.Refresh == 0:
			t.mu.Lock()
			t.queue.Ack(o.eval.ID, o.token)
			t.mu.Unlock()
		case o.attempts < planner.Attempts(o.eval.Type):
			again = append(again, o)
		default:
			failed, blocked := planner.GiveUp(o.eval, done.Refresh, now, jobs.NewDice(Seed(), 1).ID())
			t.mu.Lock()
			t.queue.Ack(o.eval.ID, o.token)
			t.store = append(t.store, failed, blocked)
			t.mu.Unlock()
			wake(t.flush)
		}
	}
	wake(t.ready) // what waited behind an evaluation is ready now
	return again
}

// nack gives evaluations back.
func (t *term) nack(orders []order) {
	now := t.s.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range orders {
		if failed, next := t.queue.Nack(o.eval.ID, o.token, now); failed != nil {
			t.store = append(t.store, failed, next)
			wake(t.flush)
		}
	}
}
