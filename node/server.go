package node

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"corbel.dev/corbel/api/consulapi"
	"corbel.dev/corbel/api/dnsapi"
	"corbel.dev/corbel/catalog/coordinates"
	"corbel.dev/corbel/catalog/grants"
	"corbel.dev/corbel/catalog/registry"
	"corbel.dev/corbel/core/wan"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/kit/vivaldi"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/enroll"
	"corbel.dev/corbel/node/forward"
	"corbel.dev/corbel/node/leadership"
	"corbel.dev/corbel/node/peers"
	catalogplane "corbel.dev/corbel/node/planes/catalog"
	meshplane "corbel.dev/corbel/node/planes/mesh"
	"corbel.dev/corbel/node/raftgroup"
	"corbel.dev/corbel/node/spool"
)

// Server has the catalog: it replicates it with the other servers, and answers agents.
type Server struct {
	*localAgent
	registry   *registry.Registry
	raft       *raftgroup.Group
	terms      *leadership.Terms
	feeds      *meshplane.Server // what it does for the mesh
	wan        *wan.WAN          // nil with ports.serf_wan = -1
	resolver   *grants.Resolver  // nil while ACLs are off
	keeper     *grants.Keeper    // the same
	places     *coordinates.Staging
	introducer *enroll.Introducer // nil without auto_config.authorization
	peers      *peers.Manager     // nil with peering.enabled = false
	founds     founding
	uploads    *spool.Bodies
	parting    context.Context // ends when parked queries of other processes are to be answered
	part       context.CancelFunc
}

func newServer(p *localAgent) (_ *Server, err error) {
	s := &Server{localAgent: p, uploads: &spool.Bodies{Dir: p.Cfg.DataDir}}
	s.parting, s.part = context.WithCancel(context.Background())
	p.role = s
	if s.founds, err = newFounding(p.Cfg); err != nil {
		return nil, err
	}
	s.registry, err = registry.New(registry.Config{
		Members: poolMembers{p.Pool}, NodeName: p.Cfg.Node.Name, Datacenter: p.Cfg.Node.Datacenter,
		Version: version.Contract, Clock: p.Clock, Logger: p.Log, Metrics: p.Metrics,
		Fsyncs: func() uint64 { return s.raft.Fsyncs() },
	})
	if err != nil {
		return nil, err
	}
	s.raft = raftgroup.New(p.Base, s.registry)
	s.registry.SetProposer(s.raft)
	if s.feeds, err = meshplane.NewServer(s.raft, &p.access); err != nil {
		return nil, err
	}
	s.terms = &leadership.Terms{Leader: s.raft.LeaderAddr, Changes: s.raft.LeaderChanges}
	if s.wan, err = newWAN(p.Base); err != nil {
		return nil, err
	}
	if s.wan != nil {
		p.Far = s.wan.Paths
	}
	p.take(s, s.raft, s.judge())
	s.places = coordinates.New(coordinates.Config{Catalog: s.registry, Leads: s.raft.IsLeader,
		CallLeader: s.callLeader, Grant: p.access.Grant, Log: p.Log, Metrics: p.Metrics})
	s.peers = s.newPeers()
	s.introducer, err = s.newIntroducer()
	return s, err
}

func (s *Server) servers() *catalogplane.Servers {
	out := &catalogplane.Servers{Client: s.RPC, Target: s.raft.Target, Own: func() catalogplane.Applier {
		if s.raft.IsLeader() {
			return s.registry
		}
		return nil
	}}
	if s.resolver != nil {
		out.Allow, out.Sees = s.maySync, s.maySee
	}
	return out
}

func (s *Server) meshSource() meshplane.Source { return s.feeds }

func (s *Server) passOn(c *forward.Config) {
	c.Leader, c.Changes, c.Terms = s.raft.LeaderAddr, s.raft.LeaderChanges, s.terms
}

func (s *Server) configureAPI(c *consulapi.Config) {
	c.Registry, c.LeaderChanges, c.ACL.Keeper = s.registry, s.raft.LeaderChanges, s.keeper
	c.KV.Sessions, c.Catalog.Leases, c.Mesh.CA = s.registry, s.registry, meshplane.APIAuthority{Authority: s.feeds.CA}
	c.Operator.Group = catalogplane.Operator{Raft: s.raft, Others: s.doors.Groups} // the planes are opened later
	c.Operator.Snapshots, c.Operator.Coordinates = catalogplane.Snapshots{Raft: s.raft, Dir: s.Cfg.DataDir}, places{s}
	if s.peers != nil {
		c.Peering.Peers = s.peers
	}
	keys := keyrings{lan: s.Pool}
	if s.wan != nil {
		keys.wan, c.Agent.WAN, c.Remote = s.wan.Pool, apiMembers{s.wan.Pool},
			remote{forward.Datacenters{Paths: s.wan.Paths, Limits: forwardLimits(s.Cfg)}, s.wan}
	}
	if s.Pool.Encrypted() {
		c.Operator.Keyring = keys
	}
}

