// Package labcmd holds `corbel lab`: faults in a cluster of its own, and what the doctor says to them.
package labcmd

import (
	"cmp"
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
inject nothing, and must give no finding for 15 s, quiet or under a bench at full load. Needs no running agent, and touches none.

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
		Summary   []summary     `json:"summary"`
	}
	missed := false
	for _, s := range chosen {
		sum := summary{Name: s.Name, Runs: o.runs}
		for n := range o.runs {
			out := lab.Run(ctx, s, lab.Options{Learn: o.learn, Save: o.save, Progress: o.env.Err})
			if ctx.Err() != nil {
				return ctx.Err()
			}
			out.Run = n + 1
			missed = missed || !out.Diagnosed
			sum.add(&out)
			report.Scenarios = append(report.Scenarios, out)
			if err := o.tell(&out); err != nil {
				return err
			}
		}
		report.Summary = append(report.Summary, sum)
	}
	if !o.asJSON && len(report.Scenarios) > 1 {
		if err := summarize(o.env, report.Summary); err != nil {
			return err
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

// summary is what all runs of a scenario came to.
type summary struct {
	Name      string `json:"name"`
	Runs      int    `json:"runs"`
	Diagnosed int    `json:"diagnosed"`
	// MeanSeconds and MaxSeconds are of the runs that were diagnosed.
	MeanSeconds float64 `json:"mean_seconds"`
	MaxSeconds  float64 `json:"max_seconds"`
	// Instead are the first findings of the others, or what stood in their way.
	Instead []string `json:"instead"`
}

func (s *summary) add(out *lab.Outcome) {
	if s.Instead == nil {
		s.Instead = []string{}
	}
	if !out.Diagnosed {
		s.Instead = append(s.Instead, cmp.Or(out.Error, out.Lacks, out.Finding, "no finding"))
		return
	}
	s.Diagnosed++
	s.MeanSeconds += (out.Seconds - s.MeanSeconds) / float64(s.Diagnosed)
	s.MaxSeconds = max(s.MaxSeconds, out.Seconds)
}

// summarize prints a line for each scenario.
func summarize(e *command.Env, all []summary) error {
	t := command.Table{Head: []string{"SCENARIO", "DIAGNOSED", "MEAN", "MAX", "INSTEAD"}}
	for i := range all {
		s := &all[i]
		instead, _, _ := strings.Cut(strings.Join(s.Instead, "; "), "\n")
		t.Add(s.Name, fmt.Sprintf("%d of %d", s.Diagnosed, s.Runs), fmt.Sprintf("%.1f s", s.MeanSeconds), fmt.Sprintf("%.1f s", s.MaxSeconds), instead)
	}
	return t.Write(e.Out)
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
