package planner

import (
	"encoding/binary"
	"slices"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/everynode"
	"corbel.dev/corbel/jobs/feasible"
	"corbel.dev/corbel/jobs/place"
	"corbel.dev/corbel/jobs/reconcile"
	"corbel.dev/corbel/jobs/state"
)

// Pass decides evaluations on one State.
type Pass struct {
	state  *state.State
	view   *place.View
	placer *place.Placer
	now    jobs.Time
	seed   uint64
}

// NewPass begins with s. The seed decides ids and ties; memory is reused by the next Pass that
// gets it, nil is fresh.
func NewPass(s *state.State, now jobs.Time, seed uint64, memory *place.Placer) *Pass {
	if memory == nil {
		memory = &place.Placer{}
	}
	memory.Forget()
	return &Pass{state: s, view: place.NewView(s), placer: memory, now: now, seed: seed}
}

// Result is what an evaluation led to.
type Result struct {
	Plan   *jobs.Plan
	Eval   *jobs.Evaluation   // as it is to be stored when the plan was applied whole
	New    []*jobs.Evaluation // blocked and delayed ones
	Counts map[string]reconcile.Counts
	// Least and All are what of the queued allocations the smallest asks for, and all together: for evalqueue.Block.
	Least, All jobs.Vector
}

// Attempts is how often an evaluation may try when its plans are rejected (NS-21). After that it
// is blocked with TriggerMaxPlans: see GiveUp.
func Attempts(jobType string) int {
	if jobType == jobs.Service {
		return 5
	}
	return 2
}

// run is one evaluation in a Pass.
type run struct {
	*Pass
	eval     *jobs.Evaluation
	job      *jobs.Job
	dice     *jobs.Dice
	plan     *jobs.Plan
	out      Result
	stopped  map[jobs.ID]bool
	programs map[string]*feasible.Program
	allocs   []*jobs.Allocation
	outcome  jobs.Outcome
}

// Evaluate decides one evaluation.
func (p *Pass) Evaluate(e *jobs.Evaluation) Result {
	job := p.state.Job(e.JobKey)
	r := &run{Pass: p, eval: e, job: job, dice: jobs.NewDice(p.seed, keyOf(e.ID)),
		plan:    &jobs.Plan{EvalID: e.ID, Job: job, Priority: e.Priority, SnapshotIndex: p.state.Index()},
		stopped: map[jobs.ID]bool{}, programs: map[string]*feasible.Program{},
		outcome: jobs.Outcome{Queued: map[string]int{}}}
	r.out = Result{Plan: r.plan, Counts: map[string]reconcile.Counts{}}
	for a := range p.state.OfJob(e.JobKey) {
		r.allocs = append(r.allocs, a)
	}
	status, text := jobs.EvalComplete, ""
	if err := r.compile(); err != nil {
		status, text = jobs.EvalFailed, err.Error()
	} else if job != nil && job.PerNode() && !job.Stop {
		r.perNode()
	} else {
		r.reconcile()
	}
	r.close(status, text)
	return r.out
}

// keyOf is a number that differs from evaluation to evaluation.
func keyOf(id jobs.ID) uint64 {
	return binary.LittleEndian.Uint64(id[:8]) ^ jobs.Mix(binary.LittleEndian.Uint64(id[8:]))
}

func (r *run) compile() error {
	if r.job.Stopped() {
		return nil
	}
	for _, g := range r.job.Groups {
		program, err := feasible.New(r.job, g, r.state.Config())
		if err != nil {
			return err
		}
		r.programs[g.Name] = program
		r.outcome.Queued[g.Name] = 0
	}
	return nil
}

func (r *run) node(id jobs.ID) *jobs.Node {
	if u := r.state.Node(id); u != nil {
		return u.Node
	}
	return nil
}

// serves reports whether the node of a running allocation is of the kind that its group asks for.
func (r *run) serves(a *jobs.Allocation, g *jobs.TaskGroup) bool {
	n, p := r.node(a.NodeID), r.programs[g.Name]
	return n != nil && p.Reach(n) && p.Class(n) == "" && p.Node(n) == ""
}