func (s *Server) configureDNS(c *dnsapi.Config) {
	c.Forward, c.Source, c.Queries = leaderDNS{s}, dnsSource{s.raft}, dnsQueries{s.api.Queries}
	if s.wan != nil {
		c.Remote = dnsRemote{s.wan}
	}
}

// answers implements role: what servers do for agents and for each other. The parts that have methods of their own
// register them where they are built.
func (s *Server) answers(servers *catalogplane.Servers) {
	if s.wan != nil {
		s.RPCSrv.Handle(wire.AllServers, wan.MethodKeys, s.wan.Pool.AnswerKeys)
	}
	forward.Answers{API: s.api, Streamed: s.doctor, Uploads: s.uploads, Parting: s.parting,
		Ending: &s.doors.Ending}.Register(s.RPCSrv, wire.Federation)
	s.RPCSrv.Handle(wire.Members, methodDNS, serveDNS(s.dns))
	s.RPCSrv.Handle(wire.Members, coordinates.MethodUpdate, s.places.Serve)
	s.RPCSrv.Handle(wire.Servers, coordinates.MethodJudged, s.places.ServeJudged)
	servers.Handle(s.RPCSrv, s.api)
	if s.peers != nil {
		s.peers.Register(s.RPCSrv)
	}
}

func (s *Server) runs() {
	s.Parts.Add("catalog raft", s.raft.Run)
	s.Parts.Add("catalog", s.registry.Run)
	s.Parts.Add("mesh snapshot cache", s.feeds.Snapshots.Run)
	s.Parts.Add("leadership terms", s.terms.Run)
	s.Parts.Add("founding", s.found)
	if s.Cfg.AutoEncrypt.AllowTLS || s.Cfg.AutoConfig.Authorize {
		s.welcome()
	}
	if s.peers != nil {
		s.receivePeers()
	}
	if s.wan != nil {
		addWAN(s.Base, s.wan)
	}
	s.Parts.Add("uploads", func(ctx context.Context) error {
		<-ctx.Done()
		s.uploads.Close()
		return nil
	})
	if s.keeper != nil {
		s.Parts.Add("acl", s.keeper.Run)
	}
	s.Parts.Add("coordinates", s.places.Run)
}

// roleOf implements role: a server believes its Raft configuration.
func (s *Server) roleOf(addr netip.Addr, proto wire.Protocol) wire.Role {
	switch {
	case slices.ContainsFunc(s.doors.AllGroups(), func(g *raftgroup.Group) bool { return g.IsServer(addr, proto) }):
		return wire.Server
	case s.wan != nil && raftgroup.GossipsAsServer(s.wan.Pool, addr):
		return wire.Remote
	}
	return 0
}

func (s *Server) place(_ context.Context, at vivaldi.Coord) error {
	s.places.Stage(s.Cfg.Node.Name, at)
	return nil
}

func (s *Server) leader() (string, <-chan struct{}) {
	changes := s.raft.LeaderChanges()
	return s.raft.LeaderAddr(), changes
}

func (s *Server) missing() (list []string) {
	switch {
	case s.raft.LeaderAddr() == "":
		list = append(list, "no leader is known")
	case !s.raft.IsLeader() && s.raft.LastContact() > raftgroup.Silent:
		list = append(list, "the leader was not heard for "+s.raft.LastContact().Round(time.Second).String())
	}
	if !s.feeds.Snapshots.Ready() {
		list = append(list, "the catalog has not been read from the log")
	}
	return list
}

func (s *Server) announceReady(ctx context.Context) {
	if s.Cfg.Dev {
		return
	}
	if err := s.AddTag(ctx, base.TagAway, ""); err != nil && ctx.Err() == nil {
		s.Log.Warn("cannot announce that this server is ready", "error", err)
	}
}

func (s *Server) stop() { s.part() }

func (s *Server) addStats(stats map[string]map[string]string) {
	consul := stats["consul"]
	consul["leader"] = strconv.FormatBool(s.raft.IsLeader())
	consul["leader_addr"] = s.raft.LeaderAddr()
	consul["bootstrap"] = strconv.FormatBool(s.Cfg.Raft.Bootstrap || s.Cfg.Dev)
	consul["known_datacenters"] = "1"
	if s.wan != nil {
		consul["known_datacenters"] = strconv.Itoa(len(s.wan.Known()))
		stats["serf_wan"] = gossipStats(s.wan.Pool)
	}
	if g := s.raft.Raft.Load(); g != nil {
		stats["raft"] = g.Stats()
	}
}

// callLeader asks the server that leads, from a server.
func (s *Server) callLeader(ctx context.Context, method string, req []byte) ([]byte, error) {
	addr, err := s.raft.Target()
	if err != nil {
		return nil, err
	}
	return s.RPC.Call(ctx, addr, method, req)
}
