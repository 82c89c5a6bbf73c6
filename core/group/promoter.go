package group

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	autopilot "github.com/hashicorp/raft-autopilot"
)

// nodeReplica is the contract's word for a server that never gets a vote.
const nodeReplica autopilot.NodeType = "read-replica"

// promoter gives votes as the library's does, and none to replicas, and says which dead servers may be removed. Of
// servers that are known from gossip it believes only what they say themselves.
type promoter struct {
	*autopilot.StablePromoter
	d   delegate
	ctx context.Context // of the leadership
}

// GetNodeTypes implements autopilot.Promoter: they are what KnownServers said.
func (promoter) GetNodeTypes(_ *autopilot.Config, s *autopilot.State) map[raft.ServerID]autopilot.NodeType {
	types := make(map[raft.ServerID]autopilot.NodeType, len(s.Servers))
	for id, server := range s.Servers {
		types[id] = server.Server.NodeType
	}
	return types
}

// CalculatePromotionsAndDemotions implements autopilot.Promoter.
func (p promoter) CalculatePromotionsAndDemotions(c *autopilot.Config, s *autopilot.State) autopilot.RaftChanges {
	changes := p.StablePromoter.CalculatePromotionsAndDemotions(c, s)
	changes.Promotions = slices.DeleteFunc(changes.Promotions, func(id raft.ServerID) bool {
		server := s.Servers[id].Server
		return !s.Servers[id].Health.Healthy || server.NodeType == nodeReplica || !p.confirms(&server, false)
	})
	for id, server := range s.Servers {
		if server.Server.NodeType == nodeReplica && server.State == autopilot.RaftVoter && p.confirms(&server.Server, true) {
			changes.Demotions = append(changes.Demotions, id)
		}
	}
	return changes
}

// confirms reports whether a server says itself that it is, or is not, a replica; what was not heard by gossip is so.
func (p promoter) confirms(s *autopilot.Server, replica bool) bool {
	if s.Ext != hearsay {
		return true
	}
	said, err := p.d.in.g.Ask(p.ctx, string(s.Address))
	if err != nil {
		p.d.in.g.cfg.Log.Debug("a server does not say whether it is to vote", "server", s.ID, "err", err)
		return false
	}
	return said.ID == string(s.ID) && said.Replica == replica && !said.Leaving
}

// hearsay is the Ext of servers that are known from gossip.
const hearsay = "hearsay"

// FilterFailedServerRemovals implements autopilot.Promoter: of those that gossip calls failed, or does not know, it
// leaves the ones that have not answered this leader either for the stabilisation time, as far as the voters can
// spare them.
func (p promoter) FilterFailedServerRemovals(c *autopilot.Config, s *autopilot.State,
	failed *autopilot.FailedServers) *autopilot.FailedServers {
	if s == nil {
		return new(autopilot.FailedServers)
	}
	alive := func(id raft.ServerID) bool { return p.d.silent(string(id)) < c.ServerStabilizationTime }
	failed.StaleNonVoters = slices.DeleteFunc(failed.StaleNonVoters, alive)
	failed.StaleVoters = slices.DeleteFunc(failed.StaleVoters, alive)
	failed.FailedNonVoters = slices.DeleteFunc(failed.FailedNonVoters,
		func(s *autopilot.Server) bool { return alive(s.ID) })
	failed.FailedVoters = slices.DeleteFunc(failed.FailedVoters, func(s *autopilot.Server) bool { return alive(s.ID) })
	healthy := 0
	for _, id := range s.Voters {
		if s.Servers[id].Health.Healthy {
			healthy++
		}
	}
	switch spare := spared(len(s.Voters), healthy, int(c.MinQuorum)); {
	case !spare:
		failed.StaleVoters, failed.FailedVoters = nil, nil
	case len(failed.StaleVoters) > 0: // one at a time
		failed.StaleVoters, failed.FailedVoters = failed.StaleVoters[:1], nil
	case len(failed.FailedVoters) > 0:
		failed.FailedVoters = failed.FailedVoters[:1]
	}
	return failed
}

// spared reports whether one of the voters that are dead may be removed. It may when that makes the group no weaker:
// when as many failures are survived with one voter less, which is so when a replacement has its vote already. Three
// voters of which one is frozen stay three, and it takes two answers to commit as before; with two voters left, the
// next one that freezes would stop all writes, though two of three servers run. Operators may remove whom they like.
func spared(voters, healthy, minQuorum int) bool {
	survives := func(voters int) int { return (voters - 1) / 2 }
	return healthy < voters && healthy > voters/2 && voters-1 >= minQuorum && survives(voters-1) >= survives(voters)
}

// silent is for how long a member has not answered this leader.
func (d delegate) silent(id string) time.Duration {
	last := d.began
	if seen, ok := d.in.links.peers.of(id); ok {
		last = max(last, seen.contact)
	}
	return time.Duration(d.in.links.peers.now() - last)
}
