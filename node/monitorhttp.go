package node

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"corbel.dev/corbel/api/httpx"
	"corbel.dev/corbel/api/sensuapi"
	"corbel.dev/corbel/catalog"
	"corbel.dev/corbel/core/member"
	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/kit/version"
	"corbel.dev/corbel/monitor/fleet"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/shardrouter"
	"corbel.dev/corbel/telemetry"
)

// monitorRoute is a pattern of http.ServeMux and who answers it.
type monitorRoute struct {
	pattern string
	handler http.Handler
}

// routes is what the API's port answers.
func (m *monitorPlane) routes() []monitorRoute {
	open := sensuapi.Open(sensuapi.OpenConfig{Cluster: m.cluster, Lacks: m.lacks, Version: version.SensuContract,
		Own: version.Number, Metrics: m.metricsHandler()})
	return []monitorRoute{
		{"/health", open}, {"/version", open}, {"/ready", open}, {"/metrics", open}, {"/", m.whenUp(m.rest())},
		{initPath, http.HandlerFunc(m.serveInit)},
		{"GET /api/corbel/v1/events/stored", http.HandlerFunc(m.stored)},
	}
}

// stored tells which shards this server has, and the newest sequence of each that is durable here: what a crash
// cannot lose.
func (m *monitorPlane) stored(w http.ResponseWriter, r *http.Request) {
	body, err := json.Marshal(map[string]any{"server": m.p.Cfg.Node.Name, "id": m.p.ID, "shards": m.router.Stored()})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	httpx.Write(w, r, http.StatusOK, httpx.JSONType, append(body, '\n'))
}

// door is an open port.
type door struct{ listener net.Listener }

// openPorts opens the API's port and the agents'. In dev a port that is in use is replaced by a free one, unless it
// was asked for.
func (m *monitorPlane) openPorts() error {
	cfg := m.p.Cfg
	t, err := m.p.monitorPorts(cfg)
	if err != nil {
		return err
	}
	m.tls.Store(&t)
	var secure, agents *tls.Config // those of Reload count for who comes later
	if t.api != nil {
		secure = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config,
			error) {
			return m.tls.Load().api, nil
		}}
	}
	if t.agents != nil {
		agents = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config,
			error) {
			return m.tls.Load().agents, nil
		}}
	}
	mux := http.NewServeMux()
	for _, r := range m.routes() {
		mux.Handle(r.pattern, r.handler)
	}
	err = m.open("ports.monitor", cfg.Listen.Monitor, func(addrs []string) (err error) {
		listen := make([]httpx.Listen, len(addrs))
		for i, addr := range addrs {
			listen[i] = httpx.Listen{Address: addr, TLS: secure}
		}
		if m.api, err = httpx.NewServer(httpx.ServerConfig{Name: "monitor", Listen: listen, Handler: mux,
			Conns: m.p.Ports.Monitor, ExemptLoopback: cfg.Dev,
			MaxHeaderBytes: cfg.HTTP.MaxHeaderBytes, Bytes: m.p.Ports.Bytes, Logger: m.log, Metrics: m.p.Metrics}); err != nil {
			return err
		}
		return m.api.Bind()
	})
	if err != nil {
		return err
	}
	return m.open("ports.monitor_agents", cfg.Listen.MonitorAgents,
		func(addrs []string) error { return m.openAgents(addrs, agents) })
}

