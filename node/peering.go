package node

import (
	"context"

	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/peers"
	catalogplane "corbel.dev/corbel/node/planes/catalog"
	meshplane "corbel.dev/corbel/node/planes/mesh"
)

// newPeers makes the keeper of peerings where the configuration wants one.
func (s *Server) newPeers() *peers.Manager {
	if !s.Cfg.Peering.Enabled {
		return nil
	}
	var own peers.Mesh
	if s.Cfg.Connect.Enabled {
		own = meshplane.Own{Datacenter: s.Cfg.Node.Datacenter}
	}
	return peers.New(peers.Config{Mesh: own, Catalog: s.registry, Leader: s.raft, CallLeader: s.callLeader, Wire: s.Wire,
		Datacenter: s.Cfg.Node.Datacenter, ServerName: base.ServerName(s.Cfg.Node.Datacenter, s.Cfg.DNS.Domain),
		Roots:     func() ([]string, error) { return base.RootsPEM(s.Current()) },
		Addresses: catalogplane.Operator{Raft: s.raft}.Peers, Clock: s.Clock, Log: s.Log, Metrics: s.Metrics})
}

// receivePeers lets the servers of peered clusters connect, and keeps the connections to those that we dial.
func (s *Server) receivePeers() {
	srv, may := s.peers.Strangers(), s.peers.Accepts
	s.Parts.Add("peering", func(ctx context.Context) error {
		return srv.Run(ctx, s.Wire.Listen(wire.ProtoPeering, 0, wire.Anyone))
	})
	s.Parts.Add("peerings", s.peers.Run)
	s.Certs.Peers.Store(&may)
}
