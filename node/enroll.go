package node

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"strconv"

	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/fault"
	"corbel.dev/corbel/node/base"
	"corbel.dev/corbel/node/config"
	"corbel.dev/corbel/node/enroll"
)

// Introduce has a server introduce this agent where its configuration wants that (auto_config) and it was not
// introduced before; New needs the result, which lies in data_dir. It tries the servers until ctx ends.
func Introduce(ctx context.Context, cfg *config.Config, log *slog.Logger) error {
	if !cfg.AutoConfig.Enabled {
		return nil
	}
	if cfg.DataDir == "" {
		return errNoData
	}
	faults, err := fault.FromEnv()
	if err != nil {
		return err
	}
	id, err := new(base.Enrolled).Identity(&cfg.TLS.InternalRPC, cfg)
	if err != nil {
		return err
	}
	return enroll.Introduce(ctx, cfg, id, faults, log)
}

// newIntroducer makes the introducer where the configuration wants one.
func (s *Server) newIntroducer() (*enroll.Introducer, error) {
	if !s.Cfg.AutoConfig.Authorize {
		return nil, nil
	}
	c := enroll.IntroducerConfig{Datacenter: s.Cfg.Node.Datacenter, Rules: &s.Cfg.AutoConfig, Current: s.Current,
		Leads: s.raft.IsLeader, CallLeader: s.callLeader, State: s.registry.State, Issuer: s.feeds.Issuer,
		Join: func() []string { return gossipOfServers(s.Pool) }, Keys: s.Pool.LocalKeys, Clock: s.Clock, Log: s.Log}
	if s.keeper != nil {
		c.CreateToken = s.keeper.CreateToken
	}
	return enroll.NewIntroducer(c)
}

// gossipOfServers are the addresses at which the living servers can be joined.
func gossipOfServers(pool *member.Pool) (list []string) {
	for _, m := range pool.Members(member.ActHintJoin) {
		list = append(list, net.JoinHostPort(m.Addr, strconv.Itoa(m.Port)))
	}
	return list
}

// enrolment is a server's side.
func (s *Server) enrolment() *enroll.Server {
	return &enroll.Server{Datacenter: s.Cfg.Node.Datacenter, State: s.registry.State, Issuer: s.feeds.Issuer,
		ForTokens: s.Cfg.AutoEncrypt.AllowTLS, Introducer: s.introducer, Now: s.Clock.Now, Log: s.Log}
}

// welcome has a server give certificates to agents that have none, and let in those that have one.
func (s *Server) welcome() {
	e := s.enrolment()
	e.Register(s.RPCSrv)
	srv := e.Strangers()
	s.Parts.Add("enrolment", func(ctx context.Context) error {
		return srv.Run(ctx, s.Wire.Listen(wire.ProtoEnroll, 0, wire.Anyone))
	})
	s.Certs.Guests.Store(e.Guests())
}

// enrolled is an agent's side.
func enrolled(p *base.Base) *enroll.Agent {
	return &enroll.Agent{AgentConfig: enroll.AgentConfig{Config: p.Cfg, Current: p.Current, Wire: p.Wire, RPC: p.RPC,
		Server: p.AnyServer, Changes: p.Pool.Changes, Token: p.Tokens.Own, SetTokens: p.Tokens.Reload,
		Certificate: p.Certs.Enrolled.Now.Load,
		Take: func(c *tls.Certificate) {
			p.Certs.Enrolled.Now.Store(c)
			p.Certs.End.Store(c.Leaf.NotAfter.Unix())
		},
		FS: p.FS, Clock: p.Clock, Log: p.Log}}
}
