// Package monitorplane wires the monitor plane: what a server does for it (Plane), the agent of a host that runs other
// planes too (AgentKind), and an agent that runs alone, as sensu-agent does (SensuAgent).
package monitorplane

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/api/sensuapi"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/kit/ws"
	"corbel.dev/corbel/monitor/hub"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/users"
	"corbel.dev/corbel/node/config"
	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/telemetry"
)

// Name is the plane's, and its Raft group's.
const Name = "monitor"

// Plane is the monitor plane of a server. It fails alone: no error of its parts ends the process, and what it lacks
// makes its own ports unready, not the others.
//
// Group has the configuration, Events takes results and hands stored events to Pipes, Checks has agents run checks,
// and ports is where the API and agents are served.
type Plane struct {
	d           *plane.Doors
	metrics     *telemetry.Registry // of the plane alone, in the contract's names
	Group       *Group
	Events      *Events
	Pipes       *Pipes
	Checks      *Checks
	replicators *replicators
	users       *users.Users
	hub         *hub.Hub
	agents      *sensuapi.Agents
	ports       *ports
	Web         *Web
	began       time.Time
	failed      atomic.Pointer[error] // why the plane serves nothing any more
	answered    atomic.Bool           // it was ready once
}

// Kind is the plane as a process lists it.
func Kind() plane.Kind { return plane.Kind{Name: Name, Open: open} }

// open makes the plane and opens its ports.
func open(d *plane.Doors) (plane.Plane, error) {
	if d.Catalog != nil { // the catalog's leader may have no monitor plane
		d.Handle(wire.Servers, MethodCatalog, catalogOf{d.Catalog}.serve)
	}
	if !d.Cfg.Monitor.Enabled {
		return nil, nil
	}
	m := &Plane{d: d, hub: hub.NewHub(), began: d.Clock.Now(),
		Web: &Web{}, metrics: newMetrics(d.Clock, d.Cfg.Telemetry.DisableDoctor, d.Metrics.Traces())}
	spent := newCosts(m.metrics, d.Cfg.Monitor.Store)
	m.Group = newGroup(d)
	m.Group.Resources.Watch(m.changed)
	m.users = users.New(users.Config{Resources: m.Group.Resources, PublishedFromHostOnly: d.Cfg.Cautious(), Log: d.Log})
	var err error
	if m.Pipes, err = newPipes(m, spent); err != nil {
		return nil, fmt.Errorf("monitor: pipelines: %w", err)
	}
	if m.Events, err = newEvents(m, spent); err != nil {
		return nil, fmt.Errorf("monitor: events: %w", err)
	}
	m.Checks = newChecks(m)
	if m.ports, err = newPorts(d.Base); err != nil {
		return nil, fmt.Errorf("monitor: %w", err)
	}
	m.replicators = newReplicators(d, m.Group)
	if err := m.openAgents(); err != nil {
		return nil, fmt.Errorf("monitor: agents: %w", err)
	}
	m.meter()
	m.Web.API, err = m.handler()
	if err != nil {
		return nil, fmt.Errorf("monitor: %w", err)
	}
	if err := m.ports.open(d.Front(m.Web.API), m.agents); err != nil {
		return nil, err
	}
	if scheme, port := m.ports.agentsDoor(); port != "" {
		// told with the next change of tags, at the latest when this server is ready
		d.Tag(tagAgents, scheme+":"+port)
	}
	d.Evidence(m.metrics)
	d.Fresh((&reporter{m: m, named: map[unreached]bool{}}).tell)
	d.Depends(m.Events.depends)
	return m, nil
}

// openAgents makes what keeps the sessions of agents.
func (m *Plane) openAgents() (err error) {
	cfg := m.d.Cfg
	m.agents, err = sensuapi.NewAgents(sensuapi.AgentsConfig{Resources: m.Group.Resources, Users: m.users, Hub: m.hub,
		Events: m.Events.Router, Backend: cfg.Node.Name,
		Limits: ws.Limits{MessageBytes: int64(cfg.Monitor.MessageMax), Write: cfg.Monitor.AgentWrite,
			Bytes: m.d.Ports.Bytes}, Ready: m.takesAgents, Log: m.d.Log})
	if err == nil && m.ports.revoked != nil {
		m.agents.TrustCertificates(m.ports.revoked.Check)
	}
	return err
}

