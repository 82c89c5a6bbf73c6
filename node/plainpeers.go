package node

import (
	"net/netip"

	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/node/base"
)

// knowServers tells the wire by which addresses servers are known on a plain network, where nothing is proven: a server
// believes its Raft configuration, and an agent, of which servers ask nothing but to look, believes the pool.
func (p *Process) knowServers() {
	p.Wire.KnowServers(func(addr netip.Addr, proto wire.Protocol) wire.Role {
		switch {
		case p.raft == nil && gossipsAsServer(p.Pool, addr),
			p.raft != nil && p.raft.isServer(addr, proto), p.monitor != nil && p.monitor.raft.isServer(addr, proto):
			return wire.Server
		case p.wan != nil && gossipsAsServer(p.wan.Pool, addr):
			return wire.Remote
		}
		return 0
	})
}

// isServer tells whether a server of the group has the address. A server that is no member yet, or has lost the leader,
// cannot know who became one meanwhile: there it listens to Raft from whom the pool calls a server, or it would be
// left behind for ever.
func (p *raftPlane) isServer(addr netip.Addr, proto wire.Protocol) bool {
	g := p.group.Load()
	if g != nil {
		servers, _, err := g.Configuration()
		for _, s := range servers {
			if at, bad := netip.ParseAddrPort(s.Address); err == nil && bad == nil && at.Addr().Unmap() == addr {
				return true
			}
		}
	}
	if proto != wire.ProtoRaft || g != nil && p.LastContact() <= silentLeader {
		return false
	}
	return gossipsAsServer(p.b.Pool, addr)
}

func gossipsAsServer(pool *member.Pool, addr netip.Addr) bool {
	for _, m := range pool.Members(member.ActKnowPlain) {
		at, err := netip.ParseAddrPort(base.MemberRPC(m))
		if err == nil && at.Addr().Unmap() == addr {
			return true
		}
	}
	return false
}
