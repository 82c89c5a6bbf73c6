package jobscmd

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/jobscmd/jobview"
	"corbel.dev/corbel/jobs/jobwire"
	"github.com/spf13/cobra"
)

// allocCommands are the commands about allocations.
func allocCommands(e *command.Env) []*cobra.Command {
	return []*cobra.Command{allocStatus(e), allocLogs(e), allocExec(e), allocFS(e), allocStop(e), allocRestart(e),
		allocSignal(e), allocChecks(e)}
}

// Alloc builds `nomad alloc` and `corbel allocs`.
func Alloc(e *command.Env, cmd *cobra.Command) { command.Group(cmd, allocCommands(e)...) }

// alloc finds the allocation that is meant, whole.
func (c *Call) alloc(prefix string) (*jobwire.Allocation, error) {
	id, err := c.resolve("allocation", "allocations", prefix)
	if err != nil {
		return nil, err
	}
	a := &jobwire.Allocation{}
	return a, c.Get("allocation/"+id, nil, a)
}

// anyAlloc is the allocation that args begin with, or with ofJob one of the job that they begin with.
func anyAlloc(c *Call, name string, ofJob bool, group string) (*jobwire.Allocation, error) {
	if !ofJob {
		return c.alloc(name)
	}
	id, err := c.jobID(name)
	if err != nil {
		return nil, err
	}
	var list []*jobwire.AllocStub
	if err := c.Get(job(id, "allocations"), nil, &list); err != nil {
		return nil, err
	}
	slices.SortStableFunc(list, func(a, b *jobwire.AllocStub) int { // those that run first, the newest of them
		if (a.ClientStatus == "running") != (b.ClientStatus == "running") {
			if a.ClientStatus == "running" {
				return -1
			}
			return 1
		}
		return int(b.CreateIndex) - int(a.CreateIndex)
	})
	for _, a := range list {
		if group == "" || a.TaskGroup == group {
			return c.alloc(a.ID)
		}
	}
	return nil, fmt.Errorf("job %q has no allocations", id)
}

// task is the task that is meant: the one that is named, or the only one.
func task(a *jobwire.Allocation, name string) (string, error) {
	if name != "" {
		return name, nil
	}
	var names []string
	for _, g := range a.Job.TaskGroups {
		if jobwire.Get(g.Name) == a.TaskGroup {
			for _, t := range g.Tasks {
				names = append(names, t.Name)
			}
		}
	}
	if len(names) == 1 {
		return names[0], nil
	}
	return "", command.Usagef("the allocation has the tasks %s: say which one", strings.Join(names, ", "))
}

// allocTable prints the allocations of a list.
func (c *Call) allocTable(path string, query url.Values, none string) error {
	var list []*jobwire.AllocStub
	if err := c.Get(path, query, &list); err != nil {
		return err
	}
	return c.allocRows(list, none)
}

func (c *Call) allocRows(list []*jobwire.AllocStub, none string) error {
	slices.SortStableFunc(list, func(a, b *jobwire.AllocStub) int { return int(b.CreateIndex) - int(a.CreateIndex) })
	rows := [][]string{}
	for _, a := range list {
		rows = append(rows, []string{c.short(a.ID), c.short(a.NodeID), a.TaskGroup, strconv.FormatUint(a.JobVersion, 10),
			a.DesiredStatus, a.ClientStatus, jobview.Ago(a.CreateTime), jobview.Ago(a.ModifyTime)})
	}
	return c.Table([]string{"ID", "Node ID", "Task Group", "Version", "Desired", "Status", "Created", "Modified"}, rows,
		none)
}

// allocStatus builds `alloc status`.
func allocStatus(e *command.Env) *cobra.Command {
	return Leaf(e, "status [ALLOCATION]", "List the allocations, or show one", 0, 1,
		func(cmd *cobra.Command) func(*Call, []string) error {
			f := cmd.Flags()
			short := f.Bool("short", false, "without the events of its tasks")
			f.Bool("stats", false, "")
			_ = f.MarkHidden("stats") // it was just made
			return func(c *Call, args []string) error {
				if len(args) == 0 {
					if done, err := c.Show("allocations", nil); done {
						return err
					}
					return c.allocTable("allocations", nil, "No allocations")
				}
				id, err := c.resolve("allocation", "allocations", args[0])
				if err != nil {
					return err
				}
				if done, err := c.Show("allocation/"+id, nil); done {
					return err
				}
				a, err := c.alloc(id)
				if err != nil {
					return err
				}
				return allocDetail(c, a, *short)
			}
		})
}

