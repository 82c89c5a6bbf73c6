package monitorplane

import (
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/monitor/business"
	"corbel.dev/corbel/monitor/roundrobin"
	"corbel.dev/corbel/monitor/scheduler"
)

// Checks has agents run checks, and evaluates what services are made of.
type Checks struct {
	Scheduler  *scheduler.Scheduler
	roundRobin *roundrobin.RoundRobin
	services   *business.Services
}

// newChecks makes it. It is for before the first session.
func newChecks(m *Plane) *Checks {
	d, raft := m.d, m.Group.Raft
	c := &Checks{services: newServices(m)}
	c.roundRobin = roundrobin.New(roundrobin.Config{
		Self: d.ID, Servers: m.Group.roundServers, Leads: raft.LeaseHeld, Leader: raft.Leader, Changes: raft.LeaderChanges,
		Call: d.RPC.Call, Hub: m.hub, Clock: d.Clock, Log: d.Log,
		Deliver: func(h roundrobin.Hand) []string { return c.Scheduler.Deliver(h) },
	})
	cfg := scheduler.Config{View: m.Group.Resources.View, Hub: m.hub, RoundRobin: c.roundRobin, Servers: m.Group.others,
		Call: d.RPC.Call, Scripts: d.Scripts, Clock: d.Clock, Log: d.Log}
	if d.Cfg.Monitor.AgentAuthCA != "" { // else no agent is known by a certificate
		cfg.Secrets = m.Pipes.secrets.Env
	}
	c.Scheduler = scheduler.New(cfg)
	for name, f := range c.roundRobin.Methods() {
		d.Handle(wire.Servers, name, f)
	}
	d.Handle(wire.Servers, scheduler.MethodExecute, c.Scheduler.Executed)
	return c
}

// meter exports what is scheduled and dealt.
func (c *Checks) meter(stat gauge) {
	stat("checks_scheduled", "Checks that are published.", func() float64 { return float64(c.Scheduler.Stats().Planned) })
	stat("check_ticks", "Times at which a check was due.", func() float64 { return float64(c.Scheduler.Stats().Ticks) })
	stat("check_ticks_subdued", "Times at which a check was due and subdued.",
		func() float64 { return float64(c.Scheduler.Stats().Subdued) })
	stat("check_requests", "Check requests that were sent to agents of this server.",
		func() float64 { return float64(c.Scheduler.Stats().Requests) })
	stat("check_requests_failed", "Proxy requests that could not be made.",
		func() float64 { return float64(c.Scheduler.Stats().Failed) })
	c.meterServices(stat)
	stat("round_robin_dealt", "Requests that this server dealt to agents of all servers.",
		func() float64 { return float64(c.roundRobin.Stats().Dealt) })
	stat("round_robin_passed", "Agents that were passed over, since they had gone.",
		func() float64 { return float64(c.roundRobin.Stats().Passed) })
	stat("round_robin_unsure", "Requests of which a server did not say whether it sent them.",
		func() float64 { return float64(c.roundRobin.Stats().Unsure) })
	stat("round_robin_lost", "Times at which a check was due that could be given to nobody.",
		func() float64 { return float64(c.roundRobin.Stats().Lost) })
}
