// Package examiner is what any process has of the doctor: what it measures of itself and its machine, and its
// profiles. It changes nothing but profiling, and asks nobody else.
package examiner

import (
	"context"
	"io"
	"sync"
	"time"

	"corbel.dev/corbel/doctor"
	"corbel.dev/corbel/doctor/probe"
	"corbel.dev/corbel/doctor/profile"
	"corbel.dev/corbel/telemetry"
)

// Examiner gathers the evidence of one process. Several goroutines may use it at once.
type Examiner struct {
	member     string
	probe      *probe.Probe
	profiler   *profile.Profiler
	registries []*telemetry.Registry
	off        bool // by configuration
}

// New makes one and starts nothing; what cfg says about slow requests and stacks is the examiner's own.
func New(cfg probe.Config) (*Examiner, error) {
	e := &Examiner{member: cfg.Member, profiler: profile.New(profile.Config{Log: cfg.Log}),
		registries: append([]*telemetry.Registry{cfg.Metrics}, cfg.Others...), off: cfg.Metrics.Settings().DisableDoctor}
	cfg.Slow, cfg.Stacks, cfg.Look = e.slow, e.profiler.Stacks, e.profiler.Slow
	var err error
	e.probe, err = probe.New(cfg)
	return e, err
}

// Run gathers until ctx ends.
func (e *Examiner) Run(ctx context.Context) error {
	if e.off {
		<-ctx.Done()
		return nil
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { _ = e.profiler.Run(ctx) }) // it ends with ctx alone
	return e.probe.Run(ctx)
}

// Evidence is the evidence as it is now.
func (e *Examiner) Evidence() doctor.Evidence {
	out := e.probe.Evidence()
	if e.off {
		out.Gaps = []string{"nothing is gathered here: telemetry.disable_doctor is set"}
	}
	return out
}

// Profile writes a profile of a kind, of so long ago as there is one: for pprof, drawn (svg) or as a tree; false when
// there is none.
func (e *Examiner) Profile(w io.Writer, kind, format string, ago time.Duration) (bool, error) {
	taken, ok := e.profiler.Before(doctor.StackKind(kind), ago)
	if !ok {
		return false, nil
	}
	switch format {
	case "tree":
		return true, profile.Tree(w, taken.Bytes, taken.At)
	case "svg":
		return true, profile.Flame(w, taken.Bytes, e.member+" "+kind+" "+taken.At.UTC().Format(time.RFC3339))
	}
	_, err := w.Write(taken.Bytes)
	return true, err
}

// Yield stops profiling until what it returns is called: only one profile of a process can be taken at a time.
func (e *Examiner) Yield() (resume func()) { return e.profiler.Yield() }

// slow are the slowest requests of late.
func (e *Examiner) slow() (out []doctor.Slow) {
	for _, r := range e.registries {
		for _, s := range r.Slowest() {
			one := doctor.Slow{Plane: s.Plane, Kind: s.Kind, At: s.At, Took: s.Took, Trace: s.Trace}
			s.Spent.Each(func(stage string, took time.Duration) {
				one.Stages = append(one.Stages, doctor.SlowStage{Stage: stage, Took: took})
			})
			out = append(out, one)
		}
	}
	return out
}
