package usageruns

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
	faultrun "corbel.dev/corbel/test/fault"
)

// Roll is a rollout of three servers under half of the load that they take.
type Roll struct {
	Senders int           // default 32
	Span    time.Duration // of the measurement without a rollout, and of that of the load; default 20 s
}

// RollReport tells what a rollout did.
type RollReport struct {
	// Capacity is how many batches a second were taken as fast as senders could; half of it is the load.
	Capacity float64
	// Quiet and Rolled are how long batches took from their first try until they were answered, without and during
	// the rollout.
	Quiet, Rolled []time.Duration
	Report
}

// RunRoll measures the intake alone, then while each server is stopped in order and started again. Afterwards every
// estimate is the model's.
func RunRoll(ctx context.Context, l *faultrun.Lab, cfg Roll, seed uint64) (report RollReport, err error) {
	cfg.Senders, cfg.Span = cmp.Or(cfg.Senders, 32), cmp.Or(cfg.Span, 20*time.Second)
	c, err := l.Open(ctx, harness.Config{Servers: 3, HCL: []string{fmt.Sprintf(config, usual)}})
	if err != nil {
		return report, err
	}
	defer c.Close()
	m := &model{events: map[string]event{}, report: &report.Report}
	if err := define(ctx, c); err != nil {
		return report, errors.Join(err, c.Damage())
	}
	group := make(rollout, cfg.Senders)
	for i := range group {
		group[i] = &sender{name: fmt.Sprint("s", i), m: m, c: c, client: faultrun.NewClient(c.Servers[0].HTTP),
			r: rand.New(rand.NewPCG(seed, uint64(100+i)))}
		defer group[i].client.Close()
	}
	for _, step := range []func() error{
		func() error {
			took, err := group.load(ctx, 0, func() error { return spawn.Sleep(ctx, cfg.Span/4) })
			report.Capacity = float64(len(took)) / (cfg.Span / 4).Seconds()
			return err
		},
		func() (err error) {
			report.Quiet, err = group.load(ctx, report.Capacity/2, func() error { return spawn.Sleep(ctx, cfg.Span) })
			return err
		},
		func() (err error) {
			report.Rolled, err = group.load(ctx, report.Capacity/2, func() error { return roll(ctx, c, &report.Report) })
			return err
		},
		func() error { return m.judge(ctx, c) },
		c.Damage,
	} {
		if err := step(); err != nil {
			return report, fmt.Errorf("%w\n%s", err, c.Logs())
		}
	}
	return report, nil
}

// roll stops and starts each server.
func roll(ctx context.Context, c *faultrun.Cluster, report *Report) error {
	for _, s := range c.Servers {
		began := time.Now()
		if err := errors.Join(s.Stop(), c.Start(), c.Ready(ctx, harness.StartLimit), whole(ctx, c)); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		report.Cycles++
		report.Starts = append(report.Starts, time.Since(began))
	}
	return nil
}

// whole waits until no part is led without a copy, as operators are told to before they stop another server.
func whole(ctx context.Context, c *faultrun.Cluster) error {
	return spawn.Until(ctx, harness.StartLimit, "a copy of every part", func() error {
		led := 0.0
		for _, s := range c.Servers {
			var metrics struct {
				Gauges []struct {
					Name  string
					Value float64
				}
			}
			r := c.Admin.At(s.HTTP).Do(ctx, "GET", "/v1/agent/metrics", nil)
			if err := errors.Join(asked(r), json.Unmarshal(r.Body, &metrics)); err != nil {
				return err
			}
			for _, g := range metrics.Gauges {
				switch {
				case strings.HasSuffix(g.Name, "usage.parts.led"):
					led += g.Value
				case strings.HasSuffix(g.Name, "usage.parts.alone") && g.Value > 0:
					return fmt.Errorf("%s leads %v parts without a copy", s.Name, g.Value)
				}
			}
		}
		if led < float64(len(c.Servers)) {
			return fmt.Errorf("%v of %d parts are led", led, len(c.Servers))
		}
		return nil
	})
}

// rollout is senders that share a load.
type rollout []*sender

// load sends batches while f runs, so many a second of all senders; zero is as many as can be. It returns how long each
// took from the instant at which it was due, so that one that waits makes the next ones late too.
func (group rollout) load(ctx context.Context, perSecond float64, f func() error) (took []time.Duration, err error) {
	until, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	times, failed := make([][]time.Duration, len(group)), make([]error, len(group))
	for i, s := range group {
		wg.Go(func() {
			due := time.Now()
			for until.Err() == nil && failed[i] == nil {
				if perSecond == 0 {
					due = time.Now()
				} else if spawn.Sleep(until, time.Until(due)) != nil {
					return
				}
				failed[i] = s.fresh(ctx)
				times[i] = append(times[i], time.Since(due))
				if perSecond > 0 {
					due = due.Add(time.Duration(float64(len(group)) / perSecond * float64(time.Second)))
				}
			}
		})
	}
	err = f()
	cancel()
	wg.Wait()
	for _, list := range times {
		took = append(took, list...)
	}
	return took, errors.Join(append(failed, err)...)
}
