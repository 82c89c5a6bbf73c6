package benchcmd

import (
	"context"

	"github.com/spf13/cobra"

	"corbel.dev/corbel/bench/agents"
	"corbel.dev/corbel/bench/monitorload"
	"corbel.dev/corbel/cli/command"
)

// benchMonitor makes a command with the flags that the benches of the monitor plane share.
func benchMonitor(e *command.Env, name, short string, run func(context.Context,
	monitorload.MonitorOptions) (*monitorload.MonitorResult,
	error)) (*cobra.Command, *monitorload.MonitorOptions) {
	b, o := &benchFlags{}, &monitorload.MonitorOptions{}
	c := benchCommand(e, name, short, b)
	f := c.Flags()
	f.Lookup("target").Usage = "URL of a running backend's port for agents, as ws://127.0.0.1:8081, several with " +
		"commas; empty starts servers"
	f.Lookup("duration").Usage = "how long the measured part runs (0 is 1m)"
	for _, hidden := range []string{"dns-target", "token", "connections"} {
		f.Lookup(hidden).Hidden = true // nothing of the kind here
	}
	f.StringVar(&o.API, "api", "", "URL of the API that goes with --target, as http://127.0.0.1:8080, several with commas")
	f.StringVar(&o.User, "username", "admin", "who creates the checks")
	f.StringVar(&o.Password, "password", "", "its password (empty is what a new backend has)")
	f.StringVar(&o.AgentUser, "agent-user", "agent", "who the agents log in as")
	f.StringVar(&o.AgentPassword, "agent-password", "", "its password (empty is what a new backend has)")
	f.IntVar(&o.Keepalive, "keepalive-interval", 20, "seconds between an agent's keepalives")
	f.IntVar(&o.Ramp, "ramp", 0, "sessions opened per second (0 is as fast as accepted)")
	f.IntVar(&o.Sample, "sample", 0, "agents whose events are followed to the store and to a handler (0 is 64, or a "+
		"tenth of the agents)")
	f.StringVar(&o.EventsStore, "events-store", "embedded",
		"where the started servers keep events: embedded, or postgresql (a server of the bench's own, with its defaults)")
	f.IntVar(&o.PerProcess, "per-process", 10_000, "sessions of one helper process")
	runs(e, c, b, func(ctx context.Context) (report, error) {
		o.Options = b.Options
		r, err := run(ctx, *o)
		if r == nil {
			return nil, err
		}
		return r, err
	})
	return c, o
}

func benchAgents(e *command.Env) *cobra.Command {
	c, o := benchMonitor(e, "agents", "Sessions of monitoring agents that keep alive and answer checks",
		monitorload.RunAgents)
	c.Long = `Connect simulated agents to real servers: WebSocket, protobuf, a login each. They send keepalives
as agents do, and answer each check request with an event. The checks are created over the API, each
for one subscription, and each agent has one subscription: so the servers request
agents x checks / subscriptions / interval results per second. Some agents are in the namespace
bench-sample, whose events are followed until they are durable, and to a TCP handler.

  corbel bench agents --agents 40000 --checks 38 --interval 10 --subscriptions 4 --servers 3
  corbel bench agents --agents 3000 --servers 3 --kill leader --duration 5m --json
  corbel bench agents --agents 1000 --target ws://127.0.0.1:8081 --api http://127.0.0.1:8080`
	f := c.Flags()
	f.IntVar(&o.Agents, "agents", 1000, "sessions")
	f.IntVar(&o.Checks, "checks", 38, "checks")
	f.IntVar(&o.Interval, "interval", 10, "seconds between the runs of a check")
	f.IntVar(&o.Subscriptions, "subscriptions", 4, "subscriptions that checks and agents are shared among")
	f.StringVar(&o.Kill, "kill", "", "kill -9 one of three servers in the middle: leader, or server for one that does "+
		"not lead")
	return c
}

func benchEvents(e *command.Env) *cobra.Command {
	c, o := benchMonitor(e, "events", "Results of checks that are stored when agents send as fast as they are taken",
		monitorload.RunEvents)
	c.Long = `Let simulated agents send unsolicited check results continuously, so that the servers' event store
determines the rate. Some agents, in the namespace bench-sample, answer requests as usual, so that
the times are those of an agent on an overloaded server.

With --overload, one in ten agents finds the servers' limit. Then all agents send as fast as they can,
with ten times the limit to send, for --duration; then they send half of the limit. The result is the
share of the limit that was stored meanwhile, resident bytes, and the seconds until all was normal again.

  corbel bench events --agents 200 --checks 10
  corbel bench events --overload --duration 60s
  corbel bench events --target ws://127.0.0.1:8081 --api http://127.0.0.1:8080 --json`
	f := c.Flags()
	f.IntVar(&o.Agents, "agents", 200, "sessions")
	f.IntVar(&o.Checks, "checks", 10, "checks for which each agent sends results")
	f.BoolVar(&o.Overload, "overload", false, "find the limit, then offer ten times the load, then half of the limit")
	o.Interval, o.Subscriptions = 1, 1
	return c
}

// benchPlayAgents plays the agents of these benches, which start it.
func benchPlayAgents(e *command.Env) *cobra.Command {
	c := &cobra.Command{Use: "play-agents", Short: "Play simulated agents", Hidden: true,
		Args: command.Between(0, 0, "flags only")}
	c.RunE = func(c *cobra.Command, _ []string) error { return agents.Serve(c.Context(), e.In, e.Out) }
	return c
}
