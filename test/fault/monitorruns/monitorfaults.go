package monitorruns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/runs"
	faultrun "corbel.dev/corbel/test/fault"
)

// MonitorFaults is everything but lost data that may happen to the monitor plane: clients that misbehave, handlers
// that hang, clocks that jump, disks that are slow, full or hang, a third of the agents that come back at once, a
// server that dies, and all of them. Under each fault agents send results, and each result that a living server read
// must count, in order; nobody who lives is ever missed.
type MonitorFaults struct {
	// Bystanders is how many agents there are that only live.
	Bystanders int // 150
	// Rubbish is how many broken messages one agent sends.
	Rubbish int // 20,000
	// Usual gives agents the keepalives of those that are told nothing: each 20 s, missed after 120 s. Else they are
	// missed after 12 s.
	Usual bool
	// Back is how long an agent may be without a session after its server was killed; 0 is not judged.
	Back time.Duration
	// Steps are names of steps; nil is all.
	Steps []string
}

// FaultsReport is what a run did.
type FaultsReport struct {
	Steps, Results int
	Back           []time.Duration // of agents whose server was killed, until their next session
	GrewBytes      int64           // of one server under rubbish
	Moved          time.Duration   // until a server whose event disk hung owned nothing
}

// faultsRun is a cluster under one fault after the other.
type faultsRun struct {
	*monitorRun
	cfg        MonitorFaults
	beats      beats
	rng        *rand.Rand
	report     FaultsReport
	bystanders []*sensor
	alive      sync.WaitGroup
}

// FaultSteps are the steps, in order.
var FaultSteps = []string{"hostile", "handlers", "clock", "slow disk", "full disk", "hung disk", "herd", "rolling",
	"killed", "emptied", "wiped", "restart"}

// RunMonitorFaults does the steps on one cluster of three.
func RunMonitorFaults(ctx context.Context, l *faultrun.Lab, cfg MonitorFaults, seed uint64) (*FaultsReport, error) {
	if cfg.Bystanders == 0 {
		cfg.Bystanders = 150
	}
	if cfg.Rubbish == 0 {
		cfg.Rubbish = 20_000
	}
	if cfg.Steps == nil {
		cfg.Steps = FaultSteps
	}
	keepalives := scaled
	if cfg.Usual {
		keepalives = usual
	}
	for _, name := range cfg.Steps {
		if !slices.Contains(FaultSteps, name) {
			return &FaultsReport{}, fmt.Errorf("no step is called %q (know %s)", name, strings.Join(FaultSteps, ", "))
		}
	}
	m, err := openMonitor(ctx, l, harness.Config{Servers: 3}, 6, 2, keepalives, seed)
	if err != nil {
		return &FaultsReport{}, err
	}
	defer m.close()
	r := &faultsRun{monitorRun: m, cfg: cfg, beats: keepalives, rng: rand.New(rand.NewPCG(seed, 0xfa))}
	living, stop := context.WithCancel(ctx)
	defer r.alive.Wait()
	defer stop()
	if err := r.gather(ctx, living); err != nil {
		return &r.report, fmt.Errorf("%w\n%s", err, r.Logs())
	}
	steps := map[string]func(context.Context) error{"hostile": r.hostile, "handlers": r.handlers, "clock": r.clocks,
		"slow disk": r.slowDisk, "full disk": r.fullDisk,
		"hung disk": r.hungDisk, "herd": r.herd, "rolling": r.rolling, "killed": r.killed, "emptied": r.emptied,
		"wiped": r.wiped, "restart": r.restart}
	for _, name := range cfg.Steps {
		if err := errors.Join(steps[name](ctx), r.Damage()); err != nil {
			return &r.report, fmt.Errorf("seed %d, %s: %w\n%s", seed, name, err, r.Logs())
		}
		r.report.Steps++
	}
	return &r.report, nil
}

// gather makes the bystanders.
func (r *faultsRun) gather(ctx, living context.Context) error {
	for i := range r.cfg.Bystanders {
		a := &sensor{name: fmt.Sprintf("bystander-%d", i), servers: r.Servers, beats: r.beats,
			rng: rand.New(rand.NewPCG(uint64(i), 0xc0))}
		r.bystanders = append(r.bystanders, a)
		r.alive.Go(func() { a.run(living) })
	}
	return r.together(ctx)
}