// changed tells the parts of changes of the configuration. It must not block.
func (m *Plane) changed(ops []objects.Op) {
	if m.agents != nil {
		m.agents.Changed(ops)
		m.Checks.Scheduler.Changed(ops)
	}
}

// parts is what the plane runs.
func (m *Plane) parts() []life.Part {
	list := []life.Part{{Name: "metrics", Run: m.metrics.Run}, {Name: "raft", Run: m.Group.Raft.Run}}
	list = append(list, m.Pipes.parts()...)
	if m.Events.Fleet != nil {
		list = append(list, life.Part{Name: "catalog", Run: m.Events.Fleet.Run})
	}
	if m.ports.revoked != nil {
		list = append(list, life.Part{Name: "revoked certificates", Run: m.ports.revoked.Run})
	}
	list = append(list, []life.Part{
		{Name: "events", Run: m.Events.Ingest.Run},
		{Name: "overdue results", Run: func(ctx context.Context) error { m.Events.Ingest.Watch(ctx); return nil }},
		{Name: "shards", Run: m.Events.Router.Run},
		{Name: "janitor", Run: m.Events.janitor.Run},
		{Name: "roundrobin", Run: m.Checks.roundRobin.Run},
		{Name: "scheduler", Run: m.Checks.Scheduler.Run},
		{Name: "business services", Run: m.Checks.services.Run},
		{Name: "seed", Run: m.Group.seed},
		{Name: "replicators", Run: m.replicators.Run},
		{Name: "what is over", Run: func(ctx context.Context) error {
			return m.Group.Resources.Reap(ctx, m.Group.Raft.IsLeader, m.d.Clock.Now)
		}},
	}...)
	return append(list, m.ports.parts()...)
}

// Run runs the parts and the ports until ctx ends. A part that fails ends the plane's service, not the process.
func (m *Plane) Run(ctx context.Context) error {
	defer m.Pipes.close()
	var group life.Group
	for _, part := range m.parts() {
		group.Add(part.Name, m.guarded(part))
	}
	if err := group.Run(ctx); err != nil {
		m.d.Log.Error("the monitor plane did not shut down cleanly", "error", err)
	}
	return nil
}

// guarded waits, where a part fails, for the end of the plane: the API goes on saying what is wrong.
func (m *Plane) guarded(part life.Part) func(context.Context) error {
	return func(ctx context.Context) error {
		err := part.Run(ctx)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		err = fmt.Errorf("%s: %w", part.Name, err)
		m.failed.CompareAndSwap(nil, &err)
		m.d.Log.Error("the monitor plane has stopped; the other planes continue", "error", err)
		<-ctx.Done()
		return nil
	}
}

// Drain implements plane.Plane.
func (m *Plane) Drain(ctx context.Context) { m.Events.Router.HandOver(ctx) }

// Close implements plane.Plane.
func (m *Plane) Close() error {
	m.ports.close()
	return nil
}

// Reload implements plane.Plane.
func (m *Plane) Reload(cfg *config.Config) (apply func(), err error) {
	fresh, err := tlsOf(m.d.Base, cfg)
	if now := m.ports.tls.Load(); err == nil && ((now.api == nil) != (fresh.api == nil) ||
		(now.agents == nil) != (fresh.agents == nil)) {
		err = errors.New("tls.monitor: a port of the monitor plane begins or ends to speak TLS with a restart")
	}
	return func() { m.ports.tls.Store(&fresh) }, err
}

// Addrs are where the API and the port for agents answer, "" where that is off.
func (m *Plane) Addrs() (api, agents string) { return m.ports.addrs() }
