package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/api/sensuapi"
	"corbel.dev/corbel/core/wire"
	"corbel.dev/corbel/kit/backoff"
	"corbel.dev/corbel/kit/crl"
	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/kit/vfs"
	"corbel.dev/corbel/kit/ws"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/eventstore"
	"corbel.dev/corbel/monitor/eventstore/pgevents"
	"corbel.dev/corbel/monitor/fleet"
	"corbel.dev/corbel/monitor/hub"
	"corbel.dev/corbel/monitor/ingest"
	"corbel.dev/corbel/monitor/janitor"
	"corbel.dev/corbel/monitor/logins"
	"corbel.dev/corbel/monitor/mirror"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/pipeline"
	"corbel.dev/corbel/monitor/resources"
	"corbel.dev/corbel/monitor/roundrobin"
	"corbel.dev/corbel/monitor/scheduler"
	"corbel.dev/corbel/monitor/secretresolver"
	"corbel.dev/corbel/monitor/shardrouter"
	"corbel.dev/corbel/monitor/subscribers"
	"corbel.dev/corbel/monitor/users"
	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/node/raftgroup"
	"corbel.dev/corbel/telemetry"
)

// monitorPlane is the monitor plane of a server. It fails alone: no error of its parts ends the process, and what it
// lacks makes its own ports unready, not the others.
//
// Where the parts meet: routes (in monitorhttp.go) is what the API's port answers; wants and publish (in
// monitorpipe.go) are where stored events go; parts is what runs.
type monitorPlane struct {
	p              *Process
	log            *slog.Logger
	metrics        *telemetry.Registry // of the plane alone, in the contract's names
	raft           *raftgroup.Group
	resources      *resources.Resources
	users          *users.Users
	hub            *hub.Hub
	ingest         *ingest.Ingest      // of the shards that this server has
	router         *shardrouter.Router // of all, wherever they are
	postgres       *pgevents.Store     // nil with the embedded store; the ingest closes it
	janitor        *janitor.Janitor
	roundRobin     *roundrobin.RoundRobin
	scheduler      *scheduler.Scheduler
	pipes          *monitorPipes
	fleet          *fleet.Fleet // nil where it is off
	agents         *sensuapi.Agents
	logins         *logins.Logins
	tail           *subscribers.Subscribers
	secrets        *secretresolver.Resolver
	mirror         *mirror.Mirror
	api            *httpx.Server // of the API's port; nil where it is off
	sessions       *agentsPort   // of the agents' port; nil where it is off
	began          time.Time
	costs          *telemetry.Stages
	unreached      []pipeline.Unreached // what was told last, and unreachedNamed all that ever was. Of tellUnreached alone
	unreachedNamed map[pipeline.Unreached]bool
	away           time.Time                  // since when PostgreSQL is; zero while it is there. Of tellPostgres alone
	tls            atomic.Pointer[monitorTLS] // of both ports; replaced by Reload
	revoked        *crl.Lists                 // certificates of agents; nil where these log nobody in
	failed         atomic.Pointer[error]      // why the plane serves nothing any more
	answered       atomic.Bool                // it was ready once
}

// openMonitor makes the plane and opens its ports.
func (p *Process) openMonitor(d *plane.Doors) (plane.Plane, error) {
	if !p.Cfg.Monitor.Enabled {
		return nil, nil
	}
	m := &monitorPlane{p: p, log: p.Log, metrics: monitorMetrics(p.Clock, p.Cfg.Telemetry.DisableDoctor,
		p.Metrics.Traces()), resources: resources.New(p.Log), hub: hub.NewHub(), began: p.Clock.Now(),
		unreachedNamed: map[pipeline.Unreached]bool{}}
	m.raft = d.Group(monitorGroupID, m.resources)
	m.resources.Serve(&monitorGroup{m})
	m.resources.Watch(m.changed)
	m.users = users.New(users.Config{Resources: m.resources, PublishedFromHostOnly: p.Cfg.Cautious(), Log: p.Log})
	m.router = newShardRouter(m)
	m.buildSecrets()
	if err := m.openPipelines(); err != nil {
		return nil, fmt.Errorf("monitor: pipelines: %w", err)
	}
	if err := m.openEvents(); err != nil {
		return nil, fmt.Errorf("monitor: events: %w", err)
	}
	m.buildScheduler()
	if err := errors.Join(m.openLogins(), m.openRevoked()); err != nil {
		return nil, fmt.Errorf("monitor: %w", err)
	}
	m.buildMirror()
	m.tail = subscribers.New(subscribers.Config{}, m.ingest.Follow)
	p.RPCSrv.HandleStream(wire.Servers, subscribers.MethodFollow, m.tail.Serve)
	var err error
	if m.agents, err = sensuapi.NewAgents(sensuapi.AgentsConfig{Resources: m.resources, Users: m.users, Hub: m.hub,
		Events: m.router, Backend: p.Cfg.Node.Name,
		Limits: ws.Limits{MessageBytes: int64(p.Cfg.Monitor.MessageMax), Write: p.Cfg.Monitor.AgentWrite,
			Bytes: p.Ports.Bytes}, Ready: m.takesAgents, Log: p.Log}); err != nil {
		return nil, fmt.Errorf("monitor: agents: %w", err)
	}
	if m.revoked != nil {
		m.agents.TrustCertificates(m.revoked.Check)
	}
	m.meter()
	if err := m.openPorts(); err != nil {
		return nil, err
	}
	if scheme, port := m.agentsDoor(); port != "" {
		// told with the next change of tags, at the latest when this server is ready
		p.DeclareTag(tagMonitorAgents, scheme+":"+port)
	}
	p.RPCSrv.Handle(wire.Servers, methodMonitorPropose, m.propose)
	for method, handle := range m.router.Handlers() {
		p.RPCSrv.Handle(wire.Servers, method, handle)
	}
	d.Evidence(m.metrics)
	d.Fresh(m.tellHandlers)
	d.Depends(m.depends)
	p.monitor = m
	return monitorValue{m}, nil
}

