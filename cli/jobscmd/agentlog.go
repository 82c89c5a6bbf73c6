package jobscmd

import (
	"net/url"
	"strconv"

	"corbel.dev/corbel/cli/command"
	"github.com/spf13/cobra"
)

// Monitor builds `nomad monitor`.
func Monitor(e *command.Env, cmd *cobra.Command) { Replace(cmd, AgentLog(e, "monitor")) }

// AgentLog builds the command that follows the log of an agent or server, under a name: `corbel monitor` is another.
func AgentLog(e *command.Env, name string) *cobra.Command {
	const short = "Follow the log of an agent or server"
	return Leaf(e, name, short, 0, 0, func(cmd *cobra.Command) func(*Call, []string) error {
		f := cmd.Flags()
		level := f.String("log-level", "info", "lines of this level and above: trace, debug, info, warn or error")
		node := f.String("node-id", "", "of the agent of this node, by its id or name; default is the process that answers")
		server := f.String("server-id", "", "of this server, by its name or id; leader is the one that leads")
		return func(c *Call, _ []string) error {
			if *node != "" && *server != "" {
				return command.Usagef("%s takes one of -node-id and -server-id", c.cmd.CommandPath())
			}
			query := url.Values{"log_level": {*level}, "log_json": {strconv.FormatBool(c.JSON)}}
			if *server != "" {
				query.Set("server_id", *server)
			}
			if *node != "" {
				id, err := c.node(*node, false)
				if err != nil {
					return err
				}
				query.Set("node_id", id)
			}
			err := copyFrames(c, "agent/monitor", query, c.Out)
			if c.Ctx().Err() != nil {
				return nil // whoever follows had enough
			}
			return err
		}
	})
}
