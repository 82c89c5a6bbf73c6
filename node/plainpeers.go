package node

import (
	"net/netip"
	"slices"

	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/node/raftgroup"
)

// knowServers tells the wire by which addresses servers are known on a plain network, where nothing is proven: a server
// believes its Raft configuration, and an agent, of which servers ask nothing but to look, believes the pool.
func (p *Process) knowServers() {
	p.Wire.KnowServers(func(addr netip.Addr, proto wire.Protocol) wire.Role {
		switch {
		case p.raft == nil && raftgroup.GossipsAsServer(p.Pool, addr),
			slices.ContainsFunc(p.doors.AllGroups(), func(g *raftgroup.Group) bool { return g.IsServer(addr, proto) }):
			return wire.Server
		case p.wan != nil && raftgroup.GossipsAsServer(p.wan.Pool, addr):
			return wire.Remote
		}
		return 0
	})
}
