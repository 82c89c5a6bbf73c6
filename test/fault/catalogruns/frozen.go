package catalogruns

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
	faultrun "corbel.dev/corbel/test/fault"
)

// Frozen says how servers are stopped (SIGSTOP) in turns, two of them in a row now and then (A14, the quorum).
type Frozen struct {
	Rounds int
	// Least and Most bound how long one is frozen.
	Least, Most time.Duration
}

// FrozenReport tells what was done, and how long after a quorum was back the first write took.
type FrozenReport struct {
	Freezes, Pairs, Writes int
	Resumed                []time.Duration
}

// RunFrozen freezes one server after the other under a load, with autopilot's usual settings. In each second round
// another one freezes while the first one still is, so that nobody can write; the first one then goes on, and two of
// three must write. After each round there are three voters.
func RunFrozen(ctx context.Context, l *faultrun.Lab, cfg Frozen, seed uint64) (report FrozenReport, err error) {
	c, book, load, err := loaded(ctx, l, harness.Config{Servers: 3, HCL: []string{faultrun.LinearHCL}}, seed)
	if err != nil {
		return report, err
	}
	defer c.Close()
	defer load.Close()
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, c.Logs())
		}
	}()
	if err := spawn.Until(ctx, harness.StartLimit, "three voters", func() error { return c.Voters(ctx, 3) }); err != nil {
		return report, err
	}
	for _, w := range load.List {
		w.Pace = 20 * time.Millisecond
	}
	load.Start(ctx)
	rng := rand.New(rand.NewPCG(seed, 14))
	for n := range cfg.Rounds {
		first, second := c.Servers[(int(seed)+n)%3], c.Servers[(int(seed)+n+1+rng.IntN(2))%3]
		frozen := cfg.Least + time.Duration(rng.Int64N(int64(cfg.Most-cfg.Least)+1))
		if err := first.Freeze(); err != nil {
			return report, err
		}
		report.Freezes++
		_ = spawn.Sleep(ctx, frozen)
		if err := spawn.Until(ctx, 30*time.Second, "three voters while "+first.Name+" is frozen",
			func() error { return c.Voters(ctx, 3) }); err != nil {
			return report, err
		}
		writing := first
		if n%2 == 0 {
			if err := second.Freeze(); err != nil {
				return report, err
			}
			report.Freezes, report.Pairs, writing = report.Freezes+1, report.Pairs+1, second
		}
		if err := first.Thaw(); err != nil {
			return report, err
		}
		took, err := firstWrite(ctx, c.Followers(writing), 60*time.Second)
		if err != nil {
			return report, fmt.Errorf("%s went on, and %s is frozen: %w", first.Name, writing.Name, err)
		}
		report.Resumed = append(report.Resumed, took)
		if err := errors.Join(c.Heal(ctx), spawn.Until(ctx, harness.StartLimit, "three voters after the freeze",
			func() error { return c.Voters(ctx, 3) }), c.Ready(ctx, harness.StartLimit)); err != nil {
			return report, err
		}
	}
	load.Stop()
	for _, w := range load.List {
		report.Writes += w.Counter
	}
	return report, errors.Join(c.Converged(ctx, harness.StartLimit), c.Audit(ctx, book), c.Damage())
}
