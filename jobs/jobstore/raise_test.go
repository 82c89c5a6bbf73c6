package jobstore

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/kit/errkind"
)

// restoring is a Store with a job that runs and a deployment, a snapshot of it, and what came after.
func restoring(t *testing.T) (s *Store, past []byte, do func(c *Command) *Result) {
	t.Helper()
	s = New(Config{})
	do = func(c *Command) *Result {
		c.Now, c.Seed = 1, 2
		return s.ApplyBatch([][]byte{c.Encode()})[0].(*Result)
	}
	must := func(c *Command) {
		if r := do(c); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	job := &jobs.Job{JobKey: jobs.JobKey{Namespace: "default", ID: "j"}, Type: jobs.Service, Priority: 50,
		Groups: []*jobs.TaskGroup{{Name: "g", Count: 1, Tasks: []*jobs.Task{{Name: "t", Driver: "mock_driver"}}}}}
	must(&Command{Jobs: JobWrites{Put: []JobWrite{{Job: job, EvalID: jobs.ID{7}}}},
		Nodes: NodeWrites{Put: []NodeWrite{{Secret: "s", Node: &jobs.Node{ID: jobs.ID{1}, Name: "n",
			Capacity: jobs.Capacity{Total: jobs.Vector{CPU: 100, MemoryMB: 100, DiskMB: 100}}}}}},
		Names: NameWrites{Docs: []DocWrite{{Document: Document{Table: Namespaces, Name: "x", Body: "{}"}}}}})
	must(place(s, jobs.ID{2}))
	var text bytes.Buffer
	if _, err := s.View().WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		must(&Command{Names: NameWrites{Docs: []DocWrite{{Document: Document{Table: Namespaces, Name: "later"}},
			{Document: Document{Table: Namespaces, Name: "later"}, Delete: true}}}})
	}
	return s, text.Bytes(), do
}

// place is a plan of now that places an allocation of the job.
func place(s *Store, id jobs.ID) *Command {
	v := s.View()
	j := v.State.Job(jobs.JobKey{Namespace: "default", ID: "j"})
	ref := JobRef{JobKey: j.JobKey, Version: j.Version}
	return &Command{Plans: []PlanWrite{{EvalID: jobs.ID{7}, Priority: 50, SnapshotIndex: v.State.Index(), Job: &ref,
		Versions: []JobRef{ref}, Grants: []*jobs.Grant{{Vector: jobs.Vector{CPU: 1, MemoryMB: 1}}},
		Deployment: &jobs.Deployment{ID: jobs.ID{3}, JobKey: j.JobKey, JobCreateIndex: j.CreateIndex,
			Status: jobs.DeployRunning},
		Place: []Placing{{ID: id, Node: jobs.ID{1}, Index: int(id[0]), Group: "g", Version: 1, Grant: 1}}}}}
}

