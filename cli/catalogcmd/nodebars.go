package catalogcmd

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/client"
	"github.com/spf13/cobra"
)

// OwnNodes is `nodes` with what Consul's command line does not have.
func OwnNodes(e *command.Env, c *cobra.Command) {
	nodes(e, c)
	c.AddCommand(nodeRemove(e), nodeBars(e), nodeAllow(e))
}

// nodeBar is a node that was removed by force, as the API tells it.
type nodeBar struct {
	Node, ID    string
	Time, Until time.Time
}

func nodeRemove(e *command.Env) *cobra.Command {
	var force bool
	var hold time.Duration
	c := command.Act(e, "remove NODE --force", "Take a node out of the catalog and keep it out",
		command.Between(1, 1, "the name of one node"),
		func(ctx context.Context, _ *command.Dial, cl *client.Client, args []string) error {
			if !force {
				return command.Usagef("nodes remove needs --force: the node goes with its services, checks and sessions, and is "+
					"kept out for --hold (%s), whatever registers it", hold)
			}
			var out struct {
				Node    string
				Removed bool
				Until   time.Time
			}
			if err := cl.Send(ctx, http.MethodDelete, "/v1/catalog/node/"+client.Escape(args[0]),
				url.Values{"force": {""}, "hold": {hold.String()}}, nil, &out); err != nil {
				return err
			}
			what := "removed"
			if !out.Removed {
				what = "not in the catalog, and barred"
			}
			return e.Printf("%s: %s; it may come back after %s, or with `corbel nodes allow %s`\n", out.Node, what,
				out.Until.Format(time.RFC3339), out.Node)
		})
	c.Flags().BoolVar(&force, "force", false, "answer yes, whatever registered it")
	c.Flags().DurationVar(&hold, "hold", time.Hour, "how long it stays out")
	return c
}

func nodeBars(e *command.Env) *cobra.Command {
	return command.Read(e, "bars", "List the nodes that were removed by force and are kept out",
		command.Between(0, 0, "no arguments"),
		func(ctx context.Context, r *command.Reading, cl *client.Client, _ []string) error {
			bars := []nodeBar{}
			if _, err := cl.Get(ctx, "/v1/catalog/node-bars", r.Q, &bars); err != nil {
				return err
			}
			if r.JSON {
				return command.WriteJSON(e.Out, bars, false)
			}
			if len(bars) == 0 {
				return e.Printf("No node is kept out.\n")
			}
			t := command.Table{Head: []string{"NODE", "ID", "REMOVED", "UNTIL"}}
			for _, b := range bars {
				t.Add(b.Node, b.ID, b.Time.Format(time.RFC3339), b.Until.Format(time.RFC3339))
			}
			return t.Write(e.Out)
		})
}

func nodeAllow(e *command.Env) *cobra.Command {
	return command.Act(e, "allow NODE", "Let a node come back that was removed by force",
		command.Between(1, 1, "the name of one node"),
		func(ctx context.Context, _ *command.Dial, cl *client.Client, args []string) error {
			return cl.Send(ctx, http.MethodDelete, "/v1/catalog/node/"+client.Escape(args[0])+"/bar", nil, nil, nil)
		})
}
