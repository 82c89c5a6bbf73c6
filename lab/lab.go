// Package lab injects one fault into a real cluster under load and asks the doctor what is wrong.
//
// A Scenario starts `corbel server` processes that are armed with kit/fault, loads them through the front door, lets
// them learn what is usual, and injects; then the cluster's own GET /v1/doctor is asked until its first finding is
// the expected one and names the culprit, for Patience at most. The expected finding must not be there before. Each
// run of a fault has a cluster of its own, so nothing of the run before can count; runs whose fault and load leave
// the machine alone (Shares) may go on side by side. Healthy scenarios inject nothing, any finding fails them, and
// their runs are stretches of time of one cluster. Faults are made where they happen: no evidence is written. Nothing
// outlives a run: processes die with it, folders are removed.
package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/doctor"
	"corbel.dev/corbel/doctor/text"
	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
)

const (
	// Patience is for how long after its onset a fault may stay undiagnosed.
	Patience = 30 * time.Second
	// learning is how long a cluster runs under load before the fault.
	learning = 3 * time.Second
	// calm is for how long a healthy cluster is watched in its first run, calmNext in each further one: as long as the
	// doctor's own window.
	calm, calmNext = 15 * time.Second, 10 * time.Second
	// askEvery is the pause between two questions.
	askEvery = 500 * time.Millisecond
	// startTime bounds the start of a cluster.
	startTime = harness.StartLimit
)

// Options say how to run scenarios.
type Options struct {
	// Binary is the corbel to start; empty is this program.
	Binary string
	// Learn is how long the cluster runs under load before the fault, at least: every member has ended a window. Zero is
	// 3 s.
	Learn time.Duration
	// Servers is how many a cluster has, where a scenario has more than one: 3 or 5. Zero is 3.
	Servers int
	// Run is the run's number, Runs how many there are; zero is one.
	Run, Runs int
	// Save is a folder for the evidence of runs that were not diagnosed, as corbel doctor --from reads it; "" saves none.
	Save string
	// Progress gets what happens, a line each; nil is nobody.
	Progress io.Writer
}

func (o *Options) complete() (err error) {
	if o.Binary == "" {
		o.Binary, err = os.Executable()
	}
	o.Learn, o.Run, o.Runs = cmp.Or(o.Learn, learning), max(o.Run, 1), max(o.Runs, 1)
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	return err
}

// Outcome is what one run of a scenario came to.
type Outcome struct {
	Name string `json:"name"`
	Run  int    `json:"run"`
	// Diagnosed: after each step the first finding was the expected one and named the culprit; of a healthy scenario,
	// that there was no finding.
	Diagnosed bool `json:"diagnosed"`
	// Seconds from the onset to the diagnosis, of the slowest step; of a healthy scenario, for how long it was watched.
	Seconds float64 `json:"seconds"`
	// Finding and Culprit are those of the last report's first finding.
	Finding string `json:"finding"`
	Culprit string `json:"culprit"`
	// Expected is the code and the culprit that were injected last, empty for a healthy scenario.
	Expected string `json:"expected"`
	// Others are the findings behind the first, as CODE MEMBER.
	Others []string `json:"others"`
	// Not is what the first finding says that it is not.
	Not []string `json:"not"`
	// Steps are those of scenarios that have several.
	Steps []Step `json:"steps,omitempty"`
	// Error says why the scenario could not be run, and what stands in its way; it then counts as not diagnosed.
	Error string `json:"error,omitempty"`
	// Lacks says what the last report lacked.
	Lacks string `json:"lacks,omitempty"`
	// Text is the last report as `corbel doctor` prints it.
	Text string `json:"-"`
	// last is how long the last step took, in seconds.
	last float64
}

// Step is what one step of a scenario came to.
type Step struct {
	About     string  `json:"about"`
	Diagnosed bool    `json:"diagnosed"`
	Seconds   float64 `json:"seconds"`
	Finding   string  `json:"finding"`
	Culprit   string  `json:"culprit"`
	// RoundTrip is the p99 of round trips to the usage cache at the step's end, in milliseconds, in its story.
	RoundTrip float64 `json:"round_trip_p99_ms,omitempty"`
}