// TestRaised: a restored snapshot is newer than everything before it, with its objects related as they were.
func TestRaised(t *testing.T) {
	s, past, do := restoring(t)
	was, err := ReadView(bytes.NewReader(past))
	if err != nil {
		t.Fatal(err)
	}
	before := s.View()
	job := before.State.Job(jobs.JobKey{Namespace: "default", ID: "j"})
	stale := place(s, jobs.ID{4})
	woken := make(chan struct{})
	go func() {
		defer close(woken)
		s.Wait(context.Background(), Subject{Table: Jobs, Job: job.JobKey}, before.State.Index())
	}()

	next, err := ReadRaised(bytes.NewReader(past), before.State.Index())
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if _, err := next.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	if err := s.Restore(&text); err != nil {
		t.Fatal(err)
	}
	<-woken
	v := s.View()
	present, by := before.State.Index(), v.State.Index()-was.State.Index()
	if v.State.Index() < present+margin || v.Restored() != v.State.Index() {
		t.Errorf("restored to %d, of %d", v.State.Index(), v.Restored())
	}
	for table := range tableCount {
		if v.Index(table) != v.State.Index() {
			t.Errorf("table %d is at %d, want %d", table, v.Index(table), v.State.Index())
		}
	}
	same := func(what string, got, old jobs.Stamp) {
		if got.CreateIndex != old.CreateIndex || got.ModifyIndex != old.ModifyIndex+by {
			t.Errorf("%s: %v of %v, raised by %d", what, got, old, by)
		}
	}
	j, old := v.State.Job(job.JobKey), was.State.Job(job.JobKey)
	same("job", jobs.Stamp{CreateIndex: j.CreateIndex, ModifyIndex: j.ModifyIndex},
		jobs.Stamp{CreateIndex: old.CreateIndex, ModifyIndex: old.ModifyIndex})
	if j.JobModifyIndex != old.JobModifyIndex+by {
		t.Errorf("its JobModifyIndex is %d, was %d", j.JobModifyIndex, old.JobModifyIndex)
	}
	n, oldNode := v.State.Node(jobs.ID{1}).Node, was.State.Node(jobs.ID{1}).Node
	same("node", jobs.Stamp{CreateIndex: n.CreateIndex, ModifyIndex: n.ModifyIndex},
		jobs.Stamp{CreateIndex: oldNode.CreateIndex, ModifyIndex: oldNode.ModifyIndex})
	a, d, e := v.State.Allocation(jobs.ID{2}), v.State.Deployment(jobs.ID{3}), v.State.Evaluation(jobs.ID{7})
	if a == nil || d == nil || e == nil || a.Job.CreateIndex != j.CreateIndex || d.JobCreateIndex != j.CreateIndex {
		t.Fatalf("not linked: %+v %+v %+v", a, d, e)
	}
	same("allocation", a.Stamp, was.State.Allocation(a.ID).Stamp)
	same("deployment", d.Stamp, was.State.Deployment(d.ID).Stamp)
	same("evaluation", e.Stamp, was.State.Evaluation(e.ID).Stamp)
	doc := v.Document(Namespaces, "", "x")
	if doc == nil || doc.ModifyIndex <= present || doc.CreateIndex > present {
		t.Errorf("document: %+v", doc)
	}
	if status, index := v.State.JobStatus(j); index <= present {
		t.Errorf("the job is %s at %d, a blocking query waits at %d", status, index, present)
	}

	// What was decided before is not carried out after: neither a plan nor a check-and-set.
	if r := do(stale); len(r.Plans) != 1 || r.Plans[0].Rejected != 1 || s.View().State.Allocation(jobs.ID{4}) != nil {
		t.Errorf("a plan of before: %+v", r)
	}
	if r := do(&Command{Jobs: JobWrites{Put: []JobWrite{{Job: job, Index: &job.JobModifyIndex}}}}); r.Err == nil {
		t.Errorf("a check-and-set of before: %+v", r)
	}
	if r := do(place(s, jobs.ID{5})); r.Err != nil || s.View().State.Allocation(jobs.ID{5}) == nil {
		t.Errorf("a plan of now: %+v", r)
	}
	if _, err := s.Ring().After(t.Context(), present); !errkind.Is(err, errkind.Conflict) {
		t.Errorf("who follows events from before: %v", err)
	}
	changes, err := s.Ring().After(t.Context(), s.Ring().Oldest())
	if err != nil || len(changes) == 0 || changes[0].Index <= v.Restored() {
		t.Errorf("events after it: %v %v", changes, err)
	}
	if again, err := ReadRaised(bytes.NewReader(past), s.View().State.Index()); err != nil || again.State.Index() <=
		s.View().State.Index()+margin {
		t.Errorf("the same once more: %v", err)
	}
}

// TestRaisedRefuses: an archive that was made up does not turn indexes back by an overflow.
func TestRaisedRefuses(t *testing.T) {
	s, _, _ := restoring(t)
	for name, change := range map[string]func(v *View){
		"an index that is too high": func(v *View) { v.State = v.State.Edit(maxIndex + 1).Done() },
		"an object of the future":   func(v *View) { v.State = v.State.Edit(0).Done() },
	} {
		v := *s.View()
		change(&v)
		var text bytes.Buffer
		if _, err := v.WriteTo(&text); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadRaised(&text, 1); !errkind.Is(err, errkind.Invalid) && !errkind.Is(err, errkind.Corrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTallies: what a snapshot has, by its sorts.
func TestTallies(t *testing.T) {
	s, _, _ := restoring(t)
	list := s.View().Tallies()
	for _, want := range []string{"Alloc", "Deployment", "Eval", "Job", "JobVersion", "Namespace", "Node"} {
		if i := slices.IndexFunc(list, func(t Tally) bool { return t.Name == want }); i < 0 || list[i].Count != 1 ||
			list[i].Size == 0 {
			t.Errorf("%s: %+v", want, list)
		}
	}
}
