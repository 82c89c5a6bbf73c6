package catalogruns

import (
	"context"
	"errors"
	"fmt"
	"time"

	"corbel.dev/corbel/kit/fault/history"
	"corbel.dev/corbel/kit/fault/netns"
	"corbel.dev/corbel/kit/spawn/harness"
	faultrun "corbel.dev/corbel/test/fault"
)

// NamespaceReport tells what a cut of the network did.
type NamespaceReport struct {
	Resumed, Converged time.Duration
}

// RunNamespaces cuts the leader's cable under load, for TCP and gossip alike, and
// puts it in again. The clients reach every member all the time, over unix sockets.
func RunNamespaces(ctx context.Context, l *faultrun.Lab, seed uint64) (report NamespaceReport, err error) {
	network, err := netns.New(3)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, network.Close()) }()
	c, book, load, err := loaded(ctx, l, harness.Config{Servers: 3, HCL: []string{faultrun.LinearHCL}, Net: network}, seed)
	if err != nil {
		return report, err
	}
	defer c.Close()
	defer load.Close()
	load.Start(ctx)
	leader, err := c.AwaitLeader(ctx, 20*time.Second)
	if err != nil {
		return report, err
	}
	host := 0
	for i, s := range c.Servers {
		if s == leader {
			host = i
		}
	}
	if err := network.Partition([]int{host}, []int{(host + 1) % 3, (host + 2) % 3}); err != nil {
		return report, err
	}
	if report.Resumed, err = firstWrite(ctx, c.Followers(leader), 30*time.Second); err != nil {
		return report, fmt.Errorf("%w\n%s", err, c.Logs())
	}
	if err := silent(ctx, c, leader); err != nil {
		return report, err
	}
	if err := network.Heal(); err != nil {
		return report, err
	}
	begin := time.Now()
	if err := c.Converged(ctx, 30*time.Second); err != nil {
		return report, fmt.Errorf("%w\n%s", err, c.Logs())
	}
	report.Converged = time.Since(begin)
	load.Stop()
	return report, errors.Join(c.Audit(ctx, book), c.Damage())
}

// silent looks that a member that is cut off acknowledges no write and answers no consistent or default read.
func silent(ctx context.Context, c *faultrun.Cluster, s *faultrun.Server) error {
	client := faultrun.NewClient(s.HTTP)
	defer client.Close()
	client.Timeout = 3 * time.Second
	for _, path := range []string{"/v1/kv/converged", "/v1/kv/converged?consistent"} {
		if r := client.Do(ctx, "GET", path, nil); r.Outcome == history.OK || r.Status == 404 {
			return fmt.Errorf("%s, cut off from the others, answered %s: %s", s.Name, path, r)
		}
	}
	if r := client.Do(ctx, "PUT", "/v1/kv/minority", []byte("x")); r.Outcome == history.OK {
		return fmt.Errorf("%s, cut off from the others, acknowledged a write", s.Name)
	}
	return nil
}
