package faultrun

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"corbel.dev/corbel/kit/spawn"
)

// stableHCL lets a server that joins vote after a second, so that a history sees the change end.
const stableHCL = `autopilot { server_stabilization_time = "1s" }`

// votersLimit is how long a history waits for a removed member to vote again before it goes on breaking things.
const votersLimit = 8 * time.Second

// change removes a follower from the group and lets it come back: as it is, or, half of the
// time, empty and so as somebody new. Data is only thrown away after the group said that
// this member is out of it; else the fault itself would lose what was acknowledged.
func (n *nemesis) change(ctx context.Context) error {
	leader, err := n.c.AwaitLeader(ctx, 2*time.Second)
	if err != nil {
		n.note("no leader to change members with")
		return nil
	}
	followers := n.c.Followers(leader)
	if len(followers) == 0 {
		n.note("no follower to remove")
		return nil
	}
	victim := followers[n.rng.IntN(len(followers))]
	wipe := n.rng.IntN(2) == 0
	n.note("removes %s, wipes it: %t", victim.Name, wipe)
	if wipe {
		victim.Kill()
	}
	if err := n.c.expel(ctx, leader, victim); err != nil {
		n.note("%v", err) // refused, or the leader changed
		return nil
	}
	_ = spawn.Sleep(ctx, n.between(100, 1500))
	if wipe {
		if err := os.RemoveAll(victim.Dir); err != nil {
			return err
		}
		if err := victim.Start(); err != nil {
			return err
		}
	}
	err = spawn.Until(ctx, votersLimit, "three voters", func() error { return n.c.voters(ctx, len(n.c.Servers)) })
	n.note("all vote again: %t", err == nil)
	return nil
}

// expel asks the leader once to remove a member.
func (c *Cluster) expel(ctx context.Context, leader, victim *Server) error {
	r := c.admin.At(leader.HTTP).Do(ctx, "DELETE", "/v1/operator/raft/peer?address="+victim.RPC, nil)
	if r.Status != http.StatusOK {
		return fmt.Errorf("remove %s: %w", victim.Name, errors.New(r.String()))
	}
	return nil
}
