package jobsload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/bench"
	"corbel.dev/corbel/kit/spawn"
)

// jobID is the name of a job by its place.
func jobID(i int) string { return fmt.Sprintf("job-%05d", i) }

// job is one of so many tasks that run until they are stopped.
func job(id, kind string, count int) any {
	type object = map[string]any
	return object{"Job": object{"ID": id, "Name": id, "Type": kind, "Datacenters": []string{"*"},
		"TaskGroups": []object{{"Name": "g", "Count": count, "EphemeralDisk": object{"SizeMB": taskDiskMB},
			"Tasks": []object{{"Name": "t", "Driver": "mock_driver", "Config": object{},
				"Resources": object{"CPU": taskCPU, "MemoryMB": taskMemoryMB}}}}}}}
}

// each does n requests over all connections, and stops at the first that fails.
func (x *run) each(n int, do func(i int) error) (map[string]float64, error) {
	took := bench.NewHistogram()
	var mu sync.Mutex // guards took and failed
	var failed error
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(x.o.Connections, n) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				sent := time.Now()
				err := do(i)
				mu.Lock()
				bench.Record(took, time.Since(sent))
				failed = errors.Join(failed, err)
				stop := failed != nil
				mu.Unlock()
				if stop {
					return
				}
			}
		})
	}
	wg.Wait()
	return bench.Millis(took), failed
}

// register registers all jobs.
func (x *run) register(ctx context.Context) error {
	x.o.Say("registering %d jobs with %d allocations ...", len(x.jobs), x.o.Allocations)
	began := time.Now()
	took, err := x.each(len(x.jobs), func(i int) error {
		return x.api.Put(ctx, "jobs", nil, job(jobID(i), cmp.Or(x.kind, "service"), x.jobs[i]), nil)
	})
	if err != nil {
		return fmt.Errorf("register jobs: %w", err)
	}
	x.RegisterSeconds = time.Since(began).Seconds()
	x.RegisterMillis = took
	return nil
}

// come starts the nodes.
func (x *run) come(ctx context.Context) error {
	x.o.Say("starting %d nodes ...", x.o.Nodes)
	servers := make([]string, 0, len(x.c.Servers))
	for _, s := range x.c.Servers {
		servers = append(servers, s.RPC)
	}
	// Twice the room that is needed: a spread fleet is never full.
	room := max(32, 2*(x.o.Allocations+x.o.Nodes-1)/x.o.Nodes)
	for first := 0; first < x.o.Nodes; first += x.o.NodesPerProcess {
		h, err := bench.StartChild(x.o.Binary, x.c.Dir, "jobnodes")
		if err != nil {
			return err
		}
		h.First, h.Count = first, min(x.o.NodesPerProcess, x.o.Nodes-first)
		x.fleet = append(x.fleet, h)
		if err := h.Call(ctx, bench.CallMost, "start", map[string]any{"servers": servers, "datacenter": "dc1",
			"first": first, "count": h.Count, "join": x.o.Join, "cpu": room * taskCPU, "memory_mb": room * taskMemoryMB,
			"disk_mb": room * taskDiskMB}, nil); err != nil {
			return fmt.Errorf("start nodes: %w", err)
		}
	}
	return nil
}

// end ends the nodes.
func (x *run) end() {
	for _, h := range x.fleet {
		h.Close()
	}
	x.fleet = nil
}

// fleetFigures is what the nodes of a process, or all, did.
type fleetFigures struct {
	Registered int64  `json:"registered"`
	Beats      int64  `json:"beats"`
	Batches    int64  `json:"batches"`
	Failed     int64  `json:"failed"`
	Error      string `json:"error,omitempty"`
}

// ask sums what all nodes did.
func (x *run) ask(ctx context.Context) (all fleetFigures, err error) {
	for _, h := range x.fleet {
		var f fleetFigures
		if err := h.Call(ctx, bench.CallMost, "figures", nil, &f); err != nil {
			return all, err
		}
		all.Registered += f.Registered
		all.Beats += f.Beats
		all.Batches += f.Batches
		all.Failed += f.Failed
		if all.Error == "" {
			all.Error = f.Error
		}
	}
	return all, nil
}

// allThere waits until servers took all nodes.
func (x *run) allThere(ctx context.Context) error {
	return spawn.Until(ctx, x.o.Deadline, "all nodes to be registered", func() error {
		f, err := x.ask(ctx)
		if err != nil {
			return spawn.Hopeless(err)
		}
		if f.Registered < int64(x.o.Nodes) {
			return fmt.Errorf("%d of %d are; %d calls failed: %s", f.Registered, x.o.Nodes, f.Failed, f.Error)
		}
		return nil
	})
}

// progress is what the servers say of all jobs.
type progress struct{ Placed, Running, Queued, Bad int }

// look asks the API for the summaries of all jobs.
func (x *run) look(ctx context.Context) (p progress, err error) {
	var list []struct {
		JobSummary struct {
			Summary map[string]struct{ Queued, Starting, Running, Complete, Failed, Lost, Unknown int }
		}
	}
	if _, err := x.api.Get(ctx, "jobs", url.Values{"stale": {""}}, &list); err != nil {
		return p, err
	}
	for _, j := range list {
		for _, g := range j.JobSummary.Summary {
			p.Placed += g.Starting + g.Running
			p.Running += g.Running
			p.Queued += g.Queued
			p.Bad += g.Complete + g.Failed + g.Lost + g.Unknown
		}
	}
	return p, nil
}

// follow waits until all allocations are placed, and then until all are reported running. It looks so seldom that
// looking takes a tenth of the time at most; the times are as exact as that.
func (x *run) follow(ctx context.Context, began time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, x.o.Deadline)
	defer cancel()
	var p progress
	last := time.Now()
	for {
		asked := time.Now()
		now, err := x.look(ctx)
		switch {
		case ctx.Err() != nil:
			f, _ := x.ask(context.WithoutCancel(ctx)) // the run failed already
			return fmt.Errorf("not all run within %s: %d of %d are placed, %d run, %d queue, %d ended; "+
				"nodes: %d registered, %d calls failed: %s: %w", x.o.Deadline, p.Placed, x.o.Allocations, p.Running,
				p.Queued, p.Bad, f.Registered, f.Failed, f.Error, ctx.Err())
		case err != nil:
			return err
		}
		p = now
		if p.Placed >= x.o.Allocations && x.PlacedSeconds == 0 {
			x.PlacedSeconds = time.Since(began).Seconds()
			x.PerSecond = float64(x.o.Allocations) / x.PlacedSeconds
		}
		if p.Running >= x.o.Allocations {
			x.RunningSeconds = time.Since(began).Seconds()
			x.Ended = p.Bad
			return nil
		}
		if time.Since(last) > 5*time.Second {
			x.o.Say("%d of %d placed, %d running", p.Placed, x.o.Allocations, p.Running)
			last = time.Now()
		}
		cost := time.Since(asked)
		x.LookMillis = max(x.LookMillis, cost.Seconds()*1000)
		_ = spawn.Sleep(ctx, max(20*time.Millisecond, 9*cost)) // the next look tells
	}
}
