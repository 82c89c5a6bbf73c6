package compat

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	nomad "github.com/hashicorp/nomad/api"
)

// newNomad starts a dev process and returns Nomad's own client of it, once a node is ready to run jobs.
func newNomad(t *testing.T) *nomad.Client {
	t.Helper()
	ports, err := freePorts(1)
	must(t, err)
	run(t, "dev", "nomad", fmt.Sprintf("-hcl=jobs { port = %d }", ports[0]))
	cl, err := nomad.NewClient(&nomad.Config{Address: fmt.Sprintf("http://127.0.0.1:%d", ports[0])})
	must(t, err)
	eventually(t, "a node that is ready", func() error {
		nodes, _, err := cl.Nodes().List(nil)
		if err != nil {
			return err
		}
		if len(nodes) != 1 || nodes[0].Status != "ready" {
			return fmt.Errorf("%d nodes", len(nodes))
		}
		return nil
	})
	return cl
}

// sleeper is a job of the client's own making.
func sleeper(id string, count int) *nomad.Job {
	task := nomad.NewTask("main", "raw_exec").SetConfig("command", "/bin/sh").SetConfig("args",
		[]string{"-c", "echo ready; exec sleep 600"})
	cpu, memory := 20, 16
	task.Resources = &nomad.Resources{CPU: &cpu, MemoryMB: &memory}
	group := nomad.NewTaskGroup("g", count).AddTask(task)
	healthy, check := 100*time.Millisecond, "task_states"
	group.Update = &nomad.UpdateStrategy{MinHealthyTime: &healthy, HealthCheck: &check}
	return nomad.NewServiceJob(id, id, "global", 50).AddTaskGroup(group)
}

// TestNomadClient walks through the life of a job with Nomad's client, unmodified (§7.1 of the contract).
func TestNomadClient(t *testing.T) {
	cl := newNomad(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	events, err := cl.EventStream().Stream(ctx, map[nomad.Topic][]string{nomad.TopicJob: {"*"}}, 0, nil)
	must(t, err)

	job := sleeper("a/web", 1)
	plan, _, err := cl.Jobs().Plan(job, true, nil)
	must(t, err)
	if plan.Annotations.DesiredTGUpdates["g"].Place != 1 || plan.Diff.Type != "Added" || plan.JobModifyIndex != 0 {
		t.Errorf("plan: %+v %+v", plan.Annotations, plan.Diff)
	}
	answer, meta, err := cl.Jobs().Register(job, nil)
	must(t, err)
	if answer.EvalID == "" || meta.LastIndex == 0 {
		t.Errorf("registered: %+v %+v", answer, meta)
	}
	if _, _, err := cl.Jobs().EnforceRegister(job, 0, nil); err == nil {
		t.Error("a job that is there was registered as new")
	}
	alloc := runningAlloc(t, cl, "a/web", 1)
	whole, _, err := cl.Allocations().Info(alloc.ID, nil)
	must(t, err)
	if whole.Job == nil || *whole.Job.ID != "a/web" || whole.AllocatedResources.Tasks["main"].Memory.MemoryMB != 16 {
		t.Errorf("allocation: %+v", whole)
	}
	// A blocking query sleeps until the job changes.
	got, qm, err := cl.Jobs().Info("a/web", nil)
	must(t, err)
	if *got.Status != "running" {
		t.Errorf("status %s", *got.Status)
	}
	woken := make(chan uint64, 1)
	go func() {
		_, qm, err := cl.Jobs().Info("a/web", &nomad.QueryOptions{WaitIndex: qm.LastIndex, WaitTime: time.Minute})
		if err == nil {
			woken <- qm.LastIndex
		}
		close(woken)
	}()
	two := 2
	_, _, err = cl.Jobs().Scale("a/web", "g", &two, "more", false, nil, nil)
	for err != nil && strings.Contains(err.Error(), "active deployment") { // the first one has to end
		_, _, err = cl.Jobs().Scale("a/web", "g", &two, "more", false, nil, nil)
	}
	must(t, err)
	if index := <-woken; index <= qm.LastIndex {
		t.Errorf("woken at %d, asked from %d", index, qm.LastIndex)
	}
	runningAlloc(t, cl, "a/web", 2)
	versions, _, _, err := cl.Jobs().Versions("a/web", true, nil)
	must(t, err)
	if len(versions) != 2 {
		t.Errorf("%d versions", len(versions))
	}
	if batch := <-events; batch.Err != nil || len(batch.Events) == 0 {
		t.Errorf("events: %+v", batch)
	}
	restored(t, cl, alloc.ID)
	drained(t, cl, alloc.NodeID)
	if _, _, err := cl.Jobs().Deregister("a/web", true, nil); err != nil {
		t.Error(err)
	}
	if _, _, err := cl.Jobs().Info("a/web", nil); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("after the purge: %v", err)
	}
}

// runningAlloc waits until so many allocations of a job run, and returns one.
func runningAlloc(t *testing.T, cl *nomad.Client, job string, count int) (one *nomad.AllocationListStub) {
	t.Helper()
	eventually(t, "the allocations to run", func() error {
		list, _, err := cl.Jobs().Allocations(job, false, nil)
		if err != nil {
			return err
		}
		running := 0
		for _, a := range list {
			if a.ClientStatus == "running" {
				running, one = running+1, a
			}
		}
		if running != count {
			return fmt.Errorf("%d of %d run", running, count)
		}
		return nil
	})
	return one
}

// drained empties the node and gives it back.
func drained(t *testing.T, cl *nomad.Client, id string) {
	t.Helper()
	_, err := cl.Nodes().UpdateDrain(id, &nomad.DrainSpec{Deadline: -1}, false, nil)
	must(t, err)
	node, _, err := cl.Nodes().Info(id, nil)
	must(t, err)
	if node.SchedulingEligibility != "ineligible" {
		t.Errorf("a node that drains is %s", node.SchedulingEligibility)
	}
	_, err = cl.Nodes().UpdateDrain(id, nil, true, nil)
	must(t, err)
	node, _, err = cl.Nodes().Info(id, nil)
	must(t, err)
	if node.SchedulingEligibility != "eligible" {
		t.Errorf("after the drain the node is %s", node.SchedulingEligibility)
	}
}
