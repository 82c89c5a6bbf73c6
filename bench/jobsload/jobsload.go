// Package jobsload measures how long the jobs plane takes from capacity to allocations that run: jobs come over Nomad's
// API, and simulated nodes with the product's own client take what is placed on them and report it running. The
// published shape is 178,000 allocations of 3,000 jobs, queued before one of 10,000 nodes exists.
package jobsload

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"corbel.dev/corbel/bench"
	"corbel.dev/corbel/client/nomad"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/testport"
)

// Options of a run.
type Options struct {
	bench.Options
	// Allocations is how many are placed; zero means 2,000. Nodes is on how many; zero means 200.
	Allocations, Nodes int
	// Queued registers all jobs before there is a node; else the nodes are there first.
	Queued bool
	// Join is how long the nodes take to come, one after the other.
	Join time.Duration
	// NodesPerProcess is how many nodes one process plays; zero means 2,500.
	NodesPerProcess int
	// Deadline bounds the time until all run; zero means 10 min beyond Join.
	Deadline time.Duration
}

func (o *Options) complete() error {
	if err := o.Complete(); err != nil {
		return err
	}
	if o.Target != "" {
		return fmt.Errorf("--target: bench jobs starts what it measures")
	}
	if o.Servers != 1 {
		return fmt.Errorf("--servers: bench jobs measures one server, not %d", o.Servers)
	}
	o.Allocations, o.Nodes = cmp.Or(o.Allocations, 2000), cmp.Or(o.Nodes, 200)
	o.NodesPerProcess = cmp.Or(o.NodesPerProcess, 2500)
	if o.Allocations < 1 || o.Allocations > 2_000_000 {
		return fmt.Errorf("--allocations: must be between 1 and 2000000, not %d", o.Allocations)
	}
	if o.Nodes < 1 || o.Nodes > 100_000 {
		return fmt.Errorf("--nodes: must be between 1 and 100000, not %d", o.Nodes)
	}
	if o.NodesPerProcess < 1 {
		return fmt.Errorf("--nodes-per-process: must be at least 1, not %d", o.NodesPerProcess)
	}
	if o.Join < 0 || o.Join > 2*time.Hour {
		return fmt.Errorf("--join: must be between 0 and 2h, not %s", o.Join)
	}
	o.Deadline = cmp.Or(o.Deadline, o.Join+10*time.Minute)
	if o.Deadline < 0 {
		return fmt.Errorf("--deadline: must be positive, not %s", o.Deadline)
	}
	return nil
}

// What a task asks for.
const (
	taskCPU      = 500 // MHz
	taskMemoryMB = 50
	taskDiskMB   = 300
)

// tiers are the counts of jobs, a third each.
var tiers = []int{10, 83, 85}

// counts are those of the jobs that have so many allocations together.
func counts(allocations int) (list []int) {
	for i := 0; allocations > 0; i++ {
		n := min(tiers[i%len(tiers)], allocations)
		list = append(list, n)
		allocations -= n
	}
	return list
}

// run is one run.
type run struct {
	o     *Options
	c     *bench.Target
	api   *nomad.Client
	addr  string // of the API
	kind  string // of the jobs; "" is service
	jobs  []int
	fleet []*bench.Child
	Report
}

// Run measures.
func Run(ctx context.Context, o Options) (*Report, error) {
	x, err := open(ctx, &o, "jobs", nil, func(x *run) error { return x.measure(ctx) })
	if err != nil {
		return nil, err
	}
	return &x.Report, nil
}

// open has a server, measures with it, and then the floors. list are the counts of the jobs; nil are the usual ones.
func open(ctx context.Context, o *Options, name string, list []int, measure func(*run) error) (*run, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	ports, err := testport.Free(1)
	if err != nil {
		return nil, err
	}
	o.HCL = append(o.HCL, fmt.Sprintf("jobs { enabled = true, port = %d, agent { enabled = false } }\n"+
		"limits { http_max_conns_per_client = 20000 }", ports[0]))
	x := &run{o: o, jobs: list, addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))}
	if list == nil {
		x.jobs = counts(o.Allocations)
	}
	if x.api, err = nomad.New(nomad.Config{Address: "http://" + x.addr, Token: o.Token}); err != nil {
		return nil, err
	}
	defer x.api.Close()
	if x.c, err = bench.OpenTarget(ctx, &o.Options); err != nil {
		return nil, err
	}
	defer x.c.Stop()
	defer x.end()
	x.Report = Report{Bench: name, Machine: bench.Machine(), Date: time.Now().UTC().Truncate(time.Second),
		Shape: Shape{Servers: o.Servers, Nodes: o.Nodes, Jobs: len(x.jobs), Allocations: o.Allocations,
			Queued: o.Queued, JoinSeconds: o.Join.Seconds()}}
	if err := x.schedules(ctx); err != nil {
		return nil, err
	}
	if err := measure(x); err != nil {
		return nil, err
	}
	x.end() // floors are of a quiet machine
	x.c.Stop()
	if !o.SkipFloors {
		if x.Floors, err = bench.MeasureFloors(ctx, &o.Options); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// schedules waits for the jobs plane.
func (x *run) schedules(ctx context.Context) error {
	return spawn.Until(ctx, time.Minute, "the jobs plane", func() error {
		return x.api.Put(ctx, "operator/scheduler/configuration", nil,
			map[string]any{"SchedulerAlgorithm": "spread"}, nil)
	})
}

// measure is the run between the servers' start and their end.
func (x *run) measure(ctx context.Context) error {
	steps := []func(context.Context) error{x.come, x.allThere, x.register}
	if x.o.Queued {
		steps = []func(context.Context) error{x.register, x.come}
	}
	var began time.Time
	for i, step := range steps {
		if i == len(steps)-1 {
			began = time.Now() // from here on, there is both work and capacity
		}
		if err := step(ctx); err != nil {
			return err
		}
	}
	if err := x.follow(ctx, began); err != nil {
		return err
	}
	return x.figures(ctx)
}
