package jobscmd

import (
	"maps"
	"net/url"
	"slices"
	"strconv"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/jobscmd/jobview"
	"corbel.dev/corbel/jobs/jobwire"
	"github.com/spf13/cobra"
)

// Eval builds `nomad eval` and `corbel evals`.
func Eval(e *command.Env, cmd *cobra.Command) {
	command.Group(cmd, evalList(e), evalStatus(e))
}

func (c *Call) evalTable(list []*jobwire.Evaluation) error {
	rows := [][]string{}
	for _, e := range list {
		failures := "false"
		switch {
		case len(e.FailedTGAllocs) > 0:
			failures = "true"
		case e.Status == "blocked":
			failures = "N/A - In Progress"
		}
		rows = append(rows, []string{c.short(e.ID), strconv.Itoa(e.Priority), e.TriggeredBy, e.JobID, e.Status, failures})
	}
	return c.Table([]string{"ID", "Priority", "Triggered By", "Job ID", "Status", "Placement Failures"}, rows,
		"No evaluations found")
}

func evalList(e *command.Env) *cobra.Command {
	return Leaf(e, "list", "List the evaluations", 0, 0, func(cmd *cobra.Command) func(*Call, []string) error {
		f := cmd.Flags()
		status := f.String("status", "", "only pending, complete, failed, blocked or canceled ones")
		ofJob := f.String("job", "", "only those of this job")
		filter := f.String("filter", "", "an expression such as 'Priority == 50'")
		page := f.Int("per-page", 0, "how many at most")
		token := f.String("page-token", "", "go on where the page before ended")
		return func(c *Call, _ []string) error {
			query := url.Values{"reverse": {"true"}}
			for name, value := range map[string]string{"status": *status, "job": *ofJob, "filter": *filter,
				"next_token": *token} {
				if value != "" {
					query.Set(name, value)
				}
			}
			if *page > 0 {
				query.Set("per_page", strconv.Itoa(*page))
			}
			if done, err := c.Show("evaluations", query); done {
				return err
			}
			var list []*jobwire.Evaluation
			meta, err := c.Client.Get(c.Ctx(), "evaluations", query, &list)
			if err != nil {
				return err
			}
			if err := c.evalTable(list); err != nil || meta.Next == "" {
				return err
			}
			return c.Printf("\nThe next page: -page-token %s\n", meta.Next)
		}
	})
}

func evalStatus(e *command.Env) *cobra.Command {
	return Leaf(e, "status EVALUATION", "Show an evaluation", 1, 1, func(cmd *cobra.Command) func(*Call, []string) error {
		monitor := cmd.Flags().Bool("monitor", false, "follow it to its end")
		return func(c *Call, args []string) error {
			id, err := c.resolve("evaluation", "evaluations", args[0])
			if err != nil {
				return err
			}
			if *monitor {
				return c.monitorEval(id)
			}
			if done, err := c.Show("evaluation/"+id, nil); done {
				return err
			}
			var v jobwire.Evaluation
			if err := c.Get("evaluation/"+id, nil, &v); err != nil {
				return err
			}
			c.Fields("ID", c.short(v.ID), "Create Time", jobview.Ago(v.CreateTime), "Modify Time",
				jobview.Ago(v.ModifyTime),
				"Status", v.Status, "Status Description", jobview.Or(v.StatusDescription, v.Status), "Type", v.Type, "TriggeredBy",
				v.TriggeredBy, "Job ID", v.JobID, "Namespace", v.Namespace, "Priority", strconv.Itoa(v.Priority),
				"Placement Failures", strconv.FormatBool(len(v.FailedTGAllocs) > 0), "Previous Eval",
				jobview.Or(c.short(v.PreviousEval), "<none>"), "Next Eval", jobview.Or(c.short(v.NextEval), "<none>"),
				"Blocked Eval",
				jobview.Or(c.short(v.BlockedEval), "<none>"))
			if len(v.FailedTGAllocs) > 0 {
				c.Say("\nFailed Placements\n")
				if err := c.failures(v.FailedTGAllocs); err != nil {
					return err
				}
			}
			return queuedText(c, &v)
		}
	})
}

func queuedText(c *Call, v *jobwire.Evaluation) error {
	for _, name := range slices.Sorted(maps.Keys(v.QueuedAllocations)) {
		if n := v.QueuedAllocations[name]; n > 0 {
			c.Say("Group %q has %d allocations queued\n", name, n)
		}
	}
	return nil
}