// together waits until each bystander has a session.
func (r *faultsRun) together(ctx context.Context) error {
	return spawn.Until(ctx, 2*time.Minute, "a session of each agent", func() error {
		for _, a := range r.bystanders {
			if err := a.quiet(); err != nil {
				return err
			}
		}
		return nil
	})
}

// under lets agents send results while a fault lasts, and says so where one that was read does not count meanwhile,
// or somebody who lives is missed.
func (r *faultsRun) under(ctx context.Context, begin, end func() error) error {
	if err := begin(); err != nil {
		return err
	}
	r.load(mostRuns)
	err := r.idle(ctx)
	if err == nil {
		err = r.allCount(ctx)
	}
	if err := errors.Join(err, end()); err != nil {
		return err
	}
	for _, a := range r.sensors {
		for _, s := range a.subjects {
			r.report.Results += len(s.sent)
		}
	}
	return r.whole(ctx)
}

// whole waits for quiet and says whether anybody was missed.
func (r *faultsRun) whole(ctx context.Context) error {
	return errors.Join(r.together(ctx), r.remember(ctx), r.nobodyMissed(ctx))
}

// allCount waits until each result of this round counts, in the order in which it was sent.
func (r *faultsRun) allCount(ctx context.Context) error {
	return spawn.Until(ctx, 2*time.Minute, "all results to count", func() error {
		for _, at := range r.Servers {
			if !at.Running() {
				continue
			}
			all, err := r.events(ctx, at)
			if err != nil {
				return err
			}
			for _, a := range r.sensors {
				for _, s := range a.subjects {
					if err := counts(s, r.before[s.name], all[s.name+"/disk"]); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
}

func counts(s *subject, before, now *monitor.Event) error {
	if now == nil {
		return fmt.Errorf("nothing is known of %s", s.name)
	}
	var got []int64
	for _, run := range now.Check.History {
		if run.Executed > before.Check.Executed {
			got = append(got, run.Executed)
		}
	}
	next := 0
	for _, sent := range s.sent {
		switch {
		case next < len(got) && got[next] == sent.number:
			next++
		case sent.taken.IsZero(): // its session ended first: it may have got lost
		case next < len(got):
			return spawn.Hopeless(fmt.Errorf("%s: run %d is lost or out of order: %v", s.name, sent.number, got))
		default:
			return fmt.Errorf("%s: run %d does not count", s.name, sent.number)
		}
	}
	if next != len(got) {
		return spawn.Hopeless(fmt.Errorf("%s: of %d results %d count", s.name, len(s.sent), len(got)))
	}
	return nil
}

// nobodyMissed looks through all that is kept of the pasts of keepalives.
func (r *faultsRun) nobodyMissed(ctx context.Context) error {
	query := url.Values{"namespace": {"default"}, "check": {monitor.KeepaliveCheck}}
	seen := 0
	for line, err := range r.clients[r.Servers[0]].Lines(ctx, "/api/corbel/v1/events/history", query) {
		if err != nil {
			return err
		}
		var one struct {
			Entity string
			Spans  []runs.Span
		}
		if err := json.Unmarshal(line, &one); err != nil {
			return err
		}
		seen++
		for _, s := range one.Spans {
			if s.Status != 0 {
				return fmt.Errorf("a false alarm: %s lives, and its keepalive went through %+v", one.Entity, one.Spans)
			}
		}
	}
	if want := len(r.sensors) + len(r.bystanders); seen < want {
		return fmt.Errorf("%d keepalives are known, of %d agents", seen, want)
	}
	return nil
}

// sum adds a metric of all servers that run; labels are such as handler="good".
func (r *faultsRun) sum(ctx context.Context, name string, labels ...string) (total float64, err error) {
	for _, s := range r.Servers {
		if !s.Running() {
			continue
		}
		one, err := r.figure(ctx, s, name, labels...)
		if err != nil {
			return 0, err
		}
		total += one
	}
	return total, nil
}

// figure is a metric of one server.
func (r *faultsRun) figure(ctx context.Context, s *faultrun.Server, name string, labels ...string) (total float64,
	err error) {
	body, err := r.get(ctx, s, "/metrics")
	if err != nil {
		return 0, err
	}
lines:
	for line := range strings.SplitSeq(string(body), "\n") {
		of, value, _ := strings.Cut(line, " ")
		if base, _, _ := strings.Cut(of, "{"); base != name {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(of, l) {
				continue lines
			}
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", line, err)
		}
		total += n
	}
	return total, nil
}
