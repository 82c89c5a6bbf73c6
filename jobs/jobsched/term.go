package jobsched

import (
	"context"
	"sync"
	"time"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/evalqueue"
	"corbel.dev/corbel/jobs/feasible"
	"corbel.dev/corbel/jobs/heartbeat"
	"corbel.dev/corbel/jobs/jobstore"
	"corbel.dev/corbel/jobs/state"
)

// term is what a leader keeps while it leads.
type term struct {
	s      *Sched
	cancel func()

	mu    sync.Mutex // guards the three below
	queue *evalqueue.Queue
	store []*jobs.Evaluation // that the queue changed
	gains []jobs.Gain

	ready chan struct{} // a worker may find something
	flush chan struct{} // store or gains has something
	beats struct {
		sync.Mutex
		*heartbeat.Beats
	}
	rollouts notes[jobs.ID]
	drains   notes[jobs.ID]
	launches notes[jobs.JobKey]
}

// notes collects what is to be looked at.
type notes[K comparable] struct {
	locked[map[K]bool]
	some chan struct{}
}

func newNotes[K comparable]() notes[K] {
	return notes[K]{locked: locked[map[K]bool]{v: map[K]bool{}}, some: make(chan struct{}, 1)}
}

func (n *notes[K]) add(k K) {
	n.Lock()
	n.v[k] = true
	n.Unlock()
	wake(n.some)
}

