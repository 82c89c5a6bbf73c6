package node

import (
	"os"
	"path/filepath"
	"runtime"
	"time"

	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/asset"
	"corbel.dev/corbel/monitor/ingest"
	"corbel.dev/corbel/monitor/pipeline"
	"corbel.dev/corbel/telemetry"
)

// monitorPipes are the places that stored events go to.
type monitorPipes struct {
	*pipeline.Pipelines
	eventLog *pipeline.EventLog // nil where none is asked for
	temp     string             // the folder of assets, where it is to go with the process
}

// openPipelines makes the pipelines. Nothing is handled before the plane runs.
func (m *monitorPlane) openPipelines() (err error) {
	cfg := &m.p.Cfg.Monitor
	pipes := &monitorPipes{}
	dir := cfg.CacheDir
	switch {
	case dir != "":
	case m.p.Cfg.DataDir != "":
		dir = filepath.Join(m.p.Cfg.DataDir, "monitor", "assets")
	default:
		if dir, err = os.MkdirTemp("", "corbel-assets-*"); err != nil {
			return err
		}
		pipes.temp = dir
	}
	assets, err := asset.New(asset.Config{Dir: dir, Log: m.log, Scripts: m.p.Scripts, PerSecond: cfg.AssetsRate,
		Burst: cfg.AssetsBurst})
	if err != nil {
		return err
	}
	if cfg.EventLog != "" {
		if pipes.eventLog, err = pipeline.NewEventLog(cfg.EventLog, cfg.EventLogBuffer, m.log); err != nil {
			return err
		}
	}
	duration := m.metrics.Timing("event_handler_duration")
	pipes.Pipelines, err = pipeline.New(pipeline.Config{
		Resources: m.resources, Scripts: m.p.Scripts, Assets: assets, Secrets: m.secrets.Env, Log: m.log, Now: m.p.Clock.Now,
		Queue: cfg.HandlerBuffer, Workers: cfg.HandlerWorkers,
		Entity: &monitor.Entity{Class: monitor.ClassBackend, Meta: monitor.Meta{Name: m.p.Cfg.Node.Name},
			System: monitor.System{Hostname: m.p.Cfg.Node.Name, OS: runtime.GOOS, Arch: runtime.GOARCH}},
		Took: func(d time.Duration) { duration.Observe(d); m.handled(d) },
	})
	m.pipes = pipes
	return err
}

// wants says whether anything waits for a result's event, and publish is given those that something waits for, once
// they are stored.
func (m *monitorPlane) wants(namespace string, kind *monitor.Kind, out monitor.Outcome) bool {
	return m.pipes.eventLog != nil || m.pipes.Wants(namespace, kind, out)
}

func (m *monitorPlane) publish(p *ingest.Published) {
	if m.pipes.eventLog != nil && p.Kind != nil {
		m.pipes.eventLog.Offer(p)
	}
	m.pipes.Publish(p)
}

// pipeParts are run before events are taken, and until the last one was.
func (m *monitorPlane) pipeParts() []life.Part {
	parts := []life.Part{{Name: "pipelines", Run: m.pipes.Run}}
	if m.pipes.eventLog != nil {
		parts = append(parts, life.Part{Name: "event log", Run: m.pipes.eventLog.Run})
	}
	return parts
}

// close removes what is to go with the process.
func (x *monitorPipes) close() {
	if x.temp != "" {
		_ = os.RemoveAll(x.temp)
	}
}

// meterPipes exports what pipelines count; it is called before each reading, since handlers come and go.
func (m *monitorPlane) meterPipes() {
	busy := 0
	for _, s := range m.pipes.Stats() {
		busy += s.Busy
		for result, n := range map[string]uint64{"queued": s.Queued, "done": s.Done, "failed": s.Failed,
			"filtered": s.Filtered, "merged": s.Merged, "shed": s.Shed} {
			m.metrics.Gauge("handler_events", "namespace", s.Namespace, "handler", s.Handler, "result", result).Set(float64(n))
		}
		m.metrics.Gauge("handler_waiting", "namespace", s.Namespace, "handler", s.Handler).Set(float64(s.Waiting))
		m.metrics.Gauge("handler_busy", "namespace", s.Namespace, "handler", s.Handler).Set(float64(s.Busy))
	}
	m.metrics.Gauge("event_handlers_busy").Set(float64(busy))
	scripts := m.p.Scripts.Stats()
	for result, n := range map[string]uint64{"run": scripts.Runs, "failed": scripts.Failed, "cut": scripts.Cut} {
		m.metrics.Gauge("scripts", "result", result).Set(float64(n))
	}
	if l := m.pipes.eventLog; l != nil {
		written, dropped := l.Counts()
		m.metrics.Gauge("event_log_lines", "result", "written").Set(float64(written))
		m.metrics.Gauge("event_log_lines", "result", "dropped").Set(float64(dropped))
	}
}

// tellHandlers tells the doctor about handlers and about PostgreSQL, in the registry of the process. One goroutine
// calls it.
func (m *monitorPlane) tellHandlers() {
	m.tellPostgres()
	m.tellUnreached()
	for _, s := range m.pipes.Stats() {
		name := s.Handler
		if s.Namespace != "default" {
			name = s.Namespace + "/" + s.Handler
		}
		m.p.Metrics.Gauge("pipeline.oldest_ms", "handler", name).Set(float64(s.Oldest) / float64(time.Millisecond))
		m.p.Metrics.Gauge("pipeline.queued", "handler", name).Set(float64(s.Waiting))
		merged := m.p.Metrics.Counter("pipeline.merged", "handler", name)
		if told := merged.Value(); s.Merged > told {
			merged.Add(s.Merged - told)
		}
	}
}

// declarePipes says what the figures of pipelines mean.
func (m *monitorPlane) declarePipes() {
	for name, help := range map[string]string{
		"handler_events": "Events by handler and what became of them: queued for it, done, failed, filtered, merged " +
			"with a newer one of their check, shed.",
		"handler_waiting":     "Events that wait for a handler.",
		"handler_busy":        "Workers of a handler that are at work.",
		"event_handlers_busy": "Workers of all handlers that are at work.",
		"scripts":             "JavaScript that was run, that threw something, and that was cut.",
		"event_log_lines":     "Events written to the event log, and dropped from it.",
	} {
		m.metrics.Declare(telemetry.KindGauge, name, help)
	}
	m.metrics.Declare(telemetry.KindTiming, "event_handler_duration",
		"How long mutating an event and handing it over took.")
}
