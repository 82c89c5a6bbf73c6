package benchcmd

import (
	"context"

	"github.com/spf13/cobra"

	"corbel.dev/corbel/bench/jobsload"
	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/node/simnodes"
)

func benchJobs(e *command.Env) *cobra.Command {
	b, o := &benchFlags{}, jobsload.Options{}
	c := benchCommand(e, "jobs", "How long jobs take from capacity to running allocations", b)
	c.Long = `Register jobs with 10, 83 and 85 allocations each (500 MHz and 50 MB a task, spread over the
nodes), and have simulated nodes (the product's own client with the mock driver, many per
process, each with a real connection) take and run them. With --queued, which is the
published experiment, all jobs are registered before there is a node, and the clock runs from
the first node; else the nodes are there first, and it runs from the first job.

  corbel bench jobs
  corbel bench jobs --allocations 178000 --nodes 10000 --queued
  corbel bench jobs --allocations 178000 --nodes 10000 --queued --join 5m --json`
	f := c.Flags()
	f.IntVar(&o.Allocations, "allocations", 2000, "allocations of all jobs together")
	f.IntVar(&o.Nodes, "nodes", 200, "simulated nodes")
	f.BoolVar(&o.Queued, "queued", false, "register all jobs before there is a node")
	f.DurationVar(&o.Join, "join", 0, "how long the nodes take to come, one after the other")
	f.IntVar(&o.NodesPerProcess, "nodes-per-process", 0, "simulated nodes in one process (0 is 2500)")
	f.DurationVar(&o.Deadline, "deadline", 0, "how long to wait until all run (0 is --join and 10m)")
	for _, name := range []string{"target", "dns-target", "token", "duration", "servers"} {
		f.Lookup(name).Hidden = true // it starts what it measures, and measures until all run
	}
	runs(e, c, b, func(ctx context.Context) (report, error) {
		o.Options = b.Options
		r, err := jobsload.Run(ctx, o)
		if r == nil {
			return nil, err
		}
		return r, err
	})
	return c
}

func benchJobLists(e *command.Env) *cobra.Command {
	b, o := &benchFlags{}, jobsload.ListsOptions{}
	c := benchCommand(e, "joblists", "Lists of allocations and nodes, and long polls on a job", b)
	c.Long = `Read the allocations of a job whole, all allocations by pages of 50, and the nodes, each for
--duration; then have --watchers long polls wait for one change of a job with 11 and of one
with 500 allocations.

  corbel bench joblists
  corbel bench joblists --allocations 10000 --nodes 1000 --watchers 1000`
	f := c.Flags()
	f.IntVar(&o.Allocations, "allocations", 1000, "allocations of the job that is listed")
	f.IntVar(&o.Nodes, "nodes", 200, "simulated nodes")
	f.IntVar(&o.Watchers, "watchers", 100, "long polls that wait for one change")
	for _, name := range []string{"target", "dns-target", "token", "servers"} {
		f.Lookup(name).Hidden = true // it starts what it measures
	}
	runs(e, c, b, func(ctx context.Context) (report, error) {
		o.Options.Options = b.Options
		r, err := jobsload.RunLists(ctx, o)
		if r == nil {
			return nil, err
		}
		return r, err
	})
	return c
}

func benchDispatch(e *command.Env) *cobra.Command {
	b, o := &benchFlags{}, jobsload.DispatchOptions{}
	c := benchCommand(e, "dispatch", "Dispatches of a parameterized job, until all have run", b)
	f := c.Flags()
	f.IntVar(&o.Dispatches, "dispatches", 1000, "how many")
	f.IntVar(&o.Nodes, "nodes", 200, "simulated nodes")
	for _, name := range []string{"target", "dns-target", "token", "duration", "servers"} {
		f.Lookup(name).Hidden = true // it starts what it measures, and measures until all have run
	}
	runs(e, c, b, func(ctx context.Context) (report, error) {
		o.Options.Options = b.Options
		r, err := jobsload.RunDispatch(ctx, o)
		if r == nil {
			return nil, err
		}
		return r, err
	})
	return c
}

// benchJobNodes plays the nodes of a jobs bench, which starts it.
func benchJobNodes(e *command.Env) *cobra.Command {
	c := &cobra.Command{Use: "jobnodes", Short: "Play simulated nodes of the jobs plane", Hidden: true,
		Args: command.Between(0, 0, "flags only")}
	c.RunE = func(c *cobra.Command, _ []string) error { return simnodes.Serve(c.Context(), e.In, e.Out) }
	return c
}