func (n *notes[K]) take() map[K]bool {
	n.Lock()
	defer n.Unlock()
	out := n.v
	n.v = map[K]bool{}
	return out
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func newTerm(s *Sched, cancel func()) *term {
	t := &term{s: s, cancel: cancel, queue: evalqueue.New(Seed()), ready: make(chan struct{}, 1),
		flush: make(chan struct{}, 1), rollouts: newNotes[jobs.ID](), drains: newNotes[jobs.ID](),
		launches: newNotes[jobs.JobKey]()}
	t.beats.Beats = heartbeat.New(s.cfg.Beats)
	return t
}

// begin takes over what the View has.
func (t *term) begin(v *jobstore.View) {
	now := t.s.now()
	t.mu.Lock()
	for e := range v.State.Evaluations() { // those that are over say nothing of what waits now
		if e.Status == jobs.EvalPending || e.Status == jobs.EvalBlocked {
			t.evaluation(v, e, now)
		}
	}
	t.queue.Pause(v.Setting().PauseEvalBroker)
	t.mu.Unlock()
	t.beats.Lock()
	for u := range v.State.Uses() {
		if alive(u.Node) {
			t.beats.Expect(u.Node.ID, now) // a whole period and grace from now on
		}
		if u.Node.Duty.Drain != nil {
			t.drains.add(u.Node.ID)
		}
	}
	t.beats.Unlock()
	for d := range v.State.Deployments() {
		if d.Active() {
			t.rollouts.add(d.ID)
		}
	}
	for j := range v.State.Jobs() {
		if j.Periodic != nil {
			t.launches.add(j.JobKey)
		}
	}
	wake(t.ready)
	wake(t.flush)
}

func alive(n *jobs.Node) bool {
	return n.Duty.Status == jobs.NodeReady || n.Duty.Status == jobs.NodeInitializing
}

// changed takes what a batch of commands changed.
func (t *term) changed(v *jobstore.View, changes []jobstore.Changed) {
	now := t.s.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range changes {
		for _, c := range changes[i].Core {
			t.one(v, c, now)
		}
		for _, d := range changes[i].Docs {
			if d.After != nil && d.After.Table == jobstore.Scheduler {
				t.queue.Pause(v.Setting().PauseEvalBroker)
				for u := range v.State.Uses() { // other rules may find room where there was none
					t.gain(u.Class, jobs.Vector{}, v.State.Index())
				}
			}
		}
	}
	wake(t.ready)
	if len(t.store)+len(t.gains) > 0 {
		wake(t.flush)
	}
}

func (t *term) one(v *jobstore.View, c state.Change, now jobs.Time) {
	switch after := c.After.(type) {
	case *jobs.Evaluation:
		before, _ := c.Before.(*jobs.Evaluation)
		if before == nil || before.Status != after.Status {
			t.evaluation(v, after, now)
		}
	case *jobs.Allocation:
		t.allocation(v, c, after)
	case *state.Use:
		before, _ := c.Before.(*state.Use)
		t.node(before, after, v.State.Index(), now)
	case *jobs.Deployment:
		t.rollouts.add(after.ID)
	case *jobs.Job:
		if after.Periodic != nil {
			t.launches.add(after.JobKey)
		}
	case nil:
		t.gone(v, c.Before)
	}
}

func (t *term) gone(v *jobstore.View, before any) {
	switch old := before.(type) {
	case *jobs.Evaluation:
		t.queue.Drop(old)
	case *state.Use:
		t.beats.Lock()
		t.beats.Forget(old.Node.ID)
		t.beats.Unlock()
	case *jobs.Job:
		t.launches.add(old.JobKey)
	case *jobs.Allocation:
		t.freed(v, old)
	}
}

// evaluation gives an evaluation to the queue by its status.
func (t *term) evaluation(v *jobstore.View, e *jobs.Evaluation, now jobs.Time) {
	switch e.Status {
	case jobs.EvalPending:
		t.store = append(t.store, t.queue.Add(e, now)...)
	case jobs.EvalBlocked:
		least, all := need(v.State, e)
		canceled, woken := t.queue.Block(evalqueue.Blocked{Eval: e, Least: least, All: all}, now)
		for _, c := range []*jobs.Evaluation{canceled, woken} {
			if c != nil {
				t.store = append(t.store, c)
			}
		}
	case jobs.EvalComplete:
		if e.Chain.Blocked.IsZero() {
			if old := t.queue.Forget(e.JobKey, now); old != nil {
				t.store = append(t.store, old)
			}
		}
	}
}

// need is what of the queued allocations the smallest asks for, and all together.
func need(s *state.State, e *jobs.Evaluation) (least, all jobs.Vector) {
	j := s.Job(e.JobKey)
	if j == nil {
		return least, all
	}
	first := true
	for _, g := range j.Groups {
		n := int64(e.Outcome.Queued[g.Name])
		if n == 0 {
			continue
		}
		program, err := feasible.New(j, g, s.Config())
		if err != nil {
			continue
		}
		ask := program.Ask.Vector()
		all = all.Plus(jobs.Vector{CPU: n * ask.CPU, MemoryMB: n * ask.MemoryMB, DiskMB: n * ask.DiskMB})
		if first {
			least, first = ask, false
		}
		least = jobs.Vector{CPU: min(least.CPU, ask.CPU), MemoryMB: min(least.MemoryMB, ask.MemoryMB),
			DiskMB: min(least.DiskMB, ask.DiskMB)}
	}
	return least, all
}

func (t *term) allocation(v *jobstore.View, c state.Change, after *jobs.Allocation) {
	before, _ := c.Before.(*jobs.Allocation)
	if before != nil && before.Counts() && !after.Counts() {
		t.freed(v, after)
	}
	if id := after.Rollout.Deployment; !id.IsZero() {
		t.rollouts.add(id)
	}
	if before != nil && before.Client.Status != after.Client.Status || before == nil {
		if u := v.State.Node(after.NodeID); u != nil && u.Node.Duty.Drain != nil {
			t.drains.add(after.NodeID)
		}
		if !after.Lineage.Previous.IsZero() { // what moves away goes on when what replaces it runs
			if old := v.State.Allocation(after.Lineage.Previous); old != nil {
				if u := v.State.Node(old.NodeID); u != nil && u.Node.Duty.Drain != nil {
					t.drains.add(old.NodeID)
				}
			}
		}
	}
}

func (t *term) freed(v *jobstore.View, a *jobs.Allocation) {
	if u := v.State.Node(a.NodeID); u != nil && u.Ready {
		t.gain(u.Class, a.Grant.Vector, v.State.Index())
	}
}

func (t *term) gain(class uint64, free jobs.Vector, index uint64) {
	t.gains = append(t.gains, jobs.Gain{Class: class, Free: free, Index: index})
}

func (t *term) node(before, after *state.Use, index uint64, now jobs.Time) {
	if after.Ready && (before == nil || !before.Ready || before.Class != after.Class) {
		t.gains = append(t.gains, jobs.Gain{Class: after.Class, Free: after.Room.Free, Index: index, Node: true})
	}
	t.beats.Lock()
	if alive(after.Node) {
		t.beats.Expect(after.Node.ID, now)
	} else {
		t.beats.Forget(after.Node.ID)
	}
	t.beats.Unlock()
	if after.Node.Duty.Drain != nil {
		t.drains.add(after.Node.ID)
	}
}

func (t *term) stats() evalqueue.Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.queue.Stats()
}

