package monitorplane

import (
	"net/http"
	"time"

	"corbel.dev/corbel/kit/clock"
	"corbel.dev/corbel/monitor/eventstore/pgevents"
	"corbel.dev/corbel/monitor/fleet"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/shardrouter"
	"corbel.dev/corbel/telemetry"
)

// newMetrics makes a registry whose names are as dashboards for Sensu know them.
func newMetrics(clk clock.Clock, noDoctor bool, traces *telemetry.Traces) *telemetry.Registry {
	return telemetry.New(telemetry.Config{Settings: telemetry.Settings{MetricsPrefix: "sensu_go",
		PrometheusRetentionTime: 24 * time.Hour, DisableHostname: true, DisableDoctor: noDoctor}, Clock: clk, Traces: traces})
}

// gauge exports a figure of a part.
type gauge func(name, help string, f func() float64, labels ...string)

// meter exports what the parts count.
func (m *Plane) meter() {
	r := m.metrics
	stat := func(name, help string, f func() float64, labels ...string) {
		r.Declare(telemetry.KindGauge, name, help)
		r.GaugeFunc(name, f, labels...)
	}
	m.Events.meter(stat)
	m.Checks.meter(stat)
	m.replicators.meter(stat)
	m.Pipes.declare()
	stat("agent_messages_refused", "Messages of agents that were dropped, since they were none or could not be taken.",
		func() float64 { return float64(m.agents.Refused().Messages) })
	stat("agent_sessions_refused", "Sessions that ended since the agent broke the protocol or took nothing.",
		func() float64 { return float64(m.agents.Refused().Sessions) })
	stat("agent_logins_refused", "Requests for a session with wrong credentials.",
		func() float64 { return float64(m.agents.Refused().Logins) })
	r.Declare(telemetry.KindGauge, "agent_sessions", "Agents that are connected to this server.")
}

// meter exports what becomes of results.
func (e *Events) meter(stat gauge) {
	stat("events_processed", "Results of checks that were taken since the start.",
		func() float64 { return float64(e.Ingest.Stats().Results) }, "status", "success", "type", "check")
	stat("events_keepalives", "Of these, results of the check keepalive: signs of life, and that they are missing.",
		func() float64 { return float64(e.Ingest.Stats().Keepalives) })
	stat("events_steady", "Results, keepalives too, that passed as the one before.",
		func() float64 { return float64(e.Ingest.Stats().Steady) })
	stat("events_published", "Events that were handed to pipelines.",
		func() float64 { return float64(e.Ingest.Stats().Published) })
	stat("events_pending_bytes", "Bytes of events that wait to be stored.",
		func() float64 { return float64(e.Ingest.Stats().Pending) })
	stat("store_commits", "Batches of events that were made durable.",
		func() float64 { return float64(e.Ingest.Stats().Store.Commits) })
	stat("store_changes", "Changes in these batches.", func() float64 { return float64(e.Ingest.Stats().Store.Changes) })
	stat("store_stalled", "1 while the event store does not answer, or did not until a moment ago: other servers have "+
		"the shards.", func() float64 {
		if e.Ingest.Stalled() {
			return 1
		}
		return 0
	})
	stat("store_bytes", "Size of the event store on disk.",
		func() float64 { return float64(e.Ingest.Stats().Store.Bytes) })
	stat("janitor_dropped", "Silences and entities that were due to be removed, and were not, because too many were.",
		func() float64 { return float64(e.janitor.Dropped()) })
	e.meterShards(stat)
	e.meterPostgres(stat)
	e.meterFleet(stat)
}

// meterFleet exports what passes between the monitor and the catalog.
func (e *Events) meterFleet(stat gauge) {
	if e.Fleet == nil {
		return
	}
	of := func(pick func(fleet.Stats) uint64) func() float64 {
		return func() float64 { return float64(pick(e.Fleet.Stats())) }
	}
	stat("catalog_checks_written", "Checks that were set or removed in the catalog since a monitoring check says so.",
		of(func(s fleet.Stats) uint64 { return s.Written }))
	stat("catalog_checks_refused", "Such that the catalog refused.", of(func(s fleet.Stats) uint64 { return s.Refused }))
	stat("catalog_checks_waiting", "Entities whose checks are about what the catalog lacks.",
		of(func(s fleet.Stats) uint64 { return s.Waiting }))
	stat("catalog_failed", "Writes to the catalog and events of its failures that failed and are tried again.",
		of(func(s fleet.Stats) uint64 { return s.Failed }))
	stat("catalog_overflowed", "Times at which more entities had changed than are remembered, so that all were compared.",
		of(func(s fleet.Stats) uint64 { return s.Overflowed }))
	stat("catalog_events", "Events of failures in the catalog and of their ends.",
		of(func(s fleet.Stats) uint64 { return s.Told }))
	stat("catalog_events_delayed", "Seconds in which there were so many that some had to wait.",
		of(func(s fleet.Stats) uint64 { return s.Delayed }))
}

// meterShards exports how the events are shared among the servers.
func (e *Events) meterShards(stat gauge) {
	of := func(pick func(shardrouter.Stats) float64) func() float64 {
		return func() float64 { return pick(e.Router.Stats()) }
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

// meterPostgres exports how far PostgreSQL is behind.
func (e *Events) meterPostgres(stat gauge) {
	if e.Postgres == nil {
		return
	}
	of := func(pick func(pgevents.Stats) float64) func() float64 {
		return func() float64 { return pick(e.Postgres.Stats()) }
	}
	stat("postgres_healthy", "1 while events are written to PostgreSQL, 0 while it is gone.", func() float64 {
		if e.Postgres.Healthy() != nil {
			return 0
		}
		return 1
	})
	stat("postgres_failures", "Commits to PostgreSQL that failed, or whose outcome is unknown.",
		of(func(s pgevents.Stats) float64 { return float64(s.Failures) }))
	stat("postgres_behind", "Checks and entities whose newest state PostgreSQL does not have.",
		of(func(s pgevents.Stats) float64 { return float64(s.Dirty) }))
	stat("postgres_deferred", "Changes that were not written with their commit; of those of one check the newest is "+
		"written later.", of(func(s pgevents.Stats) float64 { return float64(s.Deferred) }))
	stat("postgres_fenced", "Times at which a shard was not written, since it is another server's.",
		of(func(s pgevents.Stats) float64 { return float64(s.Fenced) }))
	stat("postgres_history_waiting", "Entries of the history that PostgreSQL does not have yet.",
		of(func(s pgevents.Stats) float64 { return float64(s.Waiting) }))
	stat("postgres_history_lost", "Entries of the history that were lost, since too many waited.",
		of(func(s pgevents.Stats) float64 { return float64(s.HistoryLost) }))
}

// metricsHandler is /metrics, in Prometheus' text always.
func (m *Plane) metricsHandler() http.Handler {
	text := prometheusText(m.metrics)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.Pipes.meter()
		counts := m.hub.Counts()
		m.Group.Resources.View().List("namespaces", "", "", "", func(i *objects.Item) bool {
			m.metrics.Gauge("agent_sessions", "namespace", i.Name).Set(float64(counts[i.Name]))
			return true
		})
		text.ServeHTTP(w, r)
	})
}
