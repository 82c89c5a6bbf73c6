package node

import (
	"context"

	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/monitor/roundrobin"
	"corbel.dev/corbel/monitor/scheduler"
	"corbel.dev/corbel/monitor/subscribers"
	"corbel.dev/corbel/node/base"
)

// buildScheduler makes what has agents run checks. It is for before the first session.
func (m *monitorPlane) buildScheduler() {
	m.roundRobin = roundrobin.New(roundrobin.Config{
		Self: m.p.ID, Servers: m.roundServers, Leads: m.raft.LeaseHeld, Leader: m.raft.Leader, Changes: m.raft.LeaderChanges,
		Call: m.p.RPC.Call, Hub: m.hub, Clock: m.p.Clock, Log: m.log,
		Deliver: func(h roundrobin.Hand) []string { return m.scheduler.Deliver(h) },
	})
	cfg := scheduler.Config{View: m.resources.View, Hub: m.hub, RoundRobin: m.roundRobin, Servers: m.otherBackends,
		Call: m.p.RPC.Call, Scripts: m.p.Scripts, Clock: m.p.Clock, Log: m.log}
	if m.p.Cfg.Monitor.AgentAuthCA != "" { // else no agent is known by a certificate
		cfg.Secrets = m.secrets.Env
	}
	m.scheduler = scheduler.New(cfg)
	for name, f := range m.roundRobin.Methods() {
		m.p.RPCSrv.Handle(wire.Servers, name, f)
	}
	m.p.RPCSrv.Handle(wire.Servers, scheduler.MethodExecute, m.scheduler.Executed)
}

// roundServers are the members of the plane's group.
func (m *monitorPlane) roundServers() (out []roundrobin.Server) {
	g := m.raft.Raft.Load()
	if g == nil {
		return nil
	}
	servers, _, err := g.Configuration()
	if err != nil {
		return nil
	}
	for _, s := range servers {
		out = append(out, roundrobin.Server{ID: s.ID, Address: s.Address, Voter: s.Voter})
	}
	return out
}

// otherBackends are where the plane's other servers that are up are reached.
func (m *monitorPlane) otherBackends() (out []string) {
	for _, s := range m.p.Pool.Members(member.ActAskServer) {
		if s.Tags[tagMonitor] != "" && s.Status == member.Alive && s.Tags["id"] != m.p.ID {
			out = append(out, base.MemberRPC(s))
		}
	}
	return out
}

// follow shows what all servers store.
func (m *monitorPlane) follow(filter subscribers.Filter) (*subscribers.Follower, error) {
	return m.tail.Over(filter, subscribers.Servers{List: m.otherBackends,
		Open: func(ctx context.Context, addr, method string, req []byte) (func() ([]byte, error), func() error, error) {
			stream, err := m.p.RPC.Stream(ctx, addr, method, req)
			if err != nil {
				return nil, nil, err
			}
			return stream.Recv, stream.Close, nil
		}})
}
