package diff

import (
	"cmp"
	"strconv"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/jobs/reconcile"
)

// What a change forces, and what happens to allocations, in the contract's words.
const (
	forcesCreate      = "forces create"
	forcesDestroy     = "forces destroy"
	forcesInPlace     = "forces in-place update"
	forcesDestructive = "forces create/destroy update"
)

// DesiredUpdates counts what happens to a group's allocations.
type DesiredUpdates struct {
	Ignore, Place, Migrate, Stop, InPlaceUpdate, DestructiveUpdate, Canary, Preemptions uint64
}

// Updates are the counts of a reconciliation as the API has them.
func Updates(c reconcile.Counts, preemptions int) *DesiredUpdates {
	return &DesiredUpdates{Ignore: n(c.Ignore), Place: n(c.Place), Migrate: n(c.Migrate), Stop: n(c.Stop),
		InPlaceUpdate: n(c.InPlace), DestructiveUpdate: n(c.Destructive), Canary: n(c.Canary), Preemptions: n(preemptions)}
}

func n(count int) uint64 { return uint64(max(count, 0)) }

// Annotate says in a diff of from and to what each change forces, and what happens to each group.
func Annotate(d *Job, from, to *jobwire.Job, updates map[string]*DesiredUpdates) {
	before, after := tasks(from), tasks(to)
	for _, g := range d.TaskGroups {
		if u := updates[g.Name]; u != nil {
			g.Updates = u.named()
		}
		for _, f := range g.Fields {
			if f.Name == "Count" {
				f.annotateCount()
			}
		}
		for _, t := range g.Tasks {
			key := [2]string{g.Name, t.Name}
			t.annotate(g.Type, before[key], after[key])
		}
	}
}

// named are the counts that are not zero by the words of the contract.
func (u *DesiredUpdates) named() map[string]uint64 {
	m := map[string]uint64{}
	for name, count := range map[string]uint64{"ignore": u.Ignore, "create": u.Place, "migrate": u.Migrate,
		"destroy": u.Stop, "in-place update": u.InPlaceUpdate, "create/destroy update": u.DestructiveUpdate,
		"canary": u.Canary, "preemptions": u.Preemptions} {
		if count > 0 {
			m[name] = count
		}
	}
	return m
}

func (f *Field) annotateCount() {
	was, _ := strconv.Atoi(cmp.Or(f.Old, "0"))
	is, _ := strconv.Atoi(cmp.Or(f.New, "0"))
	switch {
	case is > was:
		f.Annotations = append(f.Annotations, forcesCreate)
	case is < was:
		f.Annotations = append(f.Annotations, forcesDestroy)
	}
}

func (t *Task) annotate(group string, before, after *jobs.Task) {
	switch {
	case group == Added:
		t.Annotations = append(t.Annotations, forcesCreate)
	case group == Deleted:
		t.Annotations = append(t.Annotations, forcesDestroy)
	case t.Type == Edited && !newProcess(before, after):
		t.Annotations = append(t.Annotations, forcesInPlace)
	case t.Type != None:
		t.Annotations = append(t.Annotations, forcesDestructive)
	}
}

// newProcess asks the scheduler's own rule about one task.
func newProcess(before, after *jobs.Task) bool {
	alone := func(t *jobs.Task) *jobs.Job {
		return &jobs.Job{Groups: []*jobs.TaskGroup{{Tasks: []*jobs.Task{t}}}}
	}
	return before == nil || after == nil || reconcile.Destructive(alone(before), alone(after), "")
}

// tasks are a job's tasks as the core knows them, by group and name.
func tasks(j *jobwire.Job) map[[2]string]*jobs.Task {
	m := map[[2]string]*jobs.Task{}
	if j == nil {
		return m
	}
	for _, g := range jobwire.ToJob(j).Groups {
		for _, t := range g.Tasks {
			m[[2]string{g.Name, t.Name}] = t
		}
	}
	return m
}
