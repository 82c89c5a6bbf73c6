package jobscmd

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/jobscmd/jobview"
	"corbel.dev/corbel/jobs/jobwire"
	"github.com/spf13/cobra"
)

// reason is the server's answer to "why is it pending?".
type reason struct {
	Text   string
	Groups map[string]struct {
		Desired, Placed, Queued, Fits int
		Metric                        *jobwire.AllocationMetric
		Changes                       []struct {
			Text, NodeID, NodeName string
			Nodes                  int
		}
	}
	Waits *struct {
		EvalID, Status, Trigger string
		Priority, Ahead         int
	}
}

// jobWhy builds `job why`, which Nomad does not have.
func jobWhy(e *command.Env) *cobra.Command {
	return Plain(e, "why JOB", "Say why a job is pending, and the least that would help", 1, 1,
		func(c *Call, args []string) error {
			id, err := c.jobID(args[0])
			if err != nil {
				return err
			}
			if done, err := c.Show(job(id, "why"), nil); done {
				return err
			}
			var why reason
			if err := c.Get(job(id, "why"), nil, &why); err != nil {
				return err
			}
			c.Say("%s\n", why.Text)
			for _, name := range slices.Sorted(maps.Keys(why.Groups)) {
				g := why.Groups[name]
				if g.Metric == nil {
					continue
				}
				c.Say("\nGroup %q: %d of %d placed, %d queued, room on %d nodes\n%s", name, g.Placed, g.Desired,
					g.Queued, g.Fits, jobview.Metric(g.Metric, "  "))
				for _, change := range g.Changes {
					c.Say("  - %s\n", change.Text)
				}
			}
			if w := why.Waits; w != nil {
				return c.Printf("\nEvaluation %s (%s) is %s with priority %d, behind %d others.\n", c.short(w.EvalID), w.Trigger,
					w.Status, w.Priority, w.Ahead)
			}
			return nil
		})
}

// jobAllocs builds `job allocs`.
func jobAllocs(e *command.Env) *cobra.Command {
	return Leaf(e, "allocs JOB", "List the allocations of a job", 1, 1, func(cmd *cobra.Command) func(*Call,
		[]string) error {
		all := cmd.Flags().Bool("all", false, "also those of an earlier job of the same name")
		return func(c *Call, args []string) error {
			id, err := c.jobID(args[0])
			if err != nil {
				return err
			}
			query := map[string][]string{"all": {strconv.FormatBool(*all)}}
			if done, err := c.Show(job(id, "allocations"), query); done {
				return err
			}
			return c.allocTable(job(id, "allocations"), query, "No allocations placed")
		}
	})
}

// jobDeployments builds `job deployments`.
func jobDeployments(e *command.Env) *cobra.Command {
	return Leaf(e, "deployments JOB", "List the deployments of a job", 1, 1,
		func(cmd *cobra.Command) func(*Call, []string) error {
			latest := cmd.Flags().Bool("latest", false, "only the newest")
			return func(c *Call, args []string) error {
				id, err := c.jobID(args[0])
				if err != nil {
					return err
				}
				if *latest {
					var d *jobwire.Deployment
					if err := c.Get(job(id, "deployment"), nil, &d); err != nil {
						return err
					}
					if d == nil {
						return c.Printf("No deployment found\n")
					}
					return c.deploymentDetail(d)
				}
				if done, err := c.Show(job(id, "deployments"), nil); done {
					return err
				}
				return c.deploymentTable(job(id, "deployments"))
			}
		})
}

// jobRestart builds `job restart`: each allocation of a job in batches.
func jobRestart(e *command.Env) *cobra.Command {
	return Leaf(e, "restart JOB", "Restart the allocations of a job, some at a time", 1, 1,
		func(cmd *cobra.Command) func(*Call, []string) error {
			f := cmd.Flags()
			size := f.Int("batch-size", 1, "how many at a time")
			wait := f.Duration("batch-wait", 0, "how long to wait between them")
			reschedule := f.Bool("reschedule", false, "stop and replace them instead of restarting their tasks")
			tasks := f.Bool("all-tasks", false, "also tasks that have ended")
			task := f.String("task", "", "only this task")
			group := f.String("group", "", "only this group")
			f.BoolP("yes", "y", false, "")
			f.String("on-error", "fail", "")
			_, _ = f.MarkHidden("yes"), f.MarkHidden("on-error") // kept for scripts
			return func(c *Call, args []string) error {
				id, err := c.jobID(args[0])
				if err != nil {
					return err
				}
				var list []*jobwire.AllocStub
				if err := c.Get(job(id, "allocations"), nil, &list); err != nil {
					return err
				}
				n := 0
				for _, a := range list {
					if a.ClientStatus != "running" || a.DesiredStatus != "run" || *group != "" && a.TaskGroup != *group {
						continue
					}
					if n > 0 && n%max(*size, 1) == 0 {
						command.Wait(c.Ctx(), *wait)
					}
					if err := restartOne(c, a, *reschedule, *tasks, *task); err != nil {
						return err
					}
					n++
				}
				return c.Printf("%s: %d allocations of job %q restarted\n", time.Now().Format(time.RFC3339), n, id)
			}
		})
}

func restartOne(c *Call, a *jobwire.AllocStub, reschedule, allTasks bool, task string) error {
	if reschedule {
		if err := c.Printf("Stopping allocation %q (group %q)\n", c.short(a.ID), a.TaskGroup); err != nil {
			return err
		}
		var answer registered
		if err := c.Client.Put(c.Ctx(), "allocation/"+a.ID+"/stop", nil, nil, &answer); err != nil {
			return err
		}
		return c.monitorEval(answer.EvalID)
	}
	if err := c.Printf("Restarting allocation %q (group %q)\n", c.short(a.ID), a.TaskGroup); err != nil {
		return err
	}
	return c.Client.Put(c.Ctx(), "client/allocation/"+a.ID+"/restart", nil,
		map[string]any{"TaskName": task, "AllTasks": allTasks}, nil)
}