func newOutcome(s *Scenario, run int) Outcome {
	return Outcome{Name: s.Name, Run: run, Others: []string{}, Not: []string{}}
}

// Run runs a scenario once; a healthy one as often as Options.Runs says, in one cluster. The error of a scenario that
// cannot run here stands in the outcome. It may be called from several goroutines at once for scenarios that share.
func Run(ctx context.Context, s *Scenario, o Options) []Outcome {
	err := o.complete()
	out := newOutcome(s, o.Run)
	all := []Outcome{out}
	if err == nil {
		if s.Code == "" {
			all, err = healthy(ctx, s, &o)
		} else {
			err = runFaulty(ctx, s, &o, &all[0])
		}
	}
	if err != nil {
		last := &all[len(all)-1]
		last.Diagnosed, last.Error = false, err.Error()
	}
	return all
}

// laid starts the cluster of a scenario with its load; close ends it, and keeps the evidence where ok is false.
func laid(ctx context.Context, s *Scenario, o *Options) (b *environment, end func(ok bool) error, err error) {
	b = &environment{scenario: s, options: o}
	end = func(ok bool) (err error) {
		if o.Save != "" && b.servers != nil && !ok && ctx.Err() == nil {
			err = b.save(ctx, o.Save)
		}
		return errors.Join(err, b.close())
	}
	b.say("starting %d servers", b.size())
	if err := b.open(ctx); err != nil {
		return b, end, err
	}
	b.say("load, until each member has ended a window")
	b.startLoad(ctx)
	return b, end, spawn.Sleep(ctx, o.Learn)
}

// runFaulty injects a fault and asks for it.
func runFaulty(ctx context.Context, s *Scenario, o *Options, out *Outcome) (err error) {
	b, end, err := laid(ctx, s, o)
	defer func() { err = errors.Join(err, end(err == nil && out.Diagnosed)) }()
	if err == nil {
		err = b.unaware(ctx)
	}
	if err != nil {
		return err
	}
	steps := s.all()
	out.Diagnosed = true
	for _, st := range steps {
		if err := b.step(ctx, st, out); err != nil {
			return err
		}
		if len(steps) > 1 {
			one := Step{About: st.about, Diagnosed: out.Lacks == "", Seconds: out.last, Finding: out.Finding,
				Culprit: out.Culprit}
			if b.story != nil {
				one.RoundTrip = b.story.p99(time.Now())
				b.say("round trips to the cache take %.1f ms at the 99th percentile", one.RoundTrip)
			}
			out.Steps = append(out.Steps, one)
		}
	}
	return nil
}

