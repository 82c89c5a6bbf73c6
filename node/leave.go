package node

import (
	"context"
	"slices"
	"time"

	"corbel.dev/corbel/node/raftgroup"
)

const leaveTimeout = 15 * time.Second

// Leave takes this process out of its cluster before it ends: a leader hands
// over, the pool is told, and a server waits until the group did without it.
func (p *Process) Leave(ctx context.Context) error {
	p.Log.Info("leaving the cluster")
	if p.raft != nil {
		for _, plane := range p.doors.AllGroups() { // the leaders ask this server itself before they remove it
			plane.Leaving.Store(true)
		}
		if g := p.raft.Raft.Load(); g != nil && g.IsLeader() && len(p.OtherServers()) > 0 {
			if err := g.TransferLeadership(ctx, ""); err != nil {
				p.Log.Warn("cannot hand the leadership over", "error", err)
			}
		}
	}
	if p.wan != nil {
		if err := p.wan.Pool.Leave(ctx); err != nil {
			p.Log.Warn("cannot announce the leave to the other datacenters", "error", err)
		}
	}
	if err := p.Pool.Leave(ctx); err != nil {
		return err
	}
	if p.raft == nil || len(p.OtherServers()) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.Cfg.Raft.LeaveDrain)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for slices.ContainsFunc(p.doors.AllGroups(), (*raftgroup.Group).InConfiguration) {
		select {
		case <-ctx.Done():
			return nil // the others remove it when they see that it left
		case <-tick.C:
		}
	}
	return nil
}
