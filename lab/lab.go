// Package lab injects one fault into a real cluster under load and asks the doctor what is wrong.
//
// A Scenario starts `corbel server` processes that are armed with kit/fault, loads them through the front door, lets them learn what is
// usual, and injects; then the cluster's own GET /v1/doctor is asked until its first finding is the expected one and names the culprit, for
// Patience at most. Healthy scenarios inject nothing, and any finding fails them. Faults are made where they happen: no evidence is written.
// Nothing outlives a run: processes die with it, folders are removed.
package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"corbel.dev/corbel/doctor"
	"corbel.dev/corbel/doctor/text"
)

const (
	// Patience is for how long after its onset a fault may stay undiagnosed.
	Patience = 30 * time.Second
	// learning is how long a cluster runs under load before the fault.
	learning = 6 * time.Second
	// calm is for how long a healthy cluster is watched.
	calm = 15 * time.Second
	// askEvery is the pause between two questions.
	askEvery = 500 * time.Millisecond
	// startTime bounds the start of a cluster.
	startTime = 90 * time.Second
)

// Options say how to run scenarios.
type Options struct {
	// Binary is the corbel to start; empty is this program.
	Binary string
	// Learn is how long the cluster runs under load before the fault; zero is 6 s.
	Learn time.Duration
	// Save is a folder for the evidence of runs that were not diagnosed, as corbel doctor --from reads it; "" saves none.
	Save string
	// Progress gets what happens, a line each; nil is nobody.
	Progress io.Writer
}

func (o *Options) complete() (err error) {
	if o.Binary == "" {
		o.Binary, err = os.Executable()
	}
	o.Learn = cmp.Or(o.Learn, learning)
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	return err
}

// Outcome is what one run of a scenario came to.
type Outcome struct {
	Name string `json:"name"`
	Run  int    `json:"run"`
	// Diagnosed: after each step the first finding was the expected one and named the culprit; of a healthy scenario, that there was no finding.
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
}

// Run runs a scenario once. The error of a scenario that cannot run here stands in the outcome.
func Run(ctx context.Context, s *Scenario, o Options) Outcome {
	out := Outcome{Name: s.Name, Run: 1, Others: []string{}, Not: []string{}}
	if err := o.complete(); err != nil {
		out.Error = err.Error()
		return out
	}
	if err := run(ctx, s, &o, &out); err != nil {
		out.Diagnosed, out.Error = false, err.Error()
	}
	return out
}

func run(ctx context.Context, s *Scenario, o *Options, out *Outcome) (err error) {
	b := &bed{scenario: s, options: o}
	defer func() {
		if o.Save != "" && b.servers != nil && (err != nil || !out.Diagnosed) && ctx.Err() == nil {
			err = errors.Join(err, b.save(ctx, o.Save))
		}
		err = errors.Join(err, b.close())
	}()
	b.say("starting %d servers", s.servers())
	if err := b.open(ctx); err != nil {
		return err
	}
	b.say("load for %s, so that the doctor learns what is usual", o.Learn)
	b.startLoad(ctx)
	if err := sleep(ctx, o.Learn); err != nil {
		return err
	}
	steps := s.all()
	if len(steps) == 0 {
		return b.watch(ctx, out)
	}
	out.Diagnosed = true
	for _, st := range steps {
		if err := b.step(ctx, st, out); err != nil {
			return err
		}
		if len(steps) > 1 {
			out.Steps = append(out.Steps, Step{st.about, out.Lacks == "", out.last, out.Finding, out.Culprit})
		}
	}
	return nil
}

// step makes one change, and asks the doctor until it says what it must.
func (b *bed) step(ctx context.Context, st step, out *Outcome) error {
	w, err := st.do(ctx, b)
	if err != nil {
		return fmt.Errorf("the fault could not be injected: %w", err)
	}
	onset, cpu := time.Now(), cpuTimes()
	out.Expected = w.first.code + ": " + w.first.culprit
	b.say("%s: %s; asking the doctor", st.about, w.first.culprit)
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
		out.last, out.Seconds = took.Seconds(), max(out.Seconds, took.Seconds())
		if err == nil && out.Lacks == "" && took <= Patience {
			return nil
		}
		if took > Patience {
			out.Diagnosed = false
			return err
		}
		if err := sleep(ctx, askEvery); err != nil {
			return err
		}
	}
}

// watch asks a healthy cluster, and stops at the first finding.
func (b *bed) watch(ctx context.Context, out *Outcome) error {
	b.say("no fault; asking the doctor for %s", calm)
	began := time.Now()
	for answered := false; ; {
		report, err := b.ask(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			out.take(report)
			out.Seconds = time.Since(began).Seconds()
			answered, out.Diagnosed = true, report.Healthy()
			if !out.Diagnosed {
				return nil
			}
		}
		if b.failed != nil {
			if err := b.failed(); err != nil {
				return err
			}
		}
		if time.Since(began) > calm {
			if answered {
				return nil // at full load an answer may come late
			}
			return err
		}
		if err := sleep(ctx, askEvery); err != nil {
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

func (b *bed) say(format string, args ...any) {
	_, _ = fmt.Fprintf(b.options.Progress, b.scenario.Name+": "+format+"\n", args...)
}

// sleep lets d pass, or returns ctx's error when that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