// open opens the addresses of a port, if it is on.
func (m *monitorPlane) open(key string, addrs []string, bind func([]string) error) error {
	if len(addrs) == 0 {
		return nil
	}
	err := bind(addrs)
	if errors.Is(err, syscall.EADDRINUSE) && m.p.Cfg.Dev && !m.p.Cfg.Given(key) {
		m.log.Warn("a port of the monitor plane is in use; using another one", "key", key, "wanted", addrs)
		err = bind([]string{"127.0.0.1:0"})
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// The limits of a request for a session, whose headers are a few names.
const (
	agentHeaderTime  = 10 * time.Second
	agentHeaderBytes = 64 << 10
)

func (m *monitorPlane) openAgents(addrs []string, secure *tls.Config) error {
	port := &agentsPort{agents: m.agents, http: &http.Server{Handler: m.agents, ReadHeaderTimeout: agentHeaderTime,
		IdleTimeout: agentHeaderTime, MaxHeaderBytes: agentHeaderBytes,
		ErrorLog: slog.NewLogLogger(m.log.Handler(), slog.LevelDebug)}}
	for _, addr := range addrs {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			for _, d := range port.doors {
				_ = d.listener.Close()
			}
			return err
		}
		l = m.p.Ports.Agents.Listener(l)
		if secure != nil {
			l = tls.NewListener(l, secure)
		}
		port.doors = append(port.doors, door{l})
	}
	m.sessions = port
	return nil
}

// Close implements plane.Plane.
func (m *monitorPlane) Close() error {
	if m.sessions != nil {
		for _, d := range m.sessions.doors {
			_ = d.listener.Close()
		}
	}
	return nil
}

// MonitorAddrs are where the monitor plane's API and its port for agents answer, "" where that is off.
func (p *Process) MonitorAddrs() (api, agents string) {
	if p.monitor == nil {
		return "", ""
	}
	if p.monitor.api != nil {
		api = p.monitor.api.Addrs()[0].String()
	}
	if p.monitor.sessions != nil {
		agents = p.monitor.sessions.doors[0].listener.Addr().String()
	}
	return api, agents
}

// cluster is the plane's servers for /health.
func (m *monitorPlane) cluster() sensuapi.Cluster {
	c := sensuapi.Cluster{Self: m.p.ID, Postgres: m.postgresHealth()}
	if r := m.p.registry.State().Record(catalog.RecordSystem, catalog.ClusterIDKey); r != nil {
		c.ID = string(r.Value)
	}
	if g := m.raft.Raft.Load(); g != nil {
		c.Term = g.Term()
	}
	for _, s := range m.p.Pool.Members(member.ActAskServer) {
		if s.Tags[tagMonitor] == "" || s.Status == member.Left {
			continue
		}
		one := sensuapi.Member{ID: s.Tags["id"], Name: s.Name}
		if s.Status != member.Alive {
			one.Err = "the server is " + s.Status.String()
		}
		if s.Tags["id"] == m.p.ID {
			if lacks := m.lacks(); len(lacks) > 0 {
				one.Err = lacks[0]
			}
		}
		c.Members = append(c.Members, one)
	}
	return c
}

// monitorMetrics makes a registry whose names are as dashboards for Sensu know them.
func monitorMetrics(clk clock.Clock, noDoctor bool, traces *telemetry.Traces) *telemetry.Registry {
	return telemetry.New(telemetry.Config{Settings: telemetry.Settings{MetricsPrefix: "sensu_go",
		PrometheusRetentionTime: 24 * time.Hour, DisableHostname: true, DisableDoctor: noDoctor}, Clock: clk, Traces: traces})
}

// meter exports what the parts count.
func (m *monitorPlane) meter() {
	r := m.metrics
	stat := func(name, help string, f func() float64, labels ...string) {
		r.Declare(telemetry.KindGauge, name, help)
		r.GaugeFunc(name, f, labels...)
	}
	stat("events_processed", "Results of checks that were taken since the start.",
		func() float64 { return float64(m.ingest.Stats().Results) }, "status", "success", "type", "check")
	stat("events_keepalives", "Of these, results of the check keepalive: signs of life, and that they are missing.",
		func() float64 { return float64(m.ingest.Stats().Keepalives) })
	stat("events_steady", "Results, keepalives too, that passed as the one before.",
		func() float64 { return float64(m.ingest.Stats().Steady) })
	stat("events_published", "Events that were handed to pipelines.",
		func() float64 { return float64(m.ingest.Stats().Published) })
	stat("events_pending_bytes", "Bytes of events that wait to be stored.",
		func() float64 { return float64(m.ingest.Stats().Pending) })
	stat("store_commits", "Batches of events that were made durable.",
		func() float64 { return float64(m.ingest.Stats().Store.Commits) })
	stat("store_changes", "Changes in these batches.", func() float64 { return float64(m.ingest.Stats().Store.Changes) })
	stat("store_stalled", "1 while the event store does not answer, or did not until a moment ago: other servers have "+
		"the shards.", func() float64 {
		if m.ingest.Stalled() {
			return 1
		}
		return 0
	})
	stat("store_bytes", "Size of the event store on disk.",
		func() float64 { return float64(m.ingest.Stats().Store.Bytes) })
	m.meterShards(stat)
	m.meterPostgres(stat)
	m.meterMirror(stat)
	stat("upkeep_dropped", "Silences and entities that were to go, and were not since too many were.",
		func() float64 { return float64(m.janitor.Dropped()) })
	m.meterFleet(stat)
	stat("checks_scheduled", "Checks that are published.", func() float64 { return float64(m.scheduler.Stats().Planned) })
	stat("check_ticks", "Times at which a check was due.", func() float64 { return float64(m.scheduler.Stats().Ticks) })
	stat("check_ticks_subdued", "Times at which a check was due and subdued.",
		func() float64 { return float64(m.scheduler.Stats().Subdued) })
	stat("check_requests", "Check requests that were sent to agents of this server.",
		func() float64 { return float64(m.scheduler.Stats().Requests) })
	stat("check_requests_failed", "Proxy requests that could not be made.",
		func() float64 { return float64(m.scheduler.Stats().Failed) })
	stat("round_robin_dealt", "Requests that this server dealt to agents of all servers.",
		func() float64 { return float64(m.roundRobin.Stats().Dealt) })
	stat("round_robin_passed", "Agents that were passed over, since they had gone.",
		func() float64 { return float64(m.roundRobin.Stats().Passed) })
	stat("round_robin_unsure", "Requests of which a server did not say whether it sent them.",
		func() float64 { return float64(m.roundRobin.Stats().Unsure) })
	stat("round_robin_lost", "Times at which a check was due that could be given to nobody.",
		func() float64 { return float64(m.roundRobin.Stats().Lost) })
	stat("agent_messages_refused", "Messages of agents that were dropped, since they were none or could not be taken.",
		func() float64 { return float64(m.agents.Refused().Messages) })
	stat("agent_sessions_refused", "Sessions that ended since the agent broke the protocol or took nothing.",
		func() float64 { return float64(m.agents.Refused().Sessions) })
	stat("agent_logins_refused", "Requests for a session with wrong credentials.",
		func() float64 { return float64(m.agents.Refused().Logins) })
	r.Declare(telemetry.KindGauge, "agent_sessions", "Agents that are connected to this server.")
	m.declarePipes()
}

// meterFleet exports what passes between the monitor and the catalog.
func (m *monitorPlane) meterFleet(stat func(name, help string, f func() float64, labels ...string)) {
	if m.fleet == nil {
		return
	}
	of := func(pick func(fleet.Stats) uint64) func() float64 {
		return func() float64 { return float64(pick(m.fleet.Stats())) }
	}
	stat("catalog_checks_written", "Checks that were set or removed in the catalog since a monitoring check says so.",
		of(func(s fleet.Stats) uint64 { return s.Written }))
	stat("catalog_checks_refused", "Such that the catalog refused.", of(func(s fleet.Stats) uint64 { return s.Refused }))
	stat("catalog_checks_waiting", "Entities whose checks are about what the catalog lacks.",
		of(func(s fleet.Stats) uint64 { return s.Waiting }))
	stat("catalog_failed", "Writes to the catalog and events of its failures that failed and are tried again.",
		of(func(s fleet.Stats) uint64 { return s.Failed }))
	stat("catalog_overflowed", "Times at which more entities had turned than are remembered, so that all were compared.",
		of(func(s fleet.Stats) uint64 { return s.Overflowed }))
	stat("catalog_events", "Events of failures in the catalog and of their ends.",
		of(func(s fleet.Stats) uint64 { return s.Told }))
	stat("catalog_events_delayed", "Seconds in which there were so many that some had to wait.",
		of(func(s fleet.Stats) uint64 { return s.Delayed }))
}

// meterShards exports how the events are shared among the servers.
func (m *monitorPlane) meterShards(stat func(name, help string, f func() float64, labels ...string)) {
	of := func(pick func(shardrouter.Stats) float64) func() float64 {
		return func() float64 { return pick(m.router.Stats()) }
	}
	stat("shards_owned", "Shards whose results this server takes.",
		of(func(s shardrouter.Stats) float64 { return float64(s.Owned) }))
	stat("shards_followed", "Shards that this server is the replica of.",
		of(func(s shardrouter.Stats) float64 { return float64(s.Followed) }))
	stat("shards_behind", "Owned shards whose replica lacks something, or that have none.",
		of(func(s shardrouter.Stats) float64 { return float64(s.ReplicaBehind) }))
	stat("shards_taken_over", "Shards that came to this server from another one.",
		of(func(s shardrouter.Stats) float64 { return float64(s.Takeovers) }))
	stat("shards_moved", "Shards that this server, as the leader, had handed over in order.",
		of(func(s shardrouter.Stats) float64 { return float64(s.Moved) }))
	stat("shards_stuck", "Shards that servers which leave, or whose event store does not answer, have kept for half a "+
		"minute, as this server, as the leader, sees it.",
		of(func(s shardrouter.Stats) float64 { return float64(s.Stuck) }))
	stat("shards_begun_anew", "Shards whose state no server had any more, as this server, as the leader, saw it.",
		of(func(s shardrouter.Stats) float64 { return float64(s.Adopted) }))
	stat("shards_resent", "Shards that were sent to a replica as a whole.",
		of(func(s shardrouter.Stats) float64 { return float64(s.Resent) }))
	stat("replicated_bytes", "Bytes that were sent to replicas.",
		of(func(s shardrouter.Stats) float64 { return float64(s.Replicated) }))
	stat("replica_pending_bytes", "Bytes that wait to be sent to replicas.",
		of(func(s shardrouter.Stats) float64 { return float64(s.ReplicaWaiting) }))
	stat("events_forwarded", "Events that went to the server that has their entity.",
		of(func(s shardrouter.Stats) float64 { return float64(s.Forwarded) }))
	stat("events_forwarded_brief", "Of these, such that went without what that server had of the check and its entity.",
		of(func(s shardrouter.Stats) float64 { return float64(s.Brief) }))
	stat("events_forward_pending_bytes", "Bytes of events on their way to other servers.",
		of(func(s shardrouter.Stats) float64 { return float64(s.Waiting) }))
	stat("events_dropped", "Events for which no server was found in time.",
		of(func(s shardrouter.Stats) float64 { return float64(s.Dropped) }))
}

// metricsHandler is /metrics, in Prometheus' text always.
func (m *monitorPlane) metricsHandler() http.Handler {
	text := prometheusText(m.metrics)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.meterPipes()
		counts := m.hub.Counts()
		m.resources.View().List("namespaces", "", "", "", func(i *objects.Item) bool {
			m.metrics.Gauge("agent_sessions", "namespace", i.Name).Set(float64(counts[i.Name]))
			return true
		})
		text.ServeHTTP(w, r)
	})
}
