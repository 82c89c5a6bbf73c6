package node

import (
	"context"
	"net/url"
	"time"

	"corbel.dev/corbel/doctor"
	"corbel.dev/corbel/telemetry"
)

// monitorKinds are what the monitor's requests are counted as: a batch of results of one shard from the arrival of
// its first one until it is durable, the handing of one event to a handler, and before these a result's way to its
// shard: one in sixteen of those taken here, and of those that another server owns the oldest of each call.
var monitorKinds = []string{"event", "handler", "result", "forwarded"}

const (
	monitorEvent = iota
	monitorHandler
	monitorResult
	monitorForwarded
)

// durable makes what the event store's batches are told to: monitor.stored, the stages of the plane, and, where
// events lie in PostgreSQL, what the doctor knows of a storage.
func (m *monitorPlane) durable() func(took, store time.Duration) {
	m.costs = m.metrics.Stages("monitor", monitorKinds...)
	whole := m.metrics.Timing("monitor.stored")
	stage, call := telemetry.StageFsync, (*telemetry.Timing)(nil)
	if m.p.Cfg.Monitor.Store == "postgresql" {
		stage = telemetry.StageStorage
		call = m.metrics.Timing("storage.call", "plane", "monitor", "backend", "postgresql", "op", "commit")
	}
	return func(took, store time.Duration) {
		whole.Observe(took)
		var spent telemetry.Spent
		spent[stage], spent[telemetry.StageQueue] = store, took-store
		m.costs.Done(context.Background(), monitorEvent, took, &spent)
		if call != nil {
			call.Observe(store)
		}
	}
}

// stepped accounts for a result that was taken here.
func (m *monitorPlane) stepped(receive, step time.Duration) {
	var spent telemetry.Spent
	spent[telemetry.StageReceive], spent[telemetry.StageStep] = receive, step
	m.costs.Done(context.Background(), monitorResult, receive+step, &spent)
}

// forwarded accounts for a result that another server took.
func (m *monitorPlane) forwarded(took time.Duration) {
	var spent telemetry.Spent
	spent[telemetry.StageForward] = took
	m.costs.Done(context.Background(), monitorForwarded, took, &spent)
}

// handled accounts for a handler's run.
func (m *monitorPlane) handled(took time.Duration) {
	m.costs.Observe(monitorHandler, telemetry.StageHandler, took)
}

// tellPostgres tells the doctor about the PostgreSQL that events lie in. While it is away events are taken all the
// same, so its calls tell nothing: how long it has been away does. One goroutine calls it.
func (m *monitorPlane) tellPostgres() {
	if m.postgres == nil {
		return
	}
	errors := m.metrics.Counter("storage.errors", "plane", "monitor", "backend", "postgresql")
	if failed, told := m.postgres.Stats().Failures, errors.Value(); failed > told {
		errors.Add(failed - told)
	}
	away := 0.0
	if m.postgres.Healthy() == nil {
		m.away = time.Time{}
	} else {
		if m.away.IsZero() {
			m.away = time.Now()
		}
		away = float64(time.Since(m.away)) / float64(time.Millisecond)
	}
	m.metrics.Gauge("storage.inflight_ms", "plane", "monitor", "backend", "postgresql").Set(away)
}

// depends are the systems that the plane waits for.
func (m *monitorPlane) depends() []doctor.Dependency {
	if m.postgres == nil {
		return nil
	}
	d := doctor.Dependency{Plane: "monitor", Kind: "postgresql"}
	if u, err := url.Parse(m.p.Cfg.Monitor.DSN); err == nil && u.Host != "" {
		d.Addresses = []string{u.Host}
	}
	return []doctor.Dependency{d}
}
