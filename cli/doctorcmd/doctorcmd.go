// Package doctorcmd holds `corbel doctor`: the whole cluster on one screen, worst first.
//
// It asks one member, which asks all servers; with --also members of other clusters that this one stores in; with
// --from it reads what `corbel debug` gathered, and needs no server at all. Judging is done here, by package doctor,
// so that evidence of several clusters is judged together and an archive is judged as it would be judged live.
package doctorcmd

import (
	"context"
	"fmt"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/doctor"
	"corbel.dev/corbel/doctor/text"
	"github.com/spf13/cobra"
)

// Exit codes beside 0 (nothing found), 1 (nobody could be asked) and 2 (called wrongly).
const (
	ExitWarning  command.ExitCode = 3
	ExitCritical command.ExitCode = 4
)

// watchEvery is how often --watch looks.
const watchEvery = 5 * time.Second

type options struct {
	dial command.Dial
	env  *command.Env
	also []string
	from string
	// profiles is a folder to save them in.
	profiles string
	since    time.Duration
	html     string // a file for the report as a page
	asJSON   bool
	watch    bool
}

// Command builds `corbel doctor`.
func Command(e *command.Env, c *cobra.Command) {
	o := &options{env: e}
	c.Args = command.Between(0, 0, "flags only")
	c.Long = `Find out what makes the cluster slow. The root cause comes first: since when, on what evidence,
what it is not, and what to do. The member that you ask gives each server two seconds to answer
and names those that do not. Agents report their findings to the servers.

  corbel doctor                                  one screen about the cluster
  corbel doctor --watch                          again whenever something changes
  corbel doctor --also http://10.0.0.9:8500      with another cluster that this one stores in
  corbel doctor --http-addr http://10.0.0.9:8200 a server of secrets alone
  corbel doctor --from incident.tar.gz           what an archive of corbel debug says
  corbel doctor --since 6h                       with findings that are resolved

Exit codes: 0 nothing found, 3 a warning, 4 something critical, 1 no member answered.
docs/runbook has a page for each finding.`
	o.dial.Flags(e, c)
	f := c.Flags()
	f.StringArrayVar(&o.also, "also", nil, "address of a member of another cluster to judge together with this one "+
		"(repeat)")
	f.StringVar(&o.from, "from", "", "read an archive or folder of corbel debug, or an evidence file, without a server")
	f.StringVar(&o.profiles, "profiles", "",
		"save the profiles of the member of the first finding in this folder, for pprof and as flame graphs")
	f.DurationVar(&o.since, "since", 0, "also list resolved findings that began up to this long ago")
	f.StringVar(&o.html, "html", "", "also write the report as a page into this file, for a postmortem")
	f.BoolVar(&o.asJSON, "json", false, "print the report as JSON")
	f.BoolVar(&o.watch, "watch", false, "print again when the findings change, until interrupted")
	c.RunE = func(c *cobra.Command, _ []string) error {
		ctx, stop := command.Signals(c.Context())
		defer stop()
		switch {
		case o.from != "" && (o.watch || len(o.also) > 0 || o.profiles != ""):
			return command.Usagef("--from asks nobody: leave out --watch, --also and --profiles")
		case o.since < 0:
			return command.Usagef("--since must be above 0")
		case o.watch:
			return o.follow(ctx)
		}
		cluster, err := o.cluster(ctx)
		if err != nil {
			return err
		}
		report, err := o.print(cluster)
		if err != nil {
			return err
		}
		if o.html != "" {
			if err := savePage(o.html, report, cluster, o.since, o.flames(ctx, report)); err != nil {
				return err
			}
		}
		if o.profiles != "" {
			if err := o.saveProfiles(ctx, report); err != nil {
				return err
			}
		}
		return verdict(report)
	}
}

// verdict is the exit code of a report.
func verdict(r *doctor.Report) error {
	if r.Healthy() {
		return nil
	}
	for i := range r.Findings {
		if r.Findings[i].Severity == doctor.Critical {
			return ExitCritical
		}
	}
	return ExitWarning
}

func (o *options) print(cluster *doctor.Cluster) (*doctor.Report, error) {
	report := doctor.Judge(cluster)
	if o.asJSON {
		return &report, command.WriteJSON(o.env.Out, &report, o.watch)
	}
	err := text.Write(o.env.Out, &report)
	if err == nil && o.since > 0 {
		err = text.WritePast(o.env.Out, cluster, o.since)
	}
	return &report, err
}

// follow prints whenever the findings change.
func (o *options) follow(ctx context.Context) error {
	last := "\x00"
	for {
		cluster, err := o.cluster(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && err.Error() != last:
			last = err.Error()
			_, _ = fmt.Fprintf(o.env.Err, "%s %v\n", time.Now().Format(time.TimeOnly), err)
		case err == nil:
			report := doctor.Judge(cluster)
			if now := signature(&report); now != last {
				last = now
				if _, err := o.print(cluster); err != nil {
					return err
				}
			}
		}
		command.Wait(ctx, watchEvery)
	}
}

// signature is what makes a report another one: which findings, in which order, and who is silent.
func signature(r *doctor.Report) string {
	out := ""
	for i := range r.Findings {
		out += r.Findings[i].Code + " " + r.Findings[i].Member + " " + r.Findings[i].Culprit + "\n"
	}
	for _, s := range r.Silent {
		out += "silent " + s.Member + "\n"
	}
	return out
}
