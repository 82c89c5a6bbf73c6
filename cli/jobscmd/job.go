package jobscmd

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/jobscmd/jobview"
	"corbel.dev/corbel/jobs/diff"
	"corbel.dev/corbel/jobs/jobwire"
	"github.com/spf13/cobra"
)

// jobCommands are the commands about jobs, in both command lines.
func jobCommands(e *command.Env) []*cobra.Command {
	return []*cobra.Command{jobRun(e), jobPlan(e), jobStatus(e), jobStop(e), jobInspect(e), jobHistory(e), jobRevert(e),
		jobPromote(e), jobScale(e), jobDispatch(e), jobPeriodic(e), jobValidate(e), jobInit(e), jobEval(e), jobRestart(e),
		jobWhy(e), jobAllocs(e), jobDeployments(e)}
}

// Job builds `nomad job` and, with its list, `corbel jobs`.
func Job(e *command.Env, cmd *cobra.Command) {
	command.Group(cmd, jobCommands(e)...)
	cmd.Example = "  " + (&Call{Env: e}).Tool("job init", "jobs init") + "\n  " +
		(&Call{Env: e}).Tool("job run", "jobs run") + " example.nomad.hcl"
}

// jobStatus builds `job status`.
func jobStatus(e *command.Env) *cobra.Command {
	c := Leaf(e, "status [JOB]", "List the jobs, or show one", 0, 1,
		func(cmd *cobra.Command) func(*Call, []string) error {
			f := cmd.Flags()
			all := f.Bool("all-allocs", false, "also those of an earlier job of the same name")
			evals := f.Bool("evals", false, "show the evaluations")
			f.Bool("short", false, "show no allocations")
			return func(c *Call, args []string) error {
				if len(args) == 0 {
					return c.jobList()
				}
				id, err := c.jobID(args[0])
				if err != nil {
					return err
				}
				if done, err := c.Show(job(id), nil); done {
					return err
				}
				brief, err := cmd.Flags().GetBool("short")
				if err != nil {
					return err
				}
				return c.jobDetail(id, *all, *evals, brief)
			}
		})
	c.Aliases = []string{"list"}
	return c
}

func (c *Call) jobList() error {
	if done, err := c.Show("jobs", nil); done {
		return err
	}
	var list []*jobwire.JobStub
	if err := c.Get("jobs", nil, &list); err != nil {
		return err
	}
	head, rows := []string{"ID", "Type", "Priority", "Status", "Submit Date"}, [][]string{}
	if c.cfg.Namespace == "*" {
		head = slices.Insert(head, 1, "Namespace")
	}
	for _, j := range list {
		status := j.Status
		if j.Stop {
			status += " (stopped)"
		}
		kind := j.Type
		switch {
		case j.Periodic:
			kind += "/periodic"
		case j.ParameterizedJob:
			kind += "/parameterized"
		}
		row := []string{j.ID, kind, strconv.Itoa(j.Priority), status, jobview.When(j.SubmitTime)}
		if c.cfg.Namespace == "*" {
			row = slices.Insert(row, 1, j.Namespace)
		}
		rows = append(rows, row)
	}
	return c.Table(head, rows, "No running jobs")
}

func (c *Call) jobDetail(id string, all, evals, brief bool) error {
	var j jobwire.Job
	if err := c.Get(job(id), nil, &j); err != nil {
		return err
	}
	status := jobwire.Get(j.Status)
	if jobwire.Get(j.Stop) {
		status += " (stopped)"
	}
	c.Fields("ID", jobwire.Get(j.ID), "Name", jobwire.Get(j.Name),
		"Submit Date", jobview.When(jobwire.Get(j.SubmitTime)), "Type", jobwire.Get(j.Type),
		"Priority", strconv.Itoa(jobwire.Get(j.Priority)),
		"Datacenters", strings.Join(j.Datacenters, ","), "Namespace", jobwire.Get(j.Namespace),
		"Node Pool", jobwire.Get(j.NodePool), "Status", status,
		"Periodic", strconv.FormatBool(j.Periodic != nil), "Parameterized", strconv.FormatBool(j.ParameterizedJob != nil),
		"Version", strconv.FormatUint(jobwire.Get(j.Version), 10))
	if brief {
		return nil
	}
	if err := jobSummary(c, id); err != nil {
		return err
	}
	if err := jobQueue(c, id, evals); err != nil {
		return err
	}
	var d *jobwire.Deployment
	if err := c.Get(job(id, "deployment"), nil, &d); err != nil {
		return err
	}
	if d != nil {
		c.Say("\nLatest Deployment\n")
		if err := c.deploymentDetail(d); err != nil {
			return err
		}
	}
	c.Say("\nAllocations\n")
	return c.allocTable(job(id, "allocations"), url.Values{"all": {strconv.FormatBool(all)}}, "No allocations placed")
}

