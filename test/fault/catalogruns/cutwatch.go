package catalogruns

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"corbel.dev/corbel/kit/fault"
	"corbel.dev/corbel/kit/spawn/harness"
	faultrun "corbel.dev/corbel/test/fault"
)

// RunPartitionedWatch cuts the leader off for good measure and looks that watchers at the others,
// whose requests went to it, are woken by writes that the new leader takes while the cut stands.
func RunPartitionedWatch(ctx context.Context, l *faultrun.Lab, seed uint64) (time.Duration, error) {
	c, err := l.Open(ctx, harness.Config{Servers: 3, HCL: []string{faultrun.LinearHCL}})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	leader, err := c.AwaitLeader(ctx, 20*time.Second)
	if err != nil {
		return 0, err
	}
	few := *c.Cluster
	few.Servers = c.Followers(leader)
	rest := &faultrun.Cluster{Cluster: &few, Admin: c.Admin}
	w := &watchWriter{client: faultrun.NewClient(rest.Servers[0].HTTP), servers: rest.Servers, unknown: doubts{}}
	w.client.Timeout = 3 * time.Second
	defer w.client.Close()
	w.rng = rand.New(rand.NewPCG(seed, 5))
	first, err := w.final(ctx)
	if err != nil {
		return 0, err
	}
	list, stop := startWatchers(ctx, rest, 2, seed)
	defer stop()
	if err := settled(ctx, list, first, w.unknown, watchLimit); err != nil {
		return 0, err
	}
	if err := fault.Partition(ctx, harness.Peers(leader), harness.Peers(rest.Servers...)); err != nil {
		return 0, err
	}
	final, err := w.final(ctx)
	if err != nil {
		return 0, fmt.Errorf("%w\n%s", err, c.Logs())
	}
	begin := time.Now()
	if err := settled(ctx, list, final, w.unknown, watchLimit); err != nil {
		return 0, fmt.Errorf("while the former leader is cut off: %w", err)
	}
	return time.Since(begin), c.Damage()
}