// Stats are the queue's numbers; zero where another server leads.
func (s *Sched) Stats() (q evalqueue.Stats, watched int) {
	t := s.term.Load()
	if t == nil {
		return q, 0
	}
	t.beats.Lock()
	watched = t.beats.Len()
	t.beats.Unlock()
	return t.stats(), watched
}

// Needs is what all that waits for room asks for; nothing where another server leads.
func (s *Sched) Needs() jobs.Vector {
	t := s.term.Load()
	if t == nil {
		return jobs.Vector{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.queue.Needs()
}

// Blocked tells since when the job waits that has waited longest for room, however often it was tried meanwhile, zero
// when none does, and for each thing that lacks how many of the jobs lack it: dimensions, constraints, classes of
// nodes. Where another server leads it tells nothing.
func (s *Sched) Blocked() (oldest jobs.Time, lacks map[string]int) {
	lacks = map[string]int{}
	t := s.term.Load()
	if t == nil {
		return 0, lacks
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue.EachBlocked(func(e *jobs.Evaluation, since jobs.Time) {
		if oldest == 0 || since < oldest {
			oldest = since
		}
		mine := map[string]bool{}
		for _, m := range e.Outcome.Failed {
			for name := range m.DimensionExhausted {
				mine[name] = true
			}
			for name := range m.ConstraintFiltered {
				mine[name] = true
			}
			for class := range m.ClassExhausted {
				mine["class "+class] = true
			}
		}
		for name := range mine {
			lacks[name]++
		}
	})
	return oldest, lacks
}

// maxStored bounds the evaluations of one command.
const maxStored = 4096

// flushLoop wakes blocked work for what came free, and stores what the queue changed.
func (t *term) flushLoop(ctx context.Context) error {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-t.flush:
		}
		if !t.pause(ctx, t.s.cfg.Window) {
			return nil
		}
		for ctx.Err() == nil {
			batch := t.toStore()
			if len(batch) == 0 {
				break
			}
			c := &jobstore.Command{Head: t.s.head(jobstore.EvaluationUpdated), Evals: batch}
			if _, err := t.s.cfg.Propose(ctx, c); err != nil {
				t.keep(batch)
				t.pause(ctx, time.Second)
			}
		}
	}
	return nil
}

// toStore wakes what fits and takes what is to be stored.
func (t *term) toStore() []*jobs.Evaluation {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.gains) > 0 {
		t.store = append(t.store, t.queue.Wake(t.gains, t.s.now())...)
		t.gains = nil
	}
	n := min(len(t.store), maxStored)
	batch := t.store[:n:n]
	t.store = t.store[n:]
	return batch
}

// keep puts back what could not be stored.
func (t *term) keep(batch []*jobs.Evaluation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.store = append(batch, t.store...)
	wake(t.flush)
}

// pause waits; false when ctx ended.
func (t *term) pause(ctx context.Context, d time.Duration) bool {
	timer := t.s.cfg.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// tickEvery is how often time is told to the queue.
const tickEvery = 250 * time.Millisecond

// tickLoop does what time does to the queue: delayed evaluations become ready, silent workers lose theirs.
func (t *term) tickLoop(ctx context.Context) error {
	last := t.s.now()
	for t.pause(ctx, tickEvery) {
		now := t.s.now()
		t.mu.Lock()
		t.store = append(t.store, t.queue.Tick(now)...)
		if now.Sub(last) > pruneEvery {
			last = now
			if index := t.s.cfg.Store().State.Index(); index > pruneKeep {
				t.queue.Prune(index - pruneKeep)
			}
		}
		some := len(t.store) > 0
		t.mu.Unlock()
		wake(t.ready)
		if some {
			wake(t.flush)
		}
	}
	return nil
}

// Gains of classes are forgotten each pruneEvery (NK-9), when no running pass looks at a View so old.
const (
	pruneEvery = 5 * time.Minute
	pruneKeep  = 100_000
)
