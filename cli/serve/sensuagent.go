package serve

import (
	"context"
	"fmt"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/node/agentconf"
	monitorplane "corbel.dev/corbel/node/planes/monitor"
	"github.com/spf13/cobra"
)

// givenFlag is a flag of sensu-agent as pflag fills it: its text goes to agentconf, which knows the kinds and names
// all mistakes at once.
type givenFlag struct {
	setting agentconf.Setting
	values  []string
}

// String implements pflag.Value.
func (g *givenFlag) String() string { return strings.Join(g.values, ",") }

// Set implements pflag.Value.
func (g *givenFlag) Set(v string) error {
	g.values = append(g.values, v)
	return nil
}

// Type implements pflag.Value: the word that --help shows.
func (g *givenFlag) Type() string {
	return [...]string{agentconf.Text: "string", agentconf.Number: "int", agentconf.Float: "float", agentconf.Bool: "bool",
		agentconf.List: "strings",
		agentconf.Map:  "key=value,...", agentconf.Duration: "duration"}[g.setting.Kind]
}

// SensuAgentStart builds `sensu-agent start`.
func SensuAgentStart(e *command.Env, c *cobra.Command) {
	c.Args = command.Between(0, 0, "flags only")
	c.Example = "  sensu-agent start --backend-url ws://127.0.0.1:8081 --subscriptions linux,web\n  " +
		"SENSU_BACKEND_URL=wss://a:8081,wss://b:8081 sensu-agent start -c /etc/sensu/agent.yml"
	flags := make([]*givenFlag, 0, len(agentconf.Settings))
	add := func(g *givenFlag, name, short, usage string) {
		c.Flags().VarP(g, name, short, usage)
		if g.setting.Kind == agentconf.Bool {
			c.Flags().Lookup(name).NoOptDefVal = "true"
		}
	}
	for _, s := range agentconf.Settings {
		g := &givenFlag{setting: s}
		flags = append(flags, g)
		usage := s.Usage
		if s.Default != "" {
			usage += " (default " + s.Default + ")"
		}
		add(g, s.Name, s.Short, usage)
		if s.Old != "" {
			add(g, s.Old, "", usage)
			_ = c.Flags().MarkDeprecated(s.Old, "use --"+s.Name) // it was just made
		}
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		var given []agentconf.Given
		for _, g := range flags {
			given = append(given, agentconf.Given{Name: g.setting.Name, Values: g.values})
		}
		cfg, err := agentconf.Load(given, e.Getenv)
		if err != nil {
			return fmt.Errorf("cannot start: %w", err)
		}
		cfg.ScriptCommand = monitorplane.ScriptCommand()
		guardMemory(e, false)
		m, err := supervise(c.Context(), e)
		if err != nil {
			return err
		}
		defer m.end()
		a, err := monitorplane.NewSensuAgent(cfg, e.Err)
		if err != nil {
			return m.failed(err)
		}
		m.opened(a)
		ctx, stop := command.Signals(c.Context())
		defer stop()
		defer context.AfterFunc(ctx, func() { m.service.Stopping(endTime) })()
		return a.Run(ctx)
	}
}

// SensuVersion builds `sensu-agent version`.
func SensuVersion(e *command.Env, c *cobra.Command) {
	c.Args = command.Between(0, 0, "nothing")
	c.RunE = func(*cobra.Command, []string) error {
		return e.Printf("%s version %s, built by Corbel %s (%s, %s)\n", e.Sensu, version.SensuContract, version.Number,
			version.Of().Revision, version.Of().Date)
	}
}