func jobSummary(c *Call, id string) error {
	var s jobwire.JobSummary
	if err := c.Get(job(id, "summary"), nil, &s); err != nil {
		return err
	}
	if k := s.Children; k != nil {
		c.Say("\nChildren Job Summary\n")
		return c.Table([]string{"Pending", "Running", "Dead"}, [][]string{{strconv.FormatInt(k.Pending, 10),
			strconv.FormatInt(k.Running, 10), strconv.FormatInt(k.Dead, 10)}}, "")
	}
	rows := [][]string{}
	for _, name := range slices.Sorted(maps.Keys(s.Summary)) {
		g := s.Summary[name]
		row := []string{name}
		for _, n := range []int{g.Queued, g.Starting, g.Running, g.Failed, g.Complete, g.Lost, g.Unknown} {
			row = append(row, strconv.Itoa(n))
		}
		rows = append(rows, row)
	}
	c.Say("\nSummary\n")
	return c.Table([]string{"Task Group", "Queued", "Starting", "Running", "Failed", "Complete", "Lost", "Unknown"}, rows,
		"No groups")
}

// jobQueue shows the evaluations, and why the newest could not place everything.
func jobQueue(c *Call, id string, all bool) error {
	var evals []*jobwire.Evaluation
	if err := c.Get(job(id, "evaluations"), nil, &evals); err != nil {
		return err
	}
	slices.SortFunc(evals, func(a, b *jobwire.Evaluation) int { return cmp.Compare(b.ModifyIndex, a.ModifyIndex) })
	if all {
		c.Say("\nEvaluations\n")
		if err := c.evalTable(evals); err != nil {
			return err
		}
	}
	for _, e := range evals {
		if e.Status == "blocked" && len(e.FailedTGAllocs) > 0 {
			c.Say("\nPlacement Failure\n")
			return c.failures(e.FailedTGAllocs)
		}
	}
	return nil
}

// jobStop builds `job stop`.
func jobStop(e *command.Env) *cobra.Command {
	return Leaf(e, "stop JOB...", "Stop jobs", 1, -1, func(cmd *cobra.Command) func(*Call, []string) error {
		f := cmd.Flags()
		detach := f.Bool("detach", false, "print the evaluation and do not follow it")
		purge := f.Bool("purge", false, "forget the job and its versions")
		f.BoolP("yes", "y", false, "")
		f.Bool("global", false, "")
		_, _ = f.MarkHidden("yes"), f.MarkHidden("global") // kept for scripts: nothing is asked
		return func(c *Call, args []string) error {
			for _, name := range args {
				id, err := c.jobID(name)
				if err != nil {
					return err
				}
				var answer registered
				if _, err := c.Client.Do(c.Ctx(), "DELETE", job(id), url.Values{"purge": {strconv.FormatBool(*purge)}}, nil,
					&answer); err != nil {
					return err
				}
				if err := c.detachOr(*detach, answer.EvalID); err != nil {
					return err
				}
			}
			return nil
		}
	})
}

