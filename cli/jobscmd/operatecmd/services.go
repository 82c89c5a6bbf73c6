package operatecmd

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/jobscmd"
	"corbel.dev/corbel/cli/jobscmd/jobview"
	"github.com/spf13/cobra"
)

// Service builds `nomad service` and `corbel jobs services`: those with provider = "nomad".
func Service(e *command.Env, cmd *cobra.Command) {
	command.Group(cmd,
		jobscmd.Plain(e, "list", "List the services that jobs register with provider = \"nomad\"", 0, 0, listServices),
		jobscmd.Leaf(e, "info SERVICE", "Show the instances of a service", 1, 1,
			func(cmd *cobra.Command) func(*jobscmd.Call, []string) error {
				filter := cmd.Flags().String("filter", "", "show those that an expression is true of")
				return func(c *jobscmd.Call, args []string) error { return showService(c, args[0], *filter) }
			}),
		jobscmd.Plain(e, "delete SERVICE ID", "Delete the registration of an instance that is gone", 2, 2,
			func(c *jobscmd.Call, args []string) error {
				path := "service/" + url.PathEscape(args[0]) + "/" + url.PathEscape(args[1])
				if _, err := c.Client.Do(c.Ctx(), "DELETE", path, nil, nil, nil); err != nil {
					return err
				}
				return c.Printf("Successfully deleted service registration\n")
			}))
}

func listServices(c *jobscmd.Call, _ []string) error {
	if done, err := c.Show("services", nil); done {
		return err
	}
	var list []struct {
		Namespace string
		Services  []struct {
			ServiceName string
			Tags        []string
		}
	}
	if err := c.Get("services", nil, &list); err != nil {
		return err
	}
	head, many := []string{"Service Name", "Tags"}, c.Client.Namespace() == "*"
	if many {
		head = append(head, "Namespace")
	}
	rows := [][]string{}
	for _, n := range list {
		for _, s := range n.Services {
			row := []string{s.ServiceName, tags(s.Tags)}
			if many {
				row = append(row, n.Namespace)
			}
			rows = append(rows, row)
		}
	}
	return c.Table(head, rows, "No service registrations found")
}

func tags(list []string) string { return "[" + strings.Join(list, ",") + "]" }

func showService(c *jobscmd.Call, name, filter string) error {
	path, query := "service/"+url.PathEscape(name), url.Values{}
	if filter != "" {
		query.Set("filter", filter)
	}
	if done, err := c.Show(path, query); done {
		return err
	}
	var list []struct {
		ID, Namespace, NodeID, JobID, AllocID, Address string
		Tags                                           []string
		Port                                           int
	}
	if err := c.Get(path, query, &list); err != nil {
		return err
	}
	head := []string{"Job ID", "Address", "Tags", "Node ID", "Alloc ID"}
	if c.Verbose {
		head = append(head, "Namespace", "Service ID")
	}
	rows := [][]string{}
	for _, s := range list {
		address := s.Address
		if s.Port > 0 {
			address += ":" + strconv.Itoa(s.Port)
		}
		row := []string{s.JobID, address, tags(s.Tags), jobscmd.ShortID(c, s.NodeID), jobscmd.ShortID(c, s.AllocID)}
		if c.Verbose {
			row = append(row, s.Namespace, s.ID)
		}
		rows = append(rows, row)
	}
	return c.Table(head, rows, "No service registrations found")
}

// scalingPolicy is one as the API shows it.
type scalingPolicy struct {
	ID, Type, Namespace string
	Enabled             bool
	Target              map[string]string
	Min, Max            *int64
	Policy              map[string]any
}

func (p *scalingPolicy) target() string {
	return jobview.Or(command.AllPairs(p.Target), "<none>")
}

// Scaling builds `nomad scaling` and `corbel jobs scaling`.
func Scaling(e *command.Env, cmd *cobra.Command) {
	command.Group(cmd, command.Named("policy", "Show scaling policies",
		jobscmd.Leaf(e, "list", "List the scaling policies of jobs", 0, 0,
			func(cmd *cobra.Command) func(*jobscmd.Call, []string) error {
				job := cmd.Flags().String("job", "", "of this job alone")
				kind := cmd.Flags().String("type", "", "of this type alone")
				return func(c *jobscmd.Call, _ []string) error { return listPolicies(c, *job, *kind) }
			}),
		jobscmd.Plain(e, "info POLICY", "Show a scaling policy", 1, 1, showPolicy)))
}

func listPolicies(c *jobscmd.Call, job, kind string) error {
	query := url.Values{}
	for name, value := range map[string]string{"job": job, "type": kind} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if done, err := c.Show("scaling/policies", query); done {
		return err
	}
	var list []scalingPolicy
	if err := c.Get("scaling/policies", query, &list); err != nil {
		return err
	}
	rows := [][]string{}
	for i := range list {
		p := &list[i]
		rows = append(rows, []string{jobscmd.ShortID(c, p.ID), strconv.FormatBool(p.Enabled), p.Type, p.target()})
	}
	return c.Table([]string{"ID", "Enabled", "Type", "Target"}, rows, "No policies found")
}

func showPolicy(c *jobscmd.Call, args []string) error {
	var list []scalingPolicy
	if err := c.Get("scaling/policies", url.Values{"namespace": {"*"}}, &list); err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(p scalingPolicy) bool { return !strings.HasPrefix(p.ID, args[0]) })
	if len(list) != 1 {
		return command.Usagef("%d scaling policies have an ID that begins with %q: `%s` lists them", len(list), args[0],
			c.Tool("scaling policy list", "jobs scaling policy list"))
	}
	path := "scaling/policy/" + url.PathEscape(list[0].ID)
	if done, err := c.Show(path, nil); done {
		return err
	}
	var p scalingPolicy
	if err := c.Get(path, nil, &p); err != nil {
		return err
	}
	bound := func(n *int64) string {
		if n == nil {
			return "<none>"
		}
		return strconv.FormatInt(*n, 10)
	}
	c.Fields("ID", p.ID, "Enabled", strconv.FormatBool(p.Enabled), "Type", p.Type, "Target", p.target(), "Min",
		bound(p.Min), "Max", bound(p.Max))
	if len(p.Policy) == 0 {
		return nil
	}
	c.Say("\nPolicy\n")
	return command.WriteJSON(c.Out, p.Policy, false)
}
