package raftgroup

import (
	"context"
	"net/netip"

	"corbel.dev/corbel/api/consulapi/operatorrows"
	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/node/base"
)

// Votes says of a group, as this member of it sees it, whether all living servers that are to vote do, and how many
// voters may fail before it has no quorum.
func (p *Group) Votes() (whole bool, tolerance int, known bool) {
	g := p.Raft.Load()
	if g == nil {
		return false, 0, false
	}
	servers, _, err := g.Configuration()
	if err != nil || len(servers) == 0 {
		return false, 0, false
	}
	whole, tolerance = countVotes(servers, p.Base.Pool.Members(member.ActSuggestServer), p.takesPart)
	return whole, tolerance, true
}

func countVotes(servers []group.Server, pool []member.Member, takesPart func(member.Member) bool) (whole bool,
	tolerance int) {
	votes, voters := map[string]bool{}, 0
	for _, s := range servers {
		if votes[s.ID] = s.Voter; s.Voter {
			voters++
		}
	}
	whole, living := true, 0
	for _, m := range pool {
		switch id := m.Tags["id"]; {
		case m.Status != member.Alive:
		case votes[id]:
			living++
		case takesPart(m) && m.Tags["read_replica"] != "1":
			whole = false
		}
	}
	return whole && living == voters, max(living-(voters/2+1), 0)
}

// IsServer tells whether a server of the group has the address. A server that is no member yet, or has lost the leader,
// cannot know who became one meanwhile: there it listens to Raft from whom the pool calls a server, or it would be
// left behind for ever.
func (p *Group) IsServer(addr netip.Addr, proto wire.Protocol) bool {
	g := p.Raft.Load()
	if g != nil {
		servers, _, err := g.Configuration()
		for _, s := range servers {
			if at, bad := netip.ParseAddrPort(s.Address); err == nil && bad == nil && at.Addr().Unmap() == addr {
				return true
			}
		}
	}
	if proto != wire.ProtoRaft || g != nil && p.LastContact() <= Silent {
		return false
	}
	return GossipsAsServer(p.Base.Pool, addr)
}

func GossipsAsServer(pool *member.Pool, addr netip.Addr) bool {
	for _, m := range pool.Members(member.ActKnowPlain) {
		at, err := netip.ParseAddrPort(base.MemberRPC(m))
		if err == nil && at.Addr().Unmap() == addr {
			return true
		}
	}
	return false
}

// Find finds the member of the group that an operator names.
func (p *Group) Find(r operatorrows.PeerRemoval) (group.Server, bool) {
	if g := p.Raft.Load(); g != nil {
		servers, _, err := g.Configuration()
		for _, s := range servers {
			if err == nil && (s.ID == r.ID && r.ID != "" || r.ID == "" && r.Address != "" && s.Address == r.Address) {
				return s, true
			}
		}
	}
	return group.Server{}, false
}

// RemovePeer removes a server from this group, which this server leads.
func (p *Group) RemovePeer(ctx context.Context, r operatorrows.PeerRemoval) error {
	g := p.Raft.Load()
	if g == nil {
		return ErrForming
	}
	s, ok := p.Find(r)
	if !ok {
		name := r.Address
		if name == "" {
			name = r.ID
		}
		return errkind.Errorf(errkind.NotFound, "address %q was not found in the Raft configuration", name)
	}
	return g.RemoveServer(ctx, s.ID)
}

// Target is the RPC address of the group's leader.
func (p *Group) Target() (string, error) {
	if addr := p.LeaderAddr(); addr != "" {
		return addr, nil
	}
	return "", ErrForming
}
