package monitorplane

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"corbel.dev/corbel/kit/life"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/asset"
	"corbel.dev/corbel/monitor/fates"
	"corbel.dev/corbel/monitor/ingest"
	"corbel.dev/corbel/monitor/pipeline"
	"corbel.dev/corbel/monitor/script"
	"corbel.dev/corbel/monitor/secretresolver"
	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/telemetry"
)

// Pipes are the places that stored events go to.
type Pipes struct {
	*pipeline.Pipelines
	metrics  *telemetry.Registry // the plane's
	scripts  *script.Engine
	secrets  *secretresolver.Resolver // of what checks, handlers and mutators name
	eventLog *pipeline.EventLog       // nil where none is asked for
	fates    fates.Book               // what became of events here
	temp     string                   // the folder of assets, where it is to go with the process
}

// newPipes makes the pipelines. Nothing is handled before the plane runs.
func newPipes(m *Plane, spent *costs) (_ *Pipes, err error) {
	d, cfg := m.d, &m.d.Cfg.Monitor
	x := &Pipes{metrics: m.metrics, scripts: d.Scripts, secrets: secretresolver.New(secretresolver.Config{
		View: m.Group.Resources.View, Getenv: os.LookupEnv, Own: func() string { return secretsAddr(d) }, Now: d.Clock.Now})}
	dir := cfg.CacheDir
	switch {
	case dir != "":
	case d.Cfg.DataDir != "":
		dir = filepath.Join(d.Cfg.DataDir, "monitor", "assets")
	default:
		if dir, err = os.MkdirTemp("", "corbel-assets-*"); err != nil {
			return nil, err
		}
		x.temp = dir
	}
	assets, err := asset.New(asset.Config{Dir: dir, Log: d.Log, Scripts: d.Scripts, PerSecond: cfg.AssetsRate,
		Burst: cfg.AssetsBurst})
	if err != nil {
		return nil, err
	}
	if cfg.EventLog != "" {
		if x.eventLog, err = pipeline.NewEventLog(cfg.EventLog, cfg.EventLogBuffer, d.Log); err != nil {
			return nil, err
		}
	}
	duration := m.metrics.Timing("event_handler_duration")
	x.Pipelines, err = pipeline.New(pipeline.Config{
		Resources: m.Group.Resources, Scripts: d.Scripts, Assets: assets, Secrets: x.secrets.Env, Log: d.Log,
		Now: d.Clock.Now, Queue: cfg.HandlerBuffer, Workers: cfg.HandlerWorkers,
		Entity: &monitor.Entity{Class: monitor.ClassBackend, Meta: monitor.Meta{Name: d.Cfg.Node.Name},
			System: monitor.System{Hostname: d.Cfg.Node.Name, OS: runtime.GOOS, Arch: runtime.GOARCH}},
		Took:  func(took time.Duration) { duration.Observe(took); spent.handled(took) },
		Fates: &x.fates,
		Event: func(ctx context.Context, namespace, entity, check string) (*monitor.Event, error) {
			return m.Events.Router.Get(ctx, namespace, entity, check)
		},
	})
	openFates(d, &x.fates)
	return x, err
}

// secretsAddr is where the process's own secrets plane answers; "" where it has none.
func secretsAddr(d *plane.Doors) string {
	if own := plane.Find[interface{ APIAddr() string }](d.Planes); own != nil {
		return own.APIAddr()
	}
	return ""
}

// wants says whether anything waits for a result's event, and publish is given those that something waits for, once
// they are stored.
func (x *Pipes) wants(namespace string, kind *monitor.Kind, out monitor.Outcome) bool {
	return x.eventLog != nil || x.Wants(namespace, kind, out)
}

func (x *Pipes) publish(p *ingest.Published) {
	if x.eventLog != nil && p.Kind != nil {
		x.eventLog.Offer(p)
	}
	x.Publish(p)
}

// parts are run before events are taken, and until the last one was.
func (x *Pipes) parts() []life.Part {
	parts := []life.Part{{Name: "pipelines", Run: x.Run}}
	if x.eventLog != nil {
		parts = append(parts, life.Part{Name: "event log", Run: x.eventLog.Run})
	}
	return parts
}

// close forgets secrets, and removes what is to go with the process.
func (x *Pipes) close() {
	x.secrets.Close()
	if x.temp != "" {
		_ = os.RemoveAll(x.temp)
	}
}

// declare says what the figures of pipelines mean.
func (x *Pipes) declare() {
	for name, help := range map[string]string{
		"handler_events": "Events by handler and what became of them: queued for it, done, failed, filtered, merged " +
			"with a newer one of their check, shed.",
		"handler_waiting":     "Events that wait for a handler.",
		"handler_busy":        "Workers of a handler that are at work.",
		"event_handlers_busy": "Workers of all handlers that are at work.",
		"scripts":             "JavaScript that was run, that threw something, and that was cut.",
		"event_log_lines":     "Events written to the event log, and dropped from it.",
	} {
		x.metrics.Declare(telemetry.KindGauge, name, help)
	}
	x.metrics.Declare(telemetry.KindTiming, "event_handler_duration",
		"How long mutating an event and handing it over took.")
}

// meter exports what pipelines count; it is called before each reading, since handlers come and go.
func (x *Pipes) meter() {
	busy := 0
	for _, s := range x.Stats() {
		busy += s.Busy
		for result, n := range map[string]uint64{"queued": s.Queued, "done": s.Done, "failed": s.Failed,
			"filtered": s.Filtered, "merged": s.Merged, "shed": s.Shed} {
			x.metrics.Gauge("handler_events", "namespace", s.Namespace, "handler", s.Handler, "result", result).Set(float64(n))
		}
		x.metrics.Gauge("handler_waiting", "namespace", s.Namespace, "handler", s.Handler).Set(float64(s.Waiting))
		x.metrics.Gauge("handler_busy", "namespace", s.Namespace, "handler", s.Handler).Set(float64(s.Busy))
	}
	x.metrics.Gauge("event_handlers_busy").Set(float64(busy))
	scripts := x.scripts.Stats()
	for result, n := range map[string]uint64{"run": scripts.Runs, "failed": scripts.Failed, "cut": scripts.Cut} {
		x.metrics.Gauge("scripts", "result", result).Set(float64(n))
	}
	if l := x.eventLog; l != nil {
		written, dropped := l.Counts()
		x.metrics.Gauge("event_log_lines", "result", "written").Set(float64(written))
		x.metrics.Gauge("event_log_lines", "result", "dropped").Set(float64(dropped))
	}
}