func (r *run) reconcile() {
	todo := reconcile.Do(reconcile.Input{Key: r.eval.JobKey, Job: r.job, Allocs: r.allocs, Node: r.node,
		Deployment: r.state.LatestDeployment(r.eval.JobKey), EvalID: r.eval.ID, Now: r.now, Dice: r.dice, Serves: r.serves})
	r.plan.Place = append(r.plan.Place, todo.Update...)
	r.plan.Deployment, r.plan.Statuses = todo.Deployment, todo.Statuses
	for _, s := range todo.Stop {
		r.stop(s)
	}
	for _, f := range todo.Followups {
		r.out.New = append(r.out.New, r.next(f.ID, f.Trigger, f.At))
	}
	for i := range todo.Groups {
		g := &todo.Groups[i]
		r.out.Counts[g.Name] = g.Counts
		if len(g.Place)+len(g.Replace) > 0 {
			r.group(g, todo.DeploymentID(g.Name))
		}
	}
	if r.job != nil && r.job.AllAtOnce && len(r.outcome.Failed) > 0 {
		r.takeBack()
	}
}

// next is an evaluation of the same job that comes from this one.
func (r *run) next(id jobs.ID, trigger string, at jobs.Time) *jobs.Evaluation {
	return &jobs.Evaluation{ID: id, JobKey: r.eval.JobKey, Type: r.eval.Type, Trigger: trigger, Priority: r.eval.Priority,
		Status: jobs.EvalPending, WaitUntil: at, Chain: jobs.Chain{Previous: r.eval.ID}, Quota: r.eval.Quota,
		Stamp: jobs.Stamp{CreateTime: r.now, ModifyTime: r.now}}
}

// stop puts a stop into the plan and frees the room for it.
func (r *run) stop(s jobs.Stopping) {
	r.plan.Stop = append(r.plan.Stop, s)
	if a := r.state.Allocation(s.Alloc); a != nil && s.Desired != "" {
		r.stopped[s.Alloc] = true
		r.view.Stop(a)
	}
}

// live are the job's allocations that run on, and those that this plan has placed so far.
func (r *run) live() (list []*jobs.Allocation) {
	for _, a := range r.allocs {
		if !a.Terminal() && !r.stopped[a.ID] {
			list = append(list, a)
		}
	}
	for _, a := range r.plan.Place {
		if r.state.Allocation(a.ID) == nil {
			list = append(list, a)
		}
	}
	return list
}

// group places what reconcile asks for. What replaces an allocation of a version that goes on for now is
// placed by the rules of that version.
func (r *run) group(todo *reconcile.Group, deployment jobs.ID) {
	for len(todo.Replace)+len(todo.Place) > 0 {
		b := batch{run: r, name: todo.Name, deployment: deployment}
		if len(todo.Replace) > 0 {
			b.job = todo.Replace[0].Job
		} else {
			b.job = todo.Place[0].Job
		}
		var replace, add []reconcile.Placement
		replace, todo.Replace = split(todo.Replace, b.job)
		add, todo.Place = split(todo.Place, b.job)
		b.place(replace, add)
	}
}

func split(list []reconcile.Placement, job *jobs.Job) (of, others []reconcile.Placement) {
	for _, p := range list {
		if p.Job == job {
			of = append(of, p)
		} else {
			others = append(others, p)
		}
	}
	return of, others
}

// batch are placements of a group in one version of the job.
type batch struct {
	*run
	name       string
	job        *jobs.Job
	tg         *jobs.TaskGroup
	program    *feasible.Program
	group      *place.Group
	deployment jobs.ID
}

func (b *batch) place(replace, add []reconcile.Placement) {
	b.tg, b.program = b.job.Group(b.name), b.programs[b.name]
	if b.job != b.run.job {
		var err error
		if b.program, err = feasible.New(b.job, b.tg, b.state.Config()); err != nil {
			b.outcome.Queued[b.name] += len(replace) + len(add)
			return // it ran, so it compiled; a new release may have other rules
		}
	}
	b.group = b.placer.Begin(b.view, b.job, b.tg, b.program, b.live(), b.dice)
	for i := range replace {
		b.replace(&replace[i])
	}
	for i := range add {
		b.one(&add[i])
	}
	for class, ok := range b.group.Classes {
		if b.outcome.Classes == nil {
			b.outcome.Classes = map[uint64]bool{}
		}
		b.outcome.Classes[class] = b.outcome.Classes[class] || ok
	}
	b.outcome.Escaped = b.outcome.Escaped || b.program.Escaped()
}

