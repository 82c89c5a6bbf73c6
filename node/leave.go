package node

import (
	"context"
	"slices"
	"time"

	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/raftgroup"
)

const leaveTimeout = 15 * time.Second

// serverDrain bounds how long a server that ends waits for agents to go elsewhere, and for another to lead.
const serverDrain = 5 * time.Second

// Leave takes this process out of its cluster before it ends: a leader hands
// over, the pool is told, and a server waits until the group did without it.
func (p *localAgent) Leave(ctx context.Context) error {
	p.Log.Info("leaving the cluster")
	p.role.leaving(ctx)
	if err := p.Pool.Leave(ctx); err != nil {
		return err
	}
	p.role.gone(ctx)
	return nil
}

// handOver implements role: agents go to other servers, and one of these leads.
func (s *Server) handOver(ctx context.Context) {
	if len(s.OtherServers()) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, serverDrain)
	defer cancel()
	s.Log.Info("this server takes no new work")
	if err := s.AddTag(ctx, base.TagAway, "drains"); err != nil {
		s.Log.Warn("cannot announce that this server is draining", "error", err)
	}
	s.transfer(ctx)
	s.doors.Planes.Drain(ctx)
	s.part()
	s.feeds.Drain(ctx)
}

// transfer has another server lead the catalog, where this one does.
func (s *Server) transfer(ctx context.Context) {
	if g := s.raft.Raft.Load(); g != nil && g.IsLeader() {
		if err := g.TransferLeadership(ctx, ""); err != nil {
			s.Log.Warn("cannot hand the leadership over", "error", err)
		}
	}
}

func (s *Server) leaving(ctx context.Context) {
	for _, g := range s.doors.AllGroups() { // the leaders ask this server itself before they remove it
		g.Leaving.Store(true)
	}
	if len(s.OtherServers()) > 0 {
		s.transfer(ctx)
	}
	if s.wan != nil {
		if err := s.wan.Pool.Leave(ctx); err != nil {
			s.Log.Warn("cannot announce the leave to the other datacenters", "error", err)
		}
	}
}

// gone implements role: it waits until the others have removed this server, which they also do later, when they see
// that it left.
func (s *Server) gone(ctx context.Context) {
	if len(s.OtherServers()) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.Cfg.Raft.LeaveDrain)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for slices.ContainsFunc(s.doors.AllGroups(), (*raftgroup.Group).InConfiguration) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
