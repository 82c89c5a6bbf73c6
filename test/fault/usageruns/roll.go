package usageruns

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
	// Slow are the moments of the rollout in which batches waited long, and what was done last before.
	Slow []string
	Report
}

// ordinary is the log as servers have it that are told nothing, apart from what they produce themselves.
const ordinary = `usage { own_planes = false }`

// RunRoll measures the intake alone, then while each server is stopped in order and started again. Afterwards every
// estimate is the model's.
func RunRoll(ctx context.Context, l *faultrun.Lab, cfg Roll, seed uint64) (report RollReport, err error) {
	cfg.Senders, cfg.Span = cmp.Or(cfg.Senders, 32), cmp.Or(cfg.Span, 20*time.Second)
	c, err := l.Open(ctx, harness.Config{Servers: 3, HCL: []string{ordinary}})
	if err != nil {
		return report, err
	}
	defer c.Close()
	m := &model{events: map[string]event{}, report: &report.Report}
	if err := define(ctx, c); err != nil {
		return report, errors.Join(err, c.Damage())
	}
	group := m.senders(c, cfg.Senders, seed)
	defer group.close()
	for _, s := range group {
		s.away = map[string]time.Time{}
	}
	for _, step := range []func() error{
		func() error {
			list, err := group.load(ctx, 0, func() error { return spawn.Sleep(ctx, cfg.Span/4) })
			report.Capacity = float64(len(list)) / (cfg.Span / 4).Seconds()
			return err
		},
		func() error {
			list, err := group.load(ctx, report.Capacity/2, func() error { return spawn.Sleep(ctx, cfg.Span) })
			report.Quiet = waits(list)
			return err
		},
		func() error {
			var done steps
			list, err := group.load(ctx, report.Capacity/2, func() error { return done.roll(ctx, c, &report.Report) })
			report.Rolled, report.Slow = waits(list), done.slow(list)
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

// steps are what was done in a rollout, in order, and when it began.
type steps []step

type step struct {
	what string
	at   time.Time
}

func (s *steps) do(what string, f func() error) error {
	*s = append(*s, step{what, time.Now()})
	if err := f(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// roll stops and starts each server, the next one when the one before is ready. Then it waits until all parts are where
// they were.
func (s *steps) roll(ctx context.Context, c *faultrun.Cluster, report *Report) error {
	for _, one := range c.Servers {
		began := time.Now()
		for _, next := range []struct {
			what string
			do   func() error
		}{
			{"stop " + one.Name, one.Stop},
			{"start " + one.Name, func() error { return one.Start() }},
			{one.Name + " becomes ready", func() error { return ready(ctx, c, one) }},
			{one.Name + " is ready", func() error { return whole(ctx, c, one) }},
		} {
			if err := s.do(next.what, next.do); err != nil {
				return err
			}
		}
		report.Cycles++
		report.Starts = append(report.Starts, time.Since(began))
	}
	return s.do("all are ready", func() error { return home(ctx, c) })
}

// slowGap is how far apart batches are due that waited in the same moment.
const slowGap = 100 * time.Millisecond

// slow tells of the moments in which batches waited for longer than a tenth of a second: how long at most, and what was
// done before.
func (s steps) slow(list []batch) (out []string) {
	slices.SortFunc(list, func(a, b batch) int { return a.due.Compare(b.due) })
	var last, first time.Time
	worst, many := time.Duration(0), 0
	end := func() {
		if many == 0 {
			return
		}
		of := "before all"
		for _, one := range s {
			if !one.at.After(first) {
				of = fmt.Sprintf("%v after: %s", first.Sub(one.at).Round(time.Millisecond), one.what)
			}
		}
		out = append(out, fmt.Sprintf("%d batches due within %v waited up to %v, from %s", many,
			last.Sub(first).Round(time.Millisecond), worst.Round(time.Millisecond), of))
	}
	for _, b := range list {
		if b.took < slowGap {
			continue
		}
		if b.due.Sub(last) > slowGap {
			end()
			first, worst, many = b.due, 0, 0
		}
		last, worst, many = b.due, max(worst, b.took), many+1
	}
	end()
	return out
}

// ready waits until a server says that it is, as rolling updates do.
func ready(ctx context.Context, c *faultrun.Cluster, s *faultrun.Server) error {
	return spawn.Until(ctx, harness.StartLimit, s.Name+" is ready", func() error {
		return asked(c.Admin.At(s.HTTP).Do(ctx, "GET", "/v1/agent/health/ready", nil))
	})
}

// part is who has a part of the log, as a server says.
type part struct{ Lead, Copy string }

func parts(ctx context.Context, c *faultrun.Cluster, s *faultrun.Server) (map[string]part, error) {
	var all struct{ Parts map[string]part }
	r := c.Admin.At(s.HTTP).Do(ctx, "GET", "/v1/usage/servers", nil)
	err := errors.Join(asked(r), json.Unmarshal(r.Body, &all))
	if err == nil && len(all.Parts) != len(c.Servers) {
		err = errors.New(r.String())
	}
	return all.Parts, err
}

// home waits until each part is led by the server that had it first, and has a copy.
func home(ctx context.Context, c *faultrun.Cluster) error {
	return spawn.Until(ctx, harness.StartLimit, "each part at its home", func() error {
		all, err := parts(ctx, c, c.Servers[0])
		for name, p := range all {
			if p.Lead != name || p.Copy == "" {
				return fmt.Errorf("part %s: %+v", name, p)
			}
		}
		return err
	})
}

// whole says that each part has a copy: a server that is ready has waited for that.
func whole(ctx context.Context, c *faultrun.Cluster, s *faultrun.Server) error {
	all, err := parts(ctx, c, s)
	for name, p := range all {
		if p.Copy == "" {
			return fmt.Errorf("%s is ready, and part %s has no copy", s.Name, name)
		}
	}
	return err
}

// rollout is senders that share a load.
type rollout []*sender

// batch is one that was sent: when it was due, and how long from then on until it was answered.
type batch struct {
	due  time.Time
	took time.Duration
}

func waits(list []batch) (out []time.Duration) {
	for _, b := range list {
		out = append(out, b.took)
	}
	return out
}

// load sends batches while f runs, so many a second of all senders; zero is as many as can be. How long each took
// counts from the instant at which it was due, so that one that waits makes the next ones late too.
func (group rollout) load(ctx context.Context, perSecond float64, f func() error) (all []batch, err error) {
	until, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	lists, failed := make([][]batch, len(group)), make([]error, len(group))
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
				lists[i] = append(lists[i], batch{due, time.Since(due)})
				if perSecond > 0 {
					due = due.Add(time.Duration(float64(len(group)) / perSecond * float64(time.Second)))
				}
			}
		})
	}
	err = f()
	cancel()
	wg.Wait()
	return slices.Concat(lists...), errors.Join(append(failed, err)...)
}