// jobInspect builds `job inspect`.
func jobInspect(e *command.Env) *cobra.Command {
	return Leaf(e, "inspect JOB", "Print a job as JSON", 1, 1, func(cmd *cobra.Command) func(*Call, []string) error {
		version := cmd.Flags().String("version", "", "of this version")
		return func(c *Call, args []string) error {
			id, err := c.jobID(args[0])
			if err != nil {
				return err
			}
			if *version == "" {
				var j jobwire.Job
				if err := c.Get(job(id), nil, &j); err != nil {
					return err
				}
				return command.WriteJSON(c.Out, map[string]any{"Job": &j}, false)
			}
			var answer struct{ Versions []*jobwire.Job }
			if err := c.Get(job(id, "versions"), nil, &answer); err != nil {
				return err
			}
			for _, j := range answer.Versions {
				if strconv.FormatUint(jobwire.Get(j.Version), 10) == *version {
					return command.WriteJSON(c.Out, map[string]any{"Job": j}, false)
				}
			}
			return fmt.Errorf("version %s of job %q is not kept", *version, id)
		}
	})
}

// jobHistory builds `job history`.
func jobHistory(e *command.Env) *cobra.Command {
	return Leaf(e, "history JOB", "Show the versions of a job", 1, 1, func(cmd *cobra.Command) func(*Call,
		[]string) error {
		f := cmd.Flags()
		changes := f.BoolP("p", "p", false, "show what each version changed")
		return func(c *Call, args []string) error {
			id, err := c.jobID(args[0])
			if err != nil {
				return err
			}
			query := url.Values{"diffs": {strconv.FormatBool(*changes)}}
			if done, err := c.Show(job(id, "versions"), query); done {
				return err
			}
			var answer struct {
				Versions []*jobwire.Job
				Diffs    []*diff.Job
			}
			if err := c.Get(job(id, "versions"), query, &answer); err != nil {
				return err
			}
			for i, j := range answer.Versions {
				c.Fields("Version", strconv.FormatUint(jobwire.Get(j.Version), 10), "Stable",
					strconv.FormatBool(jobwire.Get(j.Stable)), "Submit Date", jobview.When(jobwire.Get(j.SubmitTime)))
				var b strings.Builder
				if i < len(answer.Diffs) && answer.Diffs[i] != nil {
					b.WriteString("Diff        =\n")
					jobview.Diff(&b, answer.Diffs[i], false)
				}
				c.Say("%s\n", b.String())
			}
			return nil
		}
	})
}

// jobRevert builds `job revert`.
func jobRevert(e *command.Env) *cobra.Command {
	return Leaf(e, "revert JOB VERSION", "Run an earlier version of a job again", 2, 2,
		func(cmd *cobra.Command) func(*Call, []string) error {
			detach := cmd.Flags().Bool("detach", false, "print the evaluation and do not follow it")
			return func(c *Call, args []string) error {
				id, err := c.jobID(args[0])
				if err != nil {
					return err
				}
				version, err := strconv.ParseUint(args[1], 10, 64)
				if err != nil {
					return command.Usagef("%q is not a version: it is a number", args[1])
				}
				return c.order(*detach, job(id, "revert"), nil, map[string]any{"JobID": id, "JobVersion": version})
			}
		})
}

// jobPromote builds `job promote`.
func jobPromote(e *command.Env) *cobra.Command {
	return Leaf(e, "promote JOB", "Let the canaries of a job's newest deployment take over", 1, 1,
		func(cmd *cobra.Command) func(*Call, []string) error {
			f := cmd.Flags()
			groups := f.StringArray("group", nil, "only this group")
			detach := f.Bool("detach", false, "do not follow the deployment")
			return func(c *Call, args []string) error {
				id, err := c.jobID(args[0])
				if err != nil {
					return err
				}
				var d *jobwire.Deployment
				if err := c.Get(job(id, "deployment"), nil, &d); err != nil {
					return err
				}
				if d == nil {
					return fmt.Errorf("job %q has no deployment", id)
				}
				return c.promote(d.ID, *groups, *detach)
			}
		})
}