// replace places what another one makes room for, which stops only then.
func (b *batch) replace(p *reconcile.Placement) {
	old := p.Previous
	if !old.Terminal() {
		b.group.Release(old)
	}
	if !b.one(p) {
		if !old.Terminal() {
			b.group.Retake(old)
		}
		return
	}
	why := "alloc is being updated due to job update"
	switch {
	case p.Rescheduled:
		why = "alloc was rescheduled because it failed"
	case old.Desired.Migrate:
		why = "alloc is being migrated"
	}
	b.plan.Stop = append(b.plan.Stop,
		jobs.Stopping{Alloc: old.ID, Node: old.NodeID, Desired: jobs.Stop, Description: why})
	b.stopped[old.ID] = true
}

// one places one allocation, or counts it as queued.
func (b *batch) one(p *reconcile.Placement) bool {
	r, g, tg := b.run, b.group, b.tg
	request := place.Request{}
	lineage := jobs.Lineage{}
	if p.Previous != nil {
		lineage = r.lineage(p, tg)
		if p.Rescheduled {
			request.Penalty = append(request.Penalty, p.Previous.NodeID)
			for _, old := range p.Previous.Lineage.Reschedules {
				request.Penalty = append(request.Penalty, old.Node)
			}
			slices.SortFunc(request.Penalty, func(a, b jobs.ID) int { return slices.Compare(a[:], b[:]) })
			request.Penalty = slices.Compact(request.Penalty)
		} else if tg.Disk.Sticky {
			request.Prefer = p.Previous.NodeID
		}
	}
	id := r.dice.ID()
	u, grant := g.Next(request)
	if u == nil {
		u, grant = b.preempt(id)
	}
	if u == nil {
		r.fail(tg.Name, g)
		return false
	}
	a := &jobs.Allocation{ID: id, NodeID: u.Node.ID, EvalID: r.eval.ID, Job: p.Job, Group: tg.Name, Index: p.Index,
		Grant: grant, Desired: jobs.Desired{Status: jobs.Run}, Client: jobs.Client{Status: jobs.ClientPending},
		Lineage: lineage, Metric: g.Placed(), Stamp: jobs.Stamp{CreateTime: r.now, ModifyTime: r.now}}
	if p.Job == r.job {
		a.Rollout = jobs.Rollout{Deployment: b.deployment, Canary: p.Canary}
	}
	r.plan.Place = append(r.plan.Place, a)
	return true
}

// fail records why a group could not be placed whole.
func (r *run) fail(group string, g *place.Group) {
	r.outcome.Queued[group]++
	if m := r.outcome.Failed[group]; m != nil {
		m.Coalesced++
		return
	}
	if r.outcome.Failed == nil {
		r.outcome.Failed = map[string]*jobs.Metric{}
	}
	r.outcome.Failed[group] = g.Metric()
}

// maxReschedules is how many former attempts an allocation remembers when its policy has no bound.
const maxReschedules = 5

// lineage is what a replacement knows of those before it; it survives updates (trap 14).
func (r *run) lineage(p *reconcile.Placement, tg *jobs.TaskGroup) jobs.Lineage {
	old := p.Previous
	l := jobs.Lineage{Previous: old.ID, Reschedules: old.Lineage.Reschedules}
	if !p.Rescheduled {
		return l
	}
	_, delay, _ := reconcile.RescheduleAt(old, tg.Reschedule)
	list := append(slices.Clone(l.Reschedules),
		jobs.Rescheduled{At: r.now, Previous: old.ID, Node: old.NodeID, Delay: int64(delay)})
	most := maxReschedules
	if tg.Reschedule != nil && !tg.Reschedule.Unlimited {
		most = max(tg.Reschedule.Attempts, 1)
	}
	l.Reschedules = list[max(0, len(list)-most):]
	return l
}

// takeBack empties the plan of a job that wants all at once or nothing (NS-20).
func (r *run) takeBack() {
	for _, a := range r.plan.Place {
		if old := r.state.Allocation(a.ID); old == nil {
			r.outcome.Queued[a.Group]++
			r.view.Stop(a)
		}
	}
	for id := range r.stopped {
		r.view.Restore(r.state.Allocation(id))
	}
	clear(r.stopped)
	r.plan.Place, r.plan.Stop, r.plan.Preempt, r.plan.Deployment = nil, nil, nil, nil
}

