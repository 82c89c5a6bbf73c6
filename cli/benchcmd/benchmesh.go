package benchcmd

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"corbel.dev/corbel/bench/propagation"
	"corbel.dev/corbel/bench/sidecars"
	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/node/simhosts"
)

func benchPropagation(e *command.Env) *cobra.Command {
	b, o := &benchFlags{}, propagation.PropagationOptions{}
	c := benchCommand(e, "propagation", "How long one change takes to reach every proxy of a fleet", b)
	c.Long = `Repeat the published experiment on one machine: real servers; simulated agents (the
product's own code, many per process), each with a real connection; and simulated
sidecars that speak delta ADS to their agent and acknowledge. All instances are in three tiers
of services with 10, 83 and 85 instances each; every sidecar watches one common upstream of 10
instances. The clock runs from just before the HTTP request is sent until the sidecar has decoded
the frame with the change.

  corbel bench propagation --servers 3 --nodes 10000 --proxies 178000 --services 3000
  corbel bench propagation --nodes 20 --proxies 200 --change intention --json
  corbel bench propagation --servers 3 --nodes 1000 --faults stall=1%,reset=1% --html curve.html`
	f := c.Flags()
	f.IntVar(&o.Nodes, "nodes", 10000, "simulated agents")
	f.IntVar(&o.Proxies, "proxies", 0, "simulated sidecars (0 is 17.8 for each node)")
	f.IntVar(&o.Services, "services", 0, "services in three tiers (0 is 3000, or fewer with fewer sidecars)")
	f.StringVar(&o.Change, "change", "deregister", "what to change: "+strings.Join(propagation.Changes, ", "))
	f.IntVar(&o.Rounds, "rounds", 5, "how many changes are measured, one after the other")
	f.StringVar(&o.Faults, "faults", "", "agents' connections to cut in the second before each change, as stall=1%,"+
		"reset=1%")
	f.BoolVar(&o.Hedged, "hedged", false, "each agent holds a second subscription on another server")
	f.DurationVar(&o.Deadline, "deadline", 0, "how long to wait for the change (0 is 1m)")
	f.IntVar(&o.Envoys, "envoys", 4, "real Envoys that take part and have 10,000 requests go through them after each "+
		"round (0 is none)")
	f.StringVar(&o.EnvoyBinary, "envoy-binary", "",
		"where they come from (empty is envoy in the PATH; without one, none take part)")
	f.StringVar(&o.HTML, "html", "", "draw the curves beside the published one into this file")
	f.IntVar(&o.HostsPerProcess, "hosts-per-process", 0, "simulated agents in one process (0 is 5000)")
	f.IntVar(&o.Window, "window", 2000, "sidecars that may wait to be configured at once while the fleet comes up (-1 "+
		"is no limit)")
	f.StringVar(&o.Profiles, "profiles", "", "write CPU profiles of the rounds into this folder")
	for _, name := range []string{"target", "dns-target", "token", "connections", "duration"} {
		f.Lookup(name).Hidden = true // it starts what it measures, and measures a change, not a load
	}
	runs(e, c, b, func(ctx context.Context) (report, error) {
		o.Options = b.Options
		r, err := propagation.RunPropagation(ctx, o)
		if r == nil {
			return nil, err
		}
		return r, err
	})
	return c
}

// benchSidecars plays the sidecars of a propagation bench, which starts it.
func benchSidecars(e *command.Env) *cobra.Command {
	c := &cobra.Command{Use: "sidecars", Short: "Play simulated sidecars", Hidden: true,
		Args: command.Between(0, 0, "flags only")}
	c.RunE = func(c *cobra.Command, _ []string) error { return sidecars.Serve(c.Context(), e.In, e.Out) }
	return c
}

// benchHosts plays the agents of a propagation bench, which starts it.
func benchHosts(e *command.Env) *cobra.Command {
	c := &cobra.Command{Use: "hosts", Short: "Play simulated agents", Hidden: true,
		Args: command.Between(0, 0, "flags only")}
	c.RunE = func(c *cobra.Command, _ []string) error { return simhosts.Serve(c.Context(), e.In, e.Out) }
	return c
}
