// Package labcmd holds `corbel lab`: faults in a cluster of its own, and what the doctor says to them.
package labcmd

import (
	"fmt"
	"strings"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/lab"
	"github.com/spf13/cobra"
)

// exitMissed: a scenario was not diagnosed.
const exitMissed command.ExitCode = 1

type options struct {
	env    *command.Env
	list   bool
	all    bool
	asJSON bool
	runs   int
	learn  time.Duration
	save   string
}

// Command builds `corbel lab`.
func Command(e *command.Env, c *cobra.Command) {
	o := &options{env: e}
	c.Use = "lab [SCENARIO...]"
	c.Args = command.Between(0, -1, "names of scenarios")
	c.Long = `Start a cluster with load on this machine, inject one fault, and show what the doctor says.
The fault is diagnosed when the doctor's first finding names it within 30 s. Healthy scenarios
inject nothing, and must give no finding for 30 s. Needs no running agent, and touches none.

  corbel lab --list
  corbel lab stalled-disk
  corbel lab blocked-sink slow-disk --runs 10
  corbel lab --all --json

Exit codes: 0 all were diagnosed, 1 one was not, 2 called wrongly.`
	f := c.Flags()
	f.BoolVar(&o.list, "list", false, "list the scenarios, and start nothing")
	f.BoolVar(&o.all, "all", false, "run every scenario")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	f.IntVar(&o.runs, "runs", 1, "how many times to run each scenario")
	f.DurationVar(&o.learn, "learn", 0, "how long the cluster runs under load before the fault (0 is 6s)")
	f.StringVar(&o.save, "save", "", "folder for the evidence of runs that were not diagnosed, for corbel doctor --from")
	c.RunE = o.run
}

func (o *options) run(c *cobra.Command, args []string) error {
	chosen, err := o.choose(args)
	if err != nil {
		return err
	}
	if o.list {
		return o.print(chosen)
	}
	ctx, stop := command.Signals(c.Context())
	defer stop()
	var report struct {
		Scenarios []lab.Outcome `json:"scenarios"`
	}
	missed := false
	for _, s := range chosen {
		for n := range o.runs {
			out := lab.Run(ctx, s, lab.Options{Learn: o.learn, Save: o.save, Progress: o.env.Err})
			if ctx.Err() != nil {
				return ctx.Err()
			}
			out.Run = n + 1
			missed = missed || !out.Diagnosed
			report.Scenarios = append(report.Scenarios, out)
			if err := o.tell(&out); err != nil {
				return err
			}
		}
	}
	if o.asJSON {
		if err := command.WriteJSON(o.env.Out, &report, false); err != nil {
			return err
		}
	}
	if missed {
		return exitMissed
	}
	return nil
}

func (o *options) choose(args []string) ([]*lab.Scenario, error) {
	switch {
	case o.runs < 1:
		return nil, command.Usagef("--runs must be above 0")
	case o.learn < 0:
		return nil, command.Usagef("--learn must not be below 0")
	case (o.all || o.list) && len(args) > 0:
		return nil, command.Usagef("--all and --list are about every scenario: leave out %q", args[0])
	case !o.all && !o.list && len(args) == 0:
		return nil, command.Usagef("name a scenario, or give --all; --list shows them")
	}
	var out []*lab.Scenario
	for _, name := range args {
		s := lab.Find(name)
		if s == nil {
			return nil, command.Usagef("there is no scenario %q; --list shows them", name)
		}
		out = append(out, s)
	}
	if len(args) == 0 {
		for i := range lab.Scenarios {
			out = append(out, &lab.Scenarios[i])
		}
	}
	return out, nil
}

func (o *options) print(all []*lab.Scenario) error {
	if o.asJSON {
		type row struct {
			Name     string `json:"name"`
			About    string `json:"about"`
			Expected string `json:"expected"`
		}
		var rows []row
		for _, s := range all {
			rows = append(rows, row{s.Name, s.About, s.Code})
		}
		return command.WriteJSON(o.env.Out, rows, false)
	}
	t := command.Table{Head: []string{"SCENARIO", "FINDING", "WHAT HAPPENS"}}
	for _, s := range all {
		finding := s.Code
		if finding == "" {
			finding = "none"
		}
		t.Add(s.Name, finding, s.About)
	}
	return t.Write(o.env.Out)
}

// tell prints an outcome: what the doctor said, and whether that is right.
func (o *options) tell(out *lab.Outcome) error {
	verdict := fmt.Sprintf("%s: diagnosed in %.1f s", out.Name, out.Seconds)
	switch {
	case out.Error != "":
		verdict = fmt.Sprintf("%s: NOT RUN to its end: %s", out.Name, out.Error)
	case out.Expected == "" && out.Diagnosed:
		verdict = fmt.Sprintf("%s: no finding in %.0f s", out.Name, out.Seconds)
	case out.Expected == "":
		verdict = fmt.Sprintf("%s: NOT as it should be: there must be no finding", out.Name)
	case !out.Diagnosed:
		verdict = fmt.Sprintf("%s: NOT diagnosed in %.0f s; expected %s", out.Name, out.Seconds, out.Expected)
	}
	if o.asJSON {
		_, err := fmt.Fprintln(o.env.Err, verdict)
		return err
	}
	return o.env.Printf("%s\n%s\n", verdict, strings.TrimRight("\n"+out.Text, "\n")+"\n")
}
