package jobscmd

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/jobs/jobwire"
	"github.com/spf13/cobra"
)

// Deployment builds `nomad deployment` and `corbel deployments`.
func Deployment(e *command.Env, cmd *cobra.Command) {
	command.Group(cmd,
		Plain(e, "list", "List the deployments", 0, 0, func(c *Call, _ []string) error {
			if done, err := c.Show("deployments", nil); done {
				return err
			}
			return c.deploymentTable("deployments")
		}),
		Leaf(e, "status [DEPLOYMENT]", "List the deployments, or show one", 0, 1, deploymentStatus),
		Leaf(e, "promote DEPLOYMENT", "Let canaries take over", 1, 1, deploymentPromote),
		steer(e, "fail", "End a deployment as failed; with auto_revert the last stable version comes back", "fail", nil),
		steer(e, "pause", "Pause a deployment", "pause", map[string]any{"Pause": true}),
		steer(e, "resume", "Go on with a paused deployment", "pause", map[string]any{"Pause": false}),
		steer(e, "unblock", "Go on with a deployment over several regions", "unblock", nil))
}

// deployment finds the deployment that is meant.
func (c *Call) deployment(prefix string) (string, error) {
	return c.resolve("deployment", "deployments", prefix)
}

func deploymentStatus(cmd *cobra.Command) func(*Call, []string) error {
	monitor := cmd.Flags().Bool("monitor", false, "follow it to its end")
	return func(c *Call, args []string) error {
		if len(args) == 0 {
			if done, err := c.Show("deployments", nil); done {
				return err
			}
			return c.deploymentTable("deployments")
		}
		id, err := c.deployment(args[0])
		if err != nil {
			return err
		}
		if *monitor {
			return c.monitorDeployment(id)
		}
		if done, err := c.Show("deployment/"+id, nil); done {
			return err
		}
		return c.showDeployment(id)
	}
}

func (c *Call) showDeployment(id string) error {
	var d jobwire.Deployment
	if err := c.Get("deployment/"+id, nil, &d); err != nil {
		return err
	}
	return c.deploymentDetail(&d)
}

func (c *Call) deploymentTable(path string) error {
	var list []*jobwire.Deployment
	if err := c.Get(path, nil, &list); err != nil {
		return err
	}
	rows := [][]string{}
	for _, d := range slices.Backward(list) {
		rows = append(rows, []string{c.short(d.ID), d.JobID, strconv.FormatUint(d.JobVersion, 10), d.Status,
			d.StatusDescription})
	}
	return c.Table([]string{"ID", "Job ID", "Job Version", "Status", "Description"}, rows, "No deployments found")
}

func (c *Call) deploymentDetail(d *jobwire.Deployment) error {
	c.Fields("ID", c.short(d.ID), "Job ID", d.JobID, "Job Version", strconv.FormatUint(d.JobVersion, 10),
		"Status", d.Status, "Description", d.StatusDescription)
	rows := [][]string{}
	for _, name := range slices.Sorted(maps.Keys(d.TaskGroups)) {
		g := d.TaskGroups[name]
		promoted := "N/A"
		if g.DesiredCanaries > 0 {
			promoted = strconv.FormatBool(g.Promoted)
		}
		by := "N/A"
		if !g.RequireProgressBy.IsZero() {
			by = g.RequireProgressBy.Format(time.RFC3339)
		}
		rows = append(rows, []string{name, strconv.FormatBool(g.AutoRevert), promoted, strconv.Itoa(g.DesiredTotal),
			strconv.Itoa(g.DesiredCanaries), strconv.Itoa(g.PlacedAllocs), strconv.Itoa(g.HealthyAllocs),
			strconv.Itoa(g.UnhealthyAllocs), by})
	}
	c.Say("\nDeployed\n")
	return c.Table([]string{"Task Group", "Auto Revert", "Promoted", "Desired", "Canaries", "Placed", "Healthy",
		"Unhealthy", "Progress Deadline"}, rows, "No groups")
}

func deploymentPromote(cmd *cobra.Command) func(*Call, []string) error {
	f := cmd.Flags()
	groups := f.StringArray("group", nil, "only this group")
	detach := f.Bool("detach", false, "do not follow the deployment")
	return func(c *Call, args []string) error {
		id, err := c.deployment(args[0])
		if err != nil {
			return err
		}
		return c.promote(id, *groups, *detach)
	}
}

func (c *Call) promote(id string, groups []string, detach bool) error {
	body := map[string]any{"DeploymentID": id, "All": len(groups) == 0}
	if len(groups) > 0 {
		body["Groups"] = groups
	}
	return c.steered(id, "promote", body, detach)
}

// steer makes a command that changes a deployment.
func steer(e *command.Env, name, short, verb string, more map[string]any) *cobra.Command {
	return Leaf(e, name+" DEPLOYMENT", short, 1, 1, func(cmd *cobra.Command) func(*Call, []string) error {
		detach := cmd.Flags().Bool("detach", false, "print the evaluation and do not follow it")
		return func(c *Call, args []string) error {
			id, err := c.deployment(args[0])
			if err != nil {
				return err
			}
			body := map[string]any{"DeploymentID": id}
			maps.Copy(body, more)
			return c.steered(id, verb, body, *detach || more["Pause"] == true)
		}
	})
}

func (c *Call) steered(id, verb string, body map[string]any, detach bool) error {
	var answer struct {
		EvalID             string
		RevertedJobVersion *uint64
	}
	if err := c.Client.Put(c.Ctx(), "deployment/"+verb+"/"+id, url.Values{}, body, &answer); err != nil {
		return err
	}
	if v := answer.RevertedJobVersion; v != nil {
		if err := c.Printf("Job reverted to version %d\n", *v); err != nil {
			return err
		}
	}
	switch {
	case answer.EvalID == "":
		return c.Printf("Deployment %q: %s\n", c.short(id), verb)
	case detach:
		return c.Printf("Evaluation ID: %s\n", answer.EvalID)
	case verb == "promote":
		return c.monitorDeployment(id)
	}
	return c.monitorEval(answer.EvalID)
}
