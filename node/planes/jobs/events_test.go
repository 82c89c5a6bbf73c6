package jobsplane

import (
	"fmt"
	"strings"
	"testing"

	"corbel.dev/corbel/api/nomadapi/nomadrows"
	"corbel.dev/corbel/jobs"
	"corbel.dev/corbel/jobs/jobstore"
)

// applyAll carries commands out one by one and returns the View, with what each said.
func applyAll(t *testing.T, cmds ...*jobstore.Command) (*jobstore.View, []jobstore.Changed) {
	t.Helper()
	v, results, changes := jobstore.Empty().Apply(cmds)
	for i := range results {
		if results[i].Err != nil {
			t.Fatalf("command %d: %v", i, results[i].Err)
		}
	}
	return v, changes
}

// TestScalings: events of scaling are kept with their evaluation, 20 of a group; they and pools are told in the stream
// by names of their own, whatever the command was.
func TestScalings(t *testing.T) {
	key := jobs.JobKey{Namespace: "default", ID: "web"}
	job := &jobs.Job{JobKey: key, Type: jobs.Service, Groups: []*jobs.TaskGroup{{Name: "g", Count: 1}, {Name: "h"}}}
	head := func(kind string) jobstore.Head { return jobstore.Head{Now: 7, Seed: 1, Kind: kind} }
	put := func() jobstore.JobWrites {
		return jobstore.JobWrites{Put: []jobstore.JobWrite{{Job: job, EvalID: jobs.ID{5}}}}
	}
	pool := jobstore.DocWrite{Document: jobstore.Document{Table: jobstore.Pools, Name: "gpu",
		Body: `{"Description":"x"}`}}
	gone := pool
	gone.Delete = true
	up := scalingWrite(key, &nomadrows.ScalingEvent{Group: "g", Count: new(int64(3)), PreviousCount: 1,
		Message: "busy", Meta: map[string]any{"by": "autoscaler"}})
	up.Event.EvalID = jobs.ID{5}
	cmds := []*jobstore.Command{{Head: head(jobstore.JobRegistered), Jobs: put()},
		{Head: head(jobstore.JobRegistered), Jobs: put(), Scalings: []jobstore.ScalingWrite{up}},
		{Head: head(""), Scalings: []jobstore.ScalingWrite{scalingWrite(key, &nomadrows.ScalingEvent{Group: "h",
			Error: true, Message: "no metrics"})}},
		{Head: head(""), Names: jobstore.NameWrites{Docs: []jobstore.DocWrite{pool}}},
		{Head: head(""), Names: jobstore.NameWrites{Docs: []jobstore.DocWrite{gone}}}}
	v, changes := applyAll(t, cmds...)
	all := view{v}.Scalings(key)
	g := all["g"]
	if len(g) != 1 || *g[0].Count != 3 || g[0].PreviousCount != 1 || *g[0].EvalID != (jobs.ID{5}).String() ||
		g[0].Time != 7 || g[0].CreateIndex != 2 || g[0].Meta["by"] != "autoscaler" {
		t.Errorf("%+v", g)
	}
	if h := all["h"]; len(h) != 1 || h[0].Count != nil || !h[0].Error || h[0].EvalID != nil {
		t.Errorf("%+v", h)
	}
	var told []string
	for i := range changes {
		for _, e := range eventsOf(v, &changes[i]).Events {
			if e.Topic == "Scaling" || e.Topic == "NodePool" {
				told = append(told, fmt.Sprint(e.Index, e.Type, e.Key, e.FilterKeys, string(e.Payload)))
			}
		}
	}
	text := strings.Join(told, "\n")
	for _, want := range []string{`2ScalingEventRegistered`, `"TaskGroup":"g","Count":3`, `"JobID":"web","TaskGroup":"h"`,
		`4NodePoolUpserted`, `"Description":"x"`, `5NodePoolDeleted`} {
		if !strings.Contains(text, want) {
			t.Errorf("the stream has no %s:\n%s", want, text)
		}
	}
	var more []*jobstore.Command
	for range 25 {
		more = append(more, &jobstore.Command{Head: head(""), Scalings: []jobstore.ScalingWrite{up}})
	}
	v, _, _ = v.Apply(more)
	if n := len(view{v}.Scalings(key)["g"]); n != 20 {
		t.Errorf("%d events are kept", n)
	}
	v, _, _ = v.Apply([]*jobstore.Command{{Head: head(jobstore.JobDeregistered), Jobs: jobstore.JobWrites{
		Stop: []jobstore.JobStop{{JobKey: key, Purge: true}}}}})
	if len(view{v}.Scalings(key)) != 0 {
		t.Error("a job that is purged leaves its events")
	}
}
