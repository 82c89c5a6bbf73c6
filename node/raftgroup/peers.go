package raftgroup

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"corbel.dev/corbel/api/consulapi/operatorrows"
	"corbel.dev/corbel/core/group"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/node/base"
)

// Votes are what a group may lose.
type Votes struct {
	Whole bool // all living servers that are to vote do, and those that vote live
	Spare int  // voters that may fail before it has no quorum
	// Small: even with all of its servers it could spare none. It runs on one or two servers of the cluster, by
	// configuration, or while an upgrade brings its plane to one after the other; whoever waits for it to spare one waits
	// for ever.
	Small bool
}

// Votes says what the group may lose, as this member of it sees it; false while it knows none of its members.
func (p *Group) Votes() (Votes, bool) {
	g := p.Raft.Load()
	if g == nil {
		return Votes{}, false
	}
	servers, _, err := g.Configuration()
	if err != nil || len(servers) == 0 {
		return Votes{}, false
	}
	return countVotes(servers, p.Base.Pool.Members(member.ActSuggestServer), p.takesPart), true
}

func countVotes(servers []group.Server, pool []member.Member, takesPart func(member.Member) bool) Votes {
	votes, voters := map[string]bool{}, 0
	for _, s := range servers {
		if votes[s.ID] = s.Voter; s.Voter {
			voters++
		}
	}
	whole, living, without, meant, unknown := true, 0, 0, 0, voters
	for _, m := range pool {
		voter := votes[m.Tags["id"]]
		if voter {
			unknown--
		}
		switch {
		case !takesPart(m) || m.Tags["read_replica"] == "1":
			if voter { // its plane was switched off, or is not in its release
				without++
			}
			continue
		case m.Status != member.Alive:
		case voter:
			living++
		default:
			whole = false
		}
		meant++
	}
	return Votes{whole && living+without == voters, max(living-(voters/2+1), 0), meant+unknown < fewestWithSpare}
}

// commonFor is how long an answer of Common holds: a change of the group's members takes longer than that.
const commonFor = time.Second

// Common returns what says whether all servers of the group tell a feature (version.TagFeatures), also those that are
// away: what a server without it would make something else of is not proposed before. False while this server knows
// none of them.
func Common(p *Group, feature string) func() bool {
	var mu sync.Mutex // guards what follows
	var asked time.Time
	var common bool
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		if now := p.Base.Clock.Now(); asked.IsZero() || now.Sub(asked) >= commonFor {
			asked, common = now, false
			if g := p.Raft.Load(); g != nil {
				if servers, _, err := g.Configuration(); err == nil {
					common = allTell(servers, p.Base.Pool.Members(member.ActSuggestServer), feature)
				}
			}
		}
		return common
	}
}

// allTell: one whose id two members have counts as the one that lacks the feature.
func allTell(servers []group.Server, pool []member.Member, feature string) bool {
	tells := map[string]bool{}
	for _, m := range pool {
		former, twice := tells[m.Tags["id"]]
		has := slices.Contains(strings.Split(m.Tags[version.TagFeatures], ","), feature)
		tells[m.Tags["id"]] = has && (former || !twice)
	}
	for _, s := range servers {
		if !tells[s.ID] {
			return false
		}
	}
	return len(servers) > 0
}

// fewestWithSpare voters have a majority without one of them.
const fewestWithSpare = 3

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
