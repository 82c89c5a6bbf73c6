package jobsruns

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"corbel.dev/corbel/kit/spawn"
	"corbel.dev/corbel/kit/spawn/harness"
	faultrun "corbel.dev/corbel/test/fault"
)

// Faults is one fault after the other on three servers: leaders that die while they place, a tenth of the nodes dead at
// once, most of them cut off. After each, exactly what was acknowledged runs.
type Faults struct {
	Nodes int // default 60
	// Cut is how many of them lose the servers at once; default half. Long keeps them away until they are taken for
	// dead; else they come back before that, and nothing may have moved.
	Cut  int
	Long bool
	// Leaders is how many leaders are killed while they place; default 1.
	Leaders int
	// Steps are names of steps; nil is all.
	Steps []string
}

// FaultSteps are the steps, in order.
var FaultSteps = []string{"leaders", "nodes", "partition"}

// FaultsReport is what a run did.
type FaultsReport struct {
	Steps, Placed, Killed, Cut int
	// Resumed are the times from a leader's end until the next allocation was placed, Replaced from the end of a tenth of
	// the nodes until all that they ran ran elsewhere.
	Resumed, Replaced []time.Duration
}

// faultsRun is a cluster under faults.
type faultsRun struct {
	*fleet
	*ledger
	cfg    Faults
	rng    *rand.Rand
	clerk  *anywhere
	report FaultsReport
}

// RunFaults does the steps on one cluster.
func RunFaults(ctx context.Context, l *faultrun.Lab, cfg Faults, seed uint64) (FaultsReport, error) {
	if cfg.Nodes == 0 {
		cfg.Nodes = 60
	}
	if cfg.Cut == 0 {
		cfg.Cut = cfg.Nodes / 2
	}
	if cfg.Leaders == 0 {
		cfg.Leaders = 1
	}
	if cfg.Steps == nil {
		cfg.Steps = FaultSteps
	}
	f, err := open(ctx, l, harness.Config{Servers: 3}, cfg.Nodes)
	if err != nil {
		return FaultsReport{}, err
	}
	defer f.close()
	r := &faultsRun{fleet: f, ledger: newLedger(f), cfg: cfg, rng: rand.New(rand.NewPCG(seed, 0xfa17)),
		clerk: f.anywhere(seed, 1)}
	defer r.clerk.client.Close()
	r.clerk.client.Timeout, f.Admin.Timeout = 30*time.Second, 30*time.Second // lists are long
	r.ledger.jobs = []*work{{id: "still", kind: "service", count: cfg.Nodes / 2},
		{id: "everywhere", kind: "system", count: 1},
		// One a node, and there is a place for each when Cut of the nodes are gone.
		{id: "port", kind: "service", count: max(1, min(cfg.Nodes/10, (cfg.Nodes-cfg.Cut)/2)), port: 8080}}
	if err := r.put(ctx, r.ledger.jobs...); err != nil {
		return r.report, fmt.Errorf("%w\n%s", err, r.Logs())
	}
	steps := map[string]func(context.Context) error{"leaders": r.leaders, "nodes": r.tenth, "partition": r.partition}
	for _, name := range cfg.Steps {
		step := steps[name]
		if step == nil {
			return r.report, fmt.Errorf("no step is called %q (know %s)", name, strings.Join(FaultSteps, ", "))
		}
		stop := background(ctx, r.watch(r.rng.Uint64()))
		if err := errors.Join(step(ctx), stop(), r.Damage()); err != nil {
			return r.report, fmt.Errorf("seed %d, %s: %w\n%s", seed, name, err, r.Logs())
		}
		r.report.Steps++
	}
	return r.report, nil
}

// put registers jobs, and waits until they run.
func (r *faultsRun) put(ctx context.Context, list ...*work) error {
	for _, w := range list {
		if err := w.put(ctx, r.clerk); err != nil {
			return err
		}
	}
	return r.exact(ctx)
}

// placed is how many allocations the jobs have.
func (r *faultsRun) placed(ctx context.Context, list []*work) (n int, err error) {
	jobs, err := r.summaries(ctx)
	for _, w := range list {
		n += jobs[w.id].Starting + jobs[w.id].Running
	}
	return n, err
}

// leaders: the leader dies while it places what would fill a quarter of the fleet; another one goes on.
func (r *faultsRun) leaders(ctx context.Context) error {
	for round := range r.cfg.Leaders {
		var fresh []*work
		const each = 50
		for i := range max(2, r.cfg.Nodes*places/4/each) {
			fresh = append(fresh, &work{id: fmt.Sprintf("filling-%d-%d", round, i), kind: []string{"service", "batch"}[i%2],
				count: each})
		}
		former, want := r.ledger.jobs, each*len(fresh)
		leader, err := r.leader(ctx)
		if err != nil {
			return err
		}
		registered := background(ctx, func(context.Context) error {
			for _, w := range fresh {
				if err := w.put(ctx, r.clerk); err != nil {
					return err
				}
			}
			return nil
		})
		// Somewhere in the first half: the next look finds more than that.
		at := 1 + r.rng.IntN(want/2)
		err = spawn.Until(ctx, patience, "the leader places", func() error {
			n, err := r.placed(ctx, fresh)
			if err == nil && n < at {
				err = fmt.Errorf("%d of %d are placed", n, at)
			}
			return err
		})
		if err == nil {
			err = r.next(ctx, leader, fresh, want)
		}
		r.ledger.jobs = slices.Concat(former, fresh)
		if err = errors.Join(err, registered(), r.Start()); err == nil {
			err = errors.Join(r.serves(ctx), r.exact(ctx))
		}
		if err != nil {
			return err
		}
		r.report.Placed += want
		for _, w := range fresh {
			w.count = 0
		}
		if err := r.put(ctx, fresh...); err != nil {
			return err
		}
	}
	return nil
}