// openEvents opens the event store in the data folder, or in memory where there is none.
func (m *monitorPlane) openEvents() (err error) {
	fsys, dir := m.p.FS, filepath.Join(m.p.Cfg.DataDir, "monitor", "events")
	if m.p.Cfg.DataDir == "" {
		fsys, dir = vfs.NewMem(), "/events"
	}
	if err := fsys.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	m.ingest, err = ingest.New(ingest.Config{
		Open: func(l eventstore.Loaded) (eventstore.Store, error) {
			return m.openStore(fsys, dir, l)
		},
		Log: m.log, Now: m.p.Clock.Now, Stored: m.durable(), Stepped: m.stepped,
		PendingBytes: int64(m.p.Cfg.Monitor.PendingMax),
		HistoryRuns:  m.p.Cfg.Monitor.HistoryRuns, HistoryAge: m.p.Cfg.Monitor.HistoryAge,
		Silences: func(namespace string) *monitor.Silences { return m.resources.View().Silences(namespace) },
		Wants:    m.wants, Publish: m.publish, Shared: true, Replicate: m.router.Replicate,
		Lift:        func(namespace string, names []string) { m.janitor.Lift(namespace, names) },
		Deregisters: func(namespace, entity string) bool { return m.janitor.Deregisters(namespace, entity) },
		Deregister:  func(namespace, entity string) { m.janitor.Deregister(namespace, entity) },
		Proxy:       m.resources.Proxy,
		Turned:      m.turned,
		Hears:       func() bool { return len(m.lacks()) == 0 },
	})
	if err != nil {
		return err
	}
	m.router.Use(m.ingest)
	m.buildFleet()
	m.janitor = janitor.New(janitor.Config{Resources: m.resources, Events: m.ingest,
		DeregistrationHandler: m.p.Cfg.Monitor.DeregistrationHandler, Log: m.log, Now: m.p.Clock.Now})
	return nil
}

// changed tells the parts of changes of the configuration. It must not block.
func (m *monitorPlane) changed(ops []objects.Op) {
	if m.agents != nil {
		m.agents.Changed(ops)
		m.scheduler.Changed(ops)
	}
}

// parts is what the plane runs.
func (m *monitorPlane) parts() []life.Part {
	first := append([]life.Part{{Name: "metrics", Run: m.metrics.Run}, {Name: "raft", Run: m.raft.Run}}, m.pipeParts()...)
	if m.fleet != nil {
		first = append(first, life.Part{Name: "catalog", Run: m.fleet.Run})
	}
	if m.revoked != nil {
		first = append(first, life.Part{Name: "revoked certificates", Run: m.revoked.Run})
	}
	return append(first, []life.Part{
		{Name: "events", Run: m.ingest.Run},
		{Name: "overdue results", Run: func(ctx context.Context) error { m.ingest.Watch(ctx); return nil }},
		{Name: "shards", Run: m.router.Run},
		{Name: "janitor", Run: m.janitor.Run},
		{Name: "roundrobin", Run: m.roundRobin.Run},
		{Name: "scheduler", Run: m.scheduler.Run},
		{Name: "seed", Run: m.seed},
		{Name: "replicators", Run: m.mirror.Run},
		{Name: "what is over", Run: func(ctx context.Context) error {
			return m.resources.Reap(ctx, m.raft.IsLeader, m.p.Clock.Now)
		}},
	}...)
}

