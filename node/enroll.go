package node

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"strconv"

	"corbel.dev/corbel/catalog"
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

// buildIntroducer makes the introducer where the configuration wants one.
func (p *Process) buildIntroducer() (err error) {
	if !p.Cfg.AutoConfig.Authorize {
		return nil
	}
	c := enroll.IntroducerConfig{Datacenter: p.Cfg.Node.Datacenter, Rules: &p.Cfg.AutoConfig, Current: p.Current,
		Leads: p.raft.IsLeader, CallLeader: p.callLeader, State: p.registry.State, Issuer: p.meshes.Issuer,
		Join: func() []string { return gossipOfServers(p.Pool) }, Keys: p.Pool.LocalKeys, Clock: p.Clock, Log: p.Log}
	if p.access.keeper != nil {
		c.CreateToken = p.access.keeper.CreateToken
	}
	p.introducer, err = enroll.NewIntroducer(c)
	return err
}

// gossipOfServers are the addresses at which the living servers can be joined.
func gossipOfServers(pool *member.Pool) (list []string) {
	for _, m := range pool.Members(member.ActHintJoin) {
		list = append(list, net.JoinHostPort(m.Addr, strconv.Itoa(m.Port)))
	}
	return list
}

// enrolment is a server's side.
func enrolment(p *Process) *enroll.Server {
	return &enroll.Server{Datacenter: p.Cfg.Node.Datacenter, State: func() *catalog.State { return p.registry.State() },
		Issuer: p.meshes.Issuer, ForTokens: p.Cfg.AutoEncrypt.AllowTLS, Introducer: p.introducer,
		Now: p.Clock.Now, Log: p.Log}
}

// welcome has a server give certificates to agents that have none, and let in those that have one.
func (p *Process) welcome() {
	e := enrolment(p)
	e.Register(p.RPCSrv)
	srv := e.Strangers()
	p.Parts.Add("enrolment", func(ctx context.Context) error {
		return srv.Run(ctx, p.Wire.Listen(wire.ProtoEnroll, 0, wire.Anyone))
	})
	p.Certs.Guests.Store(e.Guests())
}

// enrolled is an agent's side.
func enrolled(p *Process) *enroll.Agent {
	return &enroll.Agent{AgentConfig: enroll.AgentConfig{Config: p.Cfg, Current: p.Current, Wire: p.Wire, RPC: p.RPC,
		Server: p.AnyServer, Changes: p.Pool.Changes, Token: p.Tokens.Own, SetTokens: p.Tokens.Reload,
		Certificate: p.Certs.Enrolled.Now.Load,
		Take: func(c *tls.Certificate) {
			p.Certs.Enrolled.Now.Store(c)
			p.Certs.End.Store(c.Leaf.NotAfter.Unix())
		},
		FS: p.FS, Clock: p.Clock, Log: p.Log}}
}