// next kills the leader and waits until another one places more, or there is no more to place.
func (r *faultsRun) next(ctx context.Context, leader *faultrun.Server, fresh []*work, want int) error {
	leader.Kill()
	began := time.Now()
	was := -1
	return spawn.Until(ctx, patience, "another leader places", func() error {
		n, err := r.placed(ctx, fresh)
		switch {
		case err != nil:
			return err
		case n < want && (was < 0 || n <= was):
			was = max(was, n)
			return fmt.Errorf("%d of %d are placed", n, want)
		}
		r.report.Resumed = append(r.report.Resumed, time.Since(began))
		return nil
	})
}

// some are n of the nodes that live.
func (r *faultsRun) some(n int) []int {
	list := slices.Sorted(maps.Keys(r.alive))
	r.rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:n]
}

// tenth: a tenth of the nodes is gone in an instant. What ran there runs elsewhere, and nothing else moved.
func (r *faultsRun) tenth(ctx context.Context) error {
	dead := r.some(max(1, len(r.alive)/10))
	before, err := r.where(ctx)
	if err != nil {
		return err
	}
	if err := r.ask(ctx, "kill", map[string]any{"nodes": dead}, nil); err != nil {
		return err
	}
	began := time.Now()
	for _, number := range dead {
		delete(r.alive, number)
	}
	if err := r.exact(ctx); err != nil {
		return err
	}
	r.report.Replaced = append(r.report.Replaced, time.Since(began))
	r.report.Killed += len(dead)
	now, err := r.where(ctx)
	if err != nil {
		return err
	}
	for id, number := range before {
		if at, runs := now[id]; r.alive[number] && (!runs || at != number) {
			return fmt.Errorf("allocation %s ran on node %d, which lives, and runs there no more", id, number)
		}
	}
	if err := r.more(ctx, len(dead)); err != nil {
		return err
	}
	return r.exact(ctx) // the system job is on the new ones too
}

// where is on which node each allocation runs.
func (r *faultsRun) where(ctx context.Context) (map[string]int, error) {
	var nodes map[int]map[string]string
	if err := r.ask(ctx, "running", nil, &nodes); err != nil {
		return nil, err
	}
	at := map[string]int{}
	for number, list := range nodes {
		for id := range list {
			at[id] = number
		}
	}
	return at, nil
}

// partition: many nodes are cut off at once, and their tasks go on. When they come back soon, nothing moved; when they
// are away for long, what they ran runs elsewhere, and once they are back it runs there alone.
func (r *faultsRun) partition(ctx context.Context) error {
	part := r.some(min(r.cfg.Cut, len(r.alive)))
	cut := map[int]bool{}
	for _, number := range part {
		cut[number] = true
	}
	before, err := r.where(ctx)
	if err != nil {
		return err
	}
	if err := r.ask(ctx, "cut", map[string]any{"nodes": part}, nil); err != nil {
		return err
	}
	r.report.Cut += len(part)
	if !r.cfg.Long {
		_ = spawn.Sleep(ctx, 3*time.Second)
	} else if err := r.away(ctx, cut); err != nil {
		return err
	}
	if err := r.ask(ctx, "mend", map[string]any{"nodes": part}, nil); err != nil {
		return err
	}
	if err := errors.Join(r.fleet.ready(ctx), r.exact(ctx)); err != nil {
		return err
	}
	now, err := r.where(ctx)
	if err != nil {
		return err
	}
	for id, number := range before {
		if at, runs := now[id]; (!runs || at != number) && !(r.cfg.Long && cut[number]) {
			return fmt.Errorf("allocation %s ran on node %d and was moved without need", id, number)
		}
	}
	return nil
}

// away waits until all that are cut off are taken for dead, and everything runs on the others.
func (r *faultsRun) away(ctx context.Context, cut map[int]bool) error {
	err := until(ctx, "the nodes that are cut off are down", func() error {
		n, err := r.count(ctx, "down")
		if want := len(cut) + r.report.Killed; err == nil && n < want {
			err = fmt.Errorf("%d of %d are, with those that were killed", n, want)
		}
		return err
	})
	if err != nil {
		return err
	}
	return until(ctx, "everything runs on the nodes that are left", func() error {
		for _, w := range r.ledger.jobs {
			var list []allocation
			if err := r.read(ctx, "/v1/job/"+w.id+"/allocations", &list); err != nil {
				return err
			}
			n, want := 0, w.count
			for i := range list {
				if a := &list[i]; a.live() && a.ClientStatus == "running" {
					if number := numberOf(a.NodeID); cut[number] {
						return fmt.Errorf("%s is still said to run on node %d, which is cut off", a.Name, number)
					}
					n++
				}
			}
			if w.kind == "system" && w.count > 0 {
				want = len(r.alive) - len(cut)
			}
			if n != want {
				return fmt.Errorf("%s runs %d times, not %d", w.id, n, want)
			}
		}
		return nil
	})
}
