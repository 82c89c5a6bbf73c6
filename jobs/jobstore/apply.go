package jobstore

import (
	"corbel.dev/corbel/core/table"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/apply"
	"corbel.dev/corbel/jobs/state"
	"corbel.dev/corbel/kit/errkind"
)

// Result is what became of a command.
type Result struct {
	Err error // it was refused and changed nothing
	Done
}

// Done is what a command did.
type Done struct {
	Index          uint64 // of the View that has it
	JobModifyIndex uint64 // of its last job
	Version        uint64
	Evals          []jobs.ID
	Plans          []apply.Outcome
	Freed          []jobs.Gain
	Miscounted     []jobs.JobKey // whose allocations came to something else than was kept, where they were counted anew
}

// Changed is what a command changed, for those who wait and for the stream of events.
type Changed struct {
	Index  uint64
	Kind   string
	Now    jobs.Time
	Core   []state.Change
	Docs   []DocChange
	Allocs []jobs.ID // whose details changed
}

// DocChange is a document before and after.
type DocChange struct{ Before, After *Document }

// builder makes the next View.
type builder struct {
	*state.Edit
	base   *View
	docs   table.Edit[*Document]
	allocs table.Edit[*AllocDetail]
	nodes  table.Edit[*NodeDetail]
	marks  [tableCount]uint64

	now  jobs.Time
	dice *jobs.Dice
	out  *Result
	did  Changed
	made map[jobs.JobKey]jobs.ID // evaluations of this command
}

// Apply carries commands out in order.
func (v *View) Apply(cmds []*Command) (*View, []Result, []Changed) {
	b := &builder{Edit: v.State.Edit(v.State.Index()), base: v, docs: v.docs.Edit(), allocs: v.allocs.Edit(),
		nodes: v.nodes.Edit(), marks: v.indexes}
	results, changes := make([]Result, len(cmds)), make([]Changed, 0, len(cmds))
	for i, c := range cmds {
		b.begin(c, &results[i])
		if err := b.check(c); err != nil {
			results[i].Err, results[i].Index = err, b.Index()
			continue
		}
		b.Advance()
		b.did.Index = b.Index()
		b.carryOut(c)
		b.did.Core = b.Changes()
		b.withdraw(b.did.Core)
		for _, d := range b.did.Core {
			b.mark(tableOf(d))
		}
		results[i].Index = b.Index()
		changes = append(changes, b.did)
	}
	return &View{State: b.Done(), indexes: b.marks, docs: b.docs.Done(), allocs: b.allocs.Done(), nodes: b.nodes.Done(),
			generation: v.generation, restored: v.restored},
		results, changes
}

func (b *builder) begin(c *Command, out *Result) {
	b.now, b.out = c.Now, out
	b.dice = jobs.NewDice(c.Seed, uint64(c.Now))
	b.did = Changed{Kind: c.Kind, Now: c.Now}
	b.made = map[jobs.JobKey]jobs.ID{}
}

func (b *builder) mark(t Table) { b.marks[t] = b.Index() }

func tableOf(c state.Change) Table {
	object := c.After
	if object == nil {
		object = c.Before
	}
	switch object.(type) {
	case *state.Use:
		return Nodes
	case *jobs.Allocation:
		return Allocations
	case *jobs.Evaluation:
		return Evaluations
	case *jobs.Deployment:
		return Deployments
	}
	return Jobs
}

// check judges the conditions of a command before anything is changed.
func (b *builder) check(c *Command) error {
	for i := range c.Jobs.Put {
		if err := b.checkJob(&c.Jobs.Put[i]); err != nil {
			return err
		}
	}
	for i := range c.Jobs.Stop {
		if b.Job(c.Jobs.Stop[i].JobKey) == nil {
			return errkind.New(errkind.NotFound, "job not found")
		}
	}
	for i := range c.Jobs.Eval {
		if b.Job(c.Jobs.Eval[i].JobKey) == nil {
			return errkind.New(errkind.NotFound, "job not found")
		}
	}
	for i := range c.Rollouts {
		if err := b.checkRollout(&c.Rollouts[i]); err != nil {
			return err
		}
	}
	for i := range c.Names.Docs {
		if err := b.checkDoc(&c.Names.Docs[i]); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) carryOut(c *Command) {
	for i := range c.Jobs.Put {
		b.register(&c.Jobs.Put[i])
	}
	for i := range c.Jobs.Stop {
		b.deregister(&c.Jobs.Stop[i])
	}
	for _, m := range c.Jobs.Stable {
		b.SetStable(m.JobKey, m.Version, m.Stable)
	}
	for i := range c.Jobs.Eval {
		b.order(&c.Jobs.Eval[i])
	}
	for i := range c.Scalings {
		b.scaled(&c.Scalings[i])
	}
	b.writeNodes(&c.Nodes)
	b.report(&c.Allocs)
	for i := range c.Allocs.Transitions {
		b.transition(&c.Allocs.Transitions[i])
	}
	for i := range c.Rollouts {
		b.rollout(&c.Rollouts[i])
	}
	for i := range c.Plans {
		b.plan(&c.Plans[i])
	}
	for _, e := range c.Evals {
		next := *e
		b.PutEvaluation(&next)
	}
	for i := range c.Names.Docs {
		b.document(&c.Names.Docs[i])
	}
	if c.Names.Config != nil {
		b.SetConfig(*c.Names.Config)
		b.mark(Scheduler)
	}
	b.sweep(&c.Sweep)
	if c.Sweep.Recount {
		b.out.Miscounted = b.RecountAll()
	}
}

// evaluate makes an evaluation of a job, at most one in a command.
func (b *builder) evaluate(j *jobs.Job, e jobs.Evaluation) jobs.ID {
	if id, done := b.made[j.JobKey]; done {
		return id
	}
	if e.ID.IsZero() {
		e.ID = b.dice.ID()
	}
	e.JobKey, e.Type, e.Status = j.JobKey, j.Type, jobs.EvalPending
	if e.Priority == 0 {
		e.Priority = j.Priority
	}
	e.CreateTime, e.ModifyTime = b.now, b.now
	b.PutEvaluation(&e)
	b.made[j.JobKey] = e.ID
	b.out.Evals = append(b.out.Evals, e.ID)
	return e.ID
}
