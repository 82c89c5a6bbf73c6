package jobscmd

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/jobscmd/jobfile"
	"corbel.dev/corbel/cli/jobscmd/jobview"
	"corbel.dev/corbel/jobs/diff"
	"corbel.dev/corbel/jobs/jobwire"
	"github.com/spf13/cobra"
)

// registered is the answer to a write that makes an evaluation.
type registered struct {
	EvalID, Warnings string
	JobModifyIndex   uint64
}

// jobRun builds `job run`.
func jobRun(e *command.Env) *cobra.Command {
	return Leaf(e, "run FILE", "Run a job, or update it, and follow what comes of it", 1, 1,
		func(cmd *cobra.Command) func(*Call, []string) error {
			file := &jobfile.File{}
			file.Flags(cmd)
			f := cmd.Flags()
			detach := f.Bool("detach", false, "print the evaluation and do not follow it")
			check := f.String("check-index", "", "only when the job's modify index is this; 0: only when there is no such job")
			output := f.Bool("output", false, "print the job as JSON and do not run it")
			keep := f.Bool("preserve-counts", false, "keep the counts of a job that runs")
			priority := f.Int("eval-priority", 0, "priority of the evaluation")
			return func(c *Call, args []string) error {
				j, sub, err := file.Read(c.Env, args[0])
				if err != nil {
					return err
				}
				j = prepared(c, j)
				body := map[string]any{"Job": j, "Submission": sub, "PreserveCounts": *keep, "EvalPriority": *priority}
				if *output {
					return command.WriteJSON(c.Out, map[string]any{"Job": j}, false)
				}
				if *check != "" {
					n, err := strconv.ParseUint(*check, 10, 64)
					if err != nil {
						return command.Usagef("-check-index %s is not a number", *check)
					}
					body["EnforceIndex"], body["JobModifyIndex"] = true, n
				}
				var answer registered
				if err := c.Client.Put(c.Ctx(), "jobs", inNamespace(c, j), body, &answer); err != nil {
					return err
				}
				return registeredText(c, j, &answer, *detach)
			}
		})
}

// inNamespace is the query of a call about a job that says its namespace itself.
func inNamespace(c *Call, j *jobwire.Job) url.Values {
	c.cfg.Namespace = jobwire.Get(j.Namespace)
	return url.Values{"namespace": {c.cfg.Namespace}}
}

// ran tells what a registration led to.
func registeredText(c *Call, j *jobwire.Job, answer *registered, detach bool) error {
	if answer.Warnings != "" {
		fmt.Fprintf(c.Err, "Job Warnings:\n%s\n", strings.TrimSpace(answer.Warnings))
	}
	switch {
	case answer.EvalID != "" && !detach:
		return c.monitorEval(answer.EvalID)
	case j.Periodic != nil:
		return c.Printf("Job registration successful: the clock starts it\n")
	case j.ParameterizedJob != nil:
		return c.Printf("Job registration successful: start it with %s %s\n", c.Tool("job dispatch", "jobs dispatch"),
			jobwire.Get(j.ID))
	}
	return c.Printf("Job registration successful\nEvaluation ID: %s\n", answer.EvalID)
}

// The exit codes of plan.
const (
	codeChanges = command.ExitCode(1)
	codeFailed  = command.ExitCode(255)
)

// planned is the answer to a plan.
type planned struct {
	Annotations struct {
		DesiredTGUpdates map[string]*diff.DesiredUpdates
		PreemptedAllocs  []*jobwire.AllocStub
	}
	FailedTGAllocs     map[string]*jobwire.AllocationMetric
	JobModifyIndex     uint64
	Diff               *diff.Job
	NextPeriodicLaunch time.Time
	Warnings           string
}

// jobPlan builds `job plan`.
func jobPlan(e *command.Env) *cobra.Command {
	return Leaf(e, "plan FILE", "Show what running a job would change", 1, 1,
		func(cmd *cobra.Command) func(*Call, []string) error {
			file := &jobfile.File{}
			file.Flags(cmd)
			f := cmd.Flags()
			showDiff := f.Bool("diff", true, "show the differences")
			return func(c *Call, args []string) error {
				answer, err := makePlan(c, file, args[0], *showDiff)
				if err != nil {
					fmt.Fprintf(c.Err, "%v\n", err)
					return codeFailed
				}
				return printPlan(c, answer, args[0], *showDiff)
			}
		})
}

func makePlan(c *Call, file *jobfile.File, path string, showDiff bool) (*planned, error) {
	j, _, err := file.Read(c.Env, path)
	if err != nil {
		return nil, err
	}
	j = prepared(c, j)
	answer := &planned{}
	return answer, c.Client.Put(c.Ctx(), job(jobwire.Get(j.ID), "plan"), inNamespace(c, j),
		map[string]any{"Job": j, "Diff": showDiff}, answer)
}

func printPlan(c *Call, p *planned, path string, showDiff bool) error {
	var b strings.Builder
	if showDiff && p.Diff != nil {
		jobview.Diff(&b, p.Diff, c.Verbose)
		b.WriteString("\n")
	}
	b.WriteString("Scheduler dry-run:\n")
	switch {
	case len(p.FailedTGAllocs) > 0:
		b.WriteString("- WARNING: Failed to place all allocations.\n")
		for _, group := range slices.Sorted(maps.Keys(p.FailedTGAllocs)) {
			m := p.FailedTGAllocs[group]
			fmt.Fprintf(&b, "  Task Group %q (failed to place %d allocation%s):\n%s", group, m.CoalescedFailures+1,
				jobview.Plural(m.CoalescedFailures+1), jobview.Metric(m, "    "))
		}
	case !p.NextPeriodicLaunch.IsZero():
		fmt.Fprintf(&b, "- If submitted now, next periodic launch would be at %s (%s from now).\n",
			p.NextPeriodicLaunch.Format(time.RFC3339), time.Until(p.NextPeriodicLaunch).Round(time.Second))
	default:
		b.WriteString("- All tasks successfully allocated.\n")
	}
	for _, a := range p.Annotations.PreemptedAllocs {
		fmt.Fprintf(&b, "- Allocation %s of job %q would be preempted.\n", c.short(a.ID), a.JobID)
	}
	if p.Warnings != "" {
		fmt.Fprintf(&b, "\nJob Warnings:\n%s\n", strings.TrimSpace(p.Warnings))
	}
	fmt.Fprintf(&b, "\nJob Modify Index: %d\nTo submit the job with version verification run:\n\n"+
		"%s -check-index %d %s\n\nWhen running the job with the check-index flag, the job will only be run if the\n"+
		"job modify index given matches "+
		"the server-side version. If the index has\nchanged, another user has modified the job and the plan's results "+
		"are\npotentially invalid.\n", p.JobModifyIndex, c.Tool("job run", "jobs run"), p.JobModifyIndex, path)
	c.Say("%s", b.String())
	for _, u := range p.Annotations.DesiredTGUpdates {
		if u.Place+u.Stop+u.Migrate+u.InPlaceUpdate+u.DestructiveUpdate+u.Canary > 0 {
			return codeChanges
		}
	}
	return nil
}
