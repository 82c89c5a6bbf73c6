// Package labcmd holds `corbel lab`: faults in a cluster of its own, and what the doctor says to them.
package labcmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
	// servers is how many a cluster has.
	servers int
	save    string
	html    string
	// parallel is how many runs go on side by side.
	parallel int
}

// Command builds `corbel lab`.
func Command(e *command.Env, c *cobra.Command) {
	o := &options{env: e}
	c.Use = "lab [SCENARIO...]"
	c.Args = command.Between(0, -1, "names of scenarios")
	c.Long = `Start a cluster with load on this machine, inject one fault, and show what the doctor says.
A fault counts as diagnosed if the doctor's first finding names it within 30 s. Healthy scenarios
inject nothing and must cause no finding for 15 s, at rest or under a bench at full load. The lab
needs no running agent and touches none. Each run of a fault gets a new cluster; further runs of a
healthy scenario watch the same cluster for 10 s each.

  corbel lab --list
  corbel lab stalled-disk
  corbel lab blocked-sink slow-disk --runs 10
  corbel lab --all --json

Exit codes: 0 all diagnosed, 1 at least one was not, 2 wrong usage.`
	f := c.Flags()
	f.BoolVar(&o.list, "list", false, "list the scenarios, and start nothing")
	f.BoolVar(&o.all, "all", false, "run every scenario")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	f.IntVar(&o.runs, "runs", 1, "how many times to run each scenario")
	f.IntVar(&o.servers, "servers", 3, "how many servers a cluster has, where it has more than one: 3 or 5")
	f.DurationVar(&o.learn, "learn", 0, "how long the cluster runs under load before the fault at least (0 is 3s)")
	f.IntVar(&o.parallel, "parallel", 2*runtime.NumCPU(),
		"how many runs go on side by side, of scenarios that leave the machine alone; 1 is one after the other")
	c.Flags().StringVar(&o.html, "html", "", "also write what the runs came to as a page into this file")
	f.StringVar(&o.save, "save", "", "folder for the evidence of undiagnosed runs, for corbel doctor --from")
	c.RunE = o.run
	c.AddCommand(forward())
}

// forward is the proxy of usage-story, which the lab starts.
func forward() *cobra.Command {
	c := &cobra.Command{Use: "forward LISTEN TARGET", Short: "Pass connections on", Hidden: true,
		Args: command.Between(2, 2, "two addresses")}
	c.Flags().String("service-node", "", "name, for who looks at the process")
	c.RunE = func(c *cobra.Command, args []string) error {
		ctx, stop := command.Signals(c.Context())
		defer stop()
		return lab.Forward(ctx, args[0], args[1])
	}
	return c
}