// unaware waits until the doctor knows the cluster, and does not find in it what is to be injected.
func (b *environment) unaware(ctx context.Context) error {
	for began := time.Now(); ; {
		report, err := b.ask(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		found := err == nil && slices.ContainsFunc(report.Findings,
			func(f doctor.Finding) bool { return f.Code == b.scenario.Code })
		early := err == nil && slices.ContainsFunc(report.Gaps,
			func(gap string) bool { return strings.HasSuffix(gap, doctor.NoWindow) })
		if err == nil && !found && !early {
			return nil
		}
		if time.Since(began) > Patience {
			if found {
				err = fmt.Errorf("%s is found before it was injected", b.scenario.Code)
			} else if early {
				err = errors.New("members have ended no window")
			}
			return err
		}
		if err := spawn.Sleep(ctx, askEvery); err != nil {
			return err
		}
	}
}

// healthy watches one cluster for as many stretches of time as there are runs.
func healthy(ctx context.Context, s *Scenario, o *Options) (all []Outcome, err error) {
	b, end, err := laid(ctx, s, o)
	ok := true
	defer func() { err = errors.Join(err, end(err == nil)) }()
	for n := range o.Runs {
		all = append(all, newOutcome(s, n+1))
		if err != nil { // none can be
			all[n].Error = err.Error()
			continue
		}
		out := &all[n]
		if err = b.watch(ctx, out, span(n)); err == nil && !out.Diagnosed {
			b.say("%s: %s", out.Finding, out.Culprit)
			if ok && o.Save != "" {
				err = b.save(ctx, o.Save)
			}
			ok = false
		}
	}
	return all, err
}

// span is how long run n of a healthy scenario lasts, watched how long all of n do.
func span(n int) time.Duration {
	if n == 0 {
		return calm
	}
	return calmNext
}

func watched(runs int) time.Duration { return calm + time.Duration(runs-1)*calmNext }

// step makes one change, and asks the doctor until it says what it must.
func (b *environment) step(ctx context.Context, st step, out *Outcome) error {
	w, err := st.do(ctx, b)
	if err != nil {
		return fmt.Errorf("the fault could not be injected: %w", err)
	}
	onset, cpu := time.Now(), cpuTimes()
	out.Expected = w.first.code + ": " + w.first.culprit
	b.say("%s: %s; asking the doctor", st.about, cmp.Or(w.first.culprit, w.first.code))
	for {
		report, err := b.ask(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		took := time.Since(onset)
		if err == nil {
			out.take(report)
			out.Lacks = w.lacks(report, cpu.busySince())
		}
		if err == nil && out.Lacks == "" {
			if report, err = b.askAgent(ctx); report != nil {
				if lacks := w.lacks(report, cpu.busySince()); lacks != "" {
					out.Lacks = "asked through " + b.asked.agent.Name + ": " + lacks
				}
			}
			took = time.Since(onset)
		}
		out.last, out.Seconds = took.Seconds(), max(out.Seconds, took.Seconds())
		if err == nil && out.Lacks == "" && took <= Patience {
			return nil
		}
		if took > Patience {
			out.Diagnosed = false
			return err
		}
		if err := spawn.Sleep(ctx, askEvery); err != nil {
			return err
		}
	}
}

// watch asks a healthy cluster for so long, and keeps the first report with a finding.
func (b *environment) watch(ctx context.Context, out *Outcome, span time.Duration) error {
	b.say("no fault, run %d of %d; asking the doctor for %s", out.Run, b.options.Runs, span)
	began := time.Now()
	for answered := false; ; {
		report, err := b.ask(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil && (!answered || out.Diagnosed) {
			out.take(report)
			answered, out.Diagnosed = true, report.Healthy()
		}
		if report, err := b.askAgent(ctx); err == nil && report != nil && out.Diagnosed && !report.Healthy() {
			out.take(report)
			out.Diagnosed = false
		}
		out.Seconds = time.Since(began).Seconds()
		if b.load.failed != nil {
			if err := b.load.failed(); err != nil {
				return err
			}
		}
		if time.Since(began) > span {
			if answered {
				return nil // at full load an answer may come late
			}
			return err
		}
		if err := spawn.Sleep(ctx, askEvery); err != nil {
			return err
		}
	}
}

// take keeps what a report says.
func (o *Outcome) take(r *doctor.Report) {
	o.Finding, o.Culprit, o.Others, o.Not = "", "", []string{}, []string{}
	for i := range r.Findings {
		f := &r.Findings[i]
		if i == 0 {
			o.Finding, o.Culprit = f.Code, f.Culprit
			for _, line := range f.Not {
				o.Not = append(o.Not, line.Text)
			}
			continue
		}
		o.Others = append(o.Others, f.Code+" "+f.Member)
	}
	var b strings.Builder
	_ = text.Write(&b, r) // a builder takes everything
	o.Text = b.String()
}

func (b *environment) say(format string, args ...any) {
	name := b.scenario.Name
	if b.options.Runs > 1 && b.scenario.Code != "" {
		name += fmt.Sprintf(" (%d of %d)", b.options.Run, b.options.Runs)
	}
	_, _ = fmt.Fprintf(b.options.Progress, name+": "+format+"\n", args...)
}
