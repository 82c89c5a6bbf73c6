package monitorplane

import (
	"context"
	"net/url"
	"slices"
	"time"

	"corbel.dev/corbel/doctor"
	"corbel.dev/corbel/monitor/pipeline"
	"corbel.dev/corbel/telemetry"
)

// requestKinds are what the monitor's requests are counted as: a batch of results of one shard from the arrival of
// its first one until it is durable, the handing of one event to a handler, and before these a result's way to its
// shard: one in sixteen of those taken here, and of those that another server owns the oldest of each call.
var requestKinds = []string{"event", "handler", "result", "forwarded"}

const (
	kindEvent = iota
	kindHandler
	kindResult
	kindForwarded
)

// costs is what the plane's requests take, by stage. It is the ingest's meter.
type costs struct {
	stages *telemetry.Stages
	stored *telemetry.Timing // monitor.stored
	stage  telemetry.Stage   // of the event store's part in it
	call   *telemetry.Timing // what the doctor knows of a storage; nil where events do not lie in PostgreSQL
}

func newCosts(metrics *telemetry.Registry, store string) *costs {
	c := &costs{stages: metrics.Stages("monitor", requestKinds...), stored: metrics.Timing("monitor.stored"),
		stage: telemetry.StageFsync}
	if store == "postgresql" {
		c.stage = telemetry.StageStorage
		c.call = metrics.Timing("storage.call", "plane", "monitor", "backend", "postgresql", "op", "commit")
	}
	return c
}

// Stored accounts for a batch of the event store.
func (c *costs) Stored(took, store time.Duration) {
	c.stored.Observe(took)
	var spent telemetry.Spent
	spent[c.stage], spent[telemetry.StageQueue] = store, took-store
	c.stages.Done(context.Background(), kindEvent, took, &spent)
	if c.call != nil {
		c.call.Observe(store)
	}
}

// Stepped accounts for a result that was taken here.
func (c *costs) Stepped(receive, step time.Duration) {
	var spent telemetry.Spent
	spent[telemetry.StageReceive], spent[telemetry.StageStep] = receive, step
	c.stages.Done(context.Background(), kindResult, receive+step, &spent)
}

// forwarded accounts for a result that another server took.
func (c *costs) forwarded(took time.Duration) {
	var spent telemetry.Spent
	spent[telemetry.StageForward] = took
	c.stages.Done(context.Background(), kindForwarded, took, &spent)
}

// handled accounts for a handler's run.
func (c *costs) handled(took time.Duration) {
	c.stages.Observe(kindHandler, telemetry.StageHandler, took)
}

// depends are the systems that the plane waits for.
func (e *Events) depends() []doctor.Dependency {
	if e.Postgres == nil {
		return nil
	}
	d := doctor.Dependency{Plane: "monitor", Kind: "postgresql"}
	if u, err := url.Parse(e.d.Cfg.Monitor.DSN); err == nil && u.Host != "" {
		d.Addresses = []string{u.Host}
	}
	return []doctor.Dependency{d}
}

type unreached = pipeline.Unreached

const (
	// maxUnreached bounds what is named at once, maxUnreachedNames what is named in a process' life: each is a series.
	maxUnreached, maxUnreachedNames = 10, 100
)

// reporter tells the doctor what it cannot count itself. One goroutine uses it.
type reporter struct {
	m     *Plane
	told  []unreached        // last
	named map[unreached]bool // ever
	away  time.Time          // since when PostgreSQL is; zero while it is there
}

// tell tells about handlers, PostgreSQL and events that reach nobody, in the registry of the process.
func (r *reporter) tell() {
	r.tellPostgres()
	r.tellUnreached()
	metrics := r.m.d.Metrics
	for _, s := range r.m.Pipes.Stats() {
		name := s.Handler
		if s.Namespace != "default" {
			name = s.Namespace + "/" + s.Handler
		}
		metrics.Gauge("pipeline.oldest_ms", "handler", name).Set(float64(s.Oldest) / float64(time.Millisecond))
		metrics.Gauge("pipeline.queued", "handler", name).Set(float64(s.Waiting))
		merged := metrics.Counter("pipeline.merged", "handler", name)
		if told := merged.Value(); s.Merged > told {
			merged.Add(s.Merged - told)
		}
	}
}

// tellPostgres tells about the PostgreSQL that events lie in. While it is away events are taken all the same, so its
// calls tell nothing: how long it has been away does.
func (r *reporter) tellPostgres() {
	postgres, metrics := r.m.Events.Postgres, r.m.metrics
	if postgres == nil {
		return
	}
	errors := metrics.Counter("storage.errors", "plane", "monitor", "backend", "postgresql")
	if failed, told := postgres.Stats().Failures, errors.Value(); failed > told {
		errors.Add(failed - told)
	}
	away := 0.0
	if postgres.Healthy() == nil {
		r.away = time.Time{}
	} else {
		if r.away.IsZero() {
			r.away = time.Now()
		}
		away = float64(time.Since(r.away)) / float64(time.Millisecond)
	}
	metrics.Gauge("storage.inflight_ms", "plane", "monitor", "backend", "postgresql").Set(away)
}

// tellUnreached tells of checks and handlers whose events reach nobody. The plane's leader alone does: all servers
// know the same.
func (r *reporter) tellUnreached() {
	var list []unreached
	if r.m.Group.Raft.LeaseHeld() {
		list = r.m.Pipes.Unreached()
	}
	r.m.d.Metrics.Gauge("monitor.unreached").Set(float64(len(list)))
	list = list[:min(len(list), maxUnreached)]
	for _, u := range r.told {
		if !slices.Contains(list, u) {
			r.gauge(u, 0)
		}
	}
	r.told = r.told[:0]
	for _, u := range list {
		if r.named[u] || len(r.named) < maxUnreachedNames {
			r.named[u] = true
			r.gauge(u, 1)
			r.told = append(r.told, u)
		}
	}
}

func (r *reporter) gauge(u unreached, v float64) {
	r.m.d.Metrics.Gauge("monitor.unreached_by", "kind", u.Kind, "object", u.Namespace+"/"+u.Name, "reason",
		u.Reason).Set(v)
}