func (o *options) run(c *cobra.Command, args []string) error {
	chosen, err := o.choose(args)
	if err != nil {
		return err
	}
	if o.servers != 3 && o.servers != 5 {
		return command.Usagef("--servers: must be 3 or 5, not %d", o.servers)
	}
	if o.list {
		return o.print(chosen)
	}
	ctx, stop := command.Signals(c.Context())
	defer stop()
	all, err := o.runAll(ctx, chosen)
	if err != nil {
		return err
	}
	if o.html != "" {
		if err := savePage(o.html, all); err != nil {
			return err
		}
	}
	report := struct {
		Scenarios []lab.Outcome `json:"scenarios"`
		Summary   []*summary    `json:"summary"`
	}{all, summarize(all)}
	if o.asJSON {
		if err := command.WriteJSON(o.env.Out, &report, false); err != nil {
			return err
		}
	}
	if len(all) > 1 {
		out := o.env.Out
		if o.asJSON {
			out = o.env.Err
		}
		if err := table(out, report.Summary); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(all, func(out lab.Outcome) bool { return !out.Diagnosed }) {
		return exitMissed
	}
	return nil
}

// runAll runs the chosen scenarios: one after the other those that need the machine, then the others side by side.
// Outcomes come in the order of the scenarios and runs.
func (o *options) runAll(ctx context.Context, chosen []*lab.Scenario) ([]lab.Outcome, error) {
	type job struct{ scenario, run int }
	var alone, shared []job
	outcomes := make([][][]lab.Outcome, len(chosen)) // by scenario and run
	for i, s := range chosen {
		runs := o.runs
		if s.Code == "" {
			runs = 1 // which makes all
		}
		outcomes[i] = make([][]lab.Outcome, runs)
		for n := range runs {
			if s.Shares() {
				shared = append(shared, job{i, n})
			} else {
				alone = append(alone, job{i, n})
			}
		}
	}
	begin, progress := time.Now(), &lines{w: o.env.Err}
	var done atomic.Int64
	var tells sync.Mutex // one outcome is told at a time
	do := func(j job) error {
		s := chosen[j.scenario]
		out := lab.Run(ctx, s, lab.Options{Learn: o.learn, Servers: o.servers, Save: o.save, Progress: progress,
			Run: j.run + 1, Runs: o.runs})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		outcomes[j.scenario][j.run] = out
		tells.Lock()
		defer tells.Unlock()
		for i := range out {
			if err := o.tell(progress, &out[i]); err != nil {
				return err
			}
		}
		if n := done.Add(int64(len(out))); o.runs*len(chosen) > 1 {
			_, _ = fmt.Fprintf(progress, "%d of %d runs in %s\n", n, o.runs*len(chosen), time.Since(begin).Round(time.Second))
		}
		return nil
	}
	for _, j := range alone {
		if err := do(j); err != nil {
			return nil, err
		}
	}
	if err := sideBySide(min(o.parallel, len(shared)), shared, do); err != nil {
		return nil, err
	}
	var all []lab.Outcome
	for _, runs := range outcomes {
		all = append(all, slices.Concat(runs...)...)
	}
	return all, nil
}

// sideBySide does all jobs, some at a time, and returns the first error, after which none is begun.
func sideBySide[J any](atOnce int, jobs []J, do func(J) error) error {
	var next atomic.Int64
	errs := make(chan error, max(atOnce, 1))
	for range atOnce {
		go func() { // ends when all were done: each is awaited below
			for {
				i := int(next.Add(1)) - 1
				if i >= len(jobs) {
					errs <- nil
					return
				}
				if err := do(jobs[i]); err != nil {
					next.Store(int64(len(jobs)))
					errs <- err
					return
				}
			}
		}()
	}
	var first error
	for range atOnce {
		if err := <-errs; first == nil {
			first = err
		}
	}
	return first
}

// lines writes whole lines of several runs.
type lines struct {
	mu sync.Mutex // held while one is written
	w  io.Writer
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// summary is what all runs of a scenario came to.
type summary struct {
	Name      string `json:"name"`
	Runs      int    `json:"runs"`
	Diagnosed int    `json:"diagnosed"`
	// Seconds are of the runs that were diagnosed.
	MeanSeconds   float64 `json:"mean_seconds"`
	MedianSeconds float64 `json:"median_seconds"`
	MaxSeconds    float64 `json:"max_seconds"`
	// Instead are the first findings of the others, or what stood in their way.
	Instead []string `json:"instead"`

	seconds []float64
}

// summarize adds up outcomes, those of a scenario one after the other.
func summarize(all []lab.Outcome) (out []*summary) {
	for i := range all {
		o := &all[i]
		if len(out) == 0 || out[len(out)-1].Name != o.Name {
			out = append(out, &summary{Name: o.Name, Instead: []string{}})
		}
		s := out[len(out)-1]
		s.Runs++
		if !o.Diagnosed {
			s.Instead = append(s.Instead, cmp.Or(o.Error, o.Lacks, o.Finding, "no finding"))
			continue
		}
		s.Diagnosed++
		s.seconds = append(s.seconds, o.Seconds)
		s.MeanSeconds += (o.Seconds - s.MeanSeconds) / float64(s.Diagnosed)
		slices.Sort(s.seconds)
		n := len(s.seconds)
		s.MedianSeconds, s.MaxSeconds = (s.seconds[(n-1)/2]+s.seconds[n/2])/2, s.seconds[n-1]
	}
	return out
}

// table prints a line for each scenario.
func table(w io.Writer, all []*summary) error {
	t := command.Table{Head: []string{"SCENARIO", "DIAGNOSED", "MEDIAN", "MAX", "INSTEAD"}}
	for _, s := range all {
		instead, _, _ := strings.Cut(strings.Join(s.Instead, "; "), "\n")
		t.Add(s.Name, fmt.Sprintf("%d of %d", s.Diagnosed, s.Runs), fmt.Sprintf("%.1f s", s.MedianSeconds),
			fmt.Sprintf("%.1f s", s.MaxSeconds), instead)
	}
	return t.Write(w)
}

func (o *options) choose(args []string) ([]*lab.Scenario, error) {
	switch {
	case o.runs < 1:
		return nil, command.Usagef("--runs must be above 0")
	case o.parallel < 1 || o.parallel > 64:
		return nil, command.Usagef("--parallel must be from 1 to 64")
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
func (o *options) tell(progress io.Writer, out *lab.Outcome) error {
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
		_, err := fmt.Fprintln(progress, verdict)
		return err
	}
	return o.env.Printf("%s\n%s\n", verdict, strings.TrimRight("\n"+out.Text, "\n")+"\n")
}
