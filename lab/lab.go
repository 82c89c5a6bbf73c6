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
	// Patience is for how long after its onset a fault may stay undiagnosed, and for how long a healthy cluster must give no finding.
	Patience = 30 * time.Second
	// learning is how long a cluster runs under load before the fault.
	learning = 20 * time.Second
	// askEvery is the pause between two questions.
	askEvery = 500 * time.Millisecond
	// startTime bounds the start of a cluster.
	startTime = 90 * time.Second
)

// Options say how to run scenarios.
type Options struct {
	// Binary is the corbel to start; empty is this program.
	Binary string
	// Learn is how long the cluster runs under load before the fault; zero is 20 s.
	Learn time.Duration
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
	// Diagnosed: the first finding was the expected one and named the culprit; of a healthy scenario, that there was no finding.
	Diagnosed bool `json:"diagnosed"`
	// Seconds from the onset to the diagnosis; of a healthy scenario, for how long it was watched.
	Seconds float64 `json:"seconds"`
	// Finding and Culprit are those of the last report's first finding.
	Finding string `json:"finding"`
	Culprit string `json:"culprit"`
	// Expected is the code and the culprit that were injected, empty for a healthy scenario.
	Expected string `json:"expected"`
	// Others are the findings behind the first, as CODE MEMBER.
	Others []string `json:"others"`
	// Error says why the scenario could not be run, and what stands in its way; it then counts as not diagnosed.
	Error string `json:"error,omitempty"`
	// Text is the last report as `corbel doctor` prints it.
	Text string `json:"-"`
}

// Run runs a scenario once. The error of a scenario that cannot run here stands in the outcome.
func Run(ctx context.Context, s *Scenario, o Options) Outcome {
	out := Outcome{Name: s.Name, Run: 1, Others: []string{}}
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
	defer func() { err = errors.Join(err, b.close()) }()
	b.say("starting %d servers", s.servers())
	if err := b.open(ctx); err != nil {
		return err
	}
	b.say("load for %s, so that the doctor learns what is usual", o.Learn)
	b.startLoad(ctx)
	if err := sleep(ctx, o.Learn); err != nil {
		return err
	}
	if s.inject == nil {
		return b.watch(ctx, out)
	}
	culprit, err := s.inject(ctx, b)
	if err != nil {
		return fmt.Errorf("the fault could not be injected: %w", err)
	}
	onset := time.Now()
	out.Expected = s.Code + ": " + culprit
	b.say("injected: %s; asking the doctor", culprit)
	for {
		report, err := b.ask(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		out.Seconds = time.Since(onset).Seconds()
		if err == nil {
			out.take(report)
			if out.Finding == s.Code && strings.Contains(out.Culprit, culprit) {
				out.Diagnosed = out.Seconds <= Patience.Seconds()
				return nil
			}
		}
		if time.Since(onset) > Patience {
			return err
		}
		if err := sleep(ctx, askEvery); err != nil {
			return err
		}
	}
}

// watch asks a healthy cluster, and stops at the first finding.
func (b *bed) watch(ctx context.Context, out *Outcome) error {
	b.say("no fault; asking the doctor for %s", Patience)
	began := time.Now()
	for asked := 0; ; asked++ {
		report, err := b.ask(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			out.take(report)
			out.Seconds = time.Since(began).Seconds()
			if !report.Healthy() {
				return nil
			}
			out.Diagnosed = true
		}
		if time.Since(began) > Patience {
			return err
		}
		if err := sleep(ctx, askEvery); err != nil {
			return err
		}
	}
}

// take keeps what a report says.
func (o *Outcome) take(r *doctor.Report) {
	o.Finding, o.Culprit, o.Others = "", "", []string{}
	for i := range r.Findings {
		f := &r.Findings[i]
		if i == 0 {
			o.Finding, o.Culprit = f.Code, f.Culprit
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