// jobScale builds `job scale`.
func jobScale(e *command.Env) *cobra.Command {
	return Leaf(e, "scale JOB [GROUP] COUNT", "Change the count of a group", 2, 3,
		func(cmd *cobra.Command) func(*Call, []string) error {
			detach := cmd.Flags().Bool("detach", false, "print the evaluation and do not follow it")
			return func(c *Call, args []string) error {
				id, err := c.jobID(args[0])
				if err != nil {
					return err
				}
				count, err := strconv.ParseInt(args[len(args)-1], 10, 32)
				if err != nil || count < 0 {
					return command.Usagef("%q is not a count", args[len(args)-1])
				}
				group := args[1]
				if len(args) == 2 {
					var j jobwire.Job
					if err := c.Get(job(id), nil, &j); err != nil {
						return err
					}
					if len(j.TaskGroups) != 1 {
						return command.Usagef("the job has %d groups: say which one", len(j.TaskGroups))
					}
					group = jobwire.Get(j.TaskGroups[0].Name)
				}
				return c.order(*detach, job(id, "scale"), nil, map[string]any{"Count": count,
					"Target": map[string]string{"Job": id, "Group": group}, "Message": "submitted using the command line"})
			}
		})
}

// jobDispatch builds `job dispatch`.
func jobDispatch(e *command.Env) *cobra.Command {
	return Leaf(e, "dispatch JOB [PAYLOAD]", "Start a parameterized job; the payload is a file, or - for stdin", 1, 2,
		func(cmd *cobra.Command) func(*Call, []string) error {
			f := cmd.Flags()
			meta := f.StringArray("meta", nil, "name=value for the job")
			detach := f.Bool("detach", false, "print the evaluation and do not follow it")
			token := f.String("idempotency-token", "", "a second dispatch with it is the first")
			prefix := f.String("id-prefix-template", "", "what the new job's id has before the time")
			return func(c *Call, args []string) error {
				id, err := c.jobID(args[0])
				if err != nil {
					return err
				}
				pairs, err := command.Pairs("meta", *meta)
				if err != nil {
					return err
				}
				body := map[string]any{"JobID": id, "Meta": pairs, "IdPrefixTemplate": *prefix}
				if len(args) == 2 {
					payload, err := c.FileOrStdin(args[1])
					if err != nil {
						return fmt.Errorf("read the payload: %w", err)
					}
					body["Payload"] = base64.StdEncoding.EncodeToString(payload)
				}
				query := url.Values{}
				if *token != "" {
					query.Set("idempotency_token", *token)
				}
				var answer struct{ DispatchedJobID, EvalID string }
				if err := c.Client.Put(c.Ctx(), job(id, "dispatch"), query, body, &answer); err != nil {
					return err
				}
				c.Fields("Dispatched Job ID", answer.DispatchedJobID, "Evaluation ID",
					c.short(answer.EvalID))
				if *detach || answer.EvalID == "" {
					return nil
				}
				return c.monitorEval(answer.EvalID)
			}
		})
}

// jobPeriodic builds `job periodic`.
func jobPeriodic(e *command.Env) *cobra.Command {
	return command.Named("periodic", "Manage periodic jobs",
		Leaf(e, "force JOB", "Start a periodic job now", 1, 1, func(cmd *cobra.Command) func(*Call, []string) error {
			detach := cmd.Flags().Bool("detach", false, "print the evaluation and do not follow it")
			return func(c *Call, args []string) error {
				id, err := c.jobID(args[0])
				if err != nil {
					return err
				}
				return c.order(*detach, job(id, "periodic", "force"), nil, nil)
			}
		}))
}

// jobEval builds `job eval`.
func jobEval(e *command.Env) *cobra.Command {
	return Leaf(e, "eval JOB", "Have the scheduler look at a job again", 1, 1,
		func(cmd *cobra.Command) func(*Call, []string) error {
			f := cmd.Flags()
			detach := f.Bool("detach", false, "print the evaluation and do not follow it")
			again := f.Bool("force-reschedule", false, "replace failed allocations whatever their policy says")
			return func(c *Call, args []string) error {
				id, err := c.jobID(args[0])
				if err != nil {
					return err
				}
				return c.order(*detach, job(id, "evaluate"), nil, map[string]any{"JobID": id,
					"EvalOptions": map[string]bool{"ForceReschedule": *again}})
			}
		})
}