func allocDetail(c *Call, a *jobwire.Allocation, short bool) error {
	pairs := []string{"ID", a.ID, "Eval ID", c.short(a.EvalID), "Name", a.Name, "Node ID", c.short(a.NodeID), "Node Name",
		a.NodeName, "Job ID", a.JobID, "Job Version", strconv.FormatUint(jobwire.Get(a.Job.Version), 10),
		"Client Status", a.ClientStatus, "Client Description", jobview.Or(a.ClientDescription, "<none>"),
		"Desired Status", a.DesiredStatus, "Desired Description", jobview.Or(a.DesiredDescription, "<none>"),
		"Created", jobview.Ago(a.CreateTime), "Modified", jobview.Ago(a.ModifyTime)}
	if a.DeploymentID != "" {
		health := "unset"
		if s := a.DeploymentStatus; s != nil && s.Healthy != nil {
			health = map[bool]string{true: "healthy", false: "unhealthy"}[*s.Healthy]
		}
		pairs = append(pairs, "Deployment ID", c.short(a.DeploymentID), "Deployment Health", health)
	}
	for name, id := range map[string]string{"Replacement Alloc ID": a.NextAllocation} {
		if id != "" {
			pairs = append(pairs, name, c.short(id))
		}
	}
	c.Fields(pairs...)
	if r := a.AllocatedResources; r != nil && len(r.Shared.Ports) > 0 {
		rows := [][]string{}
		for _, p := range r.Shared.Ports {
			address := fmt.Sprintf("%s:%d", p.HostIP, p.Value)
			if p.To > 0 {
				address += fmt.Sprintf(" -> %d", p.To)
			}
			rows = append(rows, []string{p.Label, address})
		}
		c.Say("\nAllocation Addresses\n")
		if err := c.Table([]string{"Label", "Address"}, rows, ""); err != nil {
			return err
		}
	}
	if !short {
		for _, name := range slices.Sorted(maps.Keys(a.TaskStates)) {
			if err := taskDetail(c, a, name); err != nil {
				return err
			}
		}
	}
	if c.Verbose && a.Metrics != nil {
		return c.Printf("\nPlacement Metrics\n%s", jobview.Metric(a.Metrics, "  "))
	}
	return nil
}

func taskDetail(c *Call, a *jobwire.Allocation, name string) error {
	s := a.TaskStates[name]
	c.Say("\nTask %q is %q\n", name, s.State)
	if r := a.AllocatedResources; r != nil && r.Tasks[name] != nil {
		t := r.Tasks[name]
		c.Say("Task Resources: %d MHz, %d MiB\n", t.Cpu.CpuShares, t.Memory.MemoryMB)
	}
	c.Fields("Started At", jobview.Moment(s.StartedAt), "Finished At", jobview.Moment(s.FinishedAt),
		"Total Restarts", strconv.FormatUint(s.Restarts, 10))
	rows := [][]string{}
	for _, event := range slices.Backward(s.Events) {
		rows = append(rows, []string{jobview.When(event.Time), event.Type, event.DisplayMessage})
	}
	c.Say("\nRecent Events:\n")
	return c.Table([]string{"Time", "Type", "Description"}, rows, "none")
}

// allocStop builds `alloc stop`.
func allocStop(e *command.Env) *cobra.Command {
	return Leaf(e, "stop ALLOCATION", "Stop an allocation and have it replaced", 1, 1,
		func(cmd *cobra.Command) func(*Call, []string) error {
			f := cmd.Flags()
			detach := f.Bool("detach", false, "print the evaluation and do not follow it")
			quick := f.Bool("no-shutdown-delay", false, "do not wait for the shutdown delay")
			return func(c *Call, args []string) error {
				id, err := c.resolve("allocation", "allocations", args[0])
				if err != nil {
					return err
				}
				return c.order(*detach, "allocation/"+id+"/stop",
					url.Values{"no_shutdown_delay": {strconv.FormatBool(*quick)}}, nil)
			}
		})
}

// allocRestart builds `alloc restart`.
func allocRestart(e *command.Env) *cobra.Command {
	return Leaf(e, "restart ALLOCATION [TASK]", "Restart the tasks of an allocation that run, or one", 1, 2,
		func(cmd *cobra.Command) func(*Call, []string) error {
			f := cmd.Flags()
			all := f.Bool("all-tasks", false, "also tasks that have ended")
			name := f.String("task", "", "only this task")
			return func(c *Call, args []string) error {
				id, err := c.resolve("allocation", "allocations", args[0])
				if err != nil {
					return err
				}
				if len(args) == 2 {
					*name = args[1]
				}
				return c.Client.Put(c.Ctx(), "client/allocation/"+id+"/restart", nil,
					map[string]any{"TaskName": *name, "AllTasks": *all}, nil)
			}
		})
}

// allocSignal builds `alloc signal`.
func allocSignal(e *command.Env) *cobra.Command {
	return Leaf(e, "signal ALLOCATION [TASK]", "Send a signal to the tasks of an allocation, or to one", 1, 2,
		func(cmd *cobra.Command) func(*Call, []string) error {
			f := cmd.Flags()
			signal := f.StringP("s", "s", "SIGKILL", "the signal, by its name")
			name := f.String("task", "", "only this task")
			return func(c *Call, args []string) error {
				id, err := c.resolve("allocation", "allocations", args[0])
				if err != nil {
					return err
				}
				if len(args) == 2 {
					*name = args[1]
				}
				return c.Client.Put(c.Ctx(), "client/allocation/"+id+"/signal", nil,
					map[string]any{"Task": *name, "Signal": *signal}, nil)
			}
		})
}

// allocChecks builds `alloc checks`.
func allocChecks(e *command.Env) *cobra.Command {
	return Plain(e, "checks ALLOCATION", "Show the checks of an allocation's native services", 1, 1,
		func(c *Call, args []string) error {
			id, err := c.resolve("allocation", "allocations", args[0])
			if err != nil {
				return err
			}
			path := "client/allocation/" + id + "/checks"
			if done, err := c.Show(path, nil); done {
				return err
			}
			var checks map[string]struct{ Check, Service, Task, Group, Status, Output string }
			if err := c.Get(path, nil, &checks); err != nil {
				return err
			}
			rows := [][]string{}
			for _, id := range slices.Sorted(maps.Keys(checks)) {
				k := checks[id]
				rows = append(rows, []string{k.Service, jobview.Or(k.Task, "(group)"), k.Check, k.Status, k.Output})
			}
			return c.Table([]string{"Service", "Task", "Name", "Status", "Output"}, rows, "No checks")
		})
}
