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

// StableHCL lets a server that joins vote after a second, so that a history sees the change end.
const StableHCL = `autopilot { server_stabilization_time = "1s" }`

// votersLimit is how long a history waits for a removed member to vote again before it goes on breaking things.
const votersLimit = 8 * time.Second

// change removes a follower from the group and lets it come back: as it is, or, half of the
// time, empty and so as somebody new. Data is only thrown away after the group said that
// this member is out of it; else the fault itself would lose what was acknowledged.
func (n *Nemesis) change(ctx context.Context) error {
	leader, err := n.C.AwaitLeader(ctx, 2*time.Second)
	if err != nil {
		n.note("no leader to change members with")
		return nil
	}
	followers := n.C.Followers(leader)
	if len(followers) == 0 {
		n.note("no follower to remove")
		return nil
	}
	victim := followers[n.Rng.IntN(len(followers))]
	wipe := n.Rng.IntN(2) == 0
	n.note("removes %s, wipes it: %t", victim.Name, wipe)
	if wipe {
		victim.Kill()
	}
	if err := n.C.Expel(ctx, leader, victim); err != nil {
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
	err = spawn.Until(ctx, votersLimit, "three voters", func() error { return n.C.Voters(ctx, len(n.C.Servers)) })
	n.note("all vote again: %t", err == nil)
	return nil
}

// Expel asks the leader once to remove a member.
func (c *Cluster) Expel(ctx context.Context, leader, victim *Server) error {
	r := c.Admin.At(leader.HTTP).Do(ctx, "DELETE", "/v1/operator/raft/peer?address="+victim.RPC, nil)
	if r.Status != http.StatusOK {
		return fmt.Errorf("remove %s: %w", victim.Name, errors.New(r.String()))
	}
	return nil
}

// Voters returns nil when the leader knows n voters.
func (c *Cluster) Voters(ctx context.Context, n int) error {
	leader := c.Leader(ctx)
	if leader == nil {
		return errors.New("no leader")
	}
	var answer struct {
		Servers []struct {
			Address string
			Voter   bool
		}
	}
	if err := c.Admin.At(leader.HTTP).List(ctx, "/v1/operator/raft/configuration", &answer); err != nil {
		return err
	}
	found := 0
	for _, s := range answer.Servers {
		if s.Voter {
			found++
		}
	}
	if found != n {
		return fmt.Errorf("%d voters of %+v", found, answer.Servers)
	}
	return nil
}