func (r *run) perNode() {
	todo := everynode.Do(everynode.Input{Job: r.job, Allocs: r.allocs, View: r.view, Programs: r.programs, Eval: r.eval,
		Now: r.now, Dice: r.dice, Preempt: r.state.Config().Preempts(r.job.Type)})
	r.plan.Place, r.plan.Stop, r.plan.Preempt = todo.Place, todo.Stop, todo.Preempt
	for _, s := range slices.Concat(todo.Stop, todo.Preempt) {
		r.stopped[s.Alloc] = true
	}
	r.outcome.Failed, r.outcome.Escaped, r.outcome.Classes = todo.Failed, todo.Escaped, todo.Classes
	for name, m := range todo.Failed {
		r.outcome.Queued[name] = m.Exhausted
	}
	if todo.Rolling > 0 {
		r.out.New = append(r.out.New, r.next(r.dice.ID(), jobs.TriggerRolling, todo.Rolling))
	}
	r.count()
}

// count says what a plan for each node does, for those who ask without carrying it out.
func (r *run) count() {
	counts, touched := map[string]*reconcile.Counts{}, map[jobs.ID]bool{}
	of := func(group string) *reconcile.Counts {
		if counts[group] == nil {
			counts[group] = &reconcile.Counts{}
		}
		return counts[group]
	}
	for _, a := range r.plan.Place {
		c := of(a.Group)
		switch previous := a.Lineage.Previous; {
		case r.state.Allocation(a.ID) != nil:
			c.InPlace++
			touched[a.ID] = true
		case !previous.IsZero() && r.stopped[previous]:
			c.Destructive++
			touched[previous] = true
		default:
			c.Place++
		}
	}
	for _, a := range r.allocs {
		switch c := of(a.Group); {
		case touched[a.ID] || a.Terminal() && !r.stopped[a.ID]:
		case r.stopped[a.ID]:
			c.Stop++
		default:
			c.Ignore++
		}
	}
	for name, c := range counts {
		r.out.Counts[name] = *c
	}
}

// close says what becomes of the evaluation, and gives the room of what stops back to those who
// still have it.
func (r *run) close(status, text string) {
	for _, s := range slices.Concat(r.plan.Stop, r.plan.Preempt) {
		if a := r.state.Allocation(s.Alloc); r.stopped[s.Alloc] && s.Client == "" {
			r.view.Restore(a)
		}
	}
	next := *r.eval
	next.Status, next.Description, next.SnapshotIndex, next.ModifyTime = status, text, r.state.Index(), r.now
	next.Outcome = r.outcome
	if len(r.outcome.Failed) > 0 {
		blocked := r.next(r.dice.ID(), jobs.TriggerQueued, 0)
		blocked.Status, blocked.Outcome, blocked.SnapshotIndex = jobs.EvalBlocked, r.outcome, r.state.Index()
		blocked.Description = "created to place remaining allocations"
		next.Chain.Blocked = blocked.ID
		r.need()
		r.out.New = append(r.out.New, blocked)
	}
	if len(r.out.New) > 0 {
		next.Chain.Next = r.out.New[0].ID
	}
	r.out.Eval = &next
}

// need sums up what is queued.
func (r *run) need() {
	first := true
	for _, g := range r.job.Groups {
		ask, n := r.programs[g.Name].Ask.Vector(), int64(r.outcome.Queued[g.Name])
		if n == 0 {
			continue
		}
		r.out.All = r.out.All.Plus(jobs.Vector{CPU: n * ask.CPU, MemoryMB: n * ask.MemoryMB, DiskMB: n * ask.DiskMB})
		if first {
			r.out.Least, first = ask, false
		}
		r.out.Least = jobs.Vector{CPU: min(r.out.Least.CPU, ask.CPU), MemoryMB: min(r.out.Least.MemoryMB, ask.MemoryMB),
			DiskMB: min(r.out.Least.DiskMB, ask.DiskMB)}
	}
}

// GiveUp is the blocked evaluation of one whose plans were rejected too often: it is tried again when
// anything changes (NS-11, NS-21).
func GiveUp(e *jobs.Evaluation, index uint64, now jobs.Time, id jobs.ID) (failed, blocked *jobs.Evaluation) {
	done := *e
	done.Status, done.Description, done.ModifyTime = jobs.EvalFailed, "maximum attempts reached", now
	next := *e
	next.ID, next.Trigger, next.Status, next.SnapshotIndex = id, jobs.TriggerMaxPlans, jobs.EvalBlocked, index
	next.Description, next.Chain = "created due to placement conflicts", jobs.Chain{Previous: e.ID}
	next.Outcome = jobs.Outcome{Escaped: true, Queued: e.Outcome.Queued}
	next.Stamp = jobs.Stamp{CreateTime: now, ModifyTime: now}
	done.Chain.Blocked = id
	return &done, &next
}