// Run runs the parts and the ports until ctx ends. A part that fails ends the plane's service, not the process.
func (m *monitorPlane) Run(ctx context.Context) error {
	defer m.pipes.close()
	defer m.secrets.Close()
	var group life.Group
	for _, part := range m.parts() {
		group.Add(part.Name, m.guarded(part))
	}
	if m.sessions != nil {
		group.Add("agents", m.guarded(life.Part{Name: "agents", Run: m.sessions.run}))
	}
	if m.api != nil {
		group.Add("api", m.guarded(life.Part{Name: "api", Run: m.api.Run}))
	}
	if err := group.Run(ctx); err != nil {
		m.log.Error("the monitor plane did not shut down cleanly", "error", err)
	}
	return nil
}

// guarded waits, where a part fails, for the end of the plane: the API goes on saying what is wrong.
func (m *monitorPlane) guarded(part life.Part) func(context.Context) error {
	return func(ctx context.Context) error {
		err := part.Run(ctx)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		err = fmt.Errorf("%s: %w", part.Name, err)
		m.failed.CompareAndSwap(nil, &err)
		m.log.Error("the monitor plane has stopped; the other planes continue", "error", err)
		<-ctx.Done()
		return nil
	}
}

// lacks tells what the plane waits for before it is ready, nothing when it is.
func (m *monitorPlane) lacks() (list []string) {
	if err := m.failed.Load(); err != nil {
		return []string{(*err).Error()}
	}
	if m.p.ending.Load() {
		return []string{"the process ends"}
	}
	switch {
	case m.raft.LeaderAddr() == "":
		list = append(list, "no leader is known")
	case m.raft.LastContact() > raftgroup.Silent:
		list = append(list, "the leader was not heard for "+m.raft.LastContact().Round(time.Second).String())
	case m.resources.View().Get("namespaces", "", "default") == nil:
		list = append(list, "the plane has not been initialized: sensu-backend init does it")
	default:
		list = m.router.Lacks()
	}
	return list
}

// takesAgents says whether sessions begin.
func (m *monitorPlane) takesAgents() bool {
	return m.p.Clock.Since(m.began) >= m.p.Cfg.Monitor.AgentWait && len(m.lacks()) == 0
}

// What dev begins with, as Sensu's users expect of a development server.
const (
	devMonitorUser     = "admin"
	devMonitorPassword = "P@ssw0rd!"
)

// firstUser is who a new plane is initialized with by itself; "" where an operator does it.
func (m *monitorPlane) firstUser() (name, password string) {
	cfg := &m.p.Cfg.Monitor
	if cfg.AdminName == "" && m.p.Cfg.Dev {
		return devMonitorUser, devMonitorPassword
	}
	return cfg.AdminName, cfg.AdminSecret
}

// seed makes a new plane usable where the configuration says by whom.
func (m *monitorPlane) seed(ctx context.Context) error {
	cfg := &m.p.Cfg.Monitor
	name, password := m.firstUser()
	pause := backoff.Backoff{Min: 20 * time.Millisecond, Max: time.Second}
	for name != "" && ctx.Err() == nil && m.resources.View().Get("namespaces", "", "default") == nil {
		if m.raft.IsLeader() {
			err := m.initialize(ctx, name, password, cfg.AdminKey)
			if err != nil && !errors.Is(err, errInitialized) && ctx.Err() == nil {
				m.log.Warn("cannot initialize the monitor plane yet", "error", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause.Next()):
		}
	}
	<-ctx.Done()
	return nil
}

// agentsPort serves agents. Their sessions take over their connections, so it is a server of its own, with
// sockets that can be waited on without a buffer.
type agentsPort struct {
	http   *http.Server
	agents *sensuapi.Agents
	doors  []door
}

func (a *agentsPort) run(ctx context.Context) error {
	var all sync.WaitGroup
	failed := make(chan error, len(a.doors)+1)
	serving, stop := context.WithCancel(ctx)
	defer stop()
	for _, d := range a.doors {
		all.Go(func() {
			if err := a.http.Serve(d.listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
				failed <- err
			}
		})
	}
	ended := make(chan struct{})
	all.Go(func() {
		defer close(ended)
		if err := a.agents.Run(serving); err != nil {
			failed <- err
		}
	})
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	stop()
	<-ended
	err = errors.Join(err, a.http.Close())
	all.Wait()
	return err
}
