package pipeline

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"corbel.dev/corbel/kit/leaktest"
	"corbel.dev/corbel/kit/polltest"
	"corbel.dev/corbel/kit/tagproto"
	"corbel.dev/corbel/monitor"
	"corbel.dev/corbel/monitor/asset"
	"corbel.dev/corbel/monitor/ingest"
	"corbel.dev/corbel/monitor/ingest/ingesttest"
	"corbel.dev/corbel/monitor/objects"
	"corbel.dev/corbel/monitor/resources"
	"corbel.dev/corbel/monitor/script"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// world is pipelines behind a real intake: results go in as agents send them.
type world struct {
	*Pipelines
	t         testing.TB
	resources *resources.Resources
	intake    *ingest.Ingest
	dir       string // for what handlers write
	log       *logLines

	wanted atomic.Int64 // events that are to be published yet

	mu       sync.Mutex
	silences *monitor.Silences
	stopOnce sync.Once
	stop     func()
}

// through hands on to the pipelines of a world.
type through struct {
	ingest.Discard
	w *world
}

func (h through) Wants(namespace string, k *monitor.Kind, out monitor.Outcome) bool {
	wants := h.w.Wants(namespace, k, out)
	if wants {
		h.w.wanted.Add(1)
	}
	return wants
}

func (h through) Publish(p *ingest.Published) { h.w.Publish(p); h.w.wanted.Add(-1) }

func (h through) Silences(string) *monitor.Silences {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	return h.w.silences
}

// logLines keeps what was logged.
type logLines struct {
	mu  sync.Mutex
	all strings.Builder
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *logLines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.all.String(), text)
}

func start(t testing.TB, change func(*Config), list ...monitor.Object) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), log: &logLines{}}
	log := slog.New(slog.NewTextHandler(w.log, nil))
	w.resources = resources.New(log)
	w.put(&monitor.Namespace{Name: "default"})
	w.put(list...)
	assets, err := asset.New(asset.Config{Dir: filepath.Join(w.dir, "assets")})
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Resources: w.resources, Scripts: script.New(script.Config{}), Log: log, Assets: assets,
		Env:    []string{"PATH=" + os.Getenv("PATH"), "OUT=" + w.dir},
		Entity: &monitor.Entity{System: monitor.System{OS: "linux"}}}
	if change != nil {
		change(&cfg)
	}
	if w.Pipelines, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	w.intake, err = ingest.New(ingesttest.Config(log, through{w: w}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var both sync.WaitGroup
	both.Go(func() { _ = w.intake.Run(ctx) })
	both.Go(func() { _ = w.Run(ctx) })
	w.stop = func() { w.stopOnce.Do(func() { cancel(); both.Wait() }) }
	t.Cleanup(w.stop)
	return w
}

// put changes the configuration, as the group would.
func (w *world) put(list ...monitor.Object) {
	w.t.Helper()
	for _, o := range list {
		var typ string
		switch o.(type) {
		case *monitor.Namespace:
			typ = "namespaces"
		case *monitor.Handler:
			typ = "handlers"
		case *monitor.EventFilter:
			typ = "filters"
		case *monitor.TCPStreamHandler:
			typ = "tcp-stream-handlers"
		case *monitor.Mutator:
			typ = "mutators"
		case *monitor.Pipeline:
			typ = "pipelines"
		case *monitor.CheckConfig:
			typ = "checks"
		case *monitor.Asset:
			typ = "assets"
		}
		namespace, name := o.Key()
		op := objects.Op{Verb: objects.Put, Type: typ, Namespace: namespace, Name: name, Encoded: tagproto.Append(nil, o)}
		if out := w.resources.ApplyBatch([][]byte{objects.AppendCommand(nil, []objects.Op{op})}); out[0] != nil {
			w.t.Fatal(out[0])
		}
	}
}

// compiled waits until a change is in force.
func (w *world) compiledAfter(change func()) {
	w.t.Helper()
	before := w.Compiled()
	change()
	polltest.Until(w.t, func() bool { return w.Compiled() > before }, "the change to be compiled")
}

func meta(name string) monitor.Meta { return monitor.Meta{Name: name, Namespace: "default"} }

func pipe(name, command string, filters ...string) *monitor.Handler {
	return &monitor.Handler{Meta: meta(name), Type: "pipe", Command: command, Filters: filters}
}

// writes is a handler that appends what it gets to a file of its name, a line each.
func writes(name string, filters ...string) *monitor.Handler {
	return pipe(name, `printf '%s\n' "$(cat)" >> "$OUT/`+name+`"`, filters...)
}

func result(entity, check string, status uint32, handlers ...string) *monitor.Event {
	return &monitor.Event{
		Timestamp: 1700000000, ID: []byte("0123456789abcdef"),
		Entity: &monitor.Entity{Class: "agent", Meta: monitor.Meta{Name: entity, Namespace: "default",
			Labels: map[string]string{"region": "us", "password": "x"}}, Subscriptions: []string{"linux"}},
		Check: &monitor.Check{Meta: monitor.Meta{Name: check, Namespace: "default"}, Command: "true", Interval: 10,
			Handlers: handlers, Subscriptions: []string{"linux"},
			Issued: 1700000000, Executed: 1700000000, Status: status, Output: "the output"},
	}
}

func (w *world) send(e *monitor.Event) {
	w.t.Helper()
	if err := w.intake.Frame(context.Background(), "default", tagproto.Append(nil, e)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) of(handler string) HandlerStats {
	for _, s := range w.Stats() {
		if s.Handler == handler {
			return s
		}
	}
	return HandlerStats{}
}

// settled waits until everything sent was stored and handled.
func (w *world) settled() {
	w.t.Helper()
	polltest.Until(w.t, func() bool { return w.wanted.Load() == 0 }, "everything to be stored")
	polltest.Until(w.t, func() bool {
		for _, s := range w.Stats() {
			if s.Waiting+s.Busy > 0 {
				return false
			}
		}
		return true
	}, "everything to be handled: %+v", w.Stats())
}

// lines returns what a handler that writes wrote.
func (w *world) lines(handler string) []string {
	b, err := os.ReadFile(filepath.Join(w.dir, handler))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}
